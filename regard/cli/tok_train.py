"""`regard tok train`: learn a tokenizer from files, folders or stdin."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from regard.cli.show import Progress, Show, human_bytes
from regard.data.files import decode, read_parts, split_lines
from regard.errors import UsageError
from regard.tokens.train import train_tokenizer, usual_size


def run_train(args: argparse.Namespace, show: Show) -> int:
    """Learn a tokenizer and write its folder."""
    out = Path(args.out)
    if (out / "tokenizer.json").exists() and not args.force:
        found = f"{out} has a tokenizer.json"
        raise UsageError("training a tokenizer", found, "a new folder, or --force")
    size = usual_size(args.kind, args.size)
    with show.progress("training") as progress, Ticker(progress) as ticker:
        tokenizer = train_tokenizer(
            texts_of(args, ticker),
            args.kind,
            size,
            specials=read_specials(args.specials),
            min_count=args.min_count,
            wrap=args.wrap,
            lossless=args.lossless,
            phase=ticker.say,
        )
    tokenizer.save(out)
    if args.size and tokenizer.size < args.size:
        show.note(f"{tokenizer.size:,} ids, not {args.size:,}: the texts give no more")
    if show.as_json:
        specials = tokenizer.specials
        show.result({"out": str(out), "size": tokenizer.size, "specials": specials})
    else:
        show.line(f"{args.kind}, {tokenizer.size:,} ids, in {out}")
    return 0


def texts_of(args: argparse.Namespace, ticker: Ticker) -> Iterator[str]:
    """The lines of the files, or of stdin."""
    if args.kind == "bytes":
        return iter(())
    if args.files:
        return read_parts(args.files, ticker.read)
    return split_lines(decode(sys.stdin.buffer, "stdin"))


def read_specials(text: str | None) -> dict[str, str] | None:
    """pad,mask=<m> as role to spelling, '' for the usual one."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",") if word.strip()]
    roles = [word.partition("=")[0] for word in words]
    if len(set(roles)) < len(roles):
        raise UsageError("reading --specials", f"a role twice in {text!r}", "each role once")
    return {word.partition("=")[0]: word.partition("=")[2] for word in words}


class Ticker:
    """Says twice a second what is being done, also while the library merges and calls nobody."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.doing, self.place = progress, "starting", ""
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.tick, daemon=True)

    def __enter__(self) -> Ticker:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.thread.join()

    def tick(self) -> None:
        """Speak until the work has ended."""
        while not self.ended.wait(0.5):
            self.progress(f"{self.doing}{self.place}")

    def say(self, doing: str) -> None:
        """A new phase has begun."""
        self.doing, self.place = doing, ""

    def read(self, done: int, total: int) -> None:
        """So many bytes of the files have been read."""
        share = f" ({100 * done // total} %)" if total else ""
        self.place = f", {human_bytes(done)} of {human_bytes(total)}{share}"
