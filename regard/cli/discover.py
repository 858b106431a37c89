"""`regard discover`: the rule behind sequences, with all that speaks for and against it."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from regard.cli.discover_show import notes, print_found
from regard.cli.show import Show
from regard.errors import DataError, UsageError
from regard.files import check_places
from regard.formal.state_diagram import check_drawing, dot, draw
from regard.rules import labelled_lines as reading
from regard.rules.checker import checker
from regard.rules.discovery import Discovery, Hypothesis, discover
from regard.rules.labelled_lines import MOST, RANDOM, Cut, Line
from regard.rules.nerode import automaton
from regard.rules.probes import Probe

ANIMALS = Path(reading.__file__).with_name("animals.txt")
PROVEN = 2_000_000  # tokens by which printed programs are compared with the search
READING = "reading the command line"


def run(args: argparse.Namespace, show: Show) -> int:
    """Read, search, print, write what was asked for."""
    check_written(args)
    cut = Cut(args.chars, args.column, args.label_column)
    told: list[str] = []
    begin = time.monotonic()
    lines = gather(args, cut, told)
    file = args.files[0] if args.files else ""
    with show.progress("looking for a rule") as progress:
        left = max(args.seconds / 2, args.seconds - (time.monotonic() - begin))
        found = discover(lines, left, args.seed, args.top, progress)
    sources = [checker(one.rule, cut, file, score(one)) for one in found.hypotheses]
    verify(found, sources)
    said = [*told, *notes(found, args.seconds)]
    blank = "" if args.chars else " "
    if not show.as_json:
        print_found(found, sources, said, blank, show)
    write(args, found, sources, show)
    neural = look_inside(args, found, blank, show) if args.neural else {}
    if show.as_json:
        show.result(as_data(found, sources, said, blank) | neural)
    return 0


def look_inside(
    args: argparse.Namespace, found: Discovery, blank: str, show: Show
) -> dict[str, Any]:
    """What a network makes of the lines; torch is imported here only."""
    from regard.cli.discover_neural import print_study, run_study, study_data

    made = run_study(found, args.seed, args.device, args.seconds, show)
    if not show.as_json:
        show.line()
        rule = found.hypotheses[0].rule.reading if found.hypotheses else "none"
        print_study(made, rule, blank, show)
    return {"neural": study_data(made, blank)}


def gather(args: argparse.Namespace, cut: Cut, told: list[str]) -> list[Line]:
    """The labelled lines that the arguments name."""
    files = args.files
    check_arguments(args)
    if args.animals:
        lines = list(reading.read_blocks(ANIMALS, cut))
        lines = [line._replace(file="animals.txt") for line in lines]
    elif args.blocks:
        lines = list(reading.read_blocks(files[0], cut))
    elif args.label_column:
        lines = list(reading.read_labelled(files[0], cut))
    else:
        sides = [list(reading.read_side(f, n == 0, cut)) for n, f in enumerate(files)]
        for file, side in zip(files, sides, strict=True):
            if not side:
                told.append(f"{file} has no lines")
        lines = [line for side in sides for line in side]
    if not lines:
        where = ", ".join(map(str, files))
        raise DataError("looking for a rule", f"no tokens in {where}", "a sequence on each line")
    answers = list(reading.read_answers(args.label or (), cut))
    if not any(line.positive for line in [*lines, *answers]):
        answers = [line._replace(positive=True) for line in answers]
        lines = [line._replace(positive=True) for line in lines]
        told.append("there are negatives only: the rules are about what they have in common")
    if len(lines) > MOST:
        told.append(f"{len(lines):,} lines: {MOST:,} of them, at even distances, were looked at")
        halves = [[x for x in lines if x.positive == sign] for sign in (True, False)]
        room = max(MOST // 2, MOST - min(map(len, halves)))
        lines = [line for half in halves for line in reading.thin(half, room)][:MOST]
    return [*lines, *answers]


def check_arguments(args: argparse.Namespace) -> None:
    """Which files go with which flags."""
    most = 0 if args.animals else 1 if args.blocks or args.label_column else 2
    if len(args.files) > most or (not args.files and not args.animals):
        expected = ("no file with --animals", "one file", "POS, or POS and NEG")[most]
        raise UsageError(READING, f"{len(args.files)} files", expected, "regard discover --animals")
    if args.column and (args.animals or args.blocks):
        flag = "--animals" if args.animals else "--blocks"
        raise UsageError(READING, f"--column with {flag}", "--column with tables", "leave one out")
    if args.label_column and not args.column:
        fix = f"--column NAME --label-column {args.label_column}"
        raise UsageError(READING, "--label-column without --column", "both", fix)


def check_written(args: argparse.Namespace) -> None:
    """Files that can be written, and are neither read nor written twice."""
    places = [args.checker, args.png, args.dot if args.dot != "-" else None]
    check_places(*places)
    if args.png:
        check_drawing(args.png)
    taken = {Path(file).resolve(): f"{file} is read" for file in args.files}
    for place in filter(None, places):
        if found := taken.get(Path(place).resolve()):
            raise UsageError(f"writing {place}", found, "another file")
        taken[Path(place).resolve()] = "two outputs go there"


def score(one: Hypothesis) -> str:
    """25 of 26."""
    return f"{one.right} of {one.right + len(one.exceptions)} lines"


def verify(found: Discovery, sources: list[str]) -> None:
    """Run each printed program on all lines: it must say what is reported."""
    enough = max(5, PROVEN // sum(len(line.tokens) for line in found.lines))
    for one, source in list(zip(found.hypotheses, sources, strict=True))[:enough]:
        names: dict[str, Any] = {"__name__": "checker"}
        exec(compile(source, "checker", "exec"), names)
        wrong = [
            line
            for line in found.lines
            if line.file != RANDOM and names["accepts"](line.tokens) != line.positive
        ]
        if len(wrong) != len(one.exceptions):
            found_ = f"{len(wrong)} exceptions by the checker, {len(one.exceptions)} by the search"
            raise DataError(f"checking {one.rule.reading!r}", found_, "the same")


def write(args: argparse.Namespace, found: Discovery, sources: list[str], show: Show) -> None:
    """The files that were asked for, of the best rule."""
    if not found.hypotheses:
        if args.checker or args.dot or args.png:
            show.note("no rule tells one line from another: nothing is written")
        return
    if args.checker:
        Path(args.checker).write_text(sources[0], encoding="utf-8")
    if not args.dot and not args.png:
        return
    rule = found.hypotheses[0].rule
    dfa = found.hypotheses[0].dfa or automaton(rule, found.vocabulary)
    if dfa is None:
        show.note(f"no small automaton decides {rule.reading!r}: nothing is drawn")
        return
    if args.dot == "-":
        show.line(dot(dfa))
    elif args.dot:
        Path(args.dot).write_text(dot(dfa), encoding="utf-8")
    if args.png:
        draw(dfa, args.png)


def as_data(
    found: Discovery, sources: list[str], said: list[str], blank: str = " "
) -> dict[str, Any]:
    """The object of `--json`."""
    return {
        "hypotheses": [
            hypothesis_data(one, source, found)
            for one, source in zip(found.hypotheses, sources, strict=True)
        ],
        "probes": [
            {
                "sequence": list(probe.tokens),
                "text": blank.join(probe.tokens),
                "accepted_by": sides(found, probe, True),
                "refused_by": sides(found, probe, False),
                "bits": probe.bits,
            }
            for probe in found.probes
        ],
        "claimed": found.claimed,
        "p_value": found.p_value,
        "permutation_p": found.permutation,
        "shuffles": found.shuffles,
        "bound_p": found.bound,
        "leave_one_out": found.leave_one_out,
        "bits_without_rule": found.none,
        "complete": found.complete,
        "rules_tried": found.tried,
        "lines": sum(line.file != RANDOM for line in found.lines),
        "symbols": len(found.vocabulary),
        "in_both": [
            {"text": one.text, "positive": one.place, "negative": two.place}
            for one, two in found.both
        ],
        "notes": said,
    }


def sides(found: Discovery, probe: Probe, accepted: bool) -> list[int]:
    """Which of the hypotheses, from 1, accept or refuse a probe."""
    said = zip(found.rivals, probe.verdicts, strict=True)
    return [n + 1 for n, verdict in said if verdict == accepted]


def hypothesis_data(one: Hypothesis, source: str, found: Discovery) -> dict[str, Any]:
    """One rule."""
    chance = one.chance
    total = one.right + len(one.exceptions)
    return {
        "rule": one.rule.reading,
        "accuracy": one.right / total,
        "right": one.right,
        "lines": total,
        "claimed": found.claimed and one.p_value < 0.01,
        "bits": one.bits,
        "score": round(one.total, 3),
        "posterior": one.posterior,
        "p_value": one.p_value,
        "exceptions": [
            {"file": line.file, "line": line.line, "text": line.text, "positive": line.positive}
            for line in one.exceptions
        ],
        "by_chance": None
        if chance is None
        else {
            "rate": chance.rate,
            "expected": chance.expected,
            "observed": chance.observed,
            "p_exactly": chance.just,
            "p_at_least": chance.least,
        },
        "states": len(one.dfa.moves) if one.dfa else None,
        "dot": dot(one.dfa) if one.dfa and len(one.dfa.moves) <= 12 else None,
        "checker": source,
    }
