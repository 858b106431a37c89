"""Data files: read, check, store and cut into batches."""

from __future__ import annotations

from typing import Literal

from regard.ambient import note, progress
from regard.data.results import CorpusReport, FileReport
from regard.errors import DataError
from regard.verbs import Files, verb

Kind = Literal["text", "pairs", "table", "labelled", "conll"]


@verb
def check(
    files: Files,
    *,
    target: Files | None = None,
    test: Files | None = None,
    test_target: Files | None = None,
    kind: Kind | None = None,
    label: str | None = None,
) -> CorpusReport:
    """Encoding, duplicates, overlap between splits and lengths of data files.

    Args:
        files: files, compressed or not, or folders.
        target: the other side of each file, for sentence pairs in two files.
        test: files whose lines should not stand in the others.
        test_target: the other side of each test file.
        kind: what the files hold, instead of what name and first lines say.
        label: count the values of this column.

    Example:
        >>> regard.data.check("train.txt", test="test.txt").overlap["test.txt by line"].share
        $ regard data check train.txt --test test.txt
        $ regard data check train.tsv.xz --json
        $ regard data check train.fr --target train.en --test test.fr --test-target test.en
    """
    from regard.data.corpus_check import check_file, find_overlap, pair_files

    train = pair_files(files, target, "--target")
    held_out = pair_files(test or [], test_target, "--test-target")
    reports, errors = list[FileReport](), list[str]()
    with progress("reading") as say:
        for path, other in train + held_out:
            say(str(path))
            try:
                reports.append(check_file(path, other, kind, label))
            except DataError as error:
                errors.append(str(error))
                note(f"error: {error}")
        say("overlap between the splits")
        overlap = find_overlap(train, held_out) if held_out and not errors else {}
    return CorpusReport(reports, overlap, errors)
