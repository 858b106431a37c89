"""`regard extract`: the activations of a corpus, written to a folder in shards."""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from regard import __version__
from regard.cli.extract_room import Room
from regard.cli.lines import Faults, Line, line_groups
from regard.cli.opening import open_kit
from regard.cli.show import Show, human_bytes
from regard.look.text_limits import LONGEST
from regard.errors import DataError, UsageError
from regard.interop.side import start_id
from regard.kit import Kit
from regard.look.extract import Choice, Item, Kind, Shards, choose_taps, kind_of
from regard.look.activation_store import PART, Settings, Writer, check_free, import_arrow, publish, writing
from regard.model.config import TextConfig
from regard.receipt import make_receipt
from regard.train.checkpoint import weight_hash

DOING = "extracting"
TOGETHER = 256  # lines that are cut into tokens together
MEGABYTE = 1_000_000
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass
class Counts:
    """What became of the texts."""

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
        """One more text."""
        self.texts += 1
        self.digest.update(text.encode() + b"\n")

    def mark(self) -> dict[str, Any]:
        """How far the texts were read."""
        return {"texts": self.texts, "sha256": self.digest.hexdigest()}

    def as_data(self) -> dict[str, Any]:
        """For the manifest."""
        tokens = self.before + self.tokens
        made = {"texts": self.texts, "tokens": tokens, "skipped": self.skipped}
        return made | {"short": self.short, "texts_sha256": self.digest.hexdigest()}


def run(args: argparse.Namespace, show: Show) -> int:
    """Read a corpus and write what passes the taps."""
    out = Path(args.out)
    check_free(out, args.force)
    check_form(args)
    kit = open_kit(args.path, args.device, "fp32", edits=args.edit)
    if not isinstance(kit.model.config.front, TextConfig):
        kind = kit.model.config.front.kind
        raise UsageError(DOING, f"a model that reads {kind}", "one that reads text")
    kit.board.check_alone("a corpus, whose texts run together")
    choice = choose_taps(kit.board, args.tap, args.position, args.head, DTYPES[args.precision])
    faults, counts, start = Faults(show), Counts(), time.monotonic()
    try:
        with writing(out, args.format, args.force, settings_of(kit, args, choice)) as writer:
            if writer.shards:
                show.note(f"going on after {len(writer.shards)} shards, {writer.texts:,} texts")
            size = args.shard_mb * MEGABYTE
            write = partial(writer.write, mark=counts.mark)
            room = Room(kit, Shards(kit.board, choice, size, write))
            read_corpus(kit, args, room, faults, counts, writer)
            made = manifest(kit, args, choice, room.shards.widths, counts, writer)
            publish(out, writer, made)
    except BaseException as error:
        if (out / PART).is_dir() and not isinstance(error, UsageError | DataError):
            show.note(f"finished shards are kept in {out}: the same command goes on from there")
        raise
    report(args, show, made, counts, time.monotonic() - start)
    return faults.finish()


def settings_of(kit: Kit, args: argparse.Namespace, choice: Choice) -> Settings:
    """What an interrupted run must have had alike to be gone on with."""
    made = {"tap": choice.taps, "position": choice.position, "head": choice.head}
    made |= {"precision": args.precision, "format": args.format, "edit": args.edit}
    return {"model": weight_hash(kit.model), **made}


def read_corpus(
    kit: Kit, args: argparse.Namespace, room: Room, faults: Faults, counts: Counts, writer: Writer
) -> None:
    """All texts, as far as they are not read already, into shards on the disk."""
    with faults.show.progress(DOING) as progress:

        def tell(done: int) -> None:
            counts.tokens += done
            progress(f"{counts.tokens:,} tokens, {counts.texts:,} texts")

        items = read_items(kit, args, room, faults, counts, writer)
        room.shards.read(items, room.tokens(args), tell)
        room.shards.flush()
        writer.wait()
    if not writer.shards:
        raise DataError(DOING, "no text that gives a row", "texts with tokens there")


def check_form(args: argparse.Namespace) -> None:
    """Refuse what a format cannot hold, before a model is opened."""
    if args.format == "arrow":
        import_arrow()
        if args.precision == "bf16":
            raise UsageError(DOING, "bf16 in Arrow files, which have none", "fp32, or safetensors")


# Texts --------------------------------------------------------------------------------------------


def read_items(
    kit: Kit, args: argparse.Namespace, room: Room, faults: Faults, counts: Counts, writer: Writer
) -> Iterator[Item]:
    """Texts as ids, but those done before; one that cannot be read is told, the others are done."""
    kind, done, mark = room.shards.kind, writer.texts, writer.mark
    for group in line_groups(None, args.files or ["-"], TOGETHER):
        for line, found in zip(group, cut(kit, group, kind), strict=True):
            number = counts.texts
            counts.add(line.text)
            if counts.texts == mark.get("texts"):
                check_texts(counts, mark, args.out)
            try:
                if isinstance(found, DataError):
                    raise DataError(
                        found.doing, f"text {number + 1}: {found.found}", found.expected
                    )
                item = found._replace(number=number)
                rows = room.check(item)
            except DataError as error:
                counts.skipped += 1
                faults.tell(str(error))
                continue
            length = len(item.ids) + len(item.target or ())
            counts.short += rows == 0 and len(item.ids) > 0
            if number < done:
                counts.before += length * (rows > 0)
            elif rows:
                if length > LONGEST:
                    told = f"text {number + 1} has {length:,} tokens, which run at once"
                    faults.show.note(f"{told}: no progress meanwhile; shorter lines are quicker")
                yield item
    if counts.texts < mark.get("texts", 0):
        check_texts(counts, mark, args.out)


def check_texts(counts: Counts, mark: dict[str, Any], out: str) -> None:
    """Go on with an interrupted run only where it has read the same."""
    if counts.mark() != mark:
        found = f"not the texts that the interrupted run in {out} has read"
        raise DataError(DOING, found, "the same in the same order", "another --out, or delete it")


def cut(kit: Kit, group: list[Line], kind: Kind) -> list[Item | DataError]:
    """Lines as ids, or why they cannot be."""
    pair = kit.model.config.target is not None
    parts = [line.text.split("\t") if pair else [line.text] for line in group]
    sources = kit.text_tokenizer.encode_batch([part[0] for part in parts])
    targets: list[list[int] | None] = [None] * len(group)
    if kind.target:
        first = start_id(kit.files, kit.config)
        rows = kit.text_tokenizer.encode_batch([part[-1] for part in parts], side="target")
        targets = [[first, *row] for row in rows]
    made: list[Item | DataError] = []
    for line, part, ids, target in zip(group, parts, sources, targets, strict=True):
        if line.fault:
            made.append(DataError("reading a line", line.fault, "UTF-8 text"))
        elif (kind.target and len(part) != 2) or len(part) > 2:
            made.append(DataError(DOING, f"{len(part) - 1} TABs", "source TAB target"))
        else:
            made.append(Item(0, ids, target))
    return made


# What is left behind ------------------------------------------------------------------------------


def manifest(
    kit: Kit,
    args: argparse.Namespace,
    choice: Choice,
    widths: dict[str, int],
    counts: Counts,
    writer: Writer,
) -> dict[str, Any]:
    """What was read of what, its shapes and hashes, and how to make it again."""
    rows = sum(shard["rows"] for shard in writer.shards)
    config = {n: v for n, v in vars(args).items() if n not in ("arguments", "verb")}
    place = {"device": str(kit.device), "threads": torch.get_num_threads()}
    versions = {"regard": __version__, "torch": torch.__version__}
    weights = {"weights": weight_hash(kit.model)}
    shapes = {name: {"shape": [rows, width]} for name, width in widths.items()}
    source = kind_of(kit.board, choice).source
    told = counts.as_data()
    data = {"texts": told["texts_sha256"]}
    return {
        "model": args.path,
        "taps": shapes,
        "dtype": str(choice.dtype).removeprefix("torch."),
        "position": choice.position,
        "head": choice.head,
        "tokens_of": "source" if source else "target" if kit.model.config.target else "text",
        "rows": rows,
        **told,
        "bytes": sum(shard["bytes"] for shard in writer.shards),
        "shards": writer.shards,
        "receipt": make_receipt(
            ("regard", *args.arguments), config, data, weights, versions, place
        ),
    }


def report(
    args: argparse.Namespace, show: Show, made: dict[str, Any], counts: Counts, seconds: float
) -> None:
    """What was written."""
    speed = counts.tokens / seconds
    if show.as_json:
        kept = {n: v for n, v in made.items() if n not in ("receipt", "shards")}
        more = {"shards": len(made["shards"]), "seconds": seconds, "tokens_per_second": speed}
        show.result({"out": args.out, **kept, **more})
        return
    rows = [
        (name, f"{each['shape'][0]:,}", f"{each['shape'][1]:,}")
        for name, each in made["taps"].items()
    ]
    show.table(f"{args.out}: {human_bytes(made['bytes'])}", ("tap", "rows", "numbers"), rows)
    shards = len(made["shards"])
    show.line(
        f"{made['texts']:,} texts, {counts.tokens:,} tokens in {seconds:.1f} s "
        f"({speed:,.0f} a second); {shards:,} shard{'s' if shards > 1 else ''} of {made['dtype']}"
    )
    if made["short"]:
        show.note(f"{made['short']:,} texts have no token at position {args.position}: no row")
