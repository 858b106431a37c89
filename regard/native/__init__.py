"""Kernels of our own in C and Triton, their build and what calls them from Python."""
