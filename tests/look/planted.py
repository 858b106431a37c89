"""A model whose mechanism is known because its weights were set by hand."""

from __future__ import annotations

import torch

from regard.core.config import BlockConfig, StackConfig
from regard.model.config import HeadConfig, ModelConfig, TextConfig
from regard.model.model import Model

SHARP = 20.0  # score of a match; others score 0
SURE = 10.0  # logit of the token that an induction head found


def planted_induction(
    vocab: int = 24,
    length: int = 48,
    heads: int = 4,
    previous: int = 1,
    induction: int = 2,
    idle: float = 0.02,
    seed: int = 0,
) -> Model:
    """Two blocks that continue a repeated sequence: … a b … a → b (Elhage 2021; Olsson 2022).

    Head `previous` of block 0 looks at the token before and writes it into a space of its own; head
    `induction` of block 1 looks for the place whose previous token is the present one, and writes
    the token there into the space that the output head reads. The other heads are idle: they draw
    random queries, keys and values, and write noise of spread `idle` (0: nothing) that a search
    should reject. The MLPs write zero, there are no norms, everything is float32.

    The stream is four spaces of one-hot vectors: token (vocab), position (length), previous token
    (vocab), answer (vocab). Without an earlier match the induction head looks evenly at all but
    the first position; at the first one the previous-token head can only look at itself.
    """
    dim, width = 3 * vocab + length, max(length, vocab + 1)
    block = BlockConfig(
        dim, heads, hidden=4, head_dim=width, causal=True, norm="none", bias=("q",), scale=1.0
    )
    front = TextConfig(dim, vocab, position="learned", length=length)
    stack = StackConfig(block, 2, final_norm=False)
    model = Model(ModelConfig(front, HeadConfig(vocab), decoder=stack)).eval()
    token = slice(0, vocab)
    place = slice(vocab, vocab + length)
    before = slice(vocab + length, 2 * vocab + length)
    answer = slice(2 * vocab + length, dim)
    with torch.no_grad():
        draw_idle(model, idle, seed)
        model.front.tokens.weight.zero_()[:, token] = torch.eye(vocab)
        model.front.positions.weight.zero_()[:, place] = torch.eye(length)
        model.head.out.weight.zero_()[:, answer] = SURE * torch.eye(vocab)
        first, second = (b.attn for b in model.decoder.blocks)
        q, k, v, o = clear_head(first, previous)
        q[:length, place] = SHARP * torch.eye(length)
        k[1:length, place.start : place.stop - 1] = torch.eye(length - 1)  # key j matches j + 1
        v[:vocab, token] = torch.eye(vocab)
        o[before, :vocab] = torch.eye(vocab)
        q, k, v, o = clear_head(second, induction)
        q[:vocab, token] = SHARP * torch.eye(vocab)
        k[:vocab, before] = torch.eye(vocab)
        second.q.bias[induction * width + vocab] = SHARP  # every query …
        k[vocab, place.start] = -2.0  # … turns away from the first key
        v[:vocab, token] = torch.eye(vocab)
        o[answer, :vocab] = torch.eye(vocab)
    return model


def draw_idle(model: Model, spread: float, seed: int) -> None:
    """Random heads that write noise of a spread, and MLPs that write nothing."""
    generator = torch.Generator().manual_seed(seed)
    for block in model.decoder.blocks:
        for linear in (block.attn.q, block.attn.k, block.attn.v):
            linear.weight.normal_(0.0, 1.0, generator=generator)
        block.attn.q.bias.zero_()
        block.attn.o.weight.normal_(0.0, spread * block.attn.width**-0.5, generator=generator)
        block.mlp.down.weight.zero_()


def clear_head(attention, head):
    """The parts of q, k, v (K, D) and o (D, K) that belong to one head, all zero."""
    span = slice(head * attention.width, (head + 1) * attention.width)
    parts = [linear.weight[span] for linear in (attention.q, attention.k, attention.v)]
    parts.append(attention.o.weight[:, span])
    for part in parts:
        part.zero_()
    return parts


def forget_induction(model: Model, head: int = 2) -> Model:
    """The same model after its induction head has lost its queries, as a bad fine-tune may do."""
    with torch.no_grad():
        clear_head(model.decoder.blocks[1].attn, head)[0].zero_()
    return model
