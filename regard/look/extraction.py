"""Extraction: the activations of a corpus, at the speed of a plain forward pass, into a folder.

Texts of like length run together; each row of numbers lands where its text stands in the corpus,
so the batching is not to be seen. Copies from a GPU run beside the next batch.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from regard import __version__
from regard.ambient import note, track
from regard.errors import DataError, RegardError, UsageError
from regard.interop.side import start_id
from regard.look.activation_store import DOING, INDEX, PART, ShardWriter, check_free, open_writer
from regard.look.activations import (
    Selection,
    TextIds,
    fill_rows,
    read_batch,
    select_taps,
)
from regard.look.hooks import HookedModel
from regard.look.results import Extraction
from regard.look.text_limits import (
    LONGEST,
    free_bytes,
    front_length,
    longest_that_fits,
    run_bytes,
)
from regard.model.config import TextConfig
from regard.model.fronts import TextFront
from regard.receipt import make_receipt
from regard.result import human_bytes
from regard.train.checkpoint import weight_hash

if TYPE_CHECKING:
    from regard.kit import Kit

WINDOW = 1 << 16  # tokens among which texts of like length are sought
MEGABYTE = 1_000_000
TOGETHER = 256  # texts that are cut into tokens together
CPU_TOKENS, GPU_TOKENS = 1024, 16_384  # of a batch
FAULTS = 10  # texts that could not be read and are named one by one
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
Stored = Literal["fp32", "bf16"]


class Shards:
    """Rows of a corpus as they are read, given away in shards of bounded size, in order."""

    def __init__(
        self,
        hooked: HookedModel,
        selection: Selection,
        size: int,
        write: Callable[[dict[str, Tensor]], None],
    ) -> None:
        self.hooked, self.selection, self.write = hooked, selection, write
        with torch.inference_mode():  # a run of one token tells how many numbers each tap has
            probe = TextIds(0, [0], [0] if selection.target else None)
            seen = read_batch(hooked, [probe], selection, [[0]])
        self.widths = {name: x.shape[-1] for name, x in seen.items()}
        self.row_bytes = sum(self.widths.values()) * selection.dtype.itemsize + 8 * len(INDEX)
        self.size, self.capacity = size, max(1, size // self.row_bytes)
        self.held = self.empty()
        self.used = 0  # rows of the present shard

    def empty(self) -> dict[str, Tensor]:
        """The tensors of an empty shard; memory is taken as they fill."""
        rows, dtype = self.capacity, self.selection.dtype
        index = {name: torch.empty(rows, dtype=torch.long) for name in INDEX}
        return index | {n: torch.empty(rows, d, dtype=dtype) for n, d in self.widths.items()}

    def count_rows(self, text: TextIds) -> int:
        """The rows of a text, if a shard can hold them."""
        rows = len(self.selection.columns(len(self.selection.tokens(text))))
        if rows > self.capacity:
            problem = f"{rows:,} rows of {self.row_bytes:,} bytes in text {text.number + 1}"
            expected = f"at most {self.capacity:,}, a shard of {self.size:,} bytes"
            fix = "a larger --shard-mb, fewer taps, --position last, or shorter lines"
            raise DataError(DOING, problem, expected, fix)
        return rows

    def read(self, texts: Iterable[TextIds], tokens: int) -> None:
        """Read texts, each of which must fit into a shard, and write full shards."""
        window, rows, length = list[TextIds](), 0, 0

        def fill() -> int:
            return fill_rows(self.hooked, window, self.selection, self.held, self.used, tokens)

        for text in texts:
            count = self.count_rows(text)
            full = self.used + rows + count > self.capacity
            if window and (full or length > WINDOW):
                self.used = fill()
                window, rows, length = [], 0, 0
            if full:
                self.flush()
            window.append(text)
            rows, length = rows + count, length + len(text.ids) + len(text.target or ())
        self.used = fill()

    def flush(self) -> None:
        """Give the present shard away, if it has rows."""
        if self.used:
            self.write({name: x[: self.used] for name, x in self.held.items()})
            self.held, self.used = self.empty(), 0


# A corpus -----------------------------------------------------------------------------------------


@dataclass
class CorpusCounts:
    """What became of the texts of a corpus."""

    texts: int = 0
    tokens: int = 0
    skipped: int = 0
    """Texts that could not be read."""
    short: int = 0
    """Texts without a token at the position asked for."""
    digest: Any = field(default_factory=hashlib.sha256)
    """Of all texts, each with the end of its line."""
    before: int = 0
    """Tokens of texts that an interrupted run had done."""

    def add(self, text: str) -> None:
        """Count one more text."""
        self.texts += 1
        self.digest.update(text.encode() + b"\n")

    def skip(self, error: RegardError) -> None:
        """A text that could not be read; the first are named."""
        self.skipped += 1
        if self.skipped <= FAULTS:
            note(f"error: {error}")

    def mark(self) -> dict[str, Any]:
        """How far the texts were read."""
        return {"texts": self.texts, "sha256": self.digest.hexdigest()}


def extract_corpus(
    kit: Kit,
    name: str,
    texts: Iterable[str | RegardError],
    taps: str | Iterable[str],
    out: Path,
    *,
    position: int | str = "all",
    head: int | None = None,
    precision: Stored = "fp32",
    shard_mb: int = 256,
    batch_tokens: int | None = None,
    force: bool = False,
    edits: object = (),
) -> Extraction:
    """Write what passes taps for the tokens of texts to a folder that `Extracted` opens.

    A text that cannot be read is told and skipped. An interrupted run keeps its finished shards;
    the same call goes on after them. `edits`, which the model has already, are written down.
    """
    check_free(out, force)
    if not isinstance(kit.model.config.front, TextConfig):
        kind = kit.model.config.front.kind
        raise UsageError(DOING, f"a model that reads {kind}", "one that reads text")
    kit.hooked.check_alone("a corpus, whose texts run together")
    selection = select_taps(kit.hooked, taps, position, head, DTYPES[precision])
    weights = weight_hash(kit.model)
    settings = {"model": weights, "tap": selection.taps, "head": head}
    settings |= {"position": selection.position, "precision": precision, "edit": str(edits)}
    counts, start = CorpusCounts(), time.monotonic()
    try:
        with open_writer(out, force, settings) as writer:
            if writer.shards:
                note(f"going on after {len(writer.shards)} shards, {writer.texts:,} texts")
            write = partial(writer.write, mark=counts.mark)
            shards = Shards(kit.hooked, selection, shard_mb * MEGABYTE, write)
            usual = CPU_TOKENS if kit.device.type == "cpu" else GPU_TOKENS
            read = read_corpus(kit, texts, TextCheck(kit, shards), counts, writer)
            shards.read(track(read, DOING), batch_tokens or usual)
            shards.flush()
            writer.wait()
            if not writer.shards:
                raise DataError(DOING, "no text that gives a row", "texts with tokens there")
            manifest = make_manifest(kit, name, selection, shards.widths, counts, writer, settings)
            writer.publish(manifest)
    except BaseException as error:
        if (out / PART).is_dir() and not isinstance(error, UsageError | DataError):
            note(f"finished shards are kept in {out}: the same call goes on from there")
        raise
    if counts.skipped > FAULTS:
        note(f"error: {counts.skipped:,} texts could not be read; the first {FAULTS} are named")
    seconds = time.monotonic() - start
    kept = {n: v for n, v in manifest.items() if n not in ("receipt", "shards")}
    kept |= {"shards": len(manifest["shards"]), "seconds": seconds}
    return Extraction(str(out), **kept, tokens_per_second=counts.tokens / seconds)


class TextCheck:
    """How long a text may be: positions of the model, memory, and the size of a shard."""

    def __init__(self, kit: Kit, shards: Shards) -> None:
        self.kit, self.shards = kit, shards
        self.source, self.target = (
            front_length(front) if isinstance(front, TextFront) else 0
            for front in (kit.model.front, kit.model.reader)
        )
        held = 2 * shards.capacity * shards.row_bytes if kit.device.type == "cpu" else 0
        self.free = max(free_bytes(kit) - held, 0)

    def count_rows(self, text: TextIds) -> int:
        """The rows of a text; one that is too long is refused, by its number from 1."""
        target, reads = text.target or (), "this model reads at once"
        longest = max(len(text.ids), len(target))
        limits = [(len(text.ids), self.source, reads), (len(target), self.target, reads)]
        if longest > CPU_TOKENS and self.needed(longest) > self.free:
            most = longest_that_fits(longest, self.needed, self.free)
            limits.append((longest, most, f"fit into {human_bytes(self.free)}"))
        for length, most, why in limits:
            if length > most:
                problem = f"{length:,} tokens in text {text.number + 1}"
                expected = f"at most {most:,}, which {why}"
                raise DataError(DOING, problem, expected, "cut it into shorter lines")
        self.kit.warn_long(longest)
        return self.shards.count_rows(text)

    def needed(self, length: int) -> int:
        """Bytes of one text of so many tokens, by formula: what lives, and what the taps keep."""
        itemsize = 4 + self.shards.selection.dtype.itemsize
        return sum(self.shards.widths.values()) * length * itemsize + run_bytes(self.kit, length)


def read_corpus(
    kit: Kit,
    texts: Iterable[str | RegardError],
    check: TextCheck,
    counts: CorpusCounts,
    writer: ShardWriter,
) -> Iterator[TextIds]:
    """Texts as ids, but those done before; one that cannot be read is told, the others are done."""
    remaining = iter(texts)
    done, mark = writer.texts, writer.mark

    def check_mark() -> None:  # go on with an interrupted run only where it has read the same
        if counts.mark() != mark:
            problem = f"not the texts that the interrupted run in {writer.folder} has read"
            fix = "another --out, or delete it"
            raise DataError(DOING, problem, "the same in the same order", fix)

    while group := list(islice(remaining, TOGETHER)):
        encoded = encode_group(kit, group, check.shards.selection.target)
        for text, ids in zip(group, encoded, strict=True):
            number = counts.texts
            counts.add(text if isinstance(text, str) else "")
            if counts.texts == mark.get("texts"):
                check_mark()
            try:
                if isinstance(ids, RegardError):
                    problem = f"text {number + 1}: {ids.found}"
                    raise DataError(ids.doing, problem, ids.expected)
                ids = ids._replace(number=number)
                rows = check.count_rows(ids)
            except DataError as error:
                counts.skip(error)
                continue
            length = len(ids.ids) + len(ids.target or ())
            counts.short += rows == 0 and len(ids.ids) > 0
            if number < done:
                counts.before += length * (rows > 0)
            elif rows:
                if length > LONGEST:
                    said = f"text {number + 1} has {length:,} tokens, which run at once"
                    note(f"{said}: no progress meanwhile; shorter lines are quicker")
                counts.tokens += length
                yield ids
    if counts.texts < mark.get("texts", 0):
        check_mark()


def encode_group(
    kit: Kit, group: list[str | RegardError], with_target: bool
) -> list[TextIds | RegardError]:
    """Texts as ids, or why they cannot be; an encoder-decoder reads source TAB target."""
    pair = kit.model.config.target is not None
    lines = [text if isinstance(text, str) else "" for text in group]
    parts = [line.split("\t") if pair else [line] for line in lines]
    sources = kit.text_tokenizer.encode_batch([part[0] for part in parts])
    targets: list[list[int] | None] = [None] * len(group)
    if with_target:
        first = start_id(kit.files, kit.config)
        rows = kit.text_tokenizer.encode_batch([part[-1] for part in parts], side="target")
        targets = [[first, *row] for row in rows]
    encoded: list[TextIds | RegardError] = []
    for text, part, ids, target in zip(group, parts, sources, targets, strict=True):
        if isinstance(text, RegardError):
            encoded.append(text)
        elif (with_target and len(part) != 2) or len(part) > 2:
            encoded.append(DataError(DOING, f"{len(part) - 1} TABs", "source TAB target"))
        else:
            encoded.append(TextIds(0, ids, target))
    return encoded


def make_manifest(
    kit: Kit,
    name: str,
    selection: Selection,
    widths: dict[str, int],
    counts: CorpusCounts,
    writer: ShardWriter,
    settings: dict[str, Any],
) -> dict[str, Any]:
    """What was read of what, its shapes and hashes, and how to make it again."""
    rows = sum(shard["rows"] for shard in writer.shards)
    place = {"device": str(kit.device), "threads": torch.get_num_threads()}
    versions = {"regard": __version__, "torch": torch.__version__}
    digest, weights = counts.digest.hexdigest(), {"weights": weight_hash(kit.model)}
    pair = kit.model.config.target is not None
    return {
        "model": name,
        "taps": {tap: {"shape": [rows, width]} for tap, width in widths.items()},
        "dtype": str(selection.dtype).removeprefix("torch."),
        "position": selection.position,
        "head": selection.head,
        "tokens_of": "source" if selection.source else "target" if pair else "text",
        "rows": rows,
        "texts": counts.texts,
        "tokens": counts.before + counts.tokens,
        "skipped": counts.skipped,
        "short": counts.short,
        "texts_sha256": digest,
        "bytes": sum(shard["bytes"] for shard in writer.shards),
        "shards": writer.shards,
        "receipt": make_receipt(
            ["regard", "look", "extract", name],
            settings,
            {"texts": digest},
            weights,
            versions,
            place,
        ),
    }
