"""Lines that are found where they lie are those that reading all of them finds."""

from __future__ import annotations

import random

import pytest

from regard.data.sorted_lines import SortedLines, sort_lines
from regard.errors import DataError


def test_lines_are_found_as_by_reading_all_of_them() -> None:
    draw = random.Random(0)
    keys = ["".join(draw.choices("aàbé-", k=draw.randint(1, 3))) for _ in range(300)]
    rows = [f"{word}\t{n}" for n, word in enumerate(keys)]
    table, alone = SortedLines(sort_lines(rows), "a"), SortedLines(sort_lines({*keys}), "b")
    for word in {*keys, "", "z", "aaaa", "0"}:
        slow = sorted(row for row in rows if row.startswith(f"{word}\t"))
        assert ["\t".join(row) for row in table.starting(f"{word}\t")] == slow
        assert (word in alone) is (word in keys)
    assert len([*table.starting("")]) == 300 and "" not in alone
    assert [*SortedLines(b"", "c").starting("a")] == [] and "a" not in SortedLines(b"", "c")


def test_a_broken_file_is_named() -> None:
    with pytest.raises(DataError, match="reading some.tsv: no end of the last line"):
        SortedLines(b"a\nb", "some.tsv")
    with pytest.raises(DataError, match=r"reading some.tsv: .*utf-8"):
        list(SortedLines(b"a\xff\nb\n", "some.tsv").starting("a"))
