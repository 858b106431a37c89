"""Where post-norm needs a warm-up: six small decoders that learn to say letters once more.

    python examples/warm_up.py [--steps 160]

You will see the loss of post-norm and pre-norm, with and without a warm-up, from weights as of 2017
(Xavier) and from small ones. Post-norm from Xavier fails without it; the others need none (Xiong
2020). Half a minute on one core.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import replace

import torch
from torch import nn

from regard.data.windows import Examples
from regard.model.model import Model
from regard.model.presets import gpt2
from regard.train.config import TrainConfig
from regard.train.trainer import Trainer, TrainJob

COPIED, LETTERS = 12, 32  # so many letters out of so many, once more


def train_to_copy(start: str, norm: str, warm_up: int, steps: int) -> float:
    """The loss, mean of the last steps, of a decoder that is to repeat what it read."""
    config = gpt2(64, 6, 4, LETTERS, 2 * COPIED)
    block = replace(config.last.block, norm_at=norm)
    stack = replace(config.last, block=block, final_norm=norm == "pre")
    model = Model.fresh(replace(config, decoder=stack)).train()
    draw = torch.Generator().manual_seed(0)
    if start == "Xavier":
        for weight in model.parameters():
            if weight.dim() > 1:
                nn.init.xavier_uniform_(weight, generator=draw)
    how = TrainConfig(
        steps=steps, lr=4e-3, schedule="constant", warm_up=warm_up, beta2=0.98, clip=0.0
    )
    trainer, losses = Trainer(TrainJob(how, model)), []
    for _ in range(steps):
        ids = torch.randint(LETTERS, (32, COPIED), generator=draw).repeat(1, 2)
        labels = ids[:, 1:].clone()
        labels[:, : COPIED - 1] = -100
        losses.append(trainer.step([Examples(ids[:, :-1], labels, 32 * COPIED)])["nll"])
    return sum(losses[-20:]) / len(losses[-20:])


def main() -> None:
    """Print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=160)
    steps = parser.parse_args().steps
    print(f"who guesses has a loss of {math.log(LETTERS):.2f}")
    for start, norm in (("Xavier", "post"), ("Xavier", "pre"), ("small", "post")):
        for warm_up in (0, steps // 2):
            loss = train_to_copy(start, norm, warm_up, steps)
            print(f"{start:6} {norm}-norm, warm-up {warm_up:3}: loss {loss:.2f}", flush=True)


if __name__ == "__main__":
    main()
