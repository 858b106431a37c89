"""Which kernels run: our own where there is Triton, and attention that takes any shape at once."""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor

TRITON = find_spec("triton") is not None  # looked for once, not at each step


def runs_kernels(x: Tensor) -> bool:
    """Whether a kernel of our own can read a tensor."""
    return TRITON and x.is_cuda and x.dtype != torch.float64


SHORT = 256
"""Up to here the memory-efficient kernel is quicker than flash attention, backwards above all."""


def expect_many_shapes(longest: int = SHORT + 1) -> None:
    """Attention without cuDNN, which prepares every new shape for a third of a second.

    Where all sequences are short, without flash attention too: of a step on 2,000 sentences of 20
    words, half of the time was its.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cuda.enable_flash_sdp(longest > SHORT)
