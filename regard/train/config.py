"""TrainConfig: everything a run is, beside its model and its data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from regard.core.config import check_names
from regard.errors import UsageError

FREE = ("steps", "eval_every", "save_every", "keep", "log_every", "patience", "workers", "shard")
"""Fields that may change when a run is resumed: they say how long, how often and how quickly."""


@dataclass(frozen=True)
class TrainConfig:
    """How to train; each field is a flag and a TOML key of the same name."""

    steps: int = 1000
    """Optimizer steps."""
    seed: int = 0
    """Of weights, order, dropout and masking."""
    batch_tokens: int = 4096
    """Labelled tokens of a micro-batch, at most (sentence pairs: padding included)."""
    length: int = 256
    """Tokens of a training window; longer sentences are left out, counted."""
    accumulate: int = 1
    """Micro-batches per step; the loss is the same however a batch is split."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """AdamW, or Muon for the matrices of the blocks, which needs fewer steps and whole matrices."""
    lr: float = 1e-3
    """Peak learning rate."""
    schedule: Literal["constant", "inverse_sqrt", "cosine", "wsd"] = "cosine"
    """Shape of the learning rate over the steps."""
    warm_up: int = 100
    """Steps to the peak."""
    floor: float = 0.1
    """Last learning rate, as a share of the peak."""
    beta1: float = 0.9
    """AdamW: decay of the mean gradient."""
    beta2: float = 0.95
    """AdamW: decay of the mean square."""
    eps: float = 1e-8
    """AdamW: added to the root."""
    weight_decay: float = 0.1
    """On matrices; not on norms, biases and embeddings."""
    clip: float = 1.0
    """Largest norm of the gradient; 0 switches clipping off."""
    smoothing: float = 0.0
    """Label smoothing."""
    dropout: float = 0.0
    """Dropout on each part and on the embeddings."""
    precision: Literal["fp32", "bf16", "fp16", "fp8"] = "fp32"
    """Of the matrix products; weights and optimizer stay float32. fp8 needs a recent GPU."""
    compile: bool = False
    """Compile the step with torch.compile."""
    ema: float = 0.0
    """Decay of a running mean of the weights, saved as final; 0 switches it off."""
    average: int = 1
    """Average the last this many checkpoints into final."""
    eval_every: int = 200
    """Steps between validations; 0 for none."""
    save_every: int = 200
    """Steps between checkpoints."""
    keep: int = 3
    """Checkpoints kept, beside the best."""
    log_every: int = 10
    """Steps between lines of metrics.jsonl."""
    patience: int = 0
    """Stop after this many validations without a better one; 0 never stops early."""
    workers: int = 1
    """Threads that prepare batches; the result does not depend on it."""
    shard: bool = False
    """Under torchrun: a part of weights and optimizer on each process (FSDP2), not all on each."""

    def __post_init__(self) -> None:
        check_names(self, "configuring a run")
        counts = ("steps", "batch_tokens", "length", "accumulate", "save_every", "keep")
        self.limit((*counts, "average", "log_every"), lambda value: value >= 1, "1 or more")
        from_zero = ("warm_up", "eval_every", "patience", "weight_decay", "clip")
        self.limit(from_zero, lambda value: 0 <= value < float("inf"), "0 or more")
        self.limit(("seed",), lambda value: 0 <= value < 1 << 63, "0 to 2^63 - 1")
        self.limit(("workers",), lambda value: 0 <= value <= 256, "0 to 256")
        shares = ("smoothing", "dropout", "ema", "beta1", "beta2")
        self.limit(shares, lambda value: 0 <= value < 1, "0 to below 1")
        self.limit(("floor",), lambda value: 0 <= value <= 1, "0 to 1")
        self.limit(("lr", "eps"), lambda value: 0 < value < float("inf"), "more than 0")
        if self.optimizer == "muon" and self.shard:
            found = "optimizer = muon with shard, which cuts the matrices up"
            raise UsageError("configuring a run", found, "adamw, or no shard")

    def limit(
        self, names: tuple[str, ...], allowed: Callable[[float], bool], expected: str
    ) -> None:
        """Refuse a value outside its limits; NaN is outside all of them."""
        for name in names:
            value = getattr(self, name)
            if not allowed(value):
                raise UsageError("configuring a run", f"{name} = {value}", expected)
