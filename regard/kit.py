"""Kit: a model with its tokenizer and settings. What `regard.load` returns."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.core.cache import Cache
from regard.data.word_frequencies import WRITTEN_FILE, read_words
from regard.decode.beam import BeamConfig
from regard.decode.generate import Ends
from regard.decode.narrow import can_narrow, write_narrow
from regard.decode.prompt import prompt_ids
from regard.decode.sample import SampleConfig, sample_config
from regard.decode.shortlist import SHORTLIST_FILE, Shortlist
from regard.decode.step import Hypothesis, Limit, Process, limits_of
from regard.decode.stop import StopText
from regard.decode.write import Driver, wants_fixed, without_end, write
from regard.errors import UsageError
from regard.explaining import Explanation, explain_answer, seen_in_training
from regard.interop.folder import write_folder
from regard.interop.side import read_pooling, stop_ids
from regard.interop.stored import INT8, STORED
from regard.interop.table import Binding
from regard.interop.weights import export_config, export_tensors
from regard.look.activations import Captured, StrictCollector, capture, following
from regard.look.edits import Edits, parse_edits
from regard.look.hooks import Board
from regard.model.batch import Batch, check_filled, check_ids, pad_rows
from regard.model.config import TextConfig
from regard.model.model import Model
from regard.model.precision import same_in_any_company
from regard.model.strict import StrictCache, strict_logits
from regard.passages import Answer, translate_passages, word_choices
from regard.reading import Ids, Masks, Reader, Text, is_text, listed_texts
from regard.tokens.tokenizer import Tokenizer
from regard.translating import TranslateConfig, Word, translate, translate_config


@dataclass(frozen=True)
class Output:
    """What `run` gives beside the activations."""

    logits: Tensor
    """Scores, as `logits` gives them."""
    batch: Batch
    """What was read: the ids and mask of a text, as the model saw them."""


@dataclass(eq=False)
class Kit(Reader):
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

    def __post_init__(self) -> None:
        self.board = Board(self.model)

    def __repr__(self) -> str:
        kind = self.binding.architecture if self.binding else "regard's own"
        count = sum(p.numel() for p in self.model.parameters())
        return f"Kit({kind}, {count:,} parameters, {self.dtype}, {self.device})"

    @property
    def taps(self) -> list[str]:
        """Names of all places that can be read and changed."""
        return list(self.board.taps)

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
        if cache is not None and cache.batch != len(batch.ids):
            found = f"{len(batch.ids)} rows and a cache of {cache.batch}"
            raise UsageError("running with a cache", found, "as many rows as the cache has")
        if isinstance(cache, StrictCache) or strict:
            self.board.check_alone("a strict run", columns=True)
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
        with self.board.reading(taps) as hooks:
            if strict:
                collector = StrictCollector(hooks, batch)
                logits = self.score(batch, None, True, collector)
                return Output(logits, batch), collector.seen
            logits = self.score(batch, None, False)
            seen = {name: hook.seen for name, hook in hooks.items() if hook.seen is not None}
        return Output(logits, batch), seen

    def edit(self, edits: Edits | Sequence[str]) -> AbstractContextManager[None]:
        """Change activations inside the `with` block: tap name or pattern → edit or edits.

        Words as commands write them do too: `kit.edit(["decoder.blocks.9.attn.z=zero,head=3"])`.
        """
        return self.board.editing(parse_edits(edits))

    def capture(self, taps: str | Sequence[str]) -> AbstractContextManager[list[Captured]]:
        """Keep what passes taps while texts are written inside the block, one `Captured` each."""
        return capture(self.board, taps)

    @torch.no_grad()
    def embed(self, texts: Text) -> Tensor:
        """One vector per text (B, D), pooled and normalised as the folder says; else the mean."""
        listed = [texts] if isinstance(texts, str) else list(texts)
        if not is_text(listed):
            raise UsageError("embedding texts", f"a {type(texts).__name__}", "a text or texts")
        if self.strict and len(listed) > 1:  # each alone, so that none depends on the others
            return torch.cat([self.embed(text) for text in listed])
        asked = read_pooling(self.files)
        ids, mask = self.encode(listed, limit=asked.length)
        check_ids(ids, self.model.config.front, "text")
        check_filled(Batch(ids, mask=mask), "embedding texts")
        ids, mask = ids.to(self.device), None if mask is None else mask.to(self.device)
        encode = self.model.encoder is not None  # the encoder's vectors, else the decoder's
        x = self.model.encode(ids, mask).x if encode else self.model.decode(ids, mask=mask)
        real = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
        if asked.mode == "first":
            pooled = x[:, 0]
        elif asked.mode == "max":
            pooled = x.masked_fill(~real[..., None], -torch.inf).amax(1)
        else:
            pooled = (x * real[..., None]).sum(1) / real.sum(1, keepdim=True)
        return F.normalize(pooled, dim=-1) if asked.normalise else pooled

    def generate(
        self,
        prompts: Text | Ids,
        tokens: int = 64,
        *,
        stop: Sequence[str] = (),
        watch: Callable[[int, int], None] | None = None,
        strict: bool | None = None,
        **sampling: Any,
    ) -> str | list[str] | Tensor:
        """Continuation: text for text (a list for a list), ids (B, n) for ids.

        Greedy, or sampled when a field of SampleConfig is given (temperature, top_p, seed …).
        `stop` strings end a text; `watch` is called with (row, token) as tokens are chosen.
        """
        batch = self.batch(self.begin(prompts))
        how = sample_config(sampling) if sampling else None
        halt = StopText(self.decode_text, stop) if stop else None
        found = self.search(batch, tokens, how, Ends(self.stops, halt, watch), strict=strict)
        made = [row[0].tokens for row in found]
        if self.tokenizer is None or not is_text(prompts):
            return pad_rows(made, min(self.stops, default=0))[0]
        texts = [self.continuation(batch, row, words) for row, words in enumerate(made)]
        texts = texts if halt is None else [halt.cut(text) for text in texts]
        return texts[0] if isinstance(prompts, str) else texts

    def begin(self, prompts: Text | Ids) -> Text | Ids:
        """Texts that a decoder is to go on with as ids, with nothing after them."""
        if self.tokenizer is None or self.model.config.target is not None or not is_text(prompts):
            return prompts
        texts = [prompts] if isinstance(prompts, str) else prompts
        return [prompt_ids(self.tokenizer, str(text)) for text in texts]

    def translate(
        self,
        texts: Text,
        beams: int = 4,
        alternatives: int = 1,
        strict: bool | None = None,
        **wishes: Any,
    ) -> Any:
        """What an encoder-decoder makes of each text, by sentences and beam search.

        A text for a text; with `alternatives` > 1 a list of (text, log-probability) for each.
        Wishes are fields of TranslateConfig: must=["word"], ban=["word"], begin="…", limit …
        shortlist=False scores all words at each step, also where the folder has a shortlist.
        """
        how = translate_config({"beams": beams, "count": alternatives, **wishes})
        texts = listed_texts(texts)
        if len(texts) == 0 and not isinstance(texts, str):
            return []
        if is_text(texts):
            found = [answer.translations for answer in self.answers(texts, how, strict)]
        else:
            found = translate(self, self.sources(texts), how, strict)
        read = [[(answer.text, answer.logprob) for answer in row] for row in found]
        answers = read if alternatives > 1 else [row[0][0] for row in read]
        return answers[0] if isinstance(texts, str) else answers

    def explain(
        self, text: str, alternatives: int = 1, strict: bool | None = None, **wishes: Any
    ) -> list[Explanation]:
        """For each sentence of a text its translation, alignment, rare words and confidence."""
        how = translate_config({"count": alternatives, **wishes})
        if not isinstance(text, str):
            raise UsageError("explaining", f"{type(text).__name__}", "one text, a str")
        (answer,) = self.answers(text, how, strict)
        return explain_answer(self, answer, seen_in_training(self), strict)

    def alternatives(
        self, text: str, count: int = 4, strict: bool | None = None, **wishes: Any
    ) -> list[Word]:
        """Each word of the translation of a text, with others that could stand in its place."""
        how = translate_config(wishes)
        (answer,) = self.answers(text, how, strict)
        return word_choices(self, text, answer.parts, replace(how, count=count), strict)

    def answers(self, texts: Text, how: TranslateConfig, strict: bool | None) -> list[Answer]:
        """Translations of texts, with their sentences."""
        self.sources("a" if self.tokenizer else texts)  # is it an encoder-decoder that reads text?
        listed = [texts] if isinstance(texts, str) else list(texts)
        return translate_passages(self, listed, how, strict)

    def sources(self, texts: Text) -> list[list[int]]:
        """Texts to be translated as ids."""
        batch = self.batch(texts)
        if batch.target is None:
            raise UsageError("translating", "a model without encoder", "an encoder-decoder")
        real = batch.source_mask
        ids = (
            batch.inputs
            if real is None
            else [r[m] for r, m in zip(batch.inputs, real, strict=True)]
        )
        return [row.tolist() for row in ids]

    def search(
        self,
        batch: Batch,
        limit: Limit,
        how: SampleConfig | BeamConfig | None = None,
        ends: Ends | None = None,
        strict: bool | None = None,
        processes: Sequence[Process] = (),
        shortlist: bool = False,
    ) -> list[list[Hypothesis]]:
        """Hypotheses for each row of a batch, best first; `shortlist` uses the folder's, if any."""
        if self.model.decoder is None:
            raise UsageError("generating", "a model without decoder", "one that writes text")
        check_filled(batch, "generating")
        each = zip(
            row_lengths(batch.ids, batch.mask), limits_of(limit, len(batch.ids)), strict=True
        )
        self.check_room(max(held + new for held, new in each))
        strict = self.strict if strict is None else strict
        strict = strict and not same_in_any_company(self.model)
        plain = not (strict or processes or wants_fixed(self.model, self.driver))
        few = self.shortlist if shortlist and plain else None
        with following(self.board, batch, strict) as follower:
            ends = replace(ends or Ends(self.stops), listener=follower)
            if few is not None and can_narrow(self.model, batch, how, ends):
                found = write_narrow(self.model, batch, limit, how, ends, few)
            else:
                found = write(self.model, batch, limit, how, ends, processes, strict, self.driver)
            if follower is not None:
                follower.finish([row[0].tokens if row else [] for row in found])
        return found

    @cached_property
    def shortlist(self) -> Shortlist | None:
        """The words that translations from each source word need, where the folder lists them."""
        front, words = self.model.config.front, self.model.config.head.size
        if SHORTLIST_FILE not in self.files or not isinstance(front, TextConfig) or words is None:
            return None
        return Shortlist.from_bytes(self.files[SHORTLIST_FILE], front.vocab, words)

    @cached_property
    def written(self) -> frozenset[str] | None:
        """The words that training wrote, in lower case, where the folder lists them."""
        return read_words(self.files[WRITTEN_FILE]) if WRITTEN_FILE in self.files else None

    @property
    def stops(self) -> set[int]:
        """Ids that end a text."""
        specials = {} if self.tokenizer is None else self.tokenizer.specials
        return stop_ids(self.files, self.config, specials)

    def text(self, tokens: list[int]) -> str:
        """The text of new tokens, without the one that ended it."""
        return self.decode_text(without_end(tokens, self.stops))

    def decode_text(self, tokens: list[int]) -> str:
        """The text of tokens."""
        if self.tokenizer is None:
            raise UsageError("writing text", "this model came without a tokenizer", "one")
        return self.tokenizer.decode(tokens)

    def continuation(self, batch: Batch, row: int, made: list[int]) -> str:
        """The text of new ids as it stands after the old ones, its leading space kept."""
        if batch.target is not None:
            return self.text(made)
        ids = batch.ids[row] if batch.mask is None else batch.ids[row][batch.mask[row]]
        before, new = ids.tolist(), without_end(made, self.stops)
        start, whole = self.decode_text(before), self.decode_text(before + new)
        return whole[len(start) :] if whole.startswith(start) else self.decode_text(new)

    # Out ----------------------------------------------------------------------------------------

    def save(self, folder: str | os.PathLike[str], stored: str | None = None) -> None:
        """Write a folder that regard and, where the family exists there, transformers open.

        stored="int8" takes a quarter of the room; only regard opens that (`interop/stored.py`).
        """
        if not isinstance(folder, str | os.PathLike) or "\0" in str(folder):
            raise UsageError("saving a model", f"{folder!r}", "the path of a folder")
        if stored not in (None, INT8):
            raise UsageError("saving a model", f"stored = {stored!r}", f"{INT8!r} or None")
        config = self.config or self.fresh_config()
        config = {k: v for k, v in config.items() if k not in ("torch_dtype", STORED)}
        dtype = "float32" if stored else str(self.dtype).removeprefix("torch.")
        config |= {"dtype": dtype} | ({STORED: stored} if stored else {})
        files = self.files | (self.tokenizer.files if self.tokenizer else {})
        tensors = export_tensors(self.model, self.binding, stored)
        write_folder(Path(folder), config, tensors, files)

    def fresh_config(self) -> dict[str, Any]:
        """config.json of a model made here, with the special ids of its tokenizer."""
        config = export_config(self.model, self.binding)
        for role, number in ({} if self.tokenizer is None else self.tokenizer.specials).items():
            if role in ("bos", "eos", "pad") and config.get(f"{role}_token_id") is None:
                config[f"{role}_token_id"] = number
        return config


def row_lengths(ids: Tensor, mask: Tensor | None) -> list[int]:
    """Real tokens of each row, so that a limit does not depend on the neighbours."""
    if mask is None:
        return [ids.shape[1]] * len(ids)
    return [int(n) for n in mask.sum(1).tolist()]
