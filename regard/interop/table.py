"""A checkpoint family as data: which of their names and keys are which of ours, both ways."""

from __future__ import annotations

import fnmatch
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.errors import DataError
from regard.model.config import ModelConfig
from regard.model.model import Model

MISSING = object()
TENSORS = "_tensors"  # added to a config that is read: the names of the tensors beside it


@dataclass(frozen=True)
class Key:
    """One key of their config.json; `words` translates its values, a default makes it optional.

    A default may be a function of the config.
    """

    name: str
    default: Any = MISSING
    words: dict[str, str] | None = None

    def read(self, config: dict[str, Any]) -> Any:
        """Our value, from their config."""
        value = config.get(self.name)
        if value is None:
            value = self.default(config) if callable(self.default) else self.default
        if value is MISSING:
            raise DataError("reading config.json", f"no key {self.name!r}", f"{self.name}")
        if self.words is None:
            return value
        if value not in self.words:
            problem = f"{self.name} = {value!r}"
            raise DataError("reading config.json", problem, f"one of {list(self.words)}")
        return self.words[value]

    def write(self, value: Any) -> dict[str, Any]:
        """Their keys, from our value."""
        if self.words is None:
            return {self.name: value}
        return {self.name: next(theirs for theirs, ours in self.words.items() if ours == value)}


@dataclass(frozen=True)
class ManyKeys:
    """A value spread over several of their keys: how to read it and how to write it."""

    read: Callable[[dict[str, Any]], Any]
    write: Callable[[Any], dict[str, Any]]


Fields = dict[str, Key | ManyKeys]
"""Our path in ModelConfig → their key."""

# Their activation names → ours; the first of equals is the one written.
ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu",
    "quick_gelu": "gelu_sigmoid",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}


def act(key: str, default: str) -> Key:
    """An activation by their name."""
    return Key(key, default, ACTIVATIONS)


LABELS = ManyKeys(
    lambda config: len(config.get("id2label") or {}) or int(config.get("num_labels") or 2),
    lambda count: {
        "id2label": {str(n): f"LABEL_{n}" for n in range(count)},
        "label2id": {f"LABEL_{n}": n for n in range(count)},
    },
)
"""Number of classes: id2label, num_labels, or Hugging Face's default of two."""


class Op(NamedTuple):
    """A step from the tensors of one table row in their layout to ours, and its inverse."""

    load: Callable[[list[Tensor]], list[Tensor]]
    """Theirs → ours."""
    save: Callable[[list[Tensor]], list[Tensor]]
    """Ours → theirs."""


def turn(tensors: list[Tensor]) -> list[Tensor]:
    """Matrices (in, out) ↔ (out, in); vectors pass."""
    return [t.t() if t.dim() == 2 else t for t in tensors]


TRANSPOSE = Op(turn, turn)
"""Matrices stored as (in, out), as GPT-2 does."""
SPLIT = Op(lambda tensors: list(tensors[0].chunk(3)), lambda tensors: [torch.cat(tensors)])
"""One tensor that holds three of ours, one after the other along the first dimension."""
UNSQUEEZE = Op(lambda tensors: [t[0] for t in tensors], lambda tensors: [t[None] for t in tensors])
"""A leading dimension of size one that we do not keep."""
DUPLICATE = Op(lambda tensors: tensors[:1], lambda tensors: tensors * 2)
"""One tensor of ours under two names: the first is the one that their model computes with."""


# Rows and tables --------------------------------------------------------------------------------


class TensorRow:
    """Our name, their name and the operations between them.

    `{i}` counts blocks, `{a,b}` lists names; `.weight` and `.bias` follow by themselves.
    """

    def __init__(
        self, ours: str, theirs: str, *ops: Op, when: Callable[[ModelConfig], bool] | None = None
    ) -> None:
        self.ours, self.theirs, self.ops, self.when = ours, theirs, ops, when


@dataclass(frozen=True)
class Variant:
    """What one architecture of a family adds: mostly its output head."""

    prefix: str = ""
    """In front of the family's names."""
    rows: tuple[TensorRow, ...] = ()
    config: Fields = field(default_factory=dict)
    fixed: dict[str, Any] = field(default_factory=dict)


BODY = Variant(config={"front.vocab": Key("vocab_size")})
"""A model that reads words and gives vectors."""


def language_model(prefix: str, tied: bool) -> Variant:
    """A model that scores the words it reads; config.json says whether by the same matrix."""
    tie = Key("tie_word_embeddings", tied)
    config: Fields = {"{head.size,front.vocab}": Key("vocab_size"), "head.tied": tie}
    return Variant(prefix, (TensorRow("head.out", "lm_head"),), config)


def classifier(prefix: str, *rows: TensorRow, **head: Any) -> Variant:
    """A model that scores classes, of texts or of tokens, as its `head` says."""
    fixed = {f"head.{name}": value for name, value in head.items()}
    return Variant(prefix, rows, BODY.config | {"head.size": LABELS}, fixed)


@dataclass(frozen=True)
class Table:
    """A family: its config keys, its tensors, its architectures."""

    family: str
    """`model_type` in config.json."""
    variants: dict[str, Variant]
    """`architectures` in config.json → what it adds."""
    config: Fields
    fixed: dict[str, Any]
    """Our paths that have one value in this family."""
    rows: tuple[TensorRow, ...]
    require: dict[str, Any] = field(default_factory=dict)
    """Keys of theirs that must have this value when present: we do nothing else."""
    ignore: tuple[str, ...] = ()
    """Patterns of tensors that hold nothing learned."""


@dataclass(frozen=True)
class Binding:
    """A table with one of its architectures, and the prefix its names really have."""

    table: Table
    architecture: str
    prefix: str

    @property
    def variant(self) -> Variant:
        """The architecture's part of the table."""
        return self.table.variants[self.architecture]

    @property
    def fields(self) -> Fields:
        """All config rows."""
        return self.table.config | self.variant.config


@dataclass(frozen=True)
class Move:
    """Tensors that travel together: their names, our names, the operations between."""

    ours: list[str]
    theirs: list[str]
    ops: tuple[Op, ...]

    def load(self, tensors: list[Tensor]) -> list[Tensor]:
        """Theirs → ours."""
        for op in self.ops:
            tensors = op.load(tensors)
        return tensors

    def save(self, tensors: list[Tensor]) -> list[Tensor]:
        """Ours → theirs."""
        for op in reversed(self.ops):
            tensors = op.save(tensors)
        return tensors


def braces(pattern: str) -> list[str]:
    """Expand each `{a,b}`: "x.{q,k}" → ["x.q", "x.k"]."""
    parts = re.split(r"\{([^{}]*)\}", pattern)  # text, choices, text, choices, … text
    choices = [part.split(",") if n % 2 else [part] for n, part in enumerate(parts)]
    return ["".join(choice) for choice in itertools.product(*choices)]


def read_config(binding: Binding, config: dict[str, Any]) -> ModelConfig:
    """Their config.json → our ModelConfig."""
    for key, value in binding.table.require.items():
        if config.get(key, value) != value:
            fault = f"{key} = {config[key]!r}"
            raise DataError("reading config.json", fault, f"{value!r}, the only one supported")
    values = binding.table.fixed | binding.variant.fixed
    for pattern, source in binding.fields.items():
        try:
            values[pattern] = source.read(config)
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
            fault = f"nothing that {pattern} can be read from: {type(error).__name__}: {error}"
            raise DataError("reading config.json", fault, "values as transformers writes") from None
    tree: dict[str, Any] = {}
    for pattern, value in values.items():
        for path in braces(pattern):
            *parents, leaf = path.split(".")
            node = tree
            for parent in parents:
                node = node.setdefault(parent, {})
            node[leaf] = value
    return ModelConfig.from_dict(tree)


def write_config(binding: Binding, config: ModelConfig) -> dict[str, Any]:
    """Our ModelConfig → their config.json; DataError when this family cannot hold the shape."""
    tree = config.to_dict()
    theirs_config: dict[str, Any] = {
        "architectures": [binding.architecture],
        "model_type": binding.table.family,
        # Left out, transformers assumes those of the family's first checkpoint.
        **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id")),
    }
    if config.target is not None:
        theirs_config["decoder_start_token_id"] = 0
    for pattern, key in binding.fields.items():
        value: Any = tree
        for part in braces(pattern)[0].split("."):
            value = value[part]
        theirs_config |= key.write(value)
    if read_config(binding, theirs_config) != config:
        doing, fix = f"writing a {binding.table.family} config", "save it as regard's own folder"
        raise DataError(doing, "a shape this family cannot hold", "the family's fixed choices", fix)
    return theirs_config


def moves(binding: Binding | None, model: Model) -> tuple[list[Move], list[Move]]:
    """(the moves that fill a model, those of weights that are tied to one already filled).

    Without a table, in a folder of regard's own, each tensor is itself.
    """
    owned = dict(model.named_parameters())
    if binding is None:
        return [Move([name], [name], ()) for name in owned], []
    every = dict(model.named_parameters(remove_duplicate=False))
    filling: list[Move] = []
    copies: list[Move] = []
    body = [(row, binding.prefix) for row in binding.table.rows]
    for row, prefix in body + [(row, "") for row in binding.variant.rows]:
        if row.when is not None and not row.when(model.config):
            continue
        for move in expand(row, prefix, model.config, every):
            (filling if all(name in owned for name in move.ours) else copies).append(move)
    return filling, copies


def expand(
    row: TensorRow, prefix: str, config: ModelConfig, names: dict[str, Any]
) -> Iterator[Move]:
    """One row → a move per block and per parameter of the part it names."""
    stack = config.encoder if row.ours.startswith("encoder.") else config.decoder
    for i in range(stack.depth if stack is not None and "{i}" in row.ours else 1):
        ours = braces(row.ours.replace("{i}", str(i)))
        theirs = braces(prefix + row.theirs.replace("{i}", str(i)))
        joined = 1 in (len(ours), len(theirs))  # one tensor on one side for all on the other
        pairs = (
            [(ours, theirs)] if joined else [([o], [t]) for o, t in zip(ours, theirs, strict=True)]
        )
        for our, their in pairs:
            for suffix in ("", ".weight", ".bias"):
                if our[0] + suffix in names:
                    yield Move([n + suffix for n in our], [n + suffix for n in their], row.ops)


def fit(binding: Binding | None, model: Model, shapes: dict[str, tuple[int, ...]]) -> list[Move]:
    """The moves that fill `model` from tensors of these shapes; DataError with three lists."""
    filling, copies = moves(binding, model)
    parameters = dict(model.named_parameters())
    wanted = {name for move in filling for name in move.theirs}
    covered = {name for move in filling for name in move.ours}
    missing = sorted(wanted - set(shapes)) + sorted(set(parameters) - covered)
    ignored = binding.table.ignore if binding else ()
    ignore = [pattern for listed in ignored for pattern in braces(listed)]
    unexpected = sorted(
        name
        for name in set(shapes) - wanted - {name for move in copies for name in move.theirs}
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in ignore)
    )
    misshapen = []
    for move in filling:
        if any(name in missing for name in move.theirs):
            continue
        try:
            shaped = move.load([torch.empty(shapes[name], device="meta") for name in move.theirs])
        except (RuntimeError, IndexError):  # a shape that its operation cannot take at all
            shaped = [torch.empty(0, device="meta")] * len(move.ours)
        for name, tensor in zip(move.ours, shaped, strict=True):
            if tensor.shape != parameters[name].shape:
                theirs = [f"{n} {shapes[n]}" for n in move.theirs]
                our = f"{name} " if binding else ""  # in a folder of regard's own, as theirs
                misshapen.append(f"{', '.join(theirs)} → {our}{tuple(parameters[name].shape)}")
    lists = {"missing": missing, "unexpected": unexpected, "misshapen": misshapen}
    if not any(lists.values()):
        return filling
    kind, shown = binding.architecture if binding else "folder of regard's own", ""
    for title, names in lists.items():  # of long ones the first ten names
        rest = f" and {len(names) - 10} more" if len(names) > 10 else ""
        shown += f"\n  {title} ({len(names)}): {', '.join(names[:10]) or 'none'}{rest}"
    expected = "each tensor of the table, with the shape that config.json implies"
    fix = "check that config.json and the weights belong together"
    raise DataError(f"loading a {kind}", "tensors that do not fit" + shown, expected, fix)
