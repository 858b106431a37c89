"""The shape of a recurrent model: plain data, stored in config.json like any other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regard.core.config import StackConfig, check_names
from regard.errors import UsageError
from regard.model.config import HeadConfig, ModelConfig, TextConfig

CELLS = ("rnn", "lstm", "gru", "mlp")


@dataclass(frozen=True)
class RecurrentConfig(ModelConfig):
    """Embeddings, recurrent layers where a Transformer has its stacks, and an output head."""

    cell: Literal["rnn", "lstm", "gru", "mlp"] = "lstm"
    """tanh (Elman 1990), LSTM (Hochreiter 1997), GRU (Cho 2014), last five words (Bengio 2003)."""
    hidden: int = 256
    """Width of the state."""
    depth: int = 1
    """Layers: of a language model, and of an encoder."""
    attention: Literal["none", "additive"] = "none"
    """What an encoder-decoder sees of its source: one vector, or all states (Bahdanau 2015)."""
    kind: Literal["recurrent"] = "recurrent"

    def __post_init__(self) -> None:
        check_names(self, "building a recurrent model")

    @property
    def last(self) -> StackConfig:
        """There is none: whoever asks means a Transformer."""
        found = f"a recurrent model ({self.cell})"
        raise UsageError("looking for a stack of blocks", found, "a Transformer")


def language_model(cell: str, dim: int, hidden: int, depth: int, vocab: int) -> RecurrentConfig:
    """Next-token prediction; embeddings serve as output weights where the widths agree."""
    head = HeadConfig(vocab, bias=True, tied=hidden == dim)
    return RecurrentConfig(TextConfig(dim, vocab), head, cell=cell, hidden=hidden, depth=depth)  # type: ignore[arg-type]


def encoder_decoder(
    cell: str, dim: int, hidden: int, depth: int, vocab: int, attention: str
) -> RecurrentConfig:
    """Translation; one vocabulary, whose embeddings both sides and the output share."""
    text, head = TextConfig(dim, vocab), HeadConfig(vocab, bias=True, tied=True)
    sizes = {"cell": cell, "hidden": hidden, "depth": depth, "attention": attention}
    return RecurrentConfig(text, head, target=text, shared=True, **sizes)  # type: ignore[arg-type]
