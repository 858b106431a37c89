"""When words are said: cross-attention and dynamic time warping (Sakoe and Chiba 1978).

Some heads of a decoder look at the sound of the token they write. Their attention, put to one
scale and smoothed, is a picture of tokens by moments; the cheapest way through it that goes on
only gives each token its moment, as in OpenAI's Whisper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from regard.core.cache import Cache
from regard.interop.side import parse
from regard.model.batch import Batch
from regard.model.model import Memory

if TYPE_CHECKING:
    from regard.kit import Kit

SMOOTH = 7  # moments of which the median is taken
CLOSING = "\"'.。,，!！?？:：”)]}、;…"


def split_words(kit: Kit, tokens: list[int], spaced: bool) -> list[tuple[str, int, int]]:
    """Words, each with its first token and the one after its last but for closing marks."""
    words: list[tuple[str, int, int]] = []
    first = 0
    for after in range(1, len(tokens) + 1):
        piece = kit.decode_text(tokens[first:after])
        if "\ufffd" in piece and after < len(tokens):
            continue  # half a character
        text, begin, end = words[-1] if words else ("", first, first)
        if piece.strip() and all(mark in CLOSING for mark in piece) and words:
            words[-1] = text + piece, begin, end
        elif words and spaced and not piece.startswith(" "):
            words[-1] = text + piece, begin, after
        else:
            words.append((piece, first, after))
        first = after
    return words


def time_tokens(kit: Kit, cache: Cache, target: list[int], places: slice, size: int) -> list[int]:
    """At which vector of the encoder each of these places of a target looks, in order.

    `size` vectors of the source that the cache has read hold sound.
    """
    listed = parse(kit.files, "generation_config.json").get("alignment_heads")
    if not listed:  # all heads of the upper half
        decoder = kit.model.stacks[-1].config
        layers, heads = range(decoder.depth // 2, decoder.depth), range(decoder.block.heads)
        listed = [(layer, head) for layer in layers for head in heads]
    taps = {layer: f"decoder.blocks.{layer}.cross.pattern" for layer, _ in listed}
    with kit.hooked.reading(taps.values()) as hooks:
        ids = torch.tensor([target], device=kit.device)
        kit.model.decode(Batch(ids), Memory(*(cache.source or ())), cache)
        seen: dict[int, Any] = {layer: hooks[name].seen for layer, name in taps.items()}
    looks = torch.stack([seen[layer][0, head, :, :size] for layer, head in listed])
    return warp(-smooth(looks.float().cpu())[places].double().numpy())


def smooth(looks: Tensor) -> Tensor:
    """Attention (heads, tokens, moments) → one picture (tokens, moments)."""
    looks = looks / looks.sum(-1, keepdim=True)  # of the moments that are there
    spread, mean = torch.std_mean(looks, dim=1, keepdim=True, unbiased=False)
    looks = ((looks - mean) / spread).nan_to_num(0.0)
    if looks.shape[-1] > SMOOTH // 2:
        padded = F.pad(looks, (SMOOTH // 2, SMOOTH // 2), mode="reflect")
        looks = padded.unfold(-1, SMOOTH, 1).median(-1).values
    return looks.mean(0)


def warp(cost: NDArray[np.float64]) -> list[int]:
    """The column at which the cheapest monotonous way through (rows, columns) enters each row.

    Within a row a way goes on to the right: it costs what it cost to enter, and the sum from there.
    """
    before = np.full(cost.shape[1] + 1, np.inf)  # the cheapest way to each cell of the row above
    before[0] = 0.0
    ways = []
    for row in cost:
        done = row.cumsum()
        enter = np.minimum(before[:-1], before[1:]) - done + row
        ways.append((enter, before))
        before = np.concatenate(([np.inf], done + np.minimum.accumulate(enter)))
    entered, column = list[int](), cost.shape[1] - 1
    for enter, before in reversed(ways):
        column = int(enter[: column + 1].argmin())
        entered.append(column)
        column -= int(before[column] < before[column + 1])
    return entered[::-1]
