"""Generation trace: what passed taps while texts were written, as a folder of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.ambient import note
from regard.errors import DataError
from regard.look.activation_store import INDEX, ShardWriter, open_writer
from regard.look.activations import Captured, select_taps
from regard.look.extraction import CorpusCounts, make_manifest
from regard.result import human_bytes

if TYPE_CHECKING:
    from regard.kit import Kit

SHARD_BYTES = 256_000_000
NEW = "new"  # 1 at tokens that the model wrote, 0 at those it was given


@contextmanager
def trace_generation(
    kit: Kit, name: str, taps: Sequence[str], out: Path, force: bool, settings: dict[str, Any]
) -> Iterator[GenerationTrace]:
    """Where captures go; the folder gets its name when all prompts are done."""
    selection = select_taps(kit.hooked, list(taps))
    with open_writer(out, force) as writer, kit.capture(selection.taps) as captured:
        trace = GenerationTrace(writer, captured, selection.source)
        yield trace
        trace.flush()
        writer.wait()
        if not writer.shards:
            raise DataError("generating", "no prompt that could be read", "one or more")
        manifest = make_manifest(kit, name, selection, trace.widths, trace.counts, writer, settings)
        writer.publish(manifest)
    note(f"{out}: {manifest['rows']:,} rows, {human_bytes(manifest['bytes'])}")


class GenerationTrace:
    """Captures on their way into shards."""

    def __init__(self, writer: ShardWriter, captured: list[Captured], source: bool) -> None:
        self.writer, self.captured, self.source = writer, captured, source
        self.counts, self.widths = CorpusCounts(), dict[str, int]()
        self.rows: list[dict[str, Tensor]] = []
        self.bytes = 0

    def skip(self) -> None:
        """A prompt that could not be read."""
        self.counts.texts += 1
        self.counts.skipped += 1

    def take(self, prompts: Sequence[str]) -> None:
        """What was captured while the answers to these prompts were written."""
        for prompt, one in zip(prompts, self.captured, strict=True):
            columns = self.columns(one)
            self.counts.add(prompt)
            self.widths = {n: x.shape[1] for n, x in columns.items() if x.dim() == 2}
            self.rows.append(columns)
            self.bytes += sum(x.nbytes for x in columns.values())
            self.counts.tokens += len(one.ids)
        self.captured.clear()
        if self.bytes >= SHARD_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write a shard, if there are rows for one."""
        if self.rows:
            self.writer.write({n: torch.cat([each[n] for each in self.rows]) for n in self.rows[0]})
        self.rows, self.bytes = [], 0

    def columns(self, one: Captured) -> dict[str, Tensor]:
        """The index and the vectors of one text."""
        ids = one.source if self.source else one.ids
        assert ids is not None
        places = torch.arange(len(ids))
        new = torch.zeros_like(places) if self.source else (places >= one.given).long()
        numbers = (torch.full_like(places, self.counts.texts), places, ids.cpu())
        index = dict(zip(INDEX, numbers, strict=True))
        return index | {NEW: new} | {n: x.flatten(1).float().cpu() for n, x in one.values.items()}
