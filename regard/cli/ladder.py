"""`regard ladder`: every rung from counting words to the Transformer, one split, one table."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.cli.ladder_split import DOING, Split, is_pairs, make_split
from regard.cli.ladder_train import Climb, Clock
from regard.cli.show import Show, human_count
from regard.errors import UsageError, check_known
from regard.files import is_taken, write_whole
from regard.history.ladder import PAIRS, TEXTS, Rung, beaten_by, lacking, questions
from regard.look.picture import MISSING, can_draw, draw_ladder, png
from regard.tokens import load as load_tokenizer

PICTURE = "ladder.png"
ENOUGH = 10  # lines of a length for a point of the picture
Found = list[dict[str, Any]]


def run(args: argparse.Namespace, show: Show) -> int:
    """Train all rungs, then print the table."""
    rungs = choose(args)
    if args.steps is None and not 0 < args.minutes < float("inf"):
        raise UsageError(DOING, f"--minutes {args.minutes:g}", "more than 0")
    if args.seed < 0:
        raise UsageError(DOING, f"--seed {args.seed}", "0 or more")
    if args.out and is_taken(Path(args.out)):
        raise UsageError(DOING, f"{args.out} is not empty", "a new or empty folder as --out")
    if args.out:
        return report(args, show, rungs, Path(args.out))
    with tempfile.TemporaryDirectory(prefix="regard-ladder-") as folder:
        return report(args, show, rungs, Path(folder))


def choose(args: argparse.Namespace) -> list[Rung]:
    """The rungs asked for, in the order of the ladder."""
    known = {rung.name: rung for rung in (PAIRS if is_pairs(args.file) else TEXTS)}
    asked = list(known) if args.rungs is None else args.rungs.split(",")
    for name in asked:
        check_known(name, known, DOING, f"no rung {name!r}")
    return [rung for name, rung in known.items() if name in asked]


def report(args: argparse.Namespace, show: Show, rungs: Sequence[Rung], folder: Path) -> int:
    """Climb, and say what was found."""
    made = climb(args, show, rungs, folder)
    if args.out:
        write_picture(made, Path(args.out) / PICTURE, show)
    if show.as_json:
        show.result(made)
    else:
        print_tables(made, show)
    return 0


def climb(
    args: argparse.Namespace, show: Show, rungs: Sequence[Rung], folder: Path
) -> dict[str, Any]:
    """Train and measure rung after rung: those that count first, the others by their shares."""
    clock, pairs = Clock(args.minutes), is_pairs(args.file)
    split = make_split(args, folder / "split")
    if split.taken_out:
        show.note(
            f"left out of training, as test or validation has them: {split.taken_out:,} lines"
        )
    tokenizer = load_tokenizer(str(split.tokenizer))
    unknown = [] if pairs else lacking(tokenizer)
    asked = None if pairs or unknown else questions(tokenizer)
    work, found = Climb(args, show, split, folder), Found()
    for number, rung in enumerate(rungs):
        left = sum(other.share for other in rungs[number:] if not other.counts)
        seconds = 0.0 if rung.counts else clock.left * rung.share / left
        told = "" if rung.counts or args.steps else f", about {seconds:.0f} s"
        show.note(f"rung {number + 1} of {len(rungs)}: {rung.title}{told}")
        measured = (
            work.translator(rung, seconds) if pairs else work.text_model(rung, seconds, asked)
        )
        found.append({"name": rung.name, "title": rung.title, **measured})
    mark_order(rungs, found, pairs)
    made = facts(args, split, clock, found)
    made["energy"] = {"source": work.meter.source, "measured": work.meter.measured}
    if not pairs:
        made["french"] = {"distances": [*asked] if asked else [], "lacking": unknown}
    return made


def mark_order(rungs: Sequence[Rung], found: Found, pairs: bool) -> None:
    """Say of each rung whether a lower one is as good or better."""
    quality = {row["name"]: row["bleu"] if pairs else -row["perplexity"] for row in found}
    better = beaten_by(rungs, quality)
    for row in found:
        row["out_of_order"] = bool(better[row["name"]])
        row["beaten_by"] = better[row["name"]]


def facts(args: argparse.Namespace, split: Split, clock: Clock, found: Found) -> dict[str, Any]:
    """The object of `--json`."""
    return {
        "file": args.file,
        "kind": "translation" if is_pairs(args.file) else "text",
        "lines": split.lines,
        "taken_out": split.taken_out,
        "minutes": None if args.steps else args.minutes,
        "steps": args.steps,
        "seed": args.seed,
        "seconds": round(clock.taken, 1),
        "out": args.out,
        "rungs": found,
    }


# Showing ----------------------------------------------------------------------------------------


def print_tables(made: Mapping[str, Any], show: Show) -> None:
    """Quality and cost of each rung, then how it changes with length or distance."""
    budget = (
        f"{made['steps']} steps each" if made["steps"] else f"{made['minutes']:g} minutes for all"
    )
    lines = ", ".join(f"{count:,} {name}" for name, count in made["lines"].items())
    title = f"{made['file']}: {lines} lines; {budget}, took {made['seconds'] / 60:.1f}"
    pairs = made["kind"] == "translation"
    quality, digits = ("BLEU", 2) if pairs else ("perplexity", 1)
    costs = ("parameters", "seconds", "tokens/s", "energy")
    columns = ("rung", quality, "bits/token", *costs)
    rows = [row_of(row, quality.lower(), digits, made) for row in made["rungs"]]
    show.table(title, columns, rows)
    titles = {row["name"]: row["title"] for row in made["rungs"]}
    for row in made["rungs"]:
        if row["out_of_order"]:
            lower = ", ".join(titles[name] for name in row["beaten_by"])
            show.line(f"{row['title']} is OUT OF ORDER: not better than {lower}")
    show.line(f"energy of training: {made['energy']['source']}")
    if pairs:
        show.line("bits: of the validation pairs; rungs that count words know no other words")
        show.table("BLEU by words of the source", *length_rows(made["rungs"]), left=1)
    elif made["french"]["lacking"]:
        said = ", ".join(made["french"]["lacking"])
        show.line(f"no curve of p(French): not in the vocabulary: {said} (--tokens bpe has all)")
    else:
        title = "p(French) after “I grew up in France … I speak fluent”, by words between"
        show.table(title, *french_rows(made))


def row_of(
    row: Mapping[str, Any], quality: str, digits: int, made: Mapping[str, Any]
) -> tuple[str, ...]:
    """One rung as cells; energy that was not measured is marked."""
    about = "" if made["energy"]["measured"] else "~"
    return (
        row["title"],
        f"{row[quality]:,.{digits}f}",
        "–" if row["bits"] is None else f"{row['bits']:.3f}",
        human_count(row["parameters"]),
        f"{row['seconds']:.1f}",
        f"{row['tokens_per_s']:,.0f}",
        f"{about}{human_energy(row['joules'])}",
    )


def human_energy(joules: float) -> str:
    """12345 → '12.3 kJ'."""
    return f"{joules / 1000:,.3g} kJ" if joules >= 1000 else f"{joules:.3g} J"


def length_rows(rungs: Found) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Columns and rows of BLEU by length."""
    columns = ("words", "lines", *(row["title"] for row in rungs))
    lines = []
    for n, band in enumerate(rungs[0]["by_length"]):
        scores = [f"{row['by_length'][n]['bleu']:.1f}" for row in rungs]
        lines.append((f"{band['from']} to {band['to']}", f"{band['lines']:,}", *scores))
    return columns, lines


def french_rows(made: Mapping[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Columns and rows of p(French) by distance."""
    rungs = made["rungs"]
    lines = [
        (
            str(distance),
            *("–" if row["french"][n] is None else f"{row['french'][n]:.2g}" for row in rungs),
        )
        for n, distance in enumerate(made["french"]["distances"])
    ]
    return ("words", *(row["title"] for row in rungs)), lines


def write_picture(made: Mapping[str, Any], path: Path, show: Show) -> None:
    """The same as a PNG, where matplotlib is there."""
    if not can_draw():
        show.note(MISSING)
        return
    pairs, rungs = made["kind"] == "translation", made["rungs"]
    bars = {row["title"]: row["bleu" if pairs else "perplexity"] for row in rungs}
    curves: dict[str, list[tuple[float, float]]] = {}
    for row in rungs:
        if pairs:
            bands = [band for band in row["by_length"] if band["lines"] >= ENOUGH]
            points = [(band["mean"], band["bleu"]) for band in bands]
        else:
            both = zip(made["french"]["distances"], row["french"] or (), strict=False)
            points = [(x, p) for x, p in both if p is not None]
        curves |= {row["title"]: points} if points else {}
    names = (
        ("BLEU", "words of the source", "BLEU")
        if pairs
        else ("perplexity", "words between", "p(French)")
    )
    write_whole(path, png(draw_ladder(bars, curves, names, logarithmic=not pairs)))
    show.note(f"picture: {path}")
