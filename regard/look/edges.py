"""Edges: which part of a model speaks to which, to first order (edge attribution patching).

What a head or MLP writes differs between two runs; what a later part does with it is the slope of
the goal at that part's own input. Their product is the edge's score (Syed 2023). Where attention is
sure of itself it has no slope: so slopes are averaged on the way from the corrupted embeddings to
the clean ones (Hanna 2024).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from regard.core.attention import Attention
from regard.core.block import Block
from regard.core.norm import RMSNorm
from regard.core.position import rotate
from regard.core.stack import Stack
from regard.errors import UsageError
from regard.look.edits import patch
from regard.look.hooks import Board
from regard.look.patching import Pairs, slopes_at, spread
from regard.look.sites import Site
from regard.model.batch import Batch


class Edge(NamedTuple):
    """From the output of one part to an input of a later one."""

    sender: Site
    """A head at `z`, an MLP at `out`, or the embedding."""
    receiver: Site
    """A head at `q`, `k` or `v`, an MLP at `out`, or the end of the stream."""
    score: float
    """Share of the difference that the corruption makes; 1 is all of it."""


class Part(NamedTuple):
    """One end of edges."""

    site: Site
    depth: int
    """Only parts of a smaller depth speak to it: 2 for each block, attention before MLP."""
    x: Tensor
    """(B, T, D): what it writes, or the slope at what it reads."""


def edge_scores(board: Board, pairs: Pairs, steps: int = 5) -> list[Edge]:
    """Every edge of a decoder or encoder, largest first; one step is the slope at clean prompts."""
    name, stack = only_stack(board)
    embed, last = f"{name}.embed", f"{name}.blocks.{len(stack.blocks) - 1}.resid_post"
    blocks = [f"{name}.blocks.{n}." for n in range(len(stack.blocks))]
    outputs = [embed, *(block + tap for block in blocks for tap in WRITTEN)]
    inputs = [*(block + tap for block in blocks for tap in READ), last]
    with torch.no_grad():
        logits, other = board.run(pairs.corrupt, outputs)
        corrupt = pairs.goal(logits, pairs.corrupt)
        logits, own = board.run(pairs.clean, outputs)
        gap = spread(pairs.goal(logits, pairs.clean), corrupt)
    change = {tap: other[tap] - own[tap] for tap in outputs}
    turns = rotation(board, stack, pairs.clean)
    receivers: dict[Site, Part] = {}
    for step in range(steps):
        far = 0.0 if steps == 1 else (step + 0.5) / steps  # from clean to corrupted
        edits = {embed: patch(own[embed] + far * change[embed])}
        _, seen, slopes = slopes_at(board, pairs.clean, pairs.goal, inputs, edits)
        for part in read(name, stack, seen, slopes, turns):
            before = receivers.get(part.site)
            x = part.x / steps if before is None else before.x + part.x / steps
            receivers[part.site] = part._replace(x=x)
    senders = list(written(name, stack, change))
    found = [
        Edge(sender.site, receiver.site, float((sender.x * receiver.x).sum() / -gap / len(corrupt)))
        for receiver in receivers.values()
        for sender in senders
        if sender.depth < receiver.depth
    ]
    return sorted(found, key=lambda edge: -abs(edge.score))


WRITTEN = ("attn.z", "mlp.out")
READ = ("resid_pre", "resid_mid", "attn.q", "attn.k", "attn.v")


def only_stack(board: Board) -> tuple[str, Stack]:
    """The one stack of a model with its name; edges of two are not scored."""
    model = board.model
    stack = model.decoder if model.encoder is None else model.encoder
    if not isinstance(stack, Stack) or (model.encoder is not None and model.decoder is not None):
        raise UsageError("scoring edges", "a model that is no single stack", "a decoder or encoder")
    if stack.config.block.norm_at != "pre":
        raise UsageError("scoring edges", "norms after the sums", "a model with pre-norm blocks")
    return ("decoder" if model.encoder is None else "encoder"), stack


def rotation(board: Board, stack: Stack, batch: Batch) -> tuple[Tensor, Tensor] | None:
    """What rotary positions turn queries and keys by."""
    if stack.rotary is None:
        return None
    given = board.model.embed(board.model.reader, batch.ids, batch.mask, batch.documents)
    return cast("tuple[Tensor, Tensor]", stack.rotary(given.positions, given.x))


def written(name: str, stack: Stack, change: dict[str, Tensor]) -> Iterator[Part]:
    """What the embedding, each head and each MLP write, as the difference of the two runs."""
    yield Part(Site(f"{name}.embed"), -1, change[f"{name}.embed"])
    for n, block in enumerate(stack.blocks):
        attn = cast(Block, block).attn
        tap = f"{name}.blocks.{n}.attn.z"
        for head, part in enumerate(per_head(attn.o, attn.heads)):  # (D, K)
            yield Part(Site(tap, head), 2 * n, change[tap][:, :, head] @ part.detach().T)
        tap = f"{name}.blocks.{n}.mlp.out"
        yield Part(Site(tap), 2 * n + 1, change[tap])


def per_head(linear: nn.Linear, heads: int) -> list[Tensor]:
    """The columns of an output projection that belong to each head, each (D, K)."""
    return list(linear.weight.split(linear.in_features // heads, 1))


def read(
    name: str,
    stack: Stack,
    own: dict[str, Tensor],
    slopes: dict[str, Tensor],
    turns: tuple[Tensor, Tensor] | None,
) -> Iterator[Part]:
    """The slope of the goal at what each head's q, k and v, each MLP and the output head read."""
    for n, module in enumerate(stack.blocks):
        block, at = cast(Block, module), f"{name}.blocks.{n}"
        for kind in ("q", "k", "v"):
            tap = f"{at}.attn.{kind}"
            found = pull_back(block.attn, kind, own[f"{at}.resid_pre"], slopes[tap], turns)
            for head in range(found.shape[2]):
                yield Part(Site(tap, head), 2 * n, found[:, :, head])
        through = slopes[f"{at}.resid_mid"] - slopes[after(name, stack, n)]  # not by the shortcut
        yield Part(Site(f"{at}.mlp.out"), 2 * n + 1, through)
    last = f"{name}.blocks.{len(stack.blocks) - 1}.resid_post"
    yield Part(Site(last), 2 * len(stack.blocks), slopes[last])


def after(name: str, stack: Stack, block: int) -> str:
    """The tap on the stream behind a block."""
    if block + 1 < len(stack.blocks):
        return f"{name}.blocks.{block + 1}.resid_pre"
    return f"{name}.blocks.{block}.resid_post"


def pull_back(
    attn: Attention, kind: str, x: Tensor, slope: Tensor, turns: tuple[Tensor, Tensor] | None
) -> Tensor:
    """A slope at q, k or v (B, T, H, K) as slopes at the stream of each head's own (B, T, H, D)."""
    linear: nn.Linear = getattr(attn, kind)
    norm: RMSNorm | None = {"q": attn.q_norm, "k": attn.k_norm}.get(kind)
    heads = slope.shape[2]
    with torch.enable_grad():
        each = x.unsqueeze(2).expand(-1, -1, heads, -1).detach().requires_grad_()
        weight = linear.weight.unflatten(0, (heads, -1))  # (H, K, D)
        made = torch.einsum("bthd,hkd->bthk", attn.norm(each), weight)
        if linear.bias is not None:
            made = made + linear.bias.unflatten(0, (heads, -1))
        made = made if norm is None else norm(made)
        if turns is not None and kind != "v":
            made = rotate(made, turns)
        (found,) = torch.autograd.grad(made, each, slope)
    return found
