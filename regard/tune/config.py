"""What adapting takes: LoRA, preferences, rewards. No torch here."""

from __future__ import annotations

import dataclasses
import re
import typing
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from regard.errors import UsageError, did_you_mean
from regard.train.config import Config, FromZero
from regard.verbs import Amount, Bound, Count, Share, check_value

DOING = "reading the settings of LoRA"


@dataclass(frozen=True)
class LoRA:
    """Low-rank adaptation (Hu 2021): W + scale · B A, of which only A and B are trained."""

    r: Count = 8
    """Rank: rows of A, columns of B."""
    alpha: Amount | None = None
    """The product is scaled by alpha / r (2r)."""
    targets: tuple[str, ...] = ("*.attn.q", "*.attn.v")
    """Names of linear maps, as patterns: `*.attn.{q,v}`, `decoder.*.mlp.*`."""
    dropout: Annotated[float, Bound(0, 0.999999, "a number from 0 to below 1")] = 0.0
    """On what A reads, in training."""
    rslora: bool = False
    """Scale by alpha / √r, which keeps large ranks learning (Kalajdzievski 2023)."""
    dora: bool = False
    """Train the length of each row of W apart from its direction (DoRA, Liu 2024)."""

    def __post_init__(self) -> None:
        targets = (self.targets,) if isinstance(self.targets, str) else tuple(self.targets)
        object.__setattr__(self, "targets", targets)
        if not all(isinstance(target, str) and target for target in targets) or not targets:
            raise UsageError(DOING, f"targets = {targets!r}", "names of linear maps, or patterns")
        hints = typing.get_type_hints(type(self), include_extras=True)
        for field in dataclasses.fields(self):
            check_value("LoRA", field.name, getattr(self, field.name), hints[field.name])

    def scale(self, r: int) -> float:
        """What a product of rank r is multiplied by."""
        alpha = 2 * self.r if self.alpha is None else self.alpha
        return float(alpha / (r**0.5 if self.rslora else r))

    def __str__(self) -> str:
        """As `parse` reads it: what differs from the defaults, and the rank."""
        words = [f"r={self.r}"] + ([f"alpha={self.alpha:g}"] if self.alpha is not None else [])
        words += [f"dropout={self.dropout:g}"] if self.dropout else []
        words += [name for name in ("rslora", "dora") if getattr(self, name)]
        if self.targets != LoRA().targets:
            words.append("targets=" + ",".join(self.targets))
        return ",".join(words)

    @classmethod
    def parse(cls, text: str) -> LoRA:
        """`r=8,alpha=16,dora,targets=*.attn.q,*.mlp.up` → its settings."""
        values: dict[str, Any] = {}
        names = [field.name for field in dataclasses.fields(cls)]
        for part in re.split(r",(?![^{]*\})", text):  # a comma inside of braces belongs to them
            name, equals, value = (word.strip() for word in part.partition("="))
            if not equals and "targets" in values and name not in ("rslora", "dora"):
                values["targets"] += (name,)
            elif name not in names:
                fix = did_you_mean(name, names, 1, f"one of {', '.join(names)}")
                raise UsageError(DOING, f"{part!r} in {text!r}", "r=8,alpha=16,…", fix)
            elif name == "targets":
                values[name] = (value,)
            elif name in ("rslora", "dora"):
                if value not in ("", "true", "false"):
                    raise UsageError(DOING, f"{part!r}", f"{name}, or {name}=false")
                values[name] = value != "false"
            else:
                try:
                    values[name] = int(value) if name == "r" else float(value)
                except ValueError:
                    raise UsageError(DOING, f"{part!r}", f"a number, as in {name}=8") from None
        return cls(**values)


@dataclass(frozen=True)
class AnswerConfig(Config):
    """Learning from answers: nothing but how to train."""


@dataclass(frozen=True)
class PreferenceConfig(Config):
    """Learning from pairs of a better and a worse answer."""

    beta: Amount = 0.1
    """How strongly the model is held to what it was; less lets it go further."""
    loss: Literal["dpo", "ipo"] = "dpo"
    """DPO's log-sigmoid of the margin, or IPO's square, which no pair can satisfy too well."""
    flipped: Annotated[float, Bound(0, 0.499999, "a number from 0 to below 0.5")] = 0.0
    """dpo: the share of pairs whose answers are thought to be swapped (cDPO)."""
    per_token: bool = False
    """Divide the log-probability of an answer by its length."""


@dataclass(frozen=True)
class PolicyConfig(Config):
    """Learning from rewards of answers that the model draws itself."""

    reward: str = ""
    """The folder of a reward model, or module:function: (answers, prompts) → numbers."""
    beta: FromZero = 0.05
    """Price of a nat of divergence from the model as it was, in rewards."""
    target_kl: Amount | None = None
    """Nats an answer may diverge; beta is moved until it does."""
    answers: Count = 64
    """Answers of a rollout."""
    group: Count = 1
    """Answers to each prompt (grpo: 8)."""
    max_new: Count = 48
    """Tokens of an answer at most."""
    temperature: Amount = 1.0
    """Of drawing answers."""
    passes: Count = 4
    """How often a rollout is gone through (grpo: 1)."""
    minibatches: Count = 4
    """Steps of each pass."""
    clip_range: Amount = 0.2
    """How far probabilities may move on one rollout, as a share."""
    gamma: Share = 1.0
    """ppo: discount of later rewards."""
    decay: Share = 0.95
    """ppo: λ of the generalized advantages."""
    value_weight: FromZero = 0.1
    """ppo: weight of the value head's loss."""
    scale: bool = True
    """grpo: divide advantages by the deviation of their group; without, beta counts in rewards."""
    best_of: Count = 16
    """Answers that best-of-n chooses from, the baseline that is measured at the end."""

    def __post_init__(self) -> None:
        reward: Any = self.reward
        if callable(reward):  # by its name, which config.toml can hold
            name = f"{reward.__module__}:{reward.__qualname__}"
            object.__setattr__(self, "reward", name)
        super().__post_init__()
