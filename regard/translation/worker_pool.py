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
from contextlib import contextmanager
from functools import partial

import torch

from regard.errors import ResourceError
from regard.heap import give_back_memory
from regard.translation.document import Document
from regard.translation.translator import Tell, Translator

LEAST = 32  # lines that are worth more than one process
SHARE = 64  # lines at most that a process translates at once


def worth_workers(device: str, lines: int, asked: int | None) -> int:
    """How many processes: as many as torch would use threads, unless asked for."""
    if device != "cpu" or lines < LEAST or "fork" not in multiprocessing.get_all_start_methods():
        return 1
    return torch.get_num_threads() if asked is None else asked


def share_out(
    executor: ProcessPoolExecutor, count: int, texts: Sequence[str], tell: Tell | None = None
) -> list[Document]:
    """As `Translator.translate`; each share has texts of all lengths, so all take as long."""
    order = sorted(range(len(texts)), key=lambda n: len(texts[n]))
    several = count * -(-len(texts) // (SHARE * count))
    shares = [share for n in range(several) if (share := order[n::several])]
    asked = [[texts[n] for n in share] for share in shares]
    documents: dict[int, Document] = {}
    for share, done in zip(shares, executor.map(work, asked), strict=True):
        documents |= zip(share, done, strict=True)
        if tell is not None:
            tell(len(documents), len(texts))
    return [documents[n] for n in range(len(texts))]


@contextmanager
def start_workers(translator: Translator, count: int) -> Iterator[None]:
    """Inside, so many processes do what a translator has to do; they end with the block."""
    # Packs weights that all will share.
    translator.search.translate([sorted(translator.kit.stops)[:1] or [0]])
    _ = translator.dictionary, translator.memory.places  # read once: all will share them
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
        translator.workers = partial(share_out, executor, count)
        yield
    except BaseException as error:  # Ctrl-C too: end the processes at once
        for process in multiprocessing.active_children():
            process.terminate()
        if isinstance(error, BrokenProcessPool):
            wrong = "a worker process was killed, perhaps for lack of memory"
            raise ResourceError("translating", wrong, fix="--workers 1") from None
        raise
    finally:
        translator.workers = None
        executor.shutdown(cancel_futures=True)


class Worker:
    """What a process has of its own, where it is a worker."""

    translator: Translator
    """As it was at the fork."""


def work(texts: Sequence[str]) -> list[Document]:
    """A share of the texts, in a worker."""
    documents = Worker.translator.translate(texts)
    give_back_memory()  # batches differ in shape: the heap grows by gaps between blocks
    return documents
