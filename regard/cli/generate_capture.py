"""`regard generate --capture`: what passed taps while texts were written, as a folder of rows."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from regard.cli.show import Show, human_bytes
from regard.errors import DataError, UsageError
from regard.kit import Kit
from regard.look.activation_store import INDEX, ShardWriter, check_free, open_writer
from regard.look.activations import Captured, Selection, select_taps
from regard.look.extraction import CorpusCounts, make_manifest

SHARD = 256_000_000  # bytes
NEW = "new"  # 1 at tokens that the model wrote, 0 at those it was given


def check_capture(args: argparse.Namespace) -> None:
    """--capture and --out come together, and the folder is free."""
    if bool(args.capture) != bool(args.out):
        given, other = ("--capture", "--out") if args.capture else ("--out", "--capture")
        raise UsageError("generating", f"{given} without {other}", "both, or neither")
    if args.out:
        check_free(Path(args.out), args.force)


@contextmanager
def recording(kit: Kit, args: argparse.Namespace, show: Show) -> Iterator[Record | None]:
    """Where captures go; the folder gets its name when all prompts are done."""
    if not args.capture:
        yield None
        return
    choice, out = select_taps(kit.hooked, args.capture), Path(args.out)
    with open_writer(out, args.force) as writer, kit.capture(choice.taps) as found:
        record = Record(kit, choice, writer, found)
        yield record
        record.flush()
        writer.wait()
        if not writer.shards:
            raise DataError("generating", "no prompt that could be read", "one or more")
        settings = {n: v for n, v in vars(args).items() if n not in ("arguments", "verb")}
        made = make_manifest(kit, args.path, choice, record.widths, record.counts, writer, settings)
        writer.publish(made)
    show.note(f"{out}: {made['rows']:,} rows, {human_bytes(made['bytes'])}")


class Record:
    """Captures on their way into shards."""

    def __init__(
        self, kit: Kit, choice: Selection, writer: ShardWriter, found: list[Captured]
    ) -> None:
        self.writer, self.found = writer, found
        self.source = choice.source
        self.counts, self.widths = CorpusCounts(), dict[str, int]()
        self.rows: list[dict[str, Tensor]] = []
        self.bytes = 0

    def skip(self) -> None:
        """A prompt that could not be read."""
        self.counts.texts += 1
        self.counts.skipped += 1

    def take(self, prompts: Sequence[str]) -> None:
        """What was captured while the answers to these prompts were written."""
        for prompt, one in zip(prompts, self.found, strict=True):
            made = as_rows(one, self.counts.texts, self.source)
            self.counts.add(prompt)
            self.widths = {n: x.shape[1] for n, x in made.items() if x.dim() == 2}
            self.rows.append(made)
            self.bytes += sum(x.nbytes for x in made.values())
            self.counts.tokens += len(one.ids)
        self.found.clear()
        if self.bytes >= SHARD:
            self.flush()

    def flush(self) -> None:
        """Write a shard, if there are rows for one."""
        if self.rows:
            self.writer.write({n: torch.cat([each[n] for each in self.rows]) for n in self.rows[0]})
        self.rows, self.bytes = [], 0


def as_rows(one: Captured, number: int, source: bool) -> dict[str, Tensor]:
    """One text's index and vectors."""
    ids = one.source if source else one.ids
    assert ids is not None
    places = torch.arange(len(ids))
    new = torch.zeros_like(places) if source else (places >= one.given).long()
    index = dict(zip(INDEX, (torch.full_like(places, number), places, ids.cpu()), strict=True))
    return index | {NEW: new} | {n: x.flatten(1).float().cpu() for n, x in one.values.items()}
