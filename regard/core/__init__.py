"""The tensor core: one Transformer layer and what it is made of (torch only).

Shape letters used at line ends everywhere in the package:
    B batch   T target (query) length   S source (key) length   D dim
    H heads   G key-value heads         K head_dim              V vocab
"""
