"""Loader: batches from (epoch, index) on, made ahead of time by threads, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count as count_up

from regard.data.windows import Examples, Source
from regard.errors import DataError

AHEAD = 2  # batches that each worker makes before they are asked for


@dataclass(frozen=True)
class Loaded:
    """A batch and where it stands; a run resumes at the next index."""

    epoch: int
    index: int
    examples: Examples


class Loader:
    """Reads a source; the number of workers changes nothing but the time it takes.

    Workers are threads: a batch is a few NumPy copies out of a memory map. Process `rank` of `size`
    gets its rows of each batch.
    """

    def __init__(
        self, source: Source, workers: int = 2, pin: bool = False, rank: int = 0, size: int = 1
    ) -> None:
        self.source, self.workers, self.pin = source, workers, pin
        self.rank, self.size = rank, size

    def places(self, epoch: int, index: int, epochs: int | None) -> Iterator[tuple[int, int]]:
        """(epoch, index) of the batches to come."""
        for number in count_up(epoch) if epochs is None else range(epoch, epochs):
            if not self.source.count(number):
                raise DataError("loading batches", f"no batch in epoch {number}", "at least one")
            yield from ((number, place) for place in range(index, self.source.count(number)))
            index = 0

    def read(self, epoch: int, index: int) -> Loaded:
        """One batch."""
        examples = self.source.batch(epoch, index).share(self.rank, self.size)
        return Loaded(epoch, index, examples.pin() if self.pin else examples)

    def iterate(
        self, epoch: int = 0, index: int = 0, epochs: int | None = None
    ) -> Iterator[Loaded]:
        """Batches from (epoch, index) on, up to the end of epoch `epochs` − 1, or without end.

        Closing the iterator, or leaving a loop over it, ends the workers. What a worker raises is
        raised here, in its turn.
        """
        places = self.places(epoch, index, epochs)
        if not self.workers:
            for place in places:
                yield self.read(*place)
            return
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="regard-loader")
        waiting: deque[Future[Loaded]] = deque()
        try:
            for place in places:
                waiting.append(pool.submit(self.read, *place))
                if len(waiting) > AHEAD * self.workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
