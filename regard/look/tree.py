"""Trees over words: distances in them, the spanning tree of distances, and how they are printed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Edge = tuple[int, int]
"""Two words, the first one first."""


def tree_depths(heads: Sequence[int]) -> Tensor:
    """Steps from each word up to the root (n,); heads are places of words, −1 for the root."""
    return torch.tensor([len(way_up(heads, word)) - 1 for word in range(len(heads))])


def tree_distances(heads: Sequence[int]) -> Tensor:
    """Edges between every two words (n, n)."""
    ways = [set(way_up(heads, word)) for word in range(len(heads))]
    return torch.tensor([[len(a ^ b) for b in ways] for a in ways]).view(len(heads), len(heads))


def way_up(heads: Sequence[int], word: int) -> list[int]:
    """A word and all words above it."""
    way = [word]
    while heads[way[-1]] >= 0:
        way.append(heads[way[-1]])
    return way


def tree_edges(heads: Sequence[int]) -> set[Edge]:
    """Words that are next to each other in the tree, whichever is the head."""
    return {(min(n, head), max(n, head)) for n, head in enumerate(heads) if head >= 0}


def spanning_tree(distances: Tensor, words: Sequence[int] | None = None) -> set[Edge]:
    """The tree of least length through the words (Prim 1957); of equal edges the first."""
    left = list(range(len(distances)) if words is None else words)
    table = distances.tolist()
    edges: set[Edge] = set()
    joined = left[:1]
    left = left[1:]
    while left:
        _, near, new = min((table[a][b], a, b) for a in joined for b in left)
        edges.add((min(near, new), max(near, new)))
        joined.append(new)
        left.remove(new)
    return edges


def rooted(edges: set[Edge], root: int, count: int) -> list[int]:
    """Heads of a tree that hangs from `root`; words outside it have −2."""
    heads = [-2] * count
    heads[root] = -1
    todo = [root]
    while todo:
        above = todo.pop()
        for a, b in edges:
            for near, new in ((a, b), (b, a)):
                if near == above and heads[new] == -2:
                    heads[new] = above
                    todo.append(new)
    return heads


def tree_lines(words: Sequence[str], heads: Sequence[int], marked: set[int] | None = None) -> str:
    """A tree for a terminal: one word a line under its head, `*` after marked ones."""
    lines: list[str] = []

    def write(word: int, before: str, branch: str, under: str) -> None:
        star = " *" if marked and word in marked else ""
        lines.append(f"{before}{branch}{words[word]}{star}")
        below = [n for n, head in enumerate(heads) if head == word]
        for n in below:
            last = n == below[-1]
            write(n, before + under, "└─ " if last else "├─ ", "   " if last else "│  ")

    for root in (n for n, head in enumerate(heads) if head == -1):
        write(root, "", "", "")
    return "\n".join(lines)


def beside(left: str, right: str, gap: int = 4) -> str:
    """Two blocks of text side by side."""
    one, other = left.split("\n"), right.split("\n")
    width = max(map(len, one)) + gap
    count = max(len(one), len(other))
    one, other = one + [""] * (count - len(one)), other + [""] * (count - len(other))
    return "\n".join(f"{a:{width}}{b}".rstrip() for a, b in zip(one, other, strict=True))
