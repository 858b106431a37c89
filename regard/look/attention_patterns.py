"""Attention weights rebuilt from captured queries and keys, so that attention itself stays fused.

Who listens to a `pattern` tap makes attention take its explicit path. Reading needs no such thing:
`q` and `k` of a run, and what its queries may see, give the same rows afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from regard.core.attention import Attention, View
from regard.core.stack import Stack, cross_view
from regard.errors import UsageError, check_known
from regard.look.edits import check_index, read_indices
from regard.look.hooks import HookedModel
from regard.look.tap_names import find_taps
from regard.model.batch import Batch
from regard.model.model import Model
from regard.nvib.denoising import Denoising


def attention_names(hooked: HookedModel) -> list[str]:
    """Paths of all attentions, such as decoder.blocks.0.attn, in the model's order."""
    names = [n.removesuffix(".pattern") for n in hooked.taps if n.endswith(".pattern")]
    if not names:
        raise UsageError(
            "looking at attention",
            f"a {type(hooked.model).__name__} model without attention",
            "a Transformer, or a recurrent encoder-decoder with additive attention",
            "`regard look explain`, `patch --over stream`, `probe` and `extract` look into it",
        )
    return names


def find_attention(hooked: HookedModel, layer: int | str) -> tuple[str, nn.Module]:
    """The attention at a path, or the self-attention of a block of the last stack."""
    if isinstance(layer, int):
        stack = "encoder" if hooked.model.decoder is None else "decoder"
        layer = f"{stack}.blocks.{layer}.attn"
    (name,) = find_taps(f"{layer}.pattern", [f"{n}.pattern" for n in attention_names(hooked)])
    path = name.removesuffix(".pattern")
    return path, hooked.model.get_submodule(path)


def pattern_taps(hooked: HookedModel, name: str) -> list[str]:
    """What must be captured to have the pattern of an attention; some give it as it is."""
    part = hooked.model.get_submodule(name)
    dot = isinstance(part, Attention) and not isinstance(part, Denoising)
    return [f"{name}.q", f"{name}.k"] if dot else [f"{name}.pattern"]


def view_of(model: Model, name: str, batch: Batch) -> View:
    """What the queries of the attention at a path see in a run of `batch`."""
    if name.startswith("encoder."):
        own = model.embed(model.front, batch.source)
        assert isinstance(model.encoder, Stack)
        return model.encoder.view(own.x, own.positions, own.real, own.document)
    own = model.embed(model.reader, batch.written)
    if name.endswith(".cross"):
        memory = model.embed(model.front, batch.source)
        both = own.document is not None and memory.document is not None
        return cross_view(memory.real, (own.document, memory.document) if both else None)  # type: ignore[arg-type]
    assert isinstance(model.decoder, Stack)
    return model.decoder.view(own.x, own.positions, own.real, own.document)


def rebuild_pattern(
    hooked: HookedModel,
    name: str,
    seen: Mapping[str, Tensor],
    batch: Batch,
    views: dict[str, View] | None = None,
) -> Tensor:
    """Attention weights (B, H, T, S) of an attention whose `pattern_taps` were captured.

    `views` remembers what queries see, which is the same in each block of a stack.
    """
    if f"{name}.pattern" in seen:
        return seen[f"{name}.pattern"]
    q, k = seen[f"{name}.q"], seen[f"{name}.k"]  # (B, T, H, K), (B, S, G, K)
    attention, views = hooked.model.get_submodule(name), {} if views is None else views
    assert isinstance(attention, Attention)
    kind = ".".join((name.split(".")[0], name.rpartition(".")[2]))  # of a stack, own or other
    with torch.no_grad():
        if kind not in views:
            views[kind] = view_of(hooked.model, name, batch)
    return attention.pattern(q.transpose(1, 2), k.transpose(1, 2), views[kind])


def patterns(hooked: HookedModel, batch: Batch) -> dict[str, Tensor]:
    """Attention weights (B, H, T, S) of each attention by its path, from one fused run."""
    names = attention_names(hooked)
    _, seen = hooked.run(batch, [tap for name in names for tap in pattern_taps(hooked, name)])
    views: dict[str, View] = {}
    return {name: rebuild_pattern(hooked, name, seen, batch, views) for name in names}


def head_matrices(hooked: HookedModel, name: str, head: Any = None) -> Tensor:
    """Weights of heads by name, such as blocks.5.attn.ov: (H, …), or those of chosen heads.

    q, k and v are (D, K), o is (K, D), for vectors x (D,) from the left. qk (D, D) = q kᵀ gives
    x qk yᵀ, what a query of x finds in y but for scale, biases and rotary positions; ov (D, D) is
    v o, what a head writes of what it looks at. The norm before them is not in them.
    """
    path, _, kind = name.rpartition(".")
    check_known(kind, ("q", "k", "v", "o", "qk", "ov"), "reading weights of heads")
    path, attention = find_attention(hooked, path)
    if not isinstance(attention, Attention) or attention.o.weight.numel() == 0:
        problem = f"{path}, which has no such maps, or packed ones"
        raise UsageError("reading weights of heads", problem, "a Transformer opened in fp32")

    def by_head(what: str) -> Tensor:
        linear = getattr(attention, what)
        weight: Tensor = linear.merged() if hasattr(linear, "merged") else linear.weight
        if what == "o":
            weight = weight.unflatten(1, (attention.heads, -1))
            return weight.permute(1, 2, 0)
        weight = weight.unflatten(0, (-1, attention.width)).transpose(1, 2)
        return weight.repeat_interleave(attention.heads // len(weight), 0)

    with torch.no_grad():
        if kind == "qk":
            whole = by_head("q") @ by_head("k").mT
        else:
            whole = by_head("v") @ by_head("o") if kind == "ov" else by_head(kind)
    if head is None:
        return whole
    index = read_indices({"head": head})["head"]
    check_index("head", index, len(whole), path, f"heads 0 to {len(whole) - 1}")
    return whole[head if isinstance(head, int) else index]
