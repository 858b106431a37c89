"""Reader: what a model is given, as a checked batch. Texts, ids, pixels or sound."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any, TypedDict, Unpack

import torch
from torch import Tensor

from regard.errors import RegardWarning, UsageError, check_names
from regard.interop.side import start_id
from regard.model.batch import Batch, check_batch, pad_rows, to_ids, to_mask, to_signal
from regard.model.config import FrontConfig, TextConfig
from regard.model.fronts import TextFront, too_long
from regard.model.model import Model
from regard.tokens.tokenizer import Side, Tokenizer

Ids = Tensor | Sequence[int] | Sequence[Sequence[int]]
Text = str | Sequence[str]


class Masks(TypedDict, total=False):
    """Padding, packing and segments of a batch; see `regard.model.batch.Batch`."""

    mask: Tensor | None
    documents: Tensor | None
    source_mask: Tensor | None
    source_documents: Tensor | None
    segments: Tensor | None
    prefix: Tensor | None


class Reader:
    """The reading side of a Kit."""

    model: Model
    tokenizer: Tokenizer | None
    config: dict[str, Any]
    files: dict[str, bytes]

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        """What its numbers are."""
        return next(self.model.parameters()).dtype

    @property
    def room(self) -> int | None:
        """The most positions that the writing stack has a learned table for; None is no limit."""
        front = self.model.reader
        return front.positions.size if isinstance(front, TextFront) and front.positions else None

    @property
    def text_tokenizer(self) -> Tokenizer:
        """The tokenizer; a model that came without one is refused."""
        if self.tokenizer is None:
            raise UsageError(
                "reading text",
                "this model came without a tokenizer",
                "token ids",
                "pass ids, or put a tokenizer.json into the folder",
            )
        return self.tokenizer

    def batch(
        self, inputs: Ids | Text, target: Ids | Text | None = None, **masks: Unpack[Masks]
    ) -> Batch:
        """Texts, ids, pixels or mel as a checked batch on the model's device."""
        check_names(masks, Masks.__annotations__, "running a model", "a field of a batch")
        pair = self.model.config.target is not None
        given: dict[str, Any] = {name: to_mask(value, name) for name, value in masks.items()}
        data, found = self.tensor(inputs, self.model.config.front, "source")
        whose = "source_mask" if pair else "mask"
        given[whose] = found if given.get(whose) is None else given[whose]
        if target is None and pair:
            target = [[start_id(self.files, self.config)]] * len(data)
        if target is not None:
            target, found = self.tensor(target, self.model.config.target, "target")
            given["mask"] = found if given.get("mask") is None else given["mask"]
        batch = Batch(data, target, **given)
        check_batch(batch, self.model.config)
        self.warn_long(batch.ids.shape[1])
        return batch.to(self.device)

    def check_room(self, count: int) -> None:
        """Before anything is written: does a learned position table reach that far?"""
        if self.room is not None and count > self.room:
            raise too_long(count, self.room)
        self.warn_long(count)

    def warn_long(self, count: int) -> None:
        """Say so when a text is longer than any that the model was trained on (#42)."""
        config = self.model.config
        front = config.front if config.target is None else config.target
        if isinstance(front, TextConfig) and front.length and front.position != "learned":
            if count > front.length:
                warnings.warn(
                    f"[long-input] {count} tokens; this model was trained on at most "
                    f"{front.length}. It runs, but expect worse predictions past that position.",
                    RegardWarning,
                    stacklevel=4,
                )

    def tensor(
        self, given: Any, front: FrontConfig | None, side: Side
    ) -> tuple[Tensor, Tensor | None]:
        """Text, ids, pixels or mel → a tensor with a batch dimension, and its padding."""
        if isinstance(given, str):
            given = [given]
        if front is not None and not isinstance(front, TextConfig):
            return to_signal(given, front, self.dtype), None
        if isinstance(given, Sequence) and len(given) == 0:
            raise UsageError("reading a batch", "nothing", "at least one text or row of ids")
        if is_text(given):
            return self.encode(given, side)
        return to_ids(given, side)

    def encode(
        self, texts: Any, side: Side = "source", limit: int | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Texts → ids (B, T) and mask; a text past `limit` loses its end but keeps its last id."""
        rows = self.text_tokenizer.encode_batch(list(texts), side=side)
        if limit is not None:
            rows = [r if len(r) <= limit else [*r[: limit - 1], r[-1]] for r in rows]
        return pad_rows(rows, self.text_tokenizer.specials.get("pad", 0))


def is_text(given: Any) -> bool:
    """A text or a list of texts."""
    listed = isinstance(given, Sequence) and len(given) > 0
    return isinstance(given, str) or (listed and all(isinstance(text, str) for text in given))


def listed_texts(texts: Any) -> Any:
    """Texts or rows of ids to be translated, as a list where they come one by one."""
    if isinstance(texts, str | list | tuple | Tensor):
        return texts
    if isinstance(texts, bytes | bytearray | dict) or not isinstance(texts, Iterable):
        found = f"{type(texts).__name__}"
        raise UsageError("translating", found, "a text (str), texts, or rows of ids")
    return [str(text) if isinstance(text, str) else text for text in texts]  # numpy has its own
