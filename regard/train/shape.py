"""ShapeConfig: the size of a model to be trained, and the family that it is saved as."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from regard.core.config import StackConfig, check_names
from regard.errors import UsageError, check_known
from regard.model.config import CELLS, ModelConfig, TextConfig
from regard.model.presets import (
    architecture,
    bert,
    gpt2,
    llama,
    preset,
    recurrent_lm,
    recurrent_seq2seq,
    transformer,
)

FAMILIES = {
    "lm": ("llama", "gpt2", *CELLS),
    "mlm": ("bert",),
    "seq2seq": ("marian", "lstm", "gru", "rnn"),
}
"""The families of each kind of training, the usual one first."""

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "bert": "BertForMaskedLM",
    "marian": "MarianMTModel",
}


@dataclass(frozen=True)
class ShapeConfig:
    """The size of a model; its vocabulary comes from the tokenizer, its length from the run."""

    family: Literal["auto", "llama", "gpt2", "bert", "marian", "rnn", "lstm", "gru", "mlp"] = "auto"
    """What it is saved as: lm is llama, mlm bert, seq2seq marian; or recurrent, by its cell."""
    dim: int = 256
    """Width of the residual stream."""
    depth: int = 4
    """Blocks, in each stack."""
    decoder_depth: int | None = None
    """Blocks of an encoder-decoder's decoder (seq2seq); as many as depth when not given."""
    heads: int = 4
    """Attention heads."""
    kv_heads: int | None = None
    """Key-value heads (llama); as many as heads when not given."""
    hidden: int | None = None
    """Width of the MLP, 4 dim or the llama family's 8/3 dim; of a recurrent state, dim."""
    pre_norm: bool = False
    """Norms before each part of an encoder-decoder; saved as regard's own, no family has it."""
    attention: Literal["multi-head", "additive", "none"] = "multi-head"
    """seq2seq: the Transformer's; or a recurrent model's, to all states or to one vector."""

    def __post_init__(self) -> None:
        check_names(self, "choosing a shape")
        for name in ("dim", "depth", "decoder_depth", "heads", "kv_heads", "hidden"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError("choosing a shape", f"{name} = {value}", "1 or more")

    def resolve(self, kind: str) -> ShapeConfig:
        """The same with everything that was left open decided."""
        families = FAMILIES[kind]
        usual = "lstm" if self.attention != "multi-head" and kind == "seq2seq" else families[0]
        family: Any = usual if self.family == "auto" else self.family
        found = f"family = {family!r} for `train {kind}`"
        check_known(family, families, "choosing a shape", found)
        if family in CELLS:
            return self.resolve_recurrent(kind, family)
        if self.attention != "multi-head":
            found = f"attention = {self.attention} with {family}"
            raise UsageError("choosing a shape", found, f"a recurrent family: {', '.join(CELLS)}")
        if self.pre_norm and family != "marian":
            raise UsageError("choosing a shape", f"pre_norm with {family}", "seq2seq")
        if self.decoder_depth is not None and family != "marian":
            raise UsageError("choosing a shape", f"decoder_depth with {family}", "seq2seq")
        if self.kv_heads is not None and family != "llama":
            raise UsageError("choosing a shape", f"kv_heads with {family}", "family llama")
        if self.dim % self.heads:
            found = f"heads = {self.heads} does not divide dim = {self.dim}"
            divisors = [n for n in range(1, self.dim + 1) if self.dim % n == 0]
            raise UsageError("choosing a shape", found, f"one of {divisors}")
        wide = -(-8 * self.dim // 3 // 32) * 32 if family == "llama" else 4 * self.dim
        return replace(self, family=family, hidden=self.hidden or wide)

    def resolve_recurrent(self, kind: str, family: Any) -> ShapeConfig:
        """The same for a recurrent model; an encoder-decoder looks at all states unless told."""
        if kind == "lm" and self.attention != "multi-head":
            found = f"attention = {self.attention} for a language model"
            raise UsageError("choosing a shape", found, "seq2seq")
        for name in ("kv_heads", "decoder_depth", "pre_norm"):
            if getattr(self, name):
                raise UsageError("choosing a shape", f"{name} with {family}", "a Transformer")
        seen = self.attention
        if kind == "seq2seq" and seen == "multi-head":
            seen = "additive"
        return replace(self, family=family, hidden=self.hidden or self.dim, attention=seen)

    def build(self, vocab: int, length: int) -> tuple[ModelConfig, str | None]:
        """(config, architecture; None for regard's own) of a resolved shape."""
        assert self.hidden is not None
        if self.family in CELLS:
            recurrent = (self.family, self.dim, self.hidden, self.depth, vocab)
            if self.attention == "multi-head":
                return recurrent_lm(*recurrent), None
            return recurrent_seq2seq(*recurrent, self.attention), None
        sizes = self.dim, self.depth, self.heads
        if self.family == "llama":
            groups = self.kv_heads or self.heads
            return llama(*sizes, groups, self.hidden, vocab, length), ARCHITECTURES["llama"]
        if self.family == "marian":
            config = transformer(*sizes, vocab, self.pre_norm)
            assert config.decoder is not None
            decoder = replace(config.decoder, depth=self.decoder_depth or self.depth)
            config = replace(config, decoder=decoder)
            if length > 1024:  # positions are computed: only what transformers is told changes
                assert isinstance(config.front, TextConfig)
                text = replace(config.front, length=length)
                config = replace(config, front=text, target=text)
        else:
            config = (gpt2 if self.family == "gpt2" else bert)(*sizes, vocab, length)
        config = replace(
            config,
            encoder=with_hidden(config.encoder, self.hidden),
            decoder=with_hidden(config.decoder, self.hidden),
        )
        return config, None if self.pre_norm else ARCHITECTURES[self.family]


def with_hidden(stack: StackConfig | None, hidden: int) -> StackConfig | None:
    """A stack with another width of its MLPs."""
    return stack and replace(stack, block=replace(stack.block, hidden=hidden))


USUAL: dict[str, dict[str, Any]] = {
    "lm": {},
    "mlm": {"beta2": 0.98, "weight_decay": 0.01, "dropout": 0.1},
    "seq2seq": {
        "length": 128,
        "beta2": 0.98,
        "schedule": "inverse_sqrt",
        "weight_decay": 0.0,
        "smoothing": 0.1,
        "dropout": 0.1,
    },
}
"""Training settings of each kind that differ from the defaults."""

RECURRENT: dict[str, dict[str, Any]] = {
    "lm": {"depth": 2, "length": 64, "carry": True, "lr": 2e-3, "weight_decay": 0.0},
    "seq2seq": {"depth": 1, "schedule": "cosine", "lr": 2e-3},
}
"""The same of recurrent families: a window is how far back gradients go."""

VASWANI = {"beta2": 0.98, "eps": 1e-9, "warm_up": 4000, "steps": 100_000, "average": 5}
RECIPES: dict[str, dict[str, Any]] = {
    "transformer-base": VASWANI | {"lr": 512**-0.5 * 4000**-0.5},
    "transformer-big": VASWANI
    | {"lr": 1024**-0.5 * 4000**-0.5, "dropout": 0.3, "steps": 300_000, "average": 20},
    "transformer-pre": VASWANI | {"lr": 512**-0.5 * 4000**-0.5},
}
"""Published training settings of presets (spec training.md, section 1)."""


def preset_values(kind: str, name: str | None, recurrent: bool = False) -> dict[str, Any]:
    """What a preset says of shape and training; None is the usual of the kind."""
    made = USUAL[kind] | (RECURRENT.get(kind, {}) if recurrent else {})
    if name is None:
        return made
    config, family = preset(name), architecture(name)
    families = {full: short for short, full in ARCHITECTURES.items()} | {None: "marian"}
    if families.get(family) not in FAMILIES[kind]:
        found = f"{name}, a {family or 'pre-norm encoder-decoder'}"
        expected = f"a preset of {' or '.join(FAMILIES[kind])}"
        raise UsageError(f"choosing a preset for `train {kind}`", found, expected)
    block = config.last.block
    depth = (config.encoder or config.last).depth
    made |= {"family": families[family], "dim": block.dim, "depth": depth}
    made |= {"heads": block.heads, "hidden": block.hidden, "pre_norm": family is None}
    if made["family"] == "llama" and block.kv_heads is not None:
        made["kv_heads"] = block.kv_heads
    return made | RECIPES.get(name, {})
