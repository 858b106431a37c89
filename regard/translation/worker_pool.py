"""Worker pool: processes that translate on a CPU; the model is read once, its memory is shared.

Threads would wait for each other in Python; processes do not. They are forked before anything has
started threads of its own, so torch computes with one thread in each.
"""

from __future__ import annotations

import gc
import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Self

import torch

from regard.errors import ResourceError
from regard.heap import give_back_memory
from regard.translation.document import TargetText
from regard.translation.translator import Job, SentenceSearch, Translator

LEAST = 32  # lines that are worth more than one process
MANY = 6000  # beams × source tokens after which a worker gives free memory back


def worth_workers(device: str, lines: int, asked: int | None) -> int:
    """How many processes: as many as torch would use threads, unless asked for."""
    if device != "cpu" or lines < LEAST or "fork" not in multiprocessing.get_all_start_methods():
        return 1
    return torch.get_num_threads() if asked is None else asked


Answers = list[list[TargetText]]


class WorkerPool:
    """Does the jobs of a translator in `count` processes that share its model."""

    def __init__(self, translator: Translator, count: int) -> None:
        kit = translator.kit
        packing = SentenceSearch(kit, translator.config)
        packing.translate([sorted(kit.stops)[:1] or [0]])  # packs weights that all will share
        sys.stdout.flush()  # a process would write again what was not written yet
        sys.stderr.flush()
        gc.collect()
        give_back_memory()  # or what lies free would be copied as it is used again
        gc.freeze()  # a collection in a worker would touch, and so copy, every object
        Worker.translator, self.count = translator, count
        fork = multiprocessing.get_context("fork")
        self.executor = ProcessPoolExecutor(count, fork)
        for ready in [self.executor.submit(int) for _ in range(count)]:
            ready.result()  # all are there before a tokenizer starts its threads
        translator.pool = self

    def run(self, jobs: Sequence[Job]) -> Iterator[Answers]:
        """What becomes of each job, in order."""
        try:
            yield from self.executor.map(work, jobs)
        except BrokenProcessPool:
            wrong = "a worker process was killed, perhaps for lack of memory"
            raise ResourceError("translating", wrong, fix="--workers 1") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """End the processes; after a failure or Ctrl-C at once."""
        if kind is not None:
            for process in multiprocessing.active_children():
                process.terminate()
        self.executor.shutdown(cancel_futures=True)


class Worker:
    """What a process has of its own, where it is a worker."""

    translator: Translator
    """As it was at the fork."""
    tokens = 0
    """Beams × source tokens since free memory was given back."""


def work(job: Job) -> Answers:
    """One job, in a worker."""
    answers = Worker.translator.do(job)
    Worker.tokens += job.config.width * sum(map(len, job.rows))
    if Worker.tokens >= MANY:  # batches differ in shape: the heap grows by gaps between blocks
        give_back_memory()
        Worker.tokens = 0
    return answers
