"""Next-token scores → sequences."""
