"""Worker pool: processes that translate on a CPU; the model is read once, its memory is shared.

Threads would wait for each other in Python; processes do not. They are forked before anything has
started threads of its own, so torch computes with one thread in each.
"""

from __future__ import annotations

import gc
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch

from regard.errors import ResourceError
from regard.heap import give_back_memory
from regard.translation.document import Segment, TargetText
from regard.translation.translator import Job, SentenceSearch, Translator

LEAST = 32  # lines that are worth more than one process
SEGMENTS = 16  # that a worker gets hints for at once
MANY = 6000  # beams × source tokens after which a worker gives free memory back


def worth_workers(device: str, lines: int, asked: int | None) -> int:
    """How many processes: as many as torch would use threads, unless asked for."""
    if device != "cpu" or lines < LEAST or "fork" not in multiprocessing.get_all_start_methods():
        return 1
    return torch.get_num_threads() if asked is None else asked


@dataclass(frozen=True)
class WorkerPool:
    """Does jobs in `count` processes that share the model of a translator."""

    run: Callable[[list[Job]], Iterator[list[list[TargetText]]]]
    """What becomes of each job, in order."""
    hint: Callable[[list[Segment]], Iterator[Segment]]
    """Segments with hints for their rare words, in order."""
    count: int


@contextmanager
def start_workers(translator: Translator, count: int) -> Iterator[WorkerPool]:
    """Inside, so many processes do what a translator has to do; they end with the block."""
    kit = translator.kit
    packing = SentenceSearch(kit, translator.config)
    packing.translate([sorted(kit.stops)[:1] or [0]])  # packs weights that all will share
    _ = translator.hinter, translator.memory.places  # read once: all will share them
    sys.stdout.flush()  # a process would write again what was not written yet
    sys.stderr.flush()
    gc.collect()
    give_back_memory()  # or what lies free would be copied as it is used again
    gc.freeze()  # a collection in a worker would touch, and so copy, every object
    Worker.translator = translator
    executor = ProcessPoolExecutor(count, multiprocessing.get_context("fork"))
    try:
        for ready in [executor.submit(int) for _ in range(count)]:
            ready.result()  # all are there before a tokenizer starts its threads
        hinting = partial(executor.map, hint, chunksize=SEGMENTS)
        translator.pool = WorkerPool(partial(executor.map, work), hinting, count)
        yield translator.pool
    except BaseException as error:  # Ctrl-C too: end the processes at once
        for process in multiprocessing.active_children():
            process.terminate()
        if isinstance(error, BrokenProcessPool):
            wrong = "a worker process was killed, perhaps for lack of memory"
            raise ResourceError("translating", wrong, fix="--workers 1") from None
        raise
    finally:
        executor.shutdown(cancel_futures=True)


class Worker:
    """What a process has of its own, where it is a worker."""

    translator: Translator
    """As it was at the fork."""
    tokens = 0
    """Beams × source tokens since free memory was given back."""


def hint(segment: Segment) -> Segment:
    """A segment with hints, in a worker."""
    return Worker.translator.hint(segment)


def work(job: Job) -> list[list[TargetText]]:
    """One job, in a worker."""
    answers = Worker.translator.do(job)
    Worker.tokens += job.config.beams * sum(map(len, job.rows))
    if Worker.tokens >= MANY:  # batches differ in shape: the heap grows by gaps between blocks
        give_back_memory()
        Worker.tokens = 0
    return answers
