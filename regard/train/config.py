"""TrainConfig: everything a run is, beside its model and its data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regard.core.config import check_names
from regard.errors import UsageError


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
    precision: Literal["float32", "bf16", "fp16"] = "float32"
    """Of the matrix products; weights and optimizer stay float32."""
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

    def __post_init__(self) -> None:
        check_names(self, "configuring a run")
        for name in ("steps", "batch_tokens", "length", "accumulate", "save_every", "keep"):
            if getattr(self, name) < 1:
                found = f"{name} = {getattr(self, name)}"
                raise UsageError("configuring a run", found, "1 or more")
        for name in ("smoothing", "dropout", "ema", "floor"):
            if not 0 <= getattr(self, name) < 1 and not (name == "floor" and self.floor == 1):
                found = f"{name} = {getattr(self, name)}"
                raise UsageError("configuring a run", found, "0 to below 1")
        if not self.lr > 0:
            raise UsageError("configuring a run", f"lr = {self.lr}", "more than 0")
