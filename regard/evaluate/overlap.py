"""Whether a model was trained on the test data (N14): then its figures are no score."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from regard.ambient import note
from regard.data.duplicates import WORDS, overlap, pair_overlap
from regard.data.pairs import Pair, all_pairs
from regard.data.results import Overlap
from regard.data.text_files import find_files, read_lines
from regard.errors import DataError
from regard.files import file_hash
from regard.receipt import changed_files, find_in_run, read_receipt, training_files
from regard.verbs import Files, list_files


def find_training_files(model: str, train: Files | None) -> tuple[list[str], str]:
    """The files that were named, else those in the receipt of the model's run; what they lack."""
    if train is not None:
        return list_files(train), ""
    place = find_in_run(Path(model))
    if place is None:
        note("no --train: whether the test data was trained on is not known")
        return [], "not checked"
    data = training_files(read_receipt(place))
    wrong = changed_files(data)
    note(f"{place}: trained on {', '.join(data) or 'nothing'}")
    if not wrong:
        return list(data), ""
    lacking = "not checked: " + "; ".join(f"{name}: {why}" for name, why in wrong.items())
    note(f"overlap {lacking}")
    return [name for name in data if name not in wrong], lacking


def text_overlaps(train: Sequence[str], test: str | Path) -> dict[str, Overlap]:
    """Lines of a test text, and the file itself, that stand in training files."""
    before = {file_hash(path) for path in find_files(train)}
    same = [file_hash(path) in before for path in find_files(test)]
    return {
        f"lines of {WORDS} words or more": overlap(read_lines(train), read_lines(test), WORDS),
        "whole files": Overlap(sum(same), len(same), ()),
    }


def check_overlap(
    model: str,
    test: str | Path,
    train: Files | None,
    allow: bool,
    pairs: Sequence[Pair] | None = None,
) -> str:
    """What is known of a test text, or of test pairs by source, target and pair, in training data.

    Stops where a score would be none.
    """
    files, lacking = find_training_files(model, train)
    if not files:
        return lacking
    shared = text_overlaps(files, test) if pairs is None else pair_overlap(all_pairs(files), pairs)
    if not any(each.found for each in shared.values()):
        if not all(each.total for each in shared.values()):
            return f"not checked: no test line has {WORDS} words or more"
        return f"none in {len(files)} files; {lacking}" if lacking else "none"
    parts = []
    for name, each in shared.items():
        where = f" (line {', '.join(map(str, each.lines))})" if each.lines else ""
        parts.append(f"{each.found:,} of {each.total:,} by {name}{where}")
    if not allow:
        fault = f"test lines that stand in the training data: {'; '.join(parts)}"
        expected = "test data that was not trained on; this would not be a score"
        fix = "take them out of one of the two, or say --allow-overlap"
        raise DataError(f"evaluating on {test}", fault, expected, fix)
    return f"NOT A SCORE: {'; '.join(parts)}"
