"""Greedy and beam search of a plain int8 translator in one call of C (`native/encoder_decoder.h`).

A step of such a model is some sixty small operations: started one by one, they take as long as the
work itself. The answers have the bits of `decode/loop.py`, which runs every other model, and this
one as soon as somebody listens to a part of it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Sequence
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np
import torch
from torch import nn

from regard.core.attention import Attention
from regard.core.block import Block
from regard.core.mlp import MLP
from regard.core.norm import LayerNorm
from regard.core.position import Learned, Sinusoidal
from regard.core.stack import Stack
from regard.decode.beam import BeamConfig, differences
from regard.decode.shortlist import ROUNDED, Shortlist, common_map
from regard.decode.step import Hypothesis
from regard.model.batch import Batch
from regard.model.config import find_unusual
from regard.model.fronts import TextFront
from regard.model.model import Head, Model
from regard.model.precision import PackedLinear, PackedProduct
from regard.native import inference
from regard.native.inference import MapLayout, NativeMap, NormLayout, library

POINTER, WHOLE, FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
NETWORKS: WeakKeyDictionary[Model, NativeNetwork] = WeakKeyDictionary()
DEPTH = 64  # blocks of a decoder at most, as in the C file


def structure(*fields: tuple[str, Any]) -> type[ctypes.Structure]:
    """A structure of the C file: names, and what they are."""
    each = [(name, kind) for names, kind in fields for name in names.split()]
    return type("Structure", (ctypes.Structure,), {"_fields_": each})


PartLayout = structure(("norm", NormLayout), ("first k v last", MapLayout))
BlockLayout = structure(("own cross mlp", PartLayout))
SideLayout = structure(
    *(("table waves", POINTER), ("scale", FLOAT), ("blocks", POINTER), ("depth", WHOLE)),
    ("norm", NormLayout),
)
NetworkLayout = structure(
    *(("encoder decoder", SideLayout), ("dim heads hidden", WHOLE), ("scale", FLOAT)),
    ("head", MapLayout),
)
WordsLayout = structure(
    ("common", MapLayout), ("always best bounds whole step bias", POINTER), ("vocab", WHOLE)
)
WishLayout = structure(
    *(("start limits ends", POINTER), ("ends_count width count", WHOLE), ("penalty", POINTER)),
    ("block", WHOLE),
)
AnswersLayout = structure(
    ("most", WHOLE), ("tokens length logprob score finished logprobs memory seen", POINTER)
)


def search_natively(
    model: Model,
    batch: Batch,
    limits: Sequence[int],
    how: object,
    eos: Collection[int],
    shortlist: Shortlist | None,
    block: int | None = None,
) -> list[list[Hypothesis]] | None:
    """Hypotheses of each row, as `run_search` has them; None where model, batch or wish do not fit.

    Nobody may be listening to the model. Of `block`, the attention to the source is noted.
    """
    plain = how is None or (isinstance(how, BeamConfig) and how.groups == 1)
    sides = batch.mask, batch.documents, batch.source_documents, batch.segments
    if not plain or batch.target is None or any(side is not None for side in sides):
        return None
    if model.device.type != "cpu" or library() is None:
        return None
    parts, held = [*model.modules()], NETWORKS.get(model)
    if held is None or not held.is_made_of(parts):
        with torch.inference_mode(False):  # it outlives the search that needs it first
            held = NETWORKS[model] = NativeNetwork(model, parts)
    if not held.fits or not all(part.residual for part in parts if isinstance(part, Block)):
        return None
    if any(part.listener is not None for part in parts if isinstance(part, TextFront)):
        return None
    assert how is None or isinstance(how, BeamConfig)
    return held.search(batch, limits, how, eos, shortlist, block)


class NativeNetwork:
    """Where the weights of a model lie, and its searches."""

    def __init__(self, model: Model, parts: list[nn.Module]) -> None:
        self.parts = [ref(part) for part in parts]  # what the model was made of
        self.kinds, self.places = [*map(type, parts)], places_of(parts)
        self.alive: list[object] = []  # what the layout points to
        self.shortlist: Shortlist | None = None
        self.fits = has_plain_shape(model, parts) and all(map(is_native, parts))
        if not self.fits:
            return
        front, target, out = model.front, model.target, model.head.out
        assert isinstance(front, TextFront) and isinstance(target, TextFront)
        assert model.encoder is not None and model.decoder is not None and out is not None
        self.vocab, self.out = (front.config.vocab, target.config.vocab), out
        self.reach = min(reach_of(front), reach_of(target))
        block = model.decoder.config.block
        scale = next(part.scale for part in parts if isinstance(part, Attention))
        self.layout = NetworkLayout(
            *(self.side(front, model.encoder), self.side(target, model.decoder)),
            *(block.dim, block.heads, block.hidden, scale),
        )

    def is_made_of(self, parts: Sequence[nn.Module]) -> bool:
        """Whether a model still has the parts and weights that it had."""
        same = [part() for part in self.parts] == parts and self.kinds == [*map(type, parts)]
        return same and self.places == places_of(parts)

    def side(self, front: TextFront, stack: Stack) -> ctypes.Structure:
        """A front and its stack."""
        table, waves, scale = front.tokens.weight, None, 1.0
        if front.positions is not None:
            place = torch.arange(reach_of(front))[:, None]
            waves = front.positions(place)[:, 0].detach().to(table.dtype)
        if front.config.scale:
            scale = front.config.dim**0.5
        blocks = (BlockLayout * len(stack.blocks))(*map(block_layout, stack.blocks))
        self.alive += [waves, blocks, table]
        return SideLayout(
            *(table.data_ptr(), None if waves is None else waves.data_ptr(), scale),
            *(ctypes.addressof(blocks), len(blocks), norm_layout(stack.norm)),
        )

    def words(self, shortlist: Shortlist) -> ctypes.Structure:
        """A shortlist as the C code reads it."""
        if shortlist is not self.shortlist:
            common = common_map(self.out, shortlist)
            bias = None if self.out.bias is None else self.out.bias.detach().clone()
            assert isinstance(common, NativeMap)
            given = (shortlist.always, shortlist.best, shortlist.bounds)
            lists = [np.ascontiguousarray(part) for part in given]
            whole, step = ROUNDED[self.out]
            self.listed = (common, lists, whole, step, bias)
            self.words_layout = WordsLayout(
                common.layout,
                *(part.ctypes.data for part in lists),
                *(whole.data_ptr(), step.data_ptr(), None if bias is None else bias.data_ptr()),
                shortlist.targets,
            )
            self.shortlist = shortlist
        return self.words_layout

    def search(
        self,
        batch: Batch,
        limits: Sequence[int],
        how: BeamConfig | None,
        eos: Collection[int],
        shortlist: Shortlist | None,
        block: int | None,
    ) -> list[list[Hypothesis]] | None:
        """Hypotheses of each row, as `run_search` has them; None for a batch that does not fit."""
        inputs, start = batch.inputs.numpy(), batch.ids.numpy()
        mask = batch.source_mask
        real = np.ones_like(inputs, bool) if mask is None else mask.numpy()
        ids, lengths, most = inputs[real], real.sum(1), max(limits)  # tokens one after the other
        if start.shape[1] != 1 or not len(inputs) or not lengths.min():
            return None
        if max(int(lengths.max()), most) > self.reach:
            return None
        for column, vocab in zip((ids, start), self.vocab, strict=True):
            if column.min() < 0 or column.max() >= vocab:
                return None
        count, width = (1, 0) if how is None else (how.count, how.width)
        bounds = np.append(0, np.cumsum(lengths))
        asked = [np.array(part, np.int64) for part in (start, limits, sorted(set(eos)))]
        penalty = np.array([1.0 if how is None else how.penalty(n) for n in range(1, most + 1)])
        shape = len(inputs), count
        tokens, length = np.empty((*shape, most), np.int64), np.zeros(shape, np.int64)
        logprob, score = np.zeros((2, *shape))
        finished, logprobs = np.zeros(shape, bool), np.empty(tokens.shape, np.float32)
        looked = [] if block is None else [*range(self.layout.decoder.depth)][block:][:1]
        seen = [np.empty((*tokens.shape, lengths.max()), np.float32) for _ in looked]
        wish = WishLayout(
            *(part.ctypes.data for part in asked),
            *(len(asked[2]), width, count, penalty.ctypes.data, *looked),
        )
        memory = np.empty((len(ids), self.layout.dim), np.float32)
        parts = (tokens, length, logprob, score, finished, logprobs, memory, *seen)
        answers = AnswersLayout(most, *(part.ctypes.data for part in parts))
        words = None if shortlist is None else ctypes.byref(self.words(shortlist))
        if words is None:
            self.layout.head = map_layout(self.out)
        kernels = library()
        assert kernels is not None
        if kernels.translate(
            *(ctypes.byref(self.layout), words, ids.ctypes.data, bounds.ctypes.data, len(inputs)),
            *(ctypes.byref(wish), ctypes.byref(answers)),
        ):
            raise MemoryError("no memory for a search")
        rows: list[list[Hypothesis]] = [[] for _ in inputs]
        for n, k in zip(*length.nonzero(), strict=True):
            at = n, k, slice(length[n, k])
            each = logprobs[at].tolist()
            each = each if how is None else differences(each)
            figures = float(logprob[n, k]), float(score[n, k]), bool(finished[n, k]), each
            source = torch.from_numpy(memory[bounds[n] : bounds[n + 1]])
            looks = seen[0][*at, : lengths[n]].copy() if seen else None
            rows[n].append(Hypothesis(tokens[at].tolist(), *figures, source, looks))
        return rows


# What fits ----------------------------------------------------------------------------------------

KINDS = {Model, TextFront, Stack, Block, Attention, MLP, Head, PackedLinear, LayerNorm}
KINDS |= {Learned, Sinusoidal, nn.Embedding, nn.Dropout, nn.Identity, nn.ModuleList}


def has_plain_shape(model: Model, parts: Sequence[nn.Module]) -> bool:
    """Whether it is an encoder-decoder of the kind that the C code is written for."""
    if not {type(part) for part in parts} <= KINDS or find_unusual(model.config):
        return False
    assert model.encoder is not None and model.decoder is not None
    stacks = [stack.config for stack in (model.encoder, model.decoder)]
    alike = {(s.block.dim, s.block.heads, s.block.hidden, s.block.scale) for s in stacks}
    plain = all(s.block.norm_at == "pre" and s.block.act == "relu" for s in stacks)
    even = not any(n % inference.LANES for s in stacks for n in (s.block.width, s.block.hidden))
    return plain and even and len(alike) == 1 and stacks[1].depth <= DEPTH


def is_native(part: nn.Module) -> bool:
    """Whether a part of a model computes with kernels of our own."""
    if isinstance(part, LayerNorm):
        return part.kernel is inference.normalise
    if isinstance(part, Attention) and not part.cross:
        return isinstance(part.joint, PackedProduct)
    return True


def places_of(parts: Sequence[nn.Module]) -> list[int]:
    """Where the weights lie that are not packed, and the products of those that are."""
    weights = [
        weight.data_ptr()
        for part in parts
        if isinstance(part, LayerNorm | nn.Embedding | Learned)
        for weight in part.parameters(recurse=False)
    ]
    return weights + [id(part.packed) for part in parts if isinstance(part, PackedLinear)]


def reach_of(front: TextFront) -> int:
    """How many positions its table has."""
    return (front.positions and front.positions.size) or Sinusoidal.held


# Layouts ------------------------------------------------------------------------------------------


def map_layout(linear: object) -> MapLayout:
    """The place of a map's packed weights, or of several that are one product."""
    packed = linear.packed if isinstance(linear, PackedLinear) else linear
    assert isinstance(packed, PackedProduct)
    product = packed.prepare()
    assert isinstance(product, NativeMap)
    return product.layout


def norm_layout(norm: nn.Module) -> NormLayout:
    """The place of a norm's weights, if it has any."""
    if not isinstance(norm, LayerNorm):
        return NormLayout()
    return NormLayout(norm.weight.data_ptr(), norm.bias.data_ptr(), norm.eps)


def block_layout(block: nn.Module) -> ctypes.Structure:
    """The place of all weights of a block."""
    assert isinstance(block, Block)
    own, cross, mlp, none = block.attn, block.cross, block.mlp, MapLayout()
    ends = map_layout(own.joint), none, none, map_layout(own.o)
    other = PartLayout()
    if cross is not None:
        maps = map(map_layout, (cross.q, cross.k, cross.v, cross.o))
        other = PartLayout(norm_layout(cross.norm), *maps)
    think = PartLayout(norm_layout(mlp.norm), map_layout(mlp.up), none, none, map_layout(mlp.down))
    return BlockLayout(PartLayout(norm_layout(own.norm), *ends), other, think)
