"""From a covariance to attention in six steps, and why the scores are divided by sqrt(d).

You will see each step as a small table: interaction, projection, softmax, scale, learned
projections, heads; then the variance of q · k and the gradient through softmax, with and without
the scale (Vaswani 2017, section 3.2.1).
"""

from __future__ import annotations

import torch
from torch import Tensor

import regard


def table(title: str, x: Tensor) -> None:
    """Print a small matrix."""
    print(f"{title}  {tuple(x.shape)}")
    for row in x.tolist():
        print("   " + "  ".join(f"{value:6.2f}" for value in row))


def ladder() -> None:
    """Each step is a limiting case of the next."""
    draw = torch.Generator().manual_seed(1)
    z = torch.randn(4, 3, generator=draw)  # four things known, three numbers each
    u = torch.randn(2, 3, generator=draw)  # two things asked
    table("1  interaction U Zᵀ: who resembles whom; entries may be negative", u @ z.T)
    table("2  projection U Zᵀ Z: linear, not normalised", u @ z.T @ z)
    weights = (u @ z.T).softmax(-1)
    table("3  softmax: positive weights that sum to one", weights)
    table("   softmax(U Zᵀ) Z: each row inside the hull of Z", regard.attention(u, z))
    assert torch.allclose(regard.attention(u, z), weights @ z)
    table("4  scaled by 1 / sqrt(3): softer", regard.attend(u, z, z)[1])
    w_q, w_k, w_v = (torch.randn(3, 2, generator=draw) for _ in range(3))
    table("5  learned projections, each D × d", regard.attend(u @ w_q, z @ w_k, z @ w_v)[0])
    heads = [
        regard.attend(u @ w_q[:, h : h + 1], z @ w_k[:, h : h + 1], z @ w_v)[0] for h in (0, 1)
    ]
    table("6  two heads beside each other", torch.cat(heads, -1))


def why_scale() -> None:
    """Var(q · k) = d, and large scores leave softmax no gradient."""
    print("\n   d   var(q·k)   var scaled   gradient   gradient scaled")
    draw = torch.Generator().manual_seed(2)
    for d in (4, 16, 64, 256):
        q, k = torch.randn(2000, d, generator=draw), torch.randn(2000, d, generator=draw)
        scores = (q * k).sum(-1)
        raw, scaled = (gradient(q[:64] @ k[:64].T * s) for s in (1.0, d**-0.5))
        fit = (scores / d**0.5).var().item()
        print(f"{d:4d}   {scores.var():8.1f}   {fit:10.2f}   {raw:8.4f}   {scaled:15.4f}")


def gradient(scores: Tensor) -> float:
    """Mean size of the softmax Jacobian diag(a) − a aᵀ over the rows."""
    a = scores.softmax(-1)
    jacobian = torch.diag_embed(a) - a[:, :, None] * a[:, None, :]
    return float(jacobian.flatten(1).norm(dim=-1).mean())


def main() -> None:
    """The ladder, the worked example, the scale."""
    ladder()
    a = torch.tensor([[0.6, 0.1, 0.3], [0.3, 0.5, 0.2], [0.2, 0.1, 0.7]])
    v = torch.tensor([[2.0, 1.0], [-0.5, 2.0], [-1.0, -0.5]])
    table("\nA worked example, A · V", a @ v)
    why_scale()


if __name__ == "__main__":
    main()
