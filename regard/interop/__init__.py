"""Checkpoints of others, in and out: families as tables, files as sources."""
