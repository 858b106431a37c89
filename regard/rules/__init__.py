"""Rule discovery: the rule behind labelled sequences, with all that speaks for and against it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from regard.ambient import note
from regard.errors import UsageError
from regard.rules.results import Discovery
from regard.verbs import Amount, Count, File, verb

if TYPE_CHECKING:
    from regard.rules.labelled_lines import Side
else:
    Side = File


@verb
def discover(
    positives: Side | None = None,
    negatives: Side | None = None,
    *,
    animals: bool = False,
    blocks: bool = False,
    chars: bool = False,
    column: str | None = None,
    label_column: str | None = None,
    label: Sequence[str] = (),
    seconds: Amount = 60.0,
    top: Count = 20,
    checker: str | Path | None = None,
    neural: bool = False,
) -> Discovery:
    """The rule behind labelled sequences, and what would decide.

    Args:
        positives: a file of lines that keep the rule; in Python also the lines themselves.
        negatives: a file of lines that break it; without one, random lines do.
        animals: the 26 lines of eight animals.
        blocks: the one file has two blocks with an empty line between them: positives, negatives.
        chars: tokens are characters, not words.
        column: the sequences are in this column of .csv, .tsv or .jsonl.
        label_column: yes and no are in this column; there is no file of negatives.
        label: answered probes, each as 'a b a : yes'.
        seconds: time for the search, after which the best so far is given.
        top: rules listed.
        checker: write a Python program that checks the best rule on files of lines.
        neural: train a small Transformer too, and open it: automaton, edits, heads (a minute).

    Example:
        >>> regard.discover(["a b", "b b a"], ["b", "b b"]).hypotheses[0].rule
        $ regard discover pos.txt neg.txt --checker rule.py
        $ regard discover --animals --label 'leeuw olifant leeuw olifant : no'
        $ regard discover table.csv --column text --label-column ok --chars --json
    """
    import time

    from regard.files import check_places
    from regard.rules.discovery import discover_rule
    from regard.rules.labelled_lines import LineFormat, read_examples

    begin, form = time.monotonic(), LineFormat(chars, column, label_column)
    sides = [side for side in (positives, negatives) if side is not None]
    files = [str(side) for side in sides if isinstance(side, str | Path)]
    check_places(checker)
    if positives is None and negatives is not None:
        raise UsageError("choosing lines", "negatives alone", "the positives too")
    if checker is not None and Path(checker).resolve() in {Path(file).resolve() for file in files}:
        raise UsageError(f"writing {checker}", f"{checker} is read", "another file")
    lines, notes = read_examples(sides, animals, blocks, form, label)
    left = max(seconds / 2, seconds - (time.monotonic() - begin))
    discovery = discover_rule(lines, left, top, form, files[0] if files else "", notes)
    if checker is not None and discovery.hypotheses:
        Path(checker).write_text(discovery.hypotheses[0].checker, encoding="utf-8")
    elif checker is not None:
        note("no rule tells one line from another: nothing is written")
    if not neural:
        return discovery
    from regard.rules.rule_extraction import study_network

    return replace(discovery, neural=study_network(discovery, seconds, "" if chars else " "))
