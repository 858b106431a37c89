"""Where kernels of our own can run: Triton comes with torch on CUDA."""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor

TRITON = find_spec("triton") is not None  # looked for once, not at each step


def runs_kernels(x: Tensor) -> bool:
    """Whether a kernel of our own can read a tensor."""
    return TRITON and x.is_cuda and x.dtype != torch.float64
