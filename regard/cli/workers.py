"""Processes of one command on a CPU: the model is read once, its memory is shared.

Threads would wait for each other in Python; processes do not. They are forked before anything has
started threads of its own, so torch computes with one thread in each.
"""

from __future__ import annotations

import gc
import multiprocessing
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain
from typing import Self

from regard.errors import ResourceError
from regard.heap import give_back_memory
from regard.kit import Kit
from regard.pieces import Job
from regard.translating import TranslateConfig, Translation, translate

LEAST = 32  # lines that are worth more than one process
AHEAD = 2  # jobs of a process, so that it need not wait for the next
MANY = 6000  # beams × source tokens after which a worker gives free memory back


def worth_workers(device: str, lines: int, asked: int | None) -> int:
    """How many processes: as many as torch would use threads, unless asked for."""
    import torch

    if device != "cpu" or lines < LEAST or "fork" not in multiprocessing.get_all_start_methods():
        return 1
    return torch.get_num_threads() if asked is None else asked


def one_thread() -> None:
    """From now on torch has no threads, which a fork would lose."""
    import torch

    torch.set_num_threads(1)


Made = Future[list[list[Translation]]]


class Workers:
    """Does jobs in this process and in others that share its model; a `pieces.Run`."""

    def __init__(self, kit: Kit, how: TranslateConfig, count: int) -> None:
        translate(kit, [sorted(kit.stops)[:1] or [0]], how)  # packs weights that all will share
        sys.stdout.flush()  # a process would write again what was not written yet
        sys.stderr.flush()
        gc.collect()
        give_back_memory()  # or what lies free would be copied as it is used again
        gc.freeze()  # a collection in a worker would touch, and so copy, every object
        Worker.kit, self.others = kit, count - 1
        fork = multiprocessing.get_context("fork")
        self.pool = ProcessPoolExecutor(self.others, fork)
        for ready in [self.pool.submit(int) for _ in range(self.others)]:
            ready.result()  # all are there before a tokenizer starts its threads

    def __call__(self, jobs: list[Job]) -> Iterator[list[list[Translation]]]:
        """What becomes of each job, in order; few large ones are shared."""
        made, taken = deque[list[Made]](), 0
        try:
            while made or taken < len(jobs):
                if taken < len(jobs):
                    ways = self.others + 1 if len(jobs) <= self.others else 1
                    taken += 1
                    made.append([])
                    for share in jobs[taken - 1].split(ways):
                        made[-1].append(self.start(share, made, taken == len(jobs)))
                while made and (taken == len(jobs) or all(part.done() for part in made[0])):
                    yield [*chain.from_iterable(part.result() for part in made.popleft())]
        except BrokenProcessPool:
            found = "a worker process was killed, perhaps for lack of memory"
            raise ResourceError("translating", found, fix="--workers 1") from None

    def start(self, job: Job, made: Iterable[Sequence[Made]], last: bool) -> Made:
        """Give a job to another process; this one does it when they have enough, or it is last."""
        waiting = sum(not part.done() for each in made for part in each)
        if waiting < (1 if last else AHEAD) * self.others:
            return self.pool.submit(work, job)
        return done(work(job))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """End the processes; after a failure or Ctrl-C at once."""
        if kind is not None:
            for process in multiprocessing.active_children():
                process.terminate()
        self.pool.shutdown(cancel_futures=True)


class Worker:
    """What a process has of its own, where it is a worker."""

    kit: Kit
    """The model that was there at the fork."""
    tokens = 0
    """Beams × source tokens since free memory was given back."""


def work(job: Job) -> list[list[Translation]]:
    """One job, in a worker."""
    made = job.do(Worker.kit)
    Worker.tokens += job.how.width * sum(map(len, job.rows))
    if Worker.tokens >= MANY:  # batches differ in shape: the heap grows by gaps between blocks
        give_back_memory()
        Worker.tokens = 0
    return made


def done(made: list[list[Translation]]) -> Made:
    """The future of what is there already."""
    future = Made()
    future.set_result(made)
    return future
