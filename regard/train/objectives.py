"""Objectives: a model and a batch → a loss with its number of tokens.

`lm`, `mlm` and `seq2seq` are one function: they differ in what the data hides (the next token,
masked tokens, the target), which the labels say. A loss is a sum with a count, so that any split
of a batch into micro-batches gives the same gradient (#50).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from regard.core.block import Block
from regard.core.cache import Cache
from regard.errors import DataError, UsageError
from regard.model.batch import Batch
from regard.model.model import Model
from regard.train.cross_entropy import IGNORE, linear_cross_entropy


class Loss(NamedTuple):
    """Sums over the labelled positions of a batch."""

    sum: Tensor
    """What is minimised, label smoothing included; carries the gradient."""
    plain: Tensor
    """Negative log-likelihood in nats, without smoothing."""
    tokens: Tensor
    """Number of labelled positions."""
    figures: Mapping[str, Tensor] = {}
    """What else is to be reported: sums that are divided by the same number."""


Compiling = Literal["no", "yes", "recorded"]
"""Whether a step is compiled, and on a GPU recorded once as a graph of all its kernels.

Launched one by one, a thousand short kernels wait for the host: encoder-decoder, 6 + 6 blocks of
512, 29 ms of kernels in a step of 38. The gradients of a recorded step are overwritten by the next
one, so micro-batches that add up are not recorded.
"""


@cache
def compiled_once(function: Callable[..., Any], how: Compiling) -> Callable[..., Any]:
    """A function, compiled when first asked for, since the compiler is slow to import."""
    return torch.compile(function, mode="reduce-overhead" if how == "recorded" else None)


def compile_blocks(model: Model, backend: str | Callable[..., object] = "inductor") -> None:
    """Compile each kind of block once for batches of every shape.

    A graph of a whole model with varying shapes takes minutes to compile; one of a block, which
    all blocks of a stack share, takes seconds.
    """
    import torch.fx.experimental._config as shapes

    shapes.use_duck_shape = False  # a source as long as its target is no rule
    for module in model.modules():
        if isinstance(module, Block):
            module.compile(dynamic=True, backend=backend)


def token_loss(
    model: Model,
    batch: Batch,
    labels: Tensor,
    smoothing: float = 0.0,
    compiled: Compiling = "no",
    fp8: bool = False,
    past: Cache | None = None,
    r_drop: float = 0.0,
) -> Loss:
    """Cross-entropy of the labels (B, T); positions labelled −100 carry no loss and no gradient.

    `fp8` is for the scores; the blocks have it from `use_fp8`. `past` is what a recurrent model has
    read of these rows before. With `r_drop` the batch is read twice, each time with a dropout of
    its own: the loss is the mean of both and their divergence (see `chunk_loss`).
    """
    head = model.head
    if head.out is None or head.config.take != "all":
        raise DataError("training", "a model without token scores", "a next-token head")
    hidden = Model.hidden if compiled == "no" else compiled_once(Model.hidden, compiled)
    if r_drop and past is not None:
        problem = "r_drop with a recurrent model, whose state goes on from batch to batch"
        raise UsageError("training", problem, "a Transformer, or r_drop = 0")
    times = 2 if r_drop else 1
    x = head.prepare(hidden(model, batch.tile(times) if r_drop else batch, past))
    x = x.unflatten(0, (times, -1)).movedim(0, 2).flatten(0, 2)  # (B · T · times, D)
    total, plain = linear_cross_entropy(
        x,
        head.out.weight,
        head.out.bias,
        labels.flatten().repeat_interleave(times) if r_drop else labels.flatten(),
        smoothing,
        compiled=compiled != "no",
        fp8=fp8,
        r_drop=r_drop,
    )
    return Loss(total / times, plain / times, (labels != IGNORE).sum())


def token_logprobs(model: Model, hidden: Tensor, labels: Tensor) -> Tensor:
    """Log-probabilities (B, T) of the labels (B, T) from final vectors; 0 where there is none."""
    kept = labels != IGNORE
    assert model.head.out is not None
    logits = model.head.out(model.head.prepare(hidden)[kept]).float()
    right = logits.log_softmax(-1).gather(-1, labels[kept][:, None])[:, 0]
    return torch.zeros(labels.shape, device=labels.device).masked_scatter(kept, right)


class Objective(nn.Module):
    """A loss as a module: what is spread over processes must be called as one."""

    def __init__(self, model: Model, loss: Callable[..., Any]) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, *inputs: Any, **extra: Any) -> Any:
        """The loss of the model on a batch and its labels."""
        return self.loss(self.model, *inputs, **extra)
