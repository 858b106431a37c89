"""Kit: a model with its tokenizer and settings. What `regard.load` returns."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.core.cache import Cache
from regard.core.tap import taps as list_taps
from regard.decode.greedy import greedy
from regard.errors import RegardWarning, UsageError, nearest
from regard.interop.folder import write_folder
from regard.interop.side import read_pooling, start_id, stop_ids
from regard.interop.table import Binding
from regard.interop.weights import export_config, export_tensors
from regard.look.capture import Board
from regard.look.edit import Edit
from regard.look.gather import Gather
from regard.look.names import resolve
from regard.model.batch import Batch, check_batch, pad_rows
from regard.model.config import TextConfig
from regard.model.model import Model
from regard.model.strict import StrictCache, strict_logits
from regard.tokens.tokenizer import Tokenizer

Ids = Tensor | Sequence[int] | Sequence[Sequence[int]]
Text = str | Sequence[str]


class Masks(TypedDict, total=False):
    """Padding, packing and segments of a batch; see `regard.model.batch.Batch`."""

    mask: Tensor | None
    documents: Tensor | None
    source_mask: Tensor | None
    source_documents: Tensor | None
    segments: Tensor | None


@dataclass(frozen=True)
class Output:
    """What `run` gives beside the activations."""

    logits: Tensor
    """Scores, as `logits` gives them."""
    batch: Batch
    """What was read: the ids and mask of a text, as the model saw them."""


@dataclass(eq=False)
class Kit:
    """A model that speaks text, pictures and sound; `model` inside is an ordinary nn.Module."""

    model: Model
    tokenizer: Tokenizer | None = None
    binding: Binding | None = None
    """The table of the family it is saved as; None is a folder of regard's own."""
    config: dict[str, Any] = field(default_factory=dict)
    """config.json as it was read; empty for a model made here."""
    files: dict[str, bytes] = field(default_factory=dict)
    """Side files that travel with the folder, such as generation_config.json."""
    strict: bool = False
    """Run in strict mode unless a call says otherwise."""

    def __post_init__(self) -> None:
        self.board = Board(list_taps(self.model))

    def __repr__(self) -> str:
        kind = self.binding.architecture if self.binding else "regard's own"
        count = sum(p.numel() for p in self.model.parameters())
        return f"Kit({kind}, {count:,} parameters, {self.dtype}, {self.device})"

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        """What its numbers are."""
        return next(self.model.parameters()).dtype

    @property
    def taps(self) -> list[str]:
        """Names of all places that can be read and changed."""
        return list(self.board.taps)

    # Reading in ---------------------------------------------------------------------------------

    def batch(
        self, inputs: Ids | Text, target: Ids | Text | None = None, **masks: Unpack[Masks]
    ) -> Batch:
        """Texts, ids, pixels or mel as a checked batch on the model's device."""
        unknown = [name for name in masks if name not in Masks.__annotations__]
        if unknown:
            close = nearest(unknown[0], Masks.__annotations__)
            raise UsageError("running a model", f"unknown {unknown[0]}=", close)
        pair = self.model.config.target is not None
        ids, found = self.tensor(inputs)
        given: dict[str, Any] = dict(masks)
        given.setdefault("source_mask" if pair else "mask", found)
        if target is None and pair:
            target = [[start_id(self.files, self.config)]] * len(ids)
        if target is not None:
            target, found = self.tensor(target, side="target")
            given.setdefault("mask", found)
        batch = Batch(ids, target, **given)
        check_batch(batch, self.model.config)
        self.warn_long(batch.ids.shape[1])
        return batch.to(self.device)

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

    def tensor(self, given: Ids | Text, side: Any = "source") -> tuple[Tensor, Tensor | None]:
        """Text, lists of ids or a tensor → a tensor with a batch dimension, and its padding."""
        if isinstance(given, str):
            given = [given]
        if len(given) == 0:
            raise UsageError("reading a batch", "nothing", "at least one text or row of ids")
        if isinstance(given, Tensor):
            return given[None] if given.dim() == 1 else given, None
        if isinstance(given[0], str):
            return self.encode(given, side)
        rows = [given] if isinstance(given[0], int) else given
        return pad_rows(rows)  # type: ignore[arg-type]

    def encode(
        self, texts: Any, side: Any = "source", limit: int | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Texts → ids (B, T) and mask; a text past `limit` loses its end but keeps its last id."""
        if self.tokenizer is None:
            raise UsageError(
                "reading text",
                "this model came without a tokenizer",
                "token ids",
                "pass ids, or put a tokenizer.json into the folder",
            )
        rows = self.tokenizer.encode_batch(list(texts), side=side)
        if limit is not None:
            rows = [r if len(r) <= limit else [*r[: limit - 1], r[-1]] for r in rows]
        return pad_rows(rows, self.tokenizer.specials.get("pad", 0))

    # Running ------------------------------------------------------------------------------------

    @torch.no_grad()
    def logits(
        self,
        inputs: Ids | Text,
        target: Ids | Text | None = None,
        *,
        cache: Cache | StrictCache | None = None,
        strict: bool | None = None,
        **masks: Unpack[Masks],
    ) -> Tensor:
        """Scores: (B, T, V) for each position, or (B, classes); unspecified at padding.

        inputs are ids (B, T), pixels or log-mel; an encoder-decoder takes source and target.
        """
        return self.score(self.batch(inputs, target, **masks), cache, strict)

    def score(
        self,
        batch: Batch,
        cache: Cache | StrictCache | None,
        strict: bool | None,
        watch: Any = None,
    ) -> Tensor:
        """Run a batch in strict or ordinary mode."""
        strict = self.strict if strict is None else strict
        if cache is not None and isinstance(cache, StrictCache) != strict:
            raise UsageError(
                "running with a cache",
                f"strict={strict} and a {type(cache).__name__}",
                "a cache made with the same strict=",
            )
        if isinstance(cache, StrictCache) or strict:
            return strict_logits(self.model, batch, cache, watch)  # type: ignore[arg-type]
        return self.model(batch, cache)  # type: ignore[no-any-return]

    def cache(self, batch: int, size: int, strict: bool | None = None) -> Cache | StrictCache:
        """An empty cache for `batch` rows of at most `size` tokens."""
        strict = self.strict if strict is None else strict
        return StrictCache(self.model, batch, size) if strict else self.model.cache(batch, size)

    @torch.no_grad()
    def run(
        self,
        inputs: Ids | Text,
        target: Ids | Text | None = None,
        *,
        taps: str | Sequence[str] = (),
        strict: bool | None = None,
        **masks: Unpack[Masks],
    ) -> tuple[Output, dict[str, Tensor]]:
        """Run once and read activations: (output, tap name → tensor)."""
        batch = self.batch(inputs, target, **masks)
        strict = self.strict if strict is None else strict
        with self.board.reading(resolve(taps, self.taps) if taps else []) as stations:
            if strict:
                gather = Gather(stations, batch)
                logits = self.score(batch, None, True, gather)
                return Output(logits, batch), gather.seen
            logits = self.score(batch, None, False)
            seen = {name: s.seen for name, s in stations.items() if s.seen is not None}
        return Output(logits, batch), seen

    @contextmanager
    def edit(self, edits: Mapping[str, Edit | Sequence[Edit]]) -> Iterator[None]:
        """Change activations inside the `with` block: tap name or pattern → edit or edits."""
        placed: dict[str, list[Edit]] = {}
        for pattern, given in edits.items():
            for name in resolve(pattern, self.taps):
                owner = self.model.get_submodule(name.rpartition(".")[0])
                listed = [given] if isinstance(given, Edit) else list(given)
                placed.setdefault(name, []).extend(edit.at(name, owner) for edit in listed)
        with self.board.editing(placed):
            yield

    @torch.no_grad()
    def embed(self, texts: Text) -> Tensor:
        """One vector per text (B, D), pooled and normalised as the folder says; else the mean."""
        asked = read_pooling(self.files)
        ids, mask = self.encode([texts] if isinstance(texts, str) else texts, limit=asked.length)
        batch = self.batch(ids, mask=mask)
        x = self.model.hidden(batch)  # (B, T, D)
        real = torch.ones_like(ids, dtype=x.dtype) if mask is None else mask.to(x)
        if asked.mode == "first":
            pooled = x[:, 0]
        elif asked.mode == "max":
            pooled = x.masked_fill(real[..., None] == 0, -torch.inf).amax(1)
        else:
            pooled = (x * real[..., None]).sum(1) / real.sum(1, keepdim=True)
        return F.normalize(pooled, dim=-1) if asked.normalise else pooled

    @torch.no_grad()
    def generate(
        self, prompts: Text | Ids, tokens: int = 64, strict: bool | None = None
    ) -> str | list[str] | Tensor:
        """Greedy continuation: text for text (a list for a list), ids (B, n) for ids."""
        batch = self.batch(prompts)
        ids, pair = batch.ids, batch.target is not None
        self.warn_long(ids.shape[1] + tokens)
        cache = self.cache(len(ids), ids.shape[1] + tokens, strict)
        real = None if pair else batch.mask

        def step(column: Tensor) -> Tensor:
            new = replace(batch, target=column) if pair else Batch(column)
            if column is not ids:
                return self.score(new, cache, strict)[:, -1]
            scores = self.score(replace(new, mask=real), cache, strict)
            last = -1 if real is None else real.sum(-1) - 1  # texts are padded on the right
            return scores[torch.arange(len(ids)), last]

        specials = {} if self.tokenizer is None else self.tokenizer.specials
        stops = stop_ids(self.files, self.config, specials)
        made = greedy(step, ids, tokens, stops, min(stops, default=0))
        if self.tokenizer is None or not is_text(prompts):
            return made
        mask = torch.ones_like(ids, dtype=torch.bool) if real is None else real
        before = [[] if pair else row[kept].tolist() for row, kept in zip(ids, mask, strict=True)]
        texts = [self.continuation(*row, stops) for row in zip(before, made.tolist(), strict=True)]
        return texts[0] if isinstance(prompts, str) else texts

    def continuation(self, before: list[int], made: list[int], stops: set[int]) -> str:
        """The text of new ids as it stands after the old ones, its leading space kept."""
        assert self.tokenizer is not None
        made = made[: next((n for n, id in enumerate(made) if id in stops), len(made))]
        start, whole = (self.tokenizer.decode(ids) for ids in (before, before + made))
        return whole[len(start) :] if whole.startswith(start) else self.tokenizer.decode(made)

    # Out ----------------------------------------------------------------------------------------

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write a folder that regard and, where the family exists there, transformers open."""
        config = self.config or self.fresh_config()
        stored = str(self.dtype).removeprefix("torch.")
        config = {k: v for k, v in config.items() if k != "torch_dtype"} | {"dtype": stored}
        files = self.files | (self.tokenizer.files if self.tokenizer else {})
        tensors = export_tensors(self.model, self.binding)
        write_folder(Path(folder), config, tensors, files)

    def fresh_config(self) -> dict[str, Any]:
        """config.json of a model made here, with the special ids of its tokenizer."""
        config = export_config(self.model, self.binding)
        for role, number in ({} if self.tokenizer is None else self.tokenizer.specials).items():
            if role in ("bos", "eos", "pad") and config.get(f"{role}_token_id") is None:
                config[f"{role}_token_id"] = number
        return config


def is_text(given: Any) -> bool:
    """A text or a list of texts."""
    return isinstance(given, str) or (isinstance(given, Sequence) and isinstance(given[0], str))
