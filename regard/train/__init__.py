"""One training loop for every objective."""
