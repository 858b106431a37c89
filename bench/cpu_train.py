"""Training steps of regard as peers of an interleaved benchmark: `--extra bench/cpu_train.py`.

A benchmark script that knows tasks `gpt` (6 × 384, context 256, batch 12, vocabulary 65) and
`seq2seq` (3 + 3 × 256, vocabulary 8,000) loads `PEERS` from here; a factory takes its settings
(threads, steps, autocast, task) and gives a function that trains `steps` steps and returns the
number of target tokens. A step is the training loop's own, `Trainer.step`: objective, backward
pass, fused AdamW and the norm of the gradient. Alone,

    python bench/cpu_train.py [gpt|seq2seq]

prints tokens per CPU-second of one thread.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # runs from the source tree

Run = Callable[[], int]


def gpt() -> tuple[Any, Any]:
    """Model and batch of nanoGPT's small setting."""
    import torch

    from regard.data.windows import Examples
    from regard.model.presets import gpt2

    ids = torch.randint(0, 65, (12, 257), generator=torch.Generator().manual_seed(0))
    batch = Examples(ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), 12 * 256)
    return gpt2(384, 6, 6, vocab=65, length=256), batch


def seq2seq() -> tuple[Any, Any]:
    """Model and batch of a small translation: sentences of 12 to 15 tokens, about 4,096 in all."""
    import torch

    from regard.data.windows import Examples
    from regard.model.presets import transformer

    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(4, 8000, (2, 304, 15), generator=draw)
    real = torch.arange(15) < torch.randint(12, 16, (2, 304, 1), generator=draw)
    labels = ids[1].masked_fill(~real[1], -100)
    target = ids[1].roll(1, 1)
    target[:, 0] = 1
    count = int(real[1].sum())
    return transformer(256, 3, 4, vocab=8000), Examples(
        ids[0], labels, count, target, mask=real[1], source_mask=real[0]
    )


def train(settings: dict[str, Any], compiled: bool = False) -> Run:
    """A function that trains a few steps of the loop and returns the tokens it predicted."""
    import torch

    from regard.model.model import Model
    from regard.train.config import TrainConfig
    from regard.train.trainer import Trainer, TrainJob

    torch.set_num_threads(settings["threads"])
    shape, examples = gpt() if settings["task"] == "gpt" else seq2seq()
    precision: Any = "bf16" if settings["autocast"] == "bf16" else "fp32"
    config = TrainConfig(lr=1e-4, clip=0.0, precision=precision, compile=compiled)
    model = Model.fresh(shape).train()
    trainer = Trainer(TrainJob(config, model))

    def run() -> int:
        for _ in range(settings["steps"]):
            trainer.step([examples])
        return int(examples.tokens * settings["steps"])

    return run


PEERS: dict[str, Callable[[dict[str, Any]], Run]] = {
    "regard": train,
    "regard-compile": lambda settings: train(settings, compiled=True),
}


def cpu_seconds() -> float:
    """CPU time of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main(task: str = "gpt", rounds: int = 5) -> None:
    """Measure without peers."""
    run = train({"threads": 1, "task": task, "autocast": "none", "steps": 1})
    run()
    for _ in range(rounds):
        begin = cpu_seconds()
        tokens = run()
        print(f"{task}: {tokens / (cpu_seconds() - begin):,.0f} tokens per CPU-second")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "gpt")
