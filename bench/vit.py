"""Pictures a second of a ViT in training and inference, beside timm's of the same shape.

    python bench/vit.py [--device cpu|cuda] [--precision fp32|bf16] [--compile] [--json]
                        [--dim 256 --depth 7 --heads 4 --patch 4 --size 32 --rows 512 --steps 50]

Both read the same uint8 batches through the same augmentation on the device (crop, flip,
RandAugment, mixup, CutMix, erasing), with AdamW and clipping; both compile model and augmentation
as one graph where that is asked for. They take turns, in another order each round; the figure is
the median of the rounds. Ours takes its steps by `Trainer.step`, the loop's own. timm is left out
where it is not installed.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import regard
from regard.data.example_store import ExampleRows
from regard.model.batch import Batch
from regard.model.model import Model
from regard.train.trainer import Trainer, TrainJob
from regard.vision.augmentation import Augmentation, Preparation
from regard.vision.picture_classes import IMAGE_RUN, example_loss

CLASSES, ROUNDS = 10, 5
AUGMENTED = dict(flip=True, randaugment=2, mixup=0.8, cutmix=1.0, erase=0.25)
LOW = {"bf16": torch.bfloat16}


def our_steps(given: argparse.Namespace, source: ExampleRows, prepare: Preparation) -> Any:
    """(a training step, a forward pass) of regard's model on the batch of a number."""
    own = regard.PictureConfig(
        size=given.size, patch=given.patch, dim=given.dim, depth=given.depth, heads=given.heads
    )
    model = Model.fresh(IMAGE_RUN.build(own, None, CLASSES)[0]).to(given.device)
    config = regard.TrainConfig(
        precision=given.precision, compile=given.compile, smoothing=0.1, lr=1e-3, steps=10**6
    )

    def loss(*inputs: Any, **extra: Any) -> Any:
        return example_loss(*inputs, prepare=prepare, **extra)

    trainer = Trainer(TrainJob(config, model, source, loss=loss))
    loader = trainer.loader(source)

    def train(number: int) -> None:
        model.train()
        trainer.step([loader.read(0, number % source.count(0)).examples])

    def score(x: Tensor) -> Tensor:
        scores: Tensor = model(Batch(x))
        return scores

    return train, infer(model, score, given, source, prepare)


def their_steps(given: argparse.Namespace, source: ExampleRows, prepare: Preparation) -> Any:
    """Those of timm's VisionTransformer, in a plain loop."""
    from timm.models.vision_transformer import VisionTransformer

    model = VisionTransformer(
        img_size=given.size,
        patch_size=given.patch,
        embed_dim=given.dim,
        depth=given.depth,
        num_heads=given.heads,
        num_classes=CLASSES,
    ).to(given.device)
    fused = given.device == "cuda"
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.05, fused=fused)

    def loss(stored: Tensor, labels: Tensor, dice: Tensor) -> Tensor:
        x, share = prepare(stored, dice)
        hot = F.one_hot(labels, CLASSES).float()
        target = share[:, None] * hot + (1 - share[:, None]) * hot.flip(0)
        return F.cross_entropy(model(x).float(), target, label_smoothing=0.1)

    run: Any = torch.compile(loss, mode="reduce-overhead") if given.compile else loss

    def train(number: int) -> None:
        model.train()
        examples = source.batch(0, number % source.count(0))
        parts = (examples.inputs, examples.labels, examples.extra["dice"])
        moved = [part.to(given.device, non_blocking=True) for part in parts]
        with autocast(given):
            value = run(*moved)
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return train, infer(model, model, given, source, prepare)


def autocast(given: argparse.Namespace) -> Any:
    """Matrix products in the precision asked for."""
    low = LOW.get(given.precision)
    return torch.autocast(given.device, low, enabled=low is not None)


def infer(
    model: torch.nn.Module,
    score: Callable[[Tensor], Tensor],
    given: argparse.Namespace,
    source: ExampleRows,
    prepare: Preparation,
) -> Callable[[int], None]:
    """A forward pass on the batch of a number."""
    run: Any = torch.compile(score) if given.compile else score

    def forward(number: int) -> None:
        model.eval()
        stored = source.batch(0, number % source.count(0)).inputs.to(given.device)
        with torch.no_grad(), autocast(given):
            run(prepare(stored)[0])

    return forward


def time_steps(step: Callable[[int], None], given: argparse.Namespace) -> float:
    """Pictures a second."""
    if given.device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    for number in range(given.steps):
        step(number)
    if given.device == "cuda":
        torch.cuda.synchronize()
    return float(given.steps * given.rows / (time.perf_counter() - start))


def main() -> None:
    """Time both and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--json", action="store_true")
    usual = {"dim": 256, "depth": 7, "heads": 4, "patch": 4, "size": 32, "rows": 512, "steps": 50}
    for name, value in usual.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args()
    dice = np.random.default_rng(0)
    images = dice.integers(0, 256, (8 * given.rows, 3, given.size, given.size), np.uint8)
    labels = dice.integers(0, CLASSES, len(images))
    augment = Augmentation(regard.PictureConfig(**AUGMENTED))
    source = ExampleRows(images, labels, np.arange(len(images)), given.rows, 0, augment.draw)
    middle = torch.full((3, 1, 1), 127.5, device=given.device)
    prepare = Preparation(middle, middle / 2, augment)
    steps = {"regard": our_steps(given, source, prepare)}
    if find_spec("timm") is not None:
        steps["timm"] = their_steps(given, source, prepare)
    rates: dict[str, list[float]] = {f"{n} {w}": [] for n in steps for w in ("train", "infer")}
    for parts in steps.values():  # compile, and first batches
        for part in parts:
            for number in range(3):
                part(number)
    order = [(name, n) for name in steps for n in (0, 1)]
    for _ in range(ROUNDS):
        random.shuffle(order)
        for name, n in order:
            rates[f"{name} {('train', 'infer')[n]}"].append(time_steps(steps[name][n], given))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    if given.json:
        print(json.dumps(vars(given) | {"pictures_per_s": medians}))
        return
    for name, value in medians.items():
        print(f"{name:14}{value:12,.0f} pictures/s")
    if "timm" not in steps:
        print("timm is not installed: nothing to compare with")
    for way in ("train", "infer") if "timm" in steps else ():
        print(f"{way}: {medians[f'regard {way}'] / medians[f'timm {way}']:.2f} × timm")


if __name__ == "__main__":
    main()
