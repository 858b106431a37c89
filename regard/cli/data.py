"""`regard data check`: what is odd about data files, before they are trained on."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

from regard.cli.show import Show
from regard.data.corpus_check import Couple, Report, check_file, find_overlap
from regard.data.duplicates import Overlap
from regard.data.text_files import find_files
from regard.errors import DataError, UsageError

WIDTH = 40  # characters of the longest bar
LABELS_SHOWN = 12
SPEECH = ("fillers", "restarts")
SPOKEN = 0.02  # share of the lines with either, from which a text is taken for speech


def run(args: argparse.Namespace, show: Show) -> int:
    """Print a report for each file; 3 when one of them is broken."""
    train = couples(args.files, args.target, "--target")
    test = couples(args.test or [], args.test_target, "--test-target")
    reports, errors = [], []
    with show.progress("reading") as progress:
        for path, target in train + test:
            progress(str(path))
            try:
                reports.append(check_file(path, target, args.kind, args.label))
            except DataError as error:
                errors.append(str(error))
        progress("overlap between the splits")
        shared = find_overlap(train, test) if test and not errors else {}
    if show.as_json:
        show.result(as_json(reports, shared, errors))
    else:
        for report in reports:
            print_report(report, show)
        print_overlap(shared, show)
    for message in errors:
        show.error(message)
    return DataError.exit_code if errors else 0


def couples(files: list[str], targets: list[str] | None, option: str) -> list[Couple]:
    """Files as they are, or each with its file of targets."""
    if not targets:
        return [(path, None) for path in find_files(files)]
    if len(files) != len(targets):
        found = f"{len(files)} files and {len(targets)} after {option}"
        raise UsageError("pairing files", found, "as many of one as of the other")
    return list(zip(files, targets, strict=True))


def as_json(reports: list[Report], shared: dict[str, Overlap], errors: list[str]) -> dict[str, Any]:
    """The object of `--json`."""
    files = [
        {
            "path": report.path,
            "kind": report.kind,
            "count": report.units,
            "findings": {name: vars(tally) for name, tally in report.findings.items()},
            "words": {
                side or "all": {bucket_name(n): count for n, count in sorted(lengths.items())}
                for side, lengths in report.words.items()
            },
            "labels": dict(report.labels.most_common()),
            "speech": speech_data(report),
        }
        for report in reports
    ]
    overlap = {name: {**vars(found), "share": found.share} for name, found in shared.items()}
    return {"files": files, "overlap": overlap, "errors": errors}


def speech_data(report: Report) -> dict[str, Any] | None:
    """Marked lines, and seconds of silence before words, which are None without word times."""
    means = {name: total / count for name, (total, count) in report.silence.items()}
    marked = [{"line": line, "text": text} for line, text in report.marked]
    return {"marked": marked, "silence_before": means or None} if marked else None


def print_speech(report: Report, show: Show) -> None:
    """Marked lines for people; a few in a written text are no speech."""
    found = speech_data(report)
    counts = [tally.count for name, tally in report.findings.items() if name in SPEECH]
    if found is None or max(counts) < SPOKEN * report.units:
        return
    show.line("  fillers in {braces}, restarts in [brackets]")
    for line, text in report.marked:
        show.line(f"    line {line:,}: {text}")
    if found["silence_before"] is None:
        show.line("  no word times: the text alone was looked at (a .ctm file has them)")
    else:
        means = ", ".join(f"{name} {s:.2f} s" for name, s in found["silence_before"].items())
        show.line(f"  mean silence before: {means}")


def print_report(report: Report, show: Show) -> None:
    """One file: findings, lengths, labels."""
    unit = {"pairs": "pairs", "conll": "sentences", "text": "lines", "ctm": "utterances"}.get(
        report.kind, "rows"
    )
    rows = {unit: f"{report.units:,}"}
    for name, tally in report.findings.items():
        lines = ", ".join(f"{line:,}" for line in tally.lines)
        rows[name] = f"{tally.count:,} ({tally.count / report.units:.1%}; line {lines})"
    if not report.findings:
        rows["findings"] = "none"
    show.fields(f"{report.path} ({report.kind})", rows)
    print_speech(report, show)
    for side, lengths in report.words.items():
        bars(f"words of each {side or unit.removesuffix('s')}", named(lengths), show)
    if report.labels:
        bars("labels", dict(report.labels.most_common(LABELS_SHOWN)), show)
        if len(report.labels) > LABELS_SHOWN:
            show.line(f"  … {len(report.labels) - LABELS_SHOWN} more")
    show.line()


def named(lengths: Counter[int]) -> dict[str, int]:
    """All buckets from the shortest to the longest, those without lines too."""
    return {bucket_name(n): lengths[n] for n in range(min(lengths), max(lengths) + 1)}


def bucket_name(n: int) -> str:
    """Bucket 4 → '8–15'."""
    low, high = 2 ** max(n - 1, 0), 2**n - 1
    return "0" if n == 0 else f"{low}" if low == high else f"{low}–{high}"


def bars(title: str, counts: dict[str, int], show: Show) -> None:
    """Counts as bars."""
    most = max(counts.values())
    rows = [(name, f"{n:,}", "█" * round(WIDTH * n / most)) for name, n in counts.items()]
    width = max(len(number) for _, number, _ in rows)
    show.table(title, ("", "", ""), [(a, b.rjust(width), c) for a, b, c in rows], left=3)


def print_overlap(shared: dict[str, Overlap], show: Show) -> None:
    """How much of the test files stands in the others."""
    rows = {}
    for name, found in shared.items():
        lines = ", ".join(f"{line:,}" for line in found.lines)
        where = f"; line {lines}" if lines else ""
        rows[name] = f"{found.found:,} of {found.total:,} ({found.share:.1%}{where})"
    if rows:
        show.fields("test data found in the other files", rows)
