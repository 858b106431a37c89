"""The schedule of jobs: every task gets its own answers, in any order in which they are done."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from regard.mending import Mend
from regard.pieces import FEW, Job, Part, Piece
from regard.schedule import TOKENS, do_all
from regard.translating import Row, TranslateConfig, Translation

HOW = TranslateConfig(beams=1, batch=4)


def asks(rounds: list[list[Row]]) -> Mend:
    """A task that asks for the rows of each round; a part of every answer."""
    made: list[Part] = []
    for number, rows in enumerate(rounds):
        found = yield [Job([row], HOW, optional=number > 0) for row in rows]
        piece = Piece((0, 0), str(number), [1], False)
        made += [Part(piece, answers) for answers in found]
    return made


def echo(job: Job) -> list[list[Translation]]:
    """The tokens of each source as its answer."""
    return [[Translation("", 0.0, list(row))] for row in job.rows]


class Echo:
    """Does jobs, and writes down their sizes."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, jobs: list[Job]) -> Iterator[list[list[Translation]]]:
        for job in jobs:
            self.sizes.append(len(job.rows))
            yield echo(job)


def test_each_task_gets_its_own_answers() -> None:
    rounds: list[list[list[Row]]] = [
        [[[1, 2], [3]], [[4]], [[5], [6, 7, 8]]],  # asks again, and once more
        [],  # asks for nothing
        [[], [[9]]],  # for nothing at first
        [[[10, 11, 12]], []],
        [[[20 + n] * 3 for n in range(6)]],
    ]
    run, told = Echo(), list[tuple[int, int]]()
    made = do_all([asks(each) for each in rounds], run, lambda *n: told.append(n))
    found = [[part.translations[0].tokens for part in parts] for parts in made]
    assert found == [[list(row) for rows in each for row in rows] for each in rounds]
    assert run.sizes[:4] == [4, 4, 1, 1]  # the longest of all tasks first, special ones alone
    assert told[-1] == (10, 10) and sum(run.sizes) == 13


def test_long_sources_make_small_batches() -> None:
    run = Echo()
    do_all([asks([[[1] * (TOKENS // 4)] * 5])], run)
    assert run.sizes == [2, 2, 1]
    do_all([asks([[[1] * TOKENS]])], run)
    assert run.sizes[3:] == [1]


@pytest.mark.parametrize("rows,ways,sizes", [(9, 2, [5, 4]), (9, 1, [9]), (5, 4, [FEW, 1])])
def test_a_job_in_shares(rows: int, ways: int, sizes: list[int]) -> None:
    job = Job([[n] for n in range(rows)], HOW)
    shares = job.split(ways)
    assert [len(share.rows) for share in shares] == sizes
    assert [row for share in shares for row in share.rows] == job.rows
