"""Graphs and sets: molecules, citations, anything of nodes and edges, through the one layer."""
