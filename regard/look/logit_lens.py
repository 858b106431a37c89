"""The logit lens (nostalgebraist 2020), and who wrote a logit (Elhage 2021).

The logit lens sends the stream after each block through the final norm and the output head. Direct
attribution takes a logit apart: with the final norm's scale held at its actual value the logit is
linear in the stream, and the stream is a sum of what embedding, heads, MLPs and biases wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from regard.core.attention import Attention
from regard.core.block import Block
from regard.core.norm import RMSNorm
from regard.core.stack import Stack
from regard.errors import UsageError
from regard.look.attention_patterns import find_attention
from regard.look.attribution import pose_question
from regard.look.hooks import HookedModel
from regard.look.patching import Goal, goal_columns, last_stack, last_stream, stream_taps
from regard.look.results import Contribution, Lens, LensLayer, LensToken, StreamPart
from regard.model.batch import Batch
from regard.model.model import Model

if TYPE_CHECKING:
    from regard.kit import Kit

LOOKING = "looking through the logit lens"
APART = "taking a logit apart"


@dataclass(frozen=True)
class DirectAttribution:
    """A goal as a sum over the parts that wrote into the stream."""

    parts: list[StreamPart]
    values: Tensor
    """(parts, B)"""
    goal: Tensor
    """(B,): what the model itself gave."""

    @property
    def error(self) -> Tensor:
        """Sum of the parts less the goal (B,)."""
        return self.values.sum(0) - self.goal


# The stream at each layer -----------------------------------------------------------------------


@torch.no_grad()
def lens_scores(hooked: HookedModel, batch: Batch, columns: Tensor | None = None) -> Tensor:
    """Scores (L + 1, B, C, V) after the embedding and after each block, at columns (B, C) or all.

    Of a head that takes one position, a classifier's, (L + 1, B, classes), without columns.
    """
    model = hooked.model
    name, stack = last_stack(model, LOOKING)
    whole = model.head.config.take != "all"
    taps = stream_taps(name, stack)
    _, seen = hooked.run(batch, taps)
    scores = []
    for tap in taps:
        x = seen[tap] if columns is None else take_columns(seen[tap], columns)
        scores.append(model.head(stack.norm(x), batch.mask if whole else None))
    return torch.stack(scores)


def take_columns(x: Tensor, columns: Tensor) -> Tensor:
    """Columns (B, C) of x (B, T, D)."""
    return x[torch.arange(len(x), device=x.device)[:, None], columns.to(x.device)]


def follow_token(scores: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
    """Probability and rank, 1 the likeliest, of a token (…) by layer; scores (L + 1, …, V)."""
    index = token.to(scores.device).expand(scores.shape[:-1])[..., None]
    rank = 1 + (scores > scores.gather(-1, index)).sum(-1)
    return scores.softmax(-1).gather(-1, index)[..., 0], rank


def read_lens(
    kit: Kit, name: str, text: str, target: str | None, against: str | None, neurons: bool, top: int
) -> Lens:
    """Follow one token, the target or else the likeliest, through the layers of a model."""
    last_stack(kit.model, LOOKING)  # says so where there is none
    source, _, begun = text.partition("\t" if kit.model.target is not None else "\0")
    asked = pose_question(kit, source, target, against, LOOKING, begun)
    batch, goal = asked.batch, asked.goal
    column = goal_columns(kit.model, batch, goal)[:, None]
    whole = kit.model.head.config.take != "all"
    every = lens_scores(kit.hooked, batch, None if whole else column).float()
    scores = every.flatten(0, -2)[:, : None if whole else kit.text_tokenizer.size]  # (L + 1, V)
    probability, rank = follow_token(scores, goal.good[0])
    best = scores.softmax(-1).max(-1)

    columns = (x.tolist() for x in (best.indices, best.values, probability, rank))
    layers = [
        LensLayer("embedding" if n == 0 else f"block {n - 1}", asked.spell(id), *figures)
        for n, (id, *figures) in enumerate(zip(*columns, strict=True))
    ]
    mine, rival = (
        None if id is None else LensToken(int(id), asked.spell(int(id)))
        for id in (goal.good, goal.bad)
    )
    assert mine is not None
    lens = Lens(name, text, mine, rival, layers, None, top=top)
    try:
        sum_of = direct_attribution(kit.hooked, batch, goal, neurons)
    except UsageError as reason:
        return replace(lens, why=reason.found)
    values = zip(sum_of.parts, sum_of.values[:, 0].tolist(), strict=True)
    contributions = [Contribution(**vars(part), value=value) for part, value in values]
    logit, error = float(sum_of.goal[0]), float(sum_of.error[0])
    return replace(lens, contributions=contributions, goal=logit, error=error)


# Heads and what they write ----------------------------------------------------------------------


def find_output_attention(hooked: HookedModel, layer: int | str) -> Attention:
    """An attention that writes into the stream by an output map."""
    name, attention = find_attention(hooked, layer)
    if isinstance(attention, Attention):
        return attention
    problem = f"{name}, whose values are its keys and which has no output map"
    raise UsageError("looking at heads", problem, "attention of a Transformer block")


def output_weights(attention: Attention) -> Tensor:
    """The output map by heads (D, H, K)."""
    if attention.o.weight.numel() == 0:
        problem, fix = "weights that were dropped after packing", "open the model in fp32"
        raise UsageError("looking at heads", problem, "the weights of the output map", fix)
    return cast(Tensor, attention.o.weight.unflatten(1, (attention.heads, attention.width)))


def head_outputs(hooked: HookedModel, z: Tensor, layer: int | str) -> Tensor:
    """What each head adds to the stream (B, T, H, D) of z (B, T, H, K); the bias is not in it."""
    with torch.set_grad_enabled(z.requires_grad):
        weights = output_weights(find_output_attention(hooked, layer)).to(z.dtype)
        return torch.einsum("bthk,dhk->bthd", z, weights)


def written_norms(attention: Attention, x: Tensor) -> Tensor:
    """Length of x W_O for each head, x (B, T, H, K) → (B, H, T), without making x W_O itself."""
    weights = output_weights(attention).to(x.dtype)
    gram = torch.einsum("dhk,dhj->hkj", weights, weights)
    square = (torch.einsum("bthk,hkj->bthj", x, gram) * x).sum(-1)
    return square.clamp(min=0).sqrt().transpose(1, 2)


def value_norms(attention: Attention, v: Tensor) -> Tensor:
    """‖v W_O‖ of each head and key (Kobayashi 2020): (B, H, S) of v (B, S, G, K).

    Attention to a key whose value is next to nothing counts for next to nothing.
    """
    return written_norms(attention, attention.per_head(v.transpose(1, 2)).transpose(1, 2))


@torch.no_grad()
def copy_score(
    hooked: HookedModel, layer: int | str, head: int, batch: Batch, top: int = 5
) -> float:
    """How often a head's output for a token favours that very token (Wang 2022, section 3.1).

    The stream after the first block goes through the head's values and output map, the final norm
    and the output head, as if the head looked at nothing but that token; counted is how often the
    token is among the `top` best.
    """
    name, stack = last_stack(hooked.model, "scoring copies")
    attention = find_output_attention(hooked, layer)
    if stack.config.block.norm_at == "post" or attention.cross or hooked.model.head.dense:
        problem = "cross-attention, a post-norm model or a transforming output head"
        raise UsageError("scoring copies", problem, "self-attention of a pre-norm language model")
    _, seen = hooked.run(batch, f"{name}.blocks.0.resid_post")
    (x,) = seen.values()
    v = attention.v(attention.norm(x)).unflatten(-1, (attention.groups, attention.width))
    mine = v[:, :, head * attention.groups // attention.heads]  # (B, T, K)
    scores = hooked.model.head(stack.norm(mine @ output_weights(attention)[:, head].T))
    hit = (scores.topk(min(top, scores.shape[-1])).indices == batch.ids[..., None]).any(-1)
    return float((hit if batch.mask is None else hit[batch.mask]).float().mean())


# Direct attribution -----------------------------------------------------------------------------


@torch.no_grad()
def direct_attribution(
    hooked: HookedModel, batch: Batch, goal: Goal, neurons: bool = False
) -> DirectAttribution:
    """The goal's logit, or difference of two, as what each part wrote towards it.

    An MLP is one part, or, by `neurons`, each of its neurons and its bias.
    """
    name, stack = check_linear(hooked.model, goal)
    last, thought = last_stream(hooked), "post" if neurons else "out"
    written = [f"{name}.embed", f"{name}.blocks.*.attn.z", f"{name}.blocks.*.mlp.{thought}"]
    written += [f"{name}.blocks.*.cross.z"] if stack.config.block.cross else []
    logits, seen = hooked.run(batch, [*written, last])
    at, toward, constants = direction(hooked.model, stack.norm, seen[last], batch, goal)
    here = {tap: take_columns(x, at[:, None]) for tap, x in seen.items()}  # (B, 1, …)
    parts, values = list[StreamPart](), list[Tensor]()
    for several, x in stream_parts(hooked, here, neurons):
        parts += several
        values.append(torch.einsum("btnd,bd->nb", x, toward))
    for what, constant in constants.items():
        parts.append(StreamPart("bias", what, None, None, f"bias of the {what}"))
        values.append(constant[None])
    return DirectAttribution(parts, torch.cat(values), goal(logits, batch))


def stream_parts(
    hooked: HookedModel, seen: Mapping[str, Tensor], neurons: bool = False
) -> Iterator[tuple[list[StreamPart], Tensor]]:
    """What wrote the stream of the last stack: N parts, and what each wrote (B, T, N, D).

    In a pre-norm model all of them sum to the stream's end. An MLP is one part, or, by `neurons`,
    each of its neurons and its bias. Reads `embed`, `*.z`, and `*.mlp.out` or `*.mlp.post`.
    """
    name, stack = last_stack(hooked.model, APART)
    begun = seen[f"{name}.embed"][:, :, None]
    yield [StreamPart("embed", f"{name}.embed", None, None, "embedding")], begun
    for n, block in enumerate(stack_blocks(stack)):
        cross = {} if block.cross is None else {"cross": block.cross.o}
        maps = {"attn": block.attn.o} | cross | {"mlp": block.mlp.down}  # last map of each part
        for place, linear in maps.items():
            layer = f"{name}.blocks.{n}.{place}"
            if place == "mlp" and not neurons:
                thought = seen[f"{layer}.out"][:, :, None]
                yield [StreamPart("mlp", layer, n, None, f"block {n} MLP")], thought
                continue
            if place == "mlp":
                what, x = "neuron", seen[f"{layer}.post"][..., None] * linear.weight.detach().T
            else:
                what = "head" if place == "attn" else "cross head"
                x = head_outputs(hooked, seen[f"{layer}.z"], layer)
            named = [(m, f"block {n} {what} {m}") for m in range(x.shape[2])]
            yield [StreamPart(what.split()[0], layer, n, *each) for each in named], x
            if linear.bias is not None:
                bias = StreamPart("bias", layer, n, None, f"block {n} bias of {place}")
                yield [bias], linear.bias.detach().expand_as(begun)


def stack_blocks(stack: Stack) -> list[Block]:
    """The blocks of a stack."""
    return [block for block in stack.blocks if isinstance(block, Block)]


def check_linear(model: Model, goal: Goal) -> tuple[str, Stack]:
    """The stack whose stream the goal is linear in; says why where there is none."""
    name, stack = last_stack(model, APART)
    problem = ""
    if stack.config.block.norm_at == "post":
        problem = "a post-norm model: each norm rescales all that was written before it"
    elif model.head.dense is not None:
        problem = "an output head with a non-linear layer of its own"
    elif model.head.out is None:
        problem = "a model without scores"
    elif not all(block.residual for block in stack_blocks(stack)):
        problem = "a block without its shortcut"
    if problem:
        raise UsageError(APART, problem, "a pre-norm Transformer whose head is one linear map")
    if goal.kind == "logprob" and goal.bad is None:
        problem, fix = "a log-probability, which is no sum", "a logit, or against another token"
        raise UsageError(APART, problem, "a logit or a difference", fix)
    return name, stack


def direction(
    model: Model, norm: nn.Module, x: Tensor, batch: Batch, goal: Goal
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """The goal as a linear function of one column of the last stream x (B, T, D).

    The column (B,), `along` (B, D) and constants by name (B,): goal = along · stream + constants,
    where the norm's scale is held as it is.
    """
    out, scale = model.head.out, model.head.config.scale or 1.0
    assert out is not None
    at = goal_columns(model, batch, goal).to(x.device)
    toward = scale * difference(out.weight, goal)  # (B, D)
    along, constants = through_norm(norm, take_columns(x, at[:, None])[:, 0], toward)
    if out.bias is not None:
        constants["output head"] = difference(out.bias[:, None], goal)[:, 0]
    return at, along, constants


def difference(table: Tensor, goal: Goal) -> Tensor:
    """Rows (B, …) of the good tokens less those of the bad ones."""
    good = table[goal.good.to(table.device)]
    return good if goal.bad is None else good - table[goal.bad.to(table.device)]


def through_norm(norm: nn.Module, x: Tensor, toward: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """norm(x) · toward = x · along + constants, with the scale of x held fixed; all (B, D)."""
    if isinstance(norm, nn.LayerNorm):
        weighed = toward * norm.weight
        scale = torch.rsqrt(x.var(-1, unbiased=False, keepdim=True) + norm.eps)
        centred = weighed - weighed.mean(-1, keepdim=True)  # centring is its own transpose
        return scale * centred, {"final norm": toward @ norm.bias}
    if isinstance(norm, RMSNorm):
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + norm.eps)
        return scale * toward * norm.weight, {}
    return toward, {}
