"""`regard entropy`: bits per letter of a text, by counting and by coding it (Shannon 1951)."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from regard.cli.predicting import Model, open_model
from regard.cli.show import Progress, Show
from regard.cli.texts import at_least, naming
from regard.data.text_files import read_parts
from regard.errors import DataError, RegardError
from regard.history.arithmetic_coder import Packed, pack, unpack
from regard.history.ngrams import Ids
from regard.history.predictors import Adaptive, Predictor
from regard.history.shannon import GAP, SHANNON, Alphabet, Letters, bytes_of, estimate, letters_of

DOING = "measuring entropy"
SPELT = {
    "27": "a to z and the blank; all else became a blank",
    "26": "a to z; all else was left out",
    "as-is": "every character of the text",
}


def run(args: argparse.Namespace, show: Show) -> int:
    """Measure a text."""
    at_least("--order", args.order)
    return measure(args, show)


def read_text(path: str) -> str:
    """The text of a file."""
    return "".join(read_parts(path))


def measure(args: argparse.Namespace, show: Show) -> int:
    """Count, code, decode, and print."""
    usual: Alphabet = "as-is" if args.model else "27"
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
    if show.as_json:
        show.result(made)
    else:
        print_all(made, show)
    return 0


class Coded:
    """A text in symbols, with what predicts them."""

    def __init__(self, ids: Ids, predictor: Predictor) -> None:
        self.ids, self.predictor = ids, predictor
        self.name, self.unknown = "", 0
        self.model: Model | None = None
        self.packed: Packed | None = None

    @classmethod
    def learning(cls, letters: Letters, order: int) -> Coded:
        """By n-grams that begin with nothing and learn as they read."""
        few = bytes_of(letters)
        made = cls(few.ids, Adaptive(len(few.symbols), order, len(few.ids)))
        made.name = f"learning {order}-grams"
        return made

    @classmethod
    def by_model(cls, model: Model, text: str) -> Coded:
        """By a model that was trained before."""
        made = cls(model.encode(text), model.predictor)
        made.name = model.path
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


def excess(coded: int, bits: float) -> float | None:
    """By what share the coded bits are more than the model's; None where those are infinite."""
    if np.isinf(bits):
        return None
    return coded / bits - 1 if bits else 0.0


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
