"""Extraction: the activations of a corpus, at the speed of a plain forward pass, into a folder.

Texts of like length run together; each row of numbers lands where its text stands in the corpus,
so the batching is not to be seen.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from regard.ambient import note, track
from regard.errors import DataError, RegardError
from regard.files import drafting
from regard.look.activation_store import DOING, INDEX, ShardWriter
from regard.look.activations import Selection, TextIds, gather_rows, read_batch, select_taps
from regard.look.hooks import HookedModel
from regard.look.results import Extraction, Position
from regard.look.text_limits import max_tokens_of

if TYPE_CHECKING:
    from regard.kit import Kit

SHARD_BYTES = 256_000_000  # held in memory
GROUP_TOKENS = 1 << 18  # of a shard at most, among which texts of like length are sought
CPU_TOKENS, GPU_TOKENS = 1024, 16_384  # of a batch
FAULTS = 10  # texts that could not be read and are named one by one


def extract_corpus(
    kit: Kit,
    name: str,
    texts: Iterable[str | RegardError],
    taps: str | Iterable[str],
    out: Path,
    position: Position,
) -> Extraction:
    """Write what passes taps for the tokens of texts to a folder that `Extracted` opens.

    A text that cannot be read is told and skipped.
    """
    max_tokens_of(kit, DOING)  # says so where it reads no text
    kit.hooked.check_alone("a corpus, whose texts run together")
    selection = select_taps(kit.hooked, taps, position)
    counts, start = Counter(texts=0, tokens=0, skipped=0), time.monotonic()
    batch_tokens = CPU_TOKENS if kit.device.type == "cpu" else GPU_TOKENS
    with drafting(out, "room for the activations") as draft:
        writer = ShardWriter(draft)
        row_bytes = count_row_bytes(kit.hooked, selection)
        read = track(read_corpus(kit, texts, selection, counts), DOING)
        for group in group_texts(read, selection, SHARD_BYTES // row_bytes):
            writer.write(gather_rows(kit.hooked, group, selection, batch_tokens))
        if not writer.shards:
            raise DataError(DOING, "no text that gives a row", "texts with tokens there")
        pair = kit.model.config.target is not None
        about: dict[str, Any] = {
            "model": name,
            "position": selection.position,
            "tokens_of": "source" if selection.source else "target" if pair else "text",
            **counts,
        }
        sizes = writer.finish(about)
    if counts["skipped"] > FAULTS:
        note(f"error: {counts['skipped']:,} texts could not be read; the first {FAULTS} are named")
    seconds = time.monotonic() - start
    sizes |= {"shards": len(writer.shards), "seconds": seconds}
    return Extraction(str(out), **about, **sizes, tokens_per_second=counts["tokens"] / seconds)


@torch.inference_mode()
def count_row_bytes(hooked: HookedModel, selection: Selection) -> int:
    """What one token takes in a shard: a run of it tells how many numbers each tap has."""
    probe = TextIds(0, [0], [0] if selection.target else None)
    seen = read_batch(hooked, [probe], selection, [[0]])
    return sum(x.shape[1] * x.itemsize for x in seen.values()) + 8 * len(INDEX)


def group_texts(
    texts: Iterable[TextIds], selection: Selection, rows: int, tokens: int = GROUP_TOKENS
) -> Iterator[list[TextIds]]:
    """Texts in their order, in groups of at most so many rows and tokens, or of one text."""
    group, held, length = list[TextIds](), 0, 0
    for text in texts:
        more = len(selection.columns(len(selection.tokens(text))))
        if group and (held + more > rows or length > tokens):
            yield group
            group, held, length = [], 0, 0
        group.append(text)
        held, length = held + more, length + len(text.ids) + len(text.target or ())
    if group:
        yield group


def read_corpus(
    kit: Kit, texts: Iterable[str | RegardError], selection: Selection, counts: Counter[str]
) -> Iterator[TextIds]:
    """Texts as ids; one that cannot be read is told, the others are done."""
    limits = [max_tokens_of(kit, DOING)]
    limits += [max_tokens_of(kit, DOING, "target")] if selection.target else []
    for number, text in enumerate(texts):
        counts["texts"] += 1
        try:
            ids = encode_text(kit, number, text, selection.target)
            for side, most in zip((ids.ids, ids.target or ()), limits, strict=False):
                if len(side) > most:
                    expected = f"at most {most:,}, which this model reads at once"
                    raise DataError(DOING, f"{len(side):,} tokens", expected)
        except RegardError as error:
            counts["skipped"] += 1
            if counts["skipped"] <= FAULTS:
                problem = f"text {number + 1}: {error.found}"
                note(f"error: {DataError(error.doing, problem, error.expected, error.fix)}")
            continue
        if length := len(selection.tokens(ids)):
            kit.warn_long(length)
            counts["tokens"] += len(ids.ids) + len(ids.target or ())
            yield ids


def encode_text(kit: Kit, number: int, text: str | RegardError, with_target: bool) -> TextIds:
    """A text as ids, if it could be read; an encoder-decoder reads source TAB target."""
    if isinstance(text, RegardError):
        raise text
    parts = [text] if kit.model.config.target is None else text.split("\t")
    if len(parts) > 2 or (with_target and len(parts) != 2):
        raise DataError(DOING, f"{len(parts) - 1} TABs", "source TAB target")
    ids, target = kit.text_tokenizer.encode(parts[0]), None
    if with_target:
        target = [kit.start, *kit.text_tokenizer.encode(parts[1], side="target")]
    return TextIds(number, ids, target)
