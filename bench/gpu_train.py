"""Training steps of regard on a GPU as peers of a benchmark: `--extra bench/gpu_train.py`.

A benchmark script that times `loss = f(batch); loss.backward(); optimizer.step()` under bf16
autocast takes `train_peers` (GPT-2 124M without biases) and `seq2seq_peers` (6 + 6 blocks of 512)
from here. Both use the training loop's objective, compiled and recorded as one graph of kernels.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # runs from the source tree

from regard.model import presets
from regard.model.batch import Batch
from regard.model.model import Model
from regard.train.fp8 import use_fp8
from regard.train.objectives import token_loss

Peer = tuple[str, Model, Callable[[Tensor, Tensor], Tensor]]


def mean_loss(model: Model, batch: Batch, labels: Tensor, fp8: bool = False) -> Tensor:
    """Mean over the labels of a step as the loop runs it."""
    loss = token_loss(model, batch, labels, compiled="recorded", fp8=fp8)
    return loss.sum / loss.tokens


def train_peers(rows: int, length: int, vocab: int) -> Iterator[Peer]:
    """GPT-2 124M in bf16 and in fp8: (name, model, loss of ids and labels)."""
    shape = presets.gpt2(768, 12, 12, vocab, length)
    assert shape.decoder is not None
    plain = replace(shape.decoder, block=replace(shape.decoder.block, bias=()))
    for fp8 in (False, True):
        model = Model(replace(shape, decoder=plain)).to("cuda")
        if fp8:
            use_fp8(model)

        def loss(x: Tensor, y: Tensor, model: Model = model, fp8: bool = fp8) -> Tensor:
            return mean_loss(model, Batch(x), y, fp8)

        yield f"regard {'fp8' if fp8 else 'bf16'}", model, loss


def seq2seq_peers(vocab: int) -> Iterator[Peer]:
    """The Transformer of 2017, base: (name, model, loss of sources and targets)."""
    model = Model(presets.transformer(512, 6, 8, vocab)).to("cuda")

    def loss(source: Tensor, target: Tensor) -> Tensor:
        shifted = target.roll(1, 1)
        shifted[:, 0] = 0
        return mean_loss(model, Batch(source, shifted), target)

    yield "regard bf16", model, loss
