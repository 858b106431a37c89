"""Pictures: files to pixels, augmentation, and runs that learn their classes."""
