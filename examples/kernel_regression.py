"""Attention as kernel regression (Nadaraya and Watson 1964) and as a soft look-up.

You will see a value predicted between three points, the same with other kernels, and titles found
by a query that no title matches exactly.
"""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor

import regard

TITLES = (
    "Speech and Language Processing, Jurafsky and Martin",
    "Foundations of Statistical Natural Language Processing, Manning and Schütze",
    "Deep Learning: Foundations and Concepts, Bishop and Bishop",
    "The Art of Computer Programming, Knuth",
    "Elements of Information Theory, Cover and Thomas",
)


def regression() -> None:
    """Three points, asked at 4.21."""
    x, y = torch.tensor([1.36, 3.40, 6.05]), torch.tensor([1.79, -1.77, -2.17])
    for kind in ("distance", "gaussian"):
        guess, weights = regard.kernel_regression(x, y, 4.21, kind)
        shown = " ".join(f"{w:.4f}" for w in weights.flatten().tolist())
        print(f"{kind:9s} weights {shown}  prediction {guess:.5f}")
    for bandwidth in (0.05, 0.5, 50.0):
        guess, _ = regard.kernel_regression(x / bandwidth, y, 4.21 / bandwidth, "gaussian")
        print(f"gaussian of bandwidth {bandwidth:5.2f}: {guess:.4f}")
    print(f"nearest neighbour {y[1]:.4f}, mean of y {y.mean():.4f}: the two limits")


def letters(text: str, known: dict[str, int]) -> Tensor:
    """Counts of letter triples, scaled to length one."""
    padded = f"  {text.lower()} "
    counts = Counter(padded[i : i + 3] for i in range(len(padded) - 2))
    vector = torch.zeros(len(known))
    for triple, count in counts.items():
        if triple in known:
            vector[known[triple]] = count
    return torch.nn.functional.normalize(vector, dim=0)


def lookup(query: str) -> None:
    """Keys are the letters of the titles, values the titles themselves."""
    triples = {t[i : i + 3] for t in (f"  {t.lower()} " for t in TITLES) for i in range(len(t) - 2)}
    known = {triple: n for n, triple in enumerate(sorted(triples))}
    keys = torch.stack([letters(title, known) for title in TITLES])
    _, weights = regard.attend(letters(query, known)[None], keys, keys, scale=8.0)
    print(f"\n{query!r} looks up")
    for weight, title in sorted(zip(weights[0].tolist(), TITLES, strict=True), reverse=True):
        print(f"  {weight:6.1%}  {title}")


def main() -> None:
    """Regression, then look-up."""
    regression()
    lookup("jurafsky martin")
    lookup("informatoin theory")


if __name__ == "__main__":
    main()
