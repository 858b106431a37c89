"""`regard entropy`: bits per letter of a text, by counting and by coding it (Shannon 1951)."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from regard.cli.predicting import Model, mark, open_model
from regard.cli.show import Progress, Show
from regard.cli.texts import at_least, naming
from regard.data.files import read_parts
from regard.errors import DataError, RegardError, UsageError
from regard.files import check_places, write_whole
from regard.history.coder import (
    Packed,
    check_decoded,
    check_fingerprint,
    from_bytes,
    pack,
    to_bytes,
    unpack,
)
from regard.history.entropy import GAP, SHANNON, Alphabet, Letters, bytes_of, estimate, letters_of
from regard.history.ngram import Ids
from regard.history.predictor import Adaptive, Predictor

DOING = "measuring entropy"
SPELT = {
    "27": "a to z and the blank; all else became a blank",
    "26": "a to z; all else was left out",
    "as-is": "every character of the text",
}


def run(args: argparse.Namespace, show: Show) -> int:
    """Measure a text, or give one back."""
    if (args.file is None) == (args.decompress is None):
        both = "a file and --decompress" if args.file else "no file"
        raise UsageError(DOING, both, "FILE, or --decompress IN OUT")
    at_least("--order", args.order)
    return give_back(args, show) if args.decompress else measure(args, show)


def read_text(path: str) -> str:
    """The text of a file."""
    return "".join(read_parts(path))


def measure(args: argparse.Namespace, show: Show) -> int:
    """Count, code, decode, and print."""
    new_file(args.compress)
    usual: Alphabet = "as-is" if args.model or args.compress else "27"
    alphabet: Alphabet = args.alphabet or usual
    with show.progress(DOING) as progress:
        progress(f"reading {args.file}")
        letters = letters_of(read_text(args.file), alphabet)
        letters = replace(letters, ids=letters.ids[: args.letters])
        text = letters.text
        if not text:
            found = f"no letters in {args.file} ({SPELT[alphabet]})"
            raise DataError(DOING, found, "a text with letters")
        progress(f"counting {len(text):,} letters")
        with naming([args.file], "estimating entropy"):
            found_ = estimate(letters.ids, len(letters.symbols), args.order)
        coded = [Coded.learning(letters, args.order)]
        if args.model:
            model = open_model(args.model, args.device)
            coded.append(Coded.by_model(model, text))
            if args.compress:
                coded[-1].check_lossless(text)
            if model.was_trained_on(args.file):
                show.note(f"{args.model} was trained on this file: its bits are no measure of it")
        rows = [one.run(text, progress) for one in coded]
    made: dict[str, Any] = {
        "file": args.file,
        "alphabet": alphabet,
        "symbols": len(letters.symbols),
        "letters": len(text),
        "F": found_.plug_in,
        **{name: value for name, value in asdict(found_).items() if name != "plug_in"},
        "shannon": SHANNON.get(alphabet),
        "prequential": rows[0]["bits_per_letter"],
        "coded": rows,
    }
    if args.compress:
        data = coded[-1].file()
        write_whole(Path(args.compress), data)
        made["compressed"] = {"file": args.compress, "bytes": len(data), "by": rows[-1]["by"]}
    if show.as_json:
        show.result(made)
    else:
        print_all(made, show)
    return 0


def new_file(path: str | None) -> None:
    """What is there already stays."""
    check_places(path)
    if path and Path(path).exists():
        raise UsageError(DOING, f"{path} is there already", "a new file")


class Coded:
    """A text in symbols, with what predicts them."""

    def __init__(self, ids: Ids, predictor: Predictor, fingerprint: str) -> None:
        self.ids, self.predictor, self.fingerprint = ids, predictor, fingerprint
        self.about: dict[str, Any] = {}
        self.name, self.unknown = "", 0
        self.model: Model | None = None
        self.packed: Packed | None = None

    @classmethod
    def learning(cls, letters: Letters, order: int) -> Coded:
        """By n-grams that begin with nothing and learn as they read."""
        few = bytes_of(letters)
        about = {"order": order, "symbols": few.symbols, "utf8": few.bytes}
        made = cls(few.ids, *learner(about, len(few.ids)))
        made.about, made.name = about, f"learning {order}-grams"
        return made

    @classmethod
    def by_model(cls, model: Model, text: str) -> Coded:
        """By a model that was trained before."""
        made = cls(model.encode(text), model.predictor, model.fingerprint)
        made.about, made.name = {"model": model.path}, model.path
        made.model, made.unknown = model, model.unknown(made.ids)
        return made

    def run(self, text: str, progress: Progress) -> dict[str, Any]:
        """Code and decode back; what it took."""
        letters = len(text)
        total = f"of {len(self.ids):,} symbols"
        self.packed = pack(self.ids, self.predictor, lambda n: progress(f"coding {n:,} {total}"))
        again = unpack(self.packed, self.predictor, lambda n: progress(f"decoding {n:,} {total}"))
        if not np.array_equal(again, self.ids):
            raise RegardError("decoding back", "another text", "the text that was coded")
        size, never = len(self.packed.data), self.packed.never
        impossible: dict[str, Any] = {"impossible": len(never)} if never else {}
        if never and self.model is not None:
            impossible |= {"first_impossible": self.model.written_at(text, never[0])}
        return {
            "by": self.name,
            "tokens": len(self.ids),
            "unknown": self.unknown,
            "bits_per_letter": self.packed.bits / letters,
            "bytes": size,
            "coded_bits_per_letter": 8 * size / letters,
            "excess": excess(8 * size, self.packed.bits),
            "decoded_back": True,
            **impossible,
        }

    def check_lossless(self, text: str) -> None:
        """Whether a model's tokens give the text back."""
        if self.model is not None and (again := self.model.decode(self.ids)) != text:
            same = (a == b for a, b in zip(again, text, strict=False))
            at = next((n for n, equal in enumerate(same) if not equal), min(len(again), len(text)))
            found = f"its tokens give another text back, from character {at:,} on"
            expected = "a tokenizer without loss (bytes, bpe, chars that know all of the text)"
            raise UsageError(f"coding with {self.name}", found, expected)

    def file(self) -> bytes:
        """The coded text as a file."""
        assert self.packed is not None
        return to_bytes(self.packed, self.ids, self.fingerprint, self.about)


def excess(coded: int, bits: float) -> float | None:
    """By what share the coded bits are more than the model's; None where those are infinite."""
    if np.isinf(bits):
        return None
    return coded / bits - 1 if bits else 0.0


def learner(about: Mapping[str, Any], count: int) -> tuple[Adaptive, str]:
    """A predictor that learns, as a file's header tells it, and its fingerprint."""
    order, symbols = about["order"], about["symbols"]
    return Adaptive(len(symbols), order, count), mark(f"adaptive 1 {order} {symbols}")


def give_back(args: argparse.Namespace, show: Show) -> int:
    """The text of a coded file."""
    source, out = args.decompress
    new_file(out)
    data = Path(source).read_bytes()
    packed, header = from_bytes(data, source)
    model: Model | None = None
    if "model" in header:
        if not args.model:
            fix = f"add --model M; it was {header['model']}"
            raise UsageError(f"decoding {source}", "no model", "the one it was coded with", fix)
        model = open_model(args.model, args.device)
        predictor: Predictor = model.predictor
        fingerprint = model.fingerprint
    else:
        predictor, fingerprint = learner(header, packed.count)
    check_fingerprint(header, fingerprint, data, source)
    with show.progress("decoding") as progress:
        ids = unpack(packed, predictor, lambda n: progress(f"{n:,} of {packed.count:,}"))
    check_decoded(header, ids, source, data.find(packed.data))
    if model is not None:
        text = model.decode(ids)
    else:
        text = Letters(ids, header["symbols"], header["utf8"]).text
    write_whole(Path(out), text.encode())
    made = {"file": out, "letters": len(text), "bytes": len(text.encode())}
    if show.as_json:
        show.result(made)
    else:
        show.line(f"{out}: {len(text):,} letters, from {len(data):,} bytes; the checksum agrees")
    return 0


# On the terminal ----------------------------------------------------------------------------------


def print_all(made: Mapping[str, Any], show: Show) -> None:
    """The table of F_N, what the coder reached, and what is to be known of them."""
    alphabet, published = made["alphabet"], made["shannon"] or ()
    kinds = f"{made['symbols']} symbols ({SPELT[alphabet]})"
    show.line(f"{made['file']}: {made['letters']:,} letters, {kinds}")
    columns = ["", "plug-in", "Miller–Madow", "held-out"] + ["Shannon 1951"] * bool(published)
    rows = []
    for n, values in enumerate(zip(made["F"], made["miller_madow"], made["held_out"], strict=True)):
        own = [f"{published[n]:.2f}" if n < len(published) else ""] if published else []
        rows.append([f"F{n}", *(f"{value:.3f}" for value in values), *own])
    show.line()
    show.table("bits per letter", columns, rows)
    if published and len(made["F"]) > 3:
        show.line(GAP)
    show.line()
    coded = [
        (
            Path(row["by"]).name,
            "∞" if row["excess"] is None else f"{row['bits_per_letter']:.3f}",
            f"{row['coded_bits_per_letter']:.3f}",
            "–" if row["excess"] is None else f"{100 * row['excess']:.2f} %",
            f"{row['bytes']:,}",
        )
        for row in made["coded"]
    ]
    columns = ["predicted by", "bits per letter", "coded", "over", "bytes"]
    show.table("predicted from what was read, coded, and decoded back", columns, coded)
    show.line("Each code was decoded again and gave the same text.")
    for row in made["coded"]:
        if "impossible" in row:
            first = repr(row["first_impossible"]) if row["first_impossible"] else "a line's end"
            show.line(
                f"{row['by']}: {row['impossible']:,} of {row['tokens']:,} tokens have probability "
                f"0, the first is {first}: not seen in training, and nothing is smoothed. "
                "The coder keeps a small share for such tokens."
            )
        elif row["unknown"]:
            show.line(
                f"{row['by']}: {row['unknown']:,} of {row['tokens']:,} tokens are unknown words, "
                "whose letters cost nothing here: too low"
            )
    if "compressed" in made:
        file = made["compressed"]
        show.line(f"{file['file']}: {file['bytes']:,} bytes in all, with header and checksums")
