"""Kit: a model with its tokenizer and settings. What `regard.load` returns."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.core.cache import Cache
from regard.core.similarity import to_tensor
from regard.data.sorted_lines import SortedLines
from regard.data.word_frequencies import WRITTEN_FILE
from regard.decode.loop import Driver, search_kit
from regard.decode.sampling import sample_config
from regard.decode.shortlist import SHORTLIST_FILE, Shortlist
from regard.decode.step import Hypothesis, without_end
from regard.errors import RegardWarning, UsageError, check_names
from regard.interop.families import bind
from regard.interop.folder import INT8, STORED, write_folder
from regard.interop.side import read_pooling, start_id, stop_ids
from regard.interop.table import Binding
from regard.interop.weights import export_config, export_tensors
from regard.look.edits import Edits, parse_edits
from regard.look.hooks import HookedModel
from regard.model import batch as batches
from regard.model.batch import Batch, pad_rows
from regard.model.config import FrontConfig, ModelConfig, TextConfig
from regard.model.fronts import TextFront, too_long
from regard.model.model import Model
from regard.model.recurrent import model_class
from regard.model.strict import StrictCache, strict_logits
from regard.nvib import regularised
from regard.nvib.config import Strength
from regard.nvib.denoising import NOTED, describe
from regard.tokens.tokenizer import Side, Tokenizer
from regard.verbs import Files

if TYPE_CHECKING:
    from regard.look.activation_cache import ActivationCache
    from regard.look.activations import Captured
    from regard.look.results import Attribution, AttributionComparison
    from regard.tune.adapter_folder import Base

Ids = Tensor | Sequence[int] | Sequence[Sequence[int]]
Text = str | Sequence[str]


class Masks(TypedDict, total=False):
    """Padding, packing and segments of a batch; see `regard.model.batch.Batch`."""

    mask: Tensor | None
    documents: Tensor | None
    source_mask: Tensor | None
    source_documents: Tensor | None
    segments: Tensor | None
    paths: Tensor | None


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
    driver: Driver = "auto"
    """How generation takes its steps; the answers are the same."""
    path: Path | None = None
    """Where it was opened; None for a model made here."""
    base: Base | None = None
    """The model below its adapters, by path and hash; None where there are none."""
    nv: tuple[Strength, Files | None] = (0.0, None)
    """How strongly it is regularised now, and the text of the prior (`regard.nvib`)."""

    def __post_init__(self) -> None:
        self.hooked = HookedModel(self.model)

    @classmethod
    def fresh(
        cls, shape: ModelConfig, family: str | None, seed: int, tokenizer: Tokenizer | None = None
    ) -> Kit:
        """A new model of a shape, saved as a family's architecture, or as regard's own."""
        model = model_class(shape).fresh(shape, seed)
        return cls(model, tokenizer, bind(family) if family else None)

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
    def room(self) -> int | None:
        """The most positions that the writing stack has a learned table for; None is no limit."""
        front = self.model.reader
        return front.positions.size if isinstance(front, TextFront) and front.positions else None

    @property
    def text_tokenizer(self) -> Tokenizer:
        """The tokenizer; a model that came without one is refused."""
        if self.tokenizer is None:
            doing, fix = "reading text", "pass ids, or put a tokenizer.json into the folder"
            fault = f"a model that reads {self.model.config.front.kind}, without a tokenizer"
            raise UsageError(doing, fault, "token ids", fix)
        return self.tokenizer

    @property
    def taps(self) -> list[str]:
        """Names of all places that can be read and changed."""
        return list(self.hooked.taps)

    # Reading ------------------------------------------------------------------------------------

    def batch(
        self, inputs: Ids | Text, target: Ids | Text | None = None, **masks: Unpack[Masks]
    ) -> Batch:
        """Texts, ids, pixels or mel as a checked batch on the model's device."""
        check_names(masks, Masks.__annotations__, "running a model", "a field of a batch")
        pair = self.model.config.target is not None
        held = {name: value for name, value in masks.items() if value is not None}
        given: dict[str, Any] = {n: to_tensor("reading a batch", n, v) for n, v in held.items()}
        data, padding = self.tensor(inputs, self.model.config.front, "source")
        whose = "source_mask" if pair else "mask"
        given[whose] = padding if given.get(whose) is None else given[whose]
        if target is None and pair:
            target = [[self.start]] * len(data)
        if target is not None:
            target, padding = self.tensor(target, self.model.config.target, "target")
            given["mask"] = padding if given.get("mask") is None else given["mask"]
        batch = Batch(data, target, **given)
        batches.check_batch(batch, self.model.config)
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
                told = f"{count} tokens; this model was trained on at most {front.length}."
                told += " It runs, but expect worse predictions past that position."
                warnings.warn(f"[long-input] {told}", RegardWarning, stacklevel=4)

    def tensor(
        self, inputs: Any, front: FrontConfig | None, side: Side
    ) -> tuple[Tensor, Tensor | None]:
        """Text, ids, pixels or mel → a tensor with a batch dimension, and its padding."""
        if isinstance(inputs, str):
            inputs = [inputs]
        if front is not None and front.kind != "text":
            return batches.to_signal(inputs, front, self.dtype), None
        if isinstance(inputs, Sequence) and len(inputs) == 0:
            raise UsageError("reading a batch", "nothing", "at least one text or row of ids")
        if is_text(inputs):
            return self.encode(inputs, side)
        return batches.to_ids(inputs, side)

    def encode(
        self, texts: Any, side: Side = "source", length: int | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Texts → ids (B, T) and mask; a text past `length` loses its end but keeps its last id."""
        tokenizer = self.text_tokenizer.of(side)
        rows = tokenizer.encode_batch(list(texts), side=side)
        if length is not None:
            rows = [r if len(r) <= length else [*r[: length - 1], r[-1]] for r in rows]
        return pad_rows(rows, tokenizer.specials.get("pad", 0))

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
        return self.run_batch(self.batch(inputs, target, **masks), cache, strict)

    def run_batch(
        self, batch: Batch, cache: Cache | StrictCache | None = None, strict: bool | None = None
    ) -> Tensor:
        """Run a batch in strict or ordinary mode."""
        strict = self.strict if strict is None else strict
        if cache is not None and isinstance(cache, StrictCache) != strict:
            problem = f"strict={strict} and a {type(cache).__name__}"
            raise UsageError("running with a cache", problem, "a cache made with the same strict=")
        if cache is not None and cache.batch != len(batch.ids):
            fault = f"{len(batch.ids)} rows and a cache of {cache.batch}"
            raise UsageError("running with a cache", fault, "as many rows as the cache has")
        if isinstance(cache, StrictCache) or strict:
            self.hooked.check_alone("a strict run")
            return strict_logits(self.model, batch, cache)  # type: ignore[arg-type]
        return self.model(batch, cache)  # type: ignore[no-any-return]

    def cache(self, batch: int, size: int, strict: bool | None = None) -> Cache | StrictCache:
        """An empty cache for `batch` rows of at most `size` tokens."""
        strict = self.strict if strict is None else strict
        return StrictCache(self.model, batch, size) if strict else self.model.cache(batch, size)

    def run(
        self,
        inputs: Ids | Text,
        target: Ids | Text | None = None,
        *,
        taps: str | Sequence[str] = (),
        grad: bool = False,
        **masks: Unpack[Masks],
    ) -> tuple[Output, ActivationCache]:
        """Run once and read activations: (output, tap name → tensor), `look/activation_cache.py`.

        `seen.head_results(9)`, `.parts()`, `.residuals()` and `.pattern(9)` make more of them. With
        `grad` gradients flow, into the weights and the activations: torch.autograd.grad.
        """
        batch = self.batch(inputs, target, **masks)
        if self.strict:
            problem, fix = "strict mode, which runs a text in parts", "one text at a time"
            raise UsageError("reading activations", problem, "ordinary mode", fix)
        with torch.set_grad_enabled(grad):
            logits, seen = self.hooked.run(batch, taps, grad=grad)
        from regard.look.activation_cache import ActivationCache

        return Output(logits, batch), ActivationCache(self.hooked, batch, seen)

    def matrix(self, name: str, head: Any = None) -> Tensor:
        """Weights of heads by name: blocks.5.attn.q, k, v, o, qk or ov (`head_matrices`)."""
        from regard.look.attention_patterns import head_matrices

        return head_matrices(self.hooked, name, head)

    @contextmanager
    def edit(
        self, edits: Edits | Sequence[str] = (), nv: Strength = 0.0, nv_text: Files | None = None
    ) -> Iterator[None]:
        """Change activations inside the `with` block: tap name or pattern → edit, function or both.

        An edit is `regard.zero(head=3)` or a relative, a function takes the activation and returns
        one of its shape: `kit.edit({"blocks.9.mlp.out": lambda x: 0.5 * x})`.
        Words as commands write them do too: `kit.edit(["decoder.blocks.9.attn.z=zero,head=3"])`.
        With `nv` its attention is regularised meanwhile, as by `regard.nvib.regularise`.
        """
        with regularised(self, nv, nv_text), self.hooked.editing(parse_edits(edits)):
            yield

    def capture(self, taps: str | Sequence[str]) -> AbstractContextManager[list[Captured]]:
        """Keep what passes taps while texts are written inside the block, one `Captured` each."""
        from regard.look.activations import capture

        return capture(self.hooked, taps)

    @property
    def adapters(self) -> dict[str, float]:
        """Its adapters, each with its share in the answers; 0 is off."""
        from regard.tune.lora import shares

        return shares(self.model)

    def switch(self, mix: str | Mapping[str, float] | None) -> None:
        """Answer with one adapter, with several by their shares, or (None) as the base does."""
        from regard.tune.lora import switch

        switch(self.model, mix)

    @torch.no_grad()
    def embed_batch(self, texts: Text) -> Tensor:
        """One vector per text (B, D), pooled and normalised as the folder says; else the mean."""
        listed = [texts] if isinstance(texts, str) else list(texts)
        if not is_text(listed):
            raise UsageError("embedding texts", f"a {type(texts).__name__}", "a text or texts")
        if self.strict and len(listed) > 1:  # each alone, so that none depends on the others
            return torch.cat([self.embed_batch(text) for text in listed])
        asked = read_pooling(self.files)
        ids, mask = self.encode(listed, length=asked.length)
        batches.check_ids(ids, self.model.config.front, "text")
        batches.check_filled(batch := Batch(ids, mask=mask), "embedding texts")
        batch = batch.to(self.device)
        encode = self.model.encoder is not None  # the encoder's vectors, else the decoder's
        x = self.model.encode(batch).x if encode else self.model.decode(batch)
        every = torch.ones_like(batch.inputs, dtype=torch.bool)
        real = every if batch.mask is None else batch.mask
        if asked.mode == "first":
            pooled = x[:, 0]
        elif asked.mode == "max":
            pooled = x.masked_fill(~real[..., None], -torch.inf).amax(1)
        else:
            pooled = (x * real[..., None]).sum(1) / real.sum(1, keepdim=True)
        return F.normalize(pooled, dim=-1) if asked.normalise else pooled

    def generate(self, prompts: Any, max_new: int = 64, **options: Any) -> Any:
        """Go on with texts: `regard.generate` with this model.

        Rows of ids give rows of new ids (B, n), drawn where a field of SampleConfig is given.
        """
        from regard.decode import generate

        if is_text(prompts) or not isinstance(prompts, Sequence | Tensor):
            return generate(self, prompts, max_new=max_new, **options)
        strict = options.pop("strict", None)
        how = sample_config(options) if options else None
        rows = self.search(self.batch(prompts), max_new, how, strict=strict)
        return pad_rows([row[0].tokens for row in rows], min(self.stops, default=0))[0]

    def translate(self, texts: Any, **options: Any) -> Any:
        """Translate texts: `regard.translate` with this model."""
        from regard.translation import translate

        return translate(texts, model=self, **options)

    def score(self, texts: Any, **options: Any) -> Any:
        """The log-probability of each token of texts: `regard.score` with this model."""
        from regard.decode import score

        return score(self, texts, **options)

    def fill(self, texts: Any, **options: Any) -> Any:
        """The likeliest words for the gaps in texts: `regard.fill` with this model."""
        from regard.decode import fill

        return fill(self, texts, **options)

    def explain(self, text: str, **options: Any) -> Attribution | AttributionComparison:
        """Which words of a text an answer comes from: `regard.look.explain` with this model."""
        from regard.look import explain

        return explain(self, text, **options)

    def embed(self, texts: Any, **options: Any) -> Any:
        """A vector for each text: `regard.embed` with this model."""
        from regard.decode import embed

        return embed(self, texts, **options)

    def search(self, *args: Any, **options: Any) -> list[list[Hypothesis]]:
        """Hypotheses for each row of a batch, best first; see `decode.loop.search_kit`."""
        return search_kit(self, *args, **options)

    @cached_property
    def shortlist(self) -> Shortlist | None:
        """The words that translations from each source word need, where the folder lists them."""
        front, words = self.model.config.front, self.model.config.head.size
        if SHORTLIST_FILE not in self.files or not isinstance(front, TextConfig) or words is None:
            return None
        return Shortlist.from_bytes(self.files[SHORTLIST_FILE], front.vocab, words)

    @cached_property
    def written(self) -> SortedLines | None:
        """The words that training wrote, in lower case, where the folder lists them."""
        data = self.files.get(WRITTEN_FILE)
        return None if data is None else SortedLines(data, WRITTEN_FILE)

    @property
    def start(self) -> int:
        """The id that an encoder-decoder's target begins with."""
        return start_id(self.files, self.config)

    @property
    def stops(self) -> set[int]:
        """Ids that end a text."""
        specials = {} if self.tokenizer is None else self.tokenizer.specials
        return stop_ids(self.files, self.config, specials)

    def text(self, tokens: list[int]) -> str:
        """The text of new tokens, without the one that ended it."""
        return self.decode_text(without_end(tokens, self.stops))

    @cached_property
    def token_texts(self) -> dict[int, str]:
        """Texts of tokens inside a text, with their blanks, as far as they were asked for."""
        return {}

    def token_text(self, token: int) -> str:
        """The text of a token inside a text."""
        if token not in self.token_texts:
            twice, once = self.decode_text([token, token]), self.decode_text([token])
            self.token_texts[token] = twice[len(once) :]
        return self.token_texts[token]

    def decode_text(self, tokens: list[int]) -> str:
        """The text of tokens."""
        if self.tokenizer is None:
            raise UsageError("writing text", "this model came without a tokenizer", "one")
        return self.tokenizer.decode(tokens, halves=False)

    # Out ----------------------------------------------------------------------------------------

    def save(self, folder: str | os.PathLike[str], stored: str | None = None) -> None:
        """Write a folder that regard and, where the family exists there, transformers open.

        A model with an adapter is written as the adapter alone, which PEFT opens too.
        stored="int8" takes a quarter of the room; only regard opens that (`interop/folder.py`).
        """
        if not isinstance(folder, str | os.PathLike) or "\0" in str(folder):
            raise UsageError("saving a model", f"{folder!r}", "the path of a folder")
        if stored not in (None, INT8):
            raise UsageError("saving a model", f"stored = {stored!r}", f"{INT8!r} or None")
        config = self.config or self.fresh_config()
        from regard.tune.lora import adapted

        if adapted(self.model):
            from regard.tune.adapter_folder import identify_base, write_adapter

            base = self.base or (None if self.path is None else identify_base(self.path))
            if stored is not None or base is None:
                fault, fix = "a model with adapters", "regard.tune.merge first"
                raise UsageError("saving a whole model", fault, "one without", fix)
            return write_adapter(Path(folder), self.model, self.binding, base, config)
        config = {k: v for k, v in config.items() if k not in ("torch_dtype", STORED, NOTED)}
        binding = self.binding
        if bottlenecks := describe(self.model):  # which no family has
            binding = None
            config |= export_config(self.model, None) | {NOTED: bottlenecks}
        dtype = "float32" if stored else str(self.dtype).removeprefix("torch.")
        config |= {"dtype": dtype} | ({STORED: stored} if stored else {})
        files = self.files | (self.tokenizer.files if self.tokenizer else {})
        write_folder(Path(folder), config, export_tensors(self.model, binding, stored), files)

    def fresh_config(self) -> dict[str, Any]:
        """config.json of a model made here, with the special ids of its tokenizer."""
        config = export_config(self.model, self.binding)
        for role, number in ({} if self.tokenizer is None else self.tokenizer.specials).items():
            if role in ("bos", "eos", "pad") and config.get(f"{role}_token_id") is None:
                config[f"{role}_token_id"] = number
        return config


def is_text(given: Any) -> bool:
    """A text or a list of texts."""
    listed = isinstance(given, Sequence) and len(given) > 0
    return isinstance(given, str) or (listed and all(isinstance(text, str) for text in given))
