"""Pairs of models, made once in a run; transformers without progress bars."""

from collections.abc import Callable

import pytest
import torch
from transformers.utils import logging

from tests.parity.compare import Case, Pair, make_pair

logging.disable_progress_bar()


@pytest.fixture(scope="session")
def open_pair(tmp_path_factory) -> Callable[[Case], Pair]:
    made: dict[Case, Pair] = {}

    def open_case(case: Case) -> Pair:
        if case not in made:
            made[case] = make_pair(case, tmp_path_factory.mktemp(case.architecture))
        return made[case]

    return open_case


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Tiny tensors gain nothing from more, and the other tests keep theirs."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
