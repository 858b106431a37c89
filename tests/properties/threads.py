"""How many threads a test runs with."""

from collections.abc import Iterator

import pytest
import torch


def with_threads(count: int) -> Iterator[None]:
    """Run with so many threads until resumed."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def one_thread():
    """Small models are too small for threads, which only wait for one another when it is busy."""
    yield from with_threads(1)
