"""Attention maps: where every head looks in a text, kept small, and what each head does.

A map is kept as sparse rows of whole 255ths (`HeadMap`): all links of up to 512 keys, of more keys
the heaviest of each query, so that a page of 5,000 tokens still opens. Weights below 1/510 are
dropped. What a head does is seen by switching it off (its `z` set to zero).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.ambient import track
from regard.core.attention import Attention
from regard.decode.step import without_end
from regard.errors import DataError, UsageError
from regard.look import results
from regard.look.attention_patterns import attention_names
from regard.look.edits import patch
from regard.look.hooks import HookedModel
from regard.look.labels import token_label, token_labels
from regard.look.logit_lens import value_norms
from regard.look.results import AttentionMaps, Forecast, HeadMap, StackMaps
from regard.look.text_limits import check_length, check_memory, max_tokens_of
from regard.model.batch import Batch
from regard.model.model import Model

if TYPE_CHECKING:
    from regard.kit import Kit

DOING = "looking at attention"
WHOLE = 512  # keys up to which every link is kept
LINKS = 8_000_000  # kept of a longer text, about, in all maps together
FEWEST, MOST = 8, 64  # links of a query of a longer text
SMALL = 64  # edge of a small map
AT_ONCE = 2**27  # numbers of patterns that are held at once
SCORES = 2**25  # numbers of scores that are held at once
TOP = 5  # words of a forecast
LIMIT = 65_535  # tokens: a key is two bytes
TOKENS = 4096  # that are run together without a head
KEPT = 50_000  # forecasts that are kept: heads × positions; of long texts the last positions
SIDES = {
    "encoder": ("source", "source"),
    "decoder": ("target", "target"),
    "cross": ("target", "source"),
}
"""Whose tokens ask in each attention of an encoder-decoder, and whose are looked at."""
BlockMaps = tuple[list[HeadMap], list[results.HeadFacts], Tensor]


# A text of people ---------------------------------------------------------------------------------


def map_attention(
    kit: Kit,
    text: str,
    target: str | None,
    stack: results.StackName | None,
    head: str | None,
    effects: bool,
    heading: str,
    read: tuple[Batch, dict[str, list[str]]] | None = None,
) -> AttentionMaps:
    """The maps of a text; of an encoder-decoder without `target` its own translation is mapped.

    `head`, as 5.3, is block and head to show; with `effects` it is run without each head too.
    What is no text comes as `read`: a batch and what its tokens are called.
    """
    block_head = None
    if head is not None:
        block, _, number = head.partition(".")
        if not (block.isdecimal() and number.isdecimal()):
            raise UsageError(DOING, f"head {head}", "block.head, such as 5.3")
        block_head = int(block), int(number)
    if read and target is not None:
        raise UsageError(DOING, "a target for what is no text", "none: only texts are translated")
    head_counts(kit.hooked)  # a model without attention is refused before it translates
    batch, sides = read or read_text(kit, text, target)
    maps = collect_maps(kit.hooked, batch, sides)
    maps = replace(maps, heading=heading, shown_stack=stack, shown_head=block_head)
    last_block, last_head = (n - 1 for n in maps.stack().small.shape[:2])
    if block_head is not None and (block_head[0] > last_block or block_head[1] > last_head):
        raise UsageError(DOING, f"head {head}", f"0.0 to {last_block}.{last_head}")
    if effects:
        maps = add_effects(kit.hooked, batch, maps)
    config, classes = kit.model.config.head, kit.config.get("id2label") or {}
    if config.take != "all" or (classes and config.size == len(classes)):
        return spell_words(maps, lambda n: str(classes.get(str(n), f"class {n}")))
    return spell_words(maps, str if read else partial(token_label, kit.text_tokenizer))


def read_text(kit: Kit, text: str, target: str | None = None) -> tuple[Batch, dict[str, list[str]]]:
    """The text as a batch, and its tokens as people read them, by side.

    An encoder-decoder without a target reads its own translation.
    """
    config, tokenizer = kit.model.config, kit.text_tokenizer
    max_tokens_of(kit, DOING)  # says so where it reads no text
    if config.target is None and target is not None:
        raise UsageError(DOING, "two texts", "one; or an encoder-decoder")
    if not text.strip():
        raise DataError(DOING, "an empty text", "at least one word")
    ids = check_length(kit, tokenizer.encode(text), DOING)
    check_memory(kit, len(ids), DOING, max(head_counts(kit.hooked)))
    labels = token_labels(tokenizer, ids, "source")
    if config.target is None:
        return kit.batch([ids]), {"text": labels}
    if target is None:
        target = kit.translate(text).text
    begun = [kit.start, *without_end(tokenizer.encode(target, side="target"), kit.stops)]
    check_length(kit, begun, DOING, "target")
    sides = {"source": labels, "target": token_labels(tokenizer, begun, "target")}
    return kit.batch([ids], [begun]), sides


def spell_words(maps: AttentionMaps, spell: Callable[[int], str]) -> AttentionMaps:
    """The maps with the words of all their forecasts."""
    every = [e.tokens for e in maps.effects.values()]
    every += [] if maps.forecast is None else [maps.forecast.tokens]
    ids = {int(id) for tokens in every for id in np.unique(tokens)}
    return replace(maps, words={id: spell(id) for id in ids})


# Maps ---------------------------------------------------------------------------------------------


@torch.no_grad()
def collect_maps(hooked: HookedModel, batch: Batch, sides: dict[str, list[str]]) -> AttentionMaps:
    """Run one text, read every pattern, a few blocks at a time, and keep what pictures need.

    `sides` are the tokens as people read them: of `text`, or of `source` and `target`.
    """
    stacks = find_pattern_taps(hooked)
    tokens = {name: list(side) for name, side in sides.items()}
    for name, side in tokens.items():
        if not 0 < len(side) <= LIMIT:
            raise DataError(DOING, f"{len(side):,} tokens of the {name}", f"1 to {LIMIT:,}")
    first = next(iter(tokens))
    asked = {stack: SIDES[stack] if len(tokens) > 1 else (first, first) for stack in stacks}
    rows = sum(
        count_heads(hooked.model, name) * len(tokens[asked[stack][0]])
        for stack, names in stacks.items()
        for name in names
    )
    most = max(FEWEST, min(MOST, LINKS // rows))
    maps: list[StackMaps] = []
    x = torch.zeros(0)
    for stack, names in stacks.items():
        queries, keys = (len(tokens[side]) for side in asked[stack])
        kept = None if keys <= WHOLE else most
        blocks: list[BlockMaps] = []
        norms: list[Tensor] = []  # (H, S) of each block
        total = torch.zeros(queries, keys)
        size = queries * keys * max(count_heads(hooked.model, name) for name in names)
        step = max(1, AT_ONCE // size)
        for start in track(range(0, len(names), step), f"reading the {stack}'s attention"):
            some = names[start : start + step]
            values = [name.removesuffix("pattern") + "v" for name in some]
            with hooked.reading([*some, *(v for v in values if v in hooked.taps)]) as hooks:
                x = hooked.model.hidden(batch)
                seen = {name: hook.seen for name, hook in hooks.items() if hook.seen is not None}
                for name, value in zip(some, values, strict=True):
                    pattern = seen[name][0, ..., -keys:].float()  # without a prior, the first key
                    blocks.append(map_block(pattern, asked[stack], kept))
                    total += pattern.sum(0).cpu()
                    attention = hooked.model.get_submodule(name.removesuffix(".pattern"))
                    if isinstance(attention, Attention) and attention.o.weight.numel():
                        read = seen[value][:, -keys:].float()
                        norms.append(value_norms(attention, read)[0].cpu())
        heads, facts, tiles = (list(each) for each in zip(*blocks, strict=True))
        mean = sparse_map(total / sum(map(len, heads)), kept)
        small, written = torch.stack(tiles).numpy(), torch.stack(norms).numpy() if norms else None
        maps.append(StackMaps(stack, asked[stack], names, heads, facts, small, written, mean, kept))
    head = hooked.model.config.head
    forecast = None if head.size is None else make_forecast(hooked.model, x)
    return AttentionMaps(tokens, maps, forecast, head.take != "all")


def find_pattern_taps(hooked: HookedModel) -> dict[str, list[str]]:
    """The patterns of each stack, in the order in which a text passes them."""
    stacks: dict[str, list[str]] = {"encoder": [], "decoder": [], "cross": []}
    for name in attention_names(hooked):
        stacks["cross" if name.endswith(".cross") else name.split(".")[0]].append(f"{name}.pattern")
    return {stack: names for stack, names in stacks.items() if names}


def count_heads(model: Model, name: str) -> int:
    """Heads of the attention that a tap belongs to."""
    return int(model.get_submodule(name.rpartition(".")[0]).heads)  # type: ignore[arg-type]


def head_counts(hooked: HookedModel) -> list[int]:
    """Heads of each attention."""
    taps = (name for names in find_pattern_taps(hooked).values() for name in names)
    return [count_heads(hooked.model, name) for name in taps]


def map_block(pattern: Tensor, sides: tuple[str, str], kept: int | None) -> BlockMaps:
    """Of each head of a pattern (H, T, S) the map, three figures, and a small map."""
    queries, keys = pattern.shape[1:]
    places = [torch.arange(n, device=pattern.device) for n in (queries, keys)]
    apart = (places[0][:, None] - places[1]).abs().to(pattern)  # (T, S)
    facts = []
    for one in pattern:
        distance = (one * apart).sum(-1).mean()
        entropy = torch.special.entr(one).sum(-1).mean() / math.log(2)
        others = one.clone().fill_diagonal_(0) if sides[0] == sides[1] else one  # itself: no news
        query, key = divmod(int(others.argmax()), keys)
        link = results.HeadLink(query, key, float(others[query, key]))
        facts.append(results.HeadFacts(float(distance), float(entropy), link))
    size = min(SMALL, queries), min(SMALL, keys)
    small = to_levels(F.adaptive_max_pool2d(pattern[None], size)[0]).cpu()
    return [sparse_map(one, kept) for one in pattern], facts, small


def to_levels(weights: Tensor) -> Tensor:
    """Weights as whole 255ths."""
    return (weights * results.LEVELS).round().clamp(0, results.LEVELS).to(torch.uint8)


def sparse_map(pattern: Tensor, most: int | None) -> HeadMap:
    """A map (T, S) as rows of links, the heaviest `most` of each query."""
    whole = to_levels(pattern)
    if most is not None:
        many = (whole > 0).sum(-1) > most  # queries that have more
        keys = pattern[many].topk(min(most, pattern.shape[1]), -1).indices
        few = torch.zeros_like(whole[many])
        whole[many] = few.scatter_(-1, keys, whole[many].gather(-1, keys))
    queries, keys = whole.nonzero(as_tuple=True)
    return HeadMap(
        torch.bincount(queries, minlength=len(pattern)).cpu().numpy().astype(np.uint16),
        keys.cpu().numpy().astype(np.uint16),
        whole[queries, keys].cpu().numpy(),
        pattern.shape[1],
    )


def make_forecast(model: Model, x: Tensor) -> Forecast:
    """The likeliest tokens at each position of the last stack's output x (1, T, D)."""
    size = model.config.head.size
    assert size is not None
    chunks = x.split(max(1, SCORES // size), 1) if model.config.head.take == "all" else (x,)
    tops = [model.score(chunk).float().softmax(-1).topk(min(TOP, size)) for chunk in chunks]
    tokens = torch.cat([top.indices.reshape(-1, top.indices.shape[-1]) for top in tops])
    shares = torch.cat([top.values.reshape(-1, top.values.shape[-1]) for top in tops])
    return Forecast(tokens.cpu().numpy(), shares.cpu().numpy())


# Heads switched off -------------------------------------------------------------------------------


@torch.no_grad()
def add_effects(hooked: HookedModel, batch: Batch, maps: AttentionMaps) -> AttentionMaps:
    """The maps with what each head does to forecasts: its `z`, or its pattern, set to zero."""
    if maps.forecast is None:
        return maps
    model, size = hooked.model, hooked.model.config.head.size
    assert size is not None
    kept = max(1, min(KEPT // sum(head_counts(hooked)), SCORES // size))
    first = max(0, len(maps.forecast.tokens) - kept)
    rows = max(1, TOKENS // max(map(len, maps.tokens.values())))
    best = torch.from_numpy(maps.forecast.tokens[first:, :1]).to(model.device)  # (P, 1)
    plain = last_scores(model, model.hidden(batch), first)[0].log_softmax(-1)  # (P, V)
    effects: dict[str, results.HeadEffects] = {}
    for stack, names in find_pattern_taps(hooked).items():
        forecasts = []
        for name in track(names, f"switching off heads of the {stack}, block"):
            z, heads = name.removesuffix("pattern") + "z", count_heads(model, name)
            tap = z if z in hooked.taps else name
            shape = [-1, heads, 1, 1] if tap == name else [-1, 1, heads, 1]
            for off in torch.eye(heads, dtype=torch.bool).split(rows):  # (R, H)
                with hooked.editing({tap: patch(0.0, mask=off.view(shape))}):
                    x = model.hidden(batch.tile(len(off)))
                for one in x.split(1):
                    log = last_scores(model, one, first)[0].log_softmax(-1)
                    top = log.topk(min(TOP, size))
                    change = (log - plain).gather(-1, best)[:, 0]
                    forecasts.append((change, top.indices, top.values.exp()))
        parts = (torch.stack(part).cpu().numpy() for part in zip(*forecasts, strict=True))
        by_block = [part.reshape(len(names), -1, *part.shape[1:]) for part in parts]
        effects[stack] = results.HeadEffects(first, *by_block)
    return replace(maps, effects=effects)


def last_scores(model: Model, x: Tensor, first: int) -> Tensor:
    """Scores (B, P, V) from a position on, or of the whole text as one position (B, 1, V)."""
    if model.config.head.take == "all":
        return model.score(x[:, first:]).float()
    return model.score(x).float()[:, None]
