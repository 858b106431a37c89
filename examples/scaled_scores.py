"""Why scores are divided by √D: the variance of q·k is D, and a softmax that is sure has no slope.

    python examples/scaled_scores.py

You will see both for random queries and keys of five widths, as they are and divided (Vaswani 2017,
section 3.2.1). A second on one core.
"""

from __future__ import annotations

import torch


def measure(scores: torch.Tensor) -> tuple[float, float]:
    """Variance of scores (N, keys), and the mean norm of the softmax's Jacobian there."""
    a = scores.softmax(-1)
    slope = a.diag_embed() - a[:, :, None] * a[:, None]
    return float(scores.var()), float(slope.flatten(1).norm(dim=1).mean())


def main() -> None:
    """Print a line for each width."""
    draw = torch.Generator().manual_seed(0)
    print("width  variance of q·k  of q·k / √D  slope  slope after / √D")
    for dim in (4, 16, 64, 256, 1024):
        q, k = torch.randn(2, 500, 32, dim, generator=draw)
        scores = (q[:, :1] * k).sum(-1)  # one query, 32 keys
        (variance, slope), (less, more) = measure(scores), measure(scores / dim**0.5)
        print(f"{dim:5}  {variance:15,.2f}  {less:11.2f}  {slope:5.3f}  {more:16.3f}")


if __name__ == "__main__":
    main()
