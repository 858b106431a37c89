"""The inputs of the golden cases, made once."""

from __future__ import annotations

import pytest
import torch

from tests.golden.inputs import build


@pytest.fixture(scope="session")
def places(tmp_path_factory) -> dict[str, str]:
    """Where each input is; one thread, as tiny models like it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield build(tmp_path_factory.mktemp("golden"))
    torch.set_num_threads(before)
