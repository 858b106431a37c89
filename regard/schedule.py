"""Schedule: jobs of many texts in common batches, and what they ask for next beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from regard.mending import Mend
from regard.pieces import Job, Part, Run
from regard.translating import Translation

ROWS = 64  # beams of a batch, about
TOKENS = 3000  # beams × source tokens of a batch, beams at least 2: a bound on its memory
Tell = Callable[[int, int], None]


class Asked(NamedTuple):
    """A job of one source, and who waits for it."""

    task: int
    place: int
    job: Job


class Waiting(NamedTuple):
    """What a task has asked for: how many answers, and those that are there, by place."""

    wanted: int
    found: dict[int, list[Translation]]


def do_all(tasks: Sequence[Mend], run: Run, tell: Tell | None = None) -> list[list[Part]]:
    """What each task returns; `tell` hears how many of how many first jobs are done.

    Jobs that come up while others are done join them at once: no process waits for the last of
    one kind before the next begins.
    """
    made: dict[int, list[Part]] = {}
    waiting: dict[int, Waiting] = {}
    batches: list[list[Asked]] = []
    jobs: list[Job] = []

    def go_on(task: int, answers: list[list[Translation]] | None) -> list[Asked]:
        try:
            new = tasks[task].send(answers)  # type: ignore[arg-type]
        except StopIteration as end:
            made[task] = end.value
            return []
        waiting[task] = Waiting(len(new), {})
        return [Asked(task, n, job) for n, job in enumerate(new)] or go_on(task, [])

    def add(asked: Sequence[Asked]) -> None:
        for batch in grouped(asked):
            batches.append(batch)
            jobs.append(batch[0].job._replace(rows=[one.job.rows[0] for one in batch]))

    first = [asked for task in range(len(tasks)) for asked in go_on(task, None)]
    add(first)
    done, count = 0, len(jobs)
    for number, (batch, answers) in enumerate(zip(batches, run(jobs), strict=False)):
        for (task, place, _), answer in zip(batch, answers, strict=True):
            wanted, found = waiting[task]
            found[place] = answer
            if len(found) == wanted:
                add(go_on(task, [found[n] for n in range(wanted)]))
        done += len(batch)
        if tell and number < count:
            tell(done, len(first))
    return [made[task] for task in range(len(tasks))]


def grouped(asked: Sequence[Asked]) -> list[list[Asked]]:
    """Batches of plain jobs, the longest first, and each special one for itself."""
    special = [[one] for one in asked if one.job.optional]
    plain = sorted(
        (one for one in asked if not one.job.optional), key=lambda one: -len(one.job.rows[0])
    )
    batches, first = list[list[Asked]](), 0
    while first < len(plain):
        how, longest = plain[first].job.how, len(plain[first].job.rows[0])
        size = min(how.batch or max(1, ROWS // how.width), TOKENS // (max(2, how.width) * longest))
        batches.append(plain[first : first + max(1, size)])
        first += len(batches[-1])
    return batches + special
