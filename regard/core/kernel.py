"""Which kernels run: our own where there is Triton, and attention that takes any shape at once."""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor

TRITON = find_spec("triton") is not None  # looked for once, not at each step


def runs_kernels(x: Tensor) -> bool:
    """Whether a kernel of our own can read a tensor."""
    return TRITON and x.is_cuda and x.dtype != torch.float64


def expect_many_shapes() -> None:
    """Attention without cuDNN, which prepares every new shape for a third of a second."""
    torch.backends.cuda.enable_cudnn_sdp(False)
