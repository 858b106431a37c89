"""The kinds of runs over plain text and pairs: lm, mlm and seq2seq.

From files to batches (tokenizer, token stores, sources), the model of a shape or of a folder, and
samples of what it says.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from regard import tokens
from regard.data.bucket import Buckets
from regard.data.duplicates import WORDS, overlap, pair_overlap
from regard.data.packing import Masker, Packed
from regard.data.pairs import all_pairs
from regard.data.results import Overlap
from regard.data.text_files import evenly, find_files, naming, read_lines, read_parts
from regard.data.token_store import Store, fingerprint, hold_out, pair_store, text_store
from regard.data.windows import Source, Streams, Windows
from regard.data.word_frequencies import WORDS_FILE, WRITTEN_FILE
from regard.decode.continuation import continue_text
from regard.decode.loop import search_kit
from regard.decode.prompt import prompt_ids
from regard.decode.shortlist import SHORTLIST_FILE
from regard.errors import DataError, UsageError
from regard.evaluate.bleu import bleu_chrf
from regard.kit import Kit
from regard.loading import load_kit
from regard.model.batch import Batch
from regard.model.config import CELLS, ModelConfig, RecurrentConfig
from regard.model.cost import count_tokens
from regard.model.model import Model
from regard.tokens.tokenizer import Tokenizer
from regard.tokens.trainers import KINDS, train_tokenizer
from regard.train.config import Config, ShapeConfig
from regard.train.data import RunData, RunKind, RunPlan
from regard.train.frozen_encoder import borrow_encoder, fill_encoder, source_tokenizer
from regard.train.results import RunSettings
from regard.train.settings import decide_text, find_model, make_config, usual_values

SAMPLES, NEW, LEAD = 3, 48, 12  # samples, new tokens of each, tokens of a beginning
JUDGED, JUDGED_ROWS = 500, 50  # validation pairs that BLEU is of, and that are translated at once


class TextKind(RunKind):
    """Learns from files of plain text or pairs, through a tokenizer and a token store."""

    config: type[Config] = ShapeConfig
    form: str | None = None
    """The kind whose models it begins with; its own."""
    model: str
    """What a model to begin with must be."""
    roles: tuple[str, ...]
    """Control tokens that a new tokenizer has."""
    wrap: str
    """What a new tokenizer puts around a text."""
    needs: tuple[str, ...] = ()
    """Control tokens that any tokenizer must have."""
    rows: str = "lines"
    """What its stores hold."""

    def __init__(self, **fixed: Any) -> None:
        self.fixed = fixed

    def usual(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """Of the kind, of its preset, and of recurrent models."""
        return usual_values(self.name, said)

    def decide(self, settings: RunSettings) -> None:
        """Shape, tokenizer and files."""
        decide_text(settings, self.name)

    # What each of them does in its own way ------------------------------------------------------

    def store(self, plan: RunPlan, tokenizer: Tokenizer, path: Path, files: Sequence[str]) -> Store:
        """The ids of the files, each line by itself between control tokens."""
        return text_store(path, files, tokenizer, "line", None, True, plan.tell)

    def source(self, plan: RunPlan, store: Store, tokenizer: Tokenizer, train: bool) -> Source:
        """Batches of a store: shuffled for training, in order for validation."""
        raise NotImplementedError

    def texts(self, plan: RunPlan) -> Iterator[str]:
        """What a tokenizer is learnt from."""
        return read_parts(plan.files)

    def leaks(self, plan: RunPlan) -> tuple[str, Overlap]:
        """(what was compared, which of it stands in validation and training files)."""
        seen = overlap(read_lines(plan.files), read_lines(plan.data.valid), WORDS)
        return f"lines of {WORDS} words or more", seen

    def amount(self, store: Store) -> str:
        """How much a store holds, in words."""
        return f"{len(store):,} {self.rows}"

    # Data ---------------------------------------------------------------------------------------

    def prepare(self, plan: RunPlan) -> RunData:
        """Tokenizer, stores and sources."""
        tokenizer, place = self.find_tokenizer(plan), plan.folder / "data"
        checked = (place / "valid.store").exists()
        whole = train = self.store(plan, tokenizer, place / "train.store", plan.files)
        valid: Store | None = None
        if plan.data.valid:
            valid = self.store(plan, tokenizer, place / "valid.store", plan.data.valid)
            if not checked:
                plan.progress("looking for validation data in the training data")
                self.warn_of_leaks(plan, train, valid)
        else:
            stream = self.name == "lm" and plan.data.split != "row"
            train, valid = hold_out(whole, plan.data.holdout, by_tokens=stream)
            if valid is not None:
                plan.say(f"held out for validation: the last {self.amount(valid)}")
        hashes = whole.header["hashes"] | (valid.header["hashes"] if valid is not None else {})
        source = self.source(plan, train, tokenizer, True)
        checks = None if valid is None else self.source(plan, valid, tokenizer, False)
        for left in filter(None, (getattr(each, "left_out", 0) for each in (source, checks))):
            plan.say(f"left out: {left:,} pairs with a side over {plan.train.length} tokens")
        known = {"tokenizer": fingerprint(tokenizer)[:12]}
        told = None if valid is None else self.amount(valid)
        sizes = {"train": self.amount(train), "valid": told}
        held = train if valid is None else valid
        return RunData(tokenizer, source, checks, known, hashes, sizes, held)

    def find_tokenizer(self, plan: RunPlan) -> Tokenizer:
        """The run's own tokenizer if it is there, else the one asked for, learnt or opened."""
        place, asked = plan.folder / "tokenizer", plan.data.tokens
        assert asked is not None
        if not place.exists():
            if asked in KINDS:
                plan.progress("learning the tokenizer")
                texts = iter(()) if asked == "bytes" else self.texts(plan)
                with naming(plan.files, "training a tokenizer"):
                    tokenizer = train_tokenizer(
                        texts, asked, plan.data.vocab, specials=self.roles, wrap=self.wrap
                    )
            elif Path(asked).exists():
                tokenizer = tokens.load(asked)
            else:
                expected = f"one of {', '.join(KINDS)}, or a folder"
                raise UsageError("choosing tokens", f"{asked!r}", expected)
            if encoder := getattr(plan.own, "encoder", None):
                tokenizer = tokenizer.with_source(source_tokenizer(encoder))
            draft = plan.folder / ".tokenizer"
            shutil.rmtree(draft, ignore_errors=True)
            tokenizer.save(draft)
            os.replace(draft, place)
            plan.say(f"tokenizer: {asked}, {tokenizer.size:,} ids")
        tokenizer = tokens.load(place)
        missing = [role for role in self.needs if role not in tokenizer.specials]
        if missing:
            problem = f"a tokenizer without {missing[0]}"
            raise DataError(f"training {self.name}", problem, f"one with a {missing[0]} token")
        return tokenizer

    def warn_of_leaks(self, plan: RunPlan, train: Store, valid: Store) -> None:
        """Say so where validation data is training data: whole files by their bytes, else lines."""
        trained = train.header["hashes"].values()
        for path, tag in valid.header["hashes"].items():
            if tag in trained:
                both = f"{path} is validated on and trained on"
                plan.say(f"warning: {both}: the loss there is no measure")
                return
        what, seen = self.leaks(plan)
        if seen.found:
            where = f"line {', '.join(f'{line:,}' for line in seen.lines)}"
            many = f"{seen.found:,} of {seen.total:,} validation {what} ({where})"
            plan.say(f"warning: {many} are trained on too: the loss looks better than it is")

    # Model --------------------------------------------------------------------------------------

    def shape(self, plan: RunPlan, data: RunData) -> tuple[ModelConfig, str | None]:
        """Of the model to begin with, or as the settings say."""
        if plan.data.init is None:
            config, family = plan.own.build(data.tokenizer.size, plan.train.length)
            return config, family
        kit = self.open_init(plan.data.init, plan.train.length)
        return kit.model.config, kit.binding.architecture if kit.binding else None

    def make_kit(self, plan: RunPlan, data: RunData) -> Kit:
        """The model to be trained with its tokenizer."""
        if plan.data.init is not None:
            return self.open_init(plan.data.init, plan.train.length)
        kit = Kit.fresh(*self.shape(plan, data), plan.seed, data.tokenizer)
        kit.config = kit.fresh_config()
        return kit

    def open_init(self, path: str, length: int) -> Kit:
        """The model of a folder, to be trained further; lists of its training words stay behind."""
        doing = f"beginning `{self.room} {self.name}` with {path}"
        kit = load_kit(path, precision=None)
        config, kind = kit.model.config, kind_of(kit.model.config)
        if kind != (self.form or self.name):
            problem = "a model without scores for each token" if kind is None else WORD[kind].model
            if isinstance(config, RecurrentConfig):
                problem = "a recurrent model"
            raise DataError(doing, problem, self.model)
        if kit.room is not None and length > kit.room:
            expected, fix = f"at most {kit.room}, its table of positions", f"--length {kit.room}"
            raise DataError(doing, f"length = {length}", expected, fix)
        old = (SHORTLIST_FILE, WORDS_FILE, WRITTEN_FILE)
        return replace(kit, files={k: v for k, v in kit.files.items() if k not in old})

    # Samples ------------------------------------------------------------------------------------

    def samples(self, plan: RunPlan, data: RunData, kit: Kit, model: Model) -> list[str]:
        """What it says by now, greedily."""
        prompts = list(plan.data.prompts)
        prompts = prompts or [t for t in self.beginnings(plan, data) if t.strip()] or ["a"]
        now, length = replace(kit, model=model), plan.train.length
        return [f"{prompt!r} → {say_more(now, prompt, length)!r}" for prompt in prompts]

    def beginnings(self, plan: RunPlan, data: RunData) -> list[str]:
        """A few texts of the validation data: whole sources, or lines."""
        store: Store = data.held
        numbers = range(min(len(store) * store.sides, 50 * store.sides))[:: store.sides]
        rows = [store[n].tolist() for n in numbers]
        fitting = [row for row in rows if len(row) < plan.train.length - 1]
        return [data.tokenizer.decode(row, side="source") for row in fitting[:SAMPLES]]


class LM(TextKind):
    """Predicts the next token."""

    name = "lm"
    model = "a decoder that predicts the next token"
    roles, wrap = ("pad", "eos"), "none"

    def store(self, plan: RunPlan, tokenizer: Tokenizer, path: Path, files: Sequence[str]) -> Store:
        """The ids of the files; each document ends with a token where there are several."""
        split: Any = "file" if plan.data.split == "file" else "line"
        several = split == "line" or len(find_files(files)) > 1
        end = tokenizer.specials.get("eos") if several else None
        return text_store(path, files, tokenizer, split, end, False, plan.tell)

    def source(self, plan: RunPlan, store: Store, tokenizer: Tokenizer, train: bool) -> Source:
        """Windows of the stream, the stream itself, or lines side by side."""
        config, seed = plan.train, plan.seed if train else None
        rows = config.batch_tokens // config.length
        if plan.data.carry:
            return Streams(store, config.length, rows)
        if plan.data.split == "row":
            return Packed(store, config.length, rows, seed)
        length = config.length if train else min(config.length, max(store.tokens - 1, 1))
        return Windows(store, length, rows, seed, whole=train and config.compile)

    def amount(self, store: Store) -> str:
        """Tokens."""
        return f"{store.tokens:,} tokens"

    def beginnings(self, plan: RunPlan, data: RunData) -> list[str]:
        """A few tokens at evenly spaced places."""
        store, lead = data.held, max(1, min(LEAD, plan.train.length // 4))
        starts = [n * max(store.tokens - lead, 0) // SAMPLES for n in range(SAMPLES)]
        return [data.tokenizer.decode(store.read(at, at + lead).tolist()) for at in starts]


class MLM(TextKind):
    """Predicts masked tokens."""

    name = "mlm"
    model = "an encoder that predicts masked tokens"
    roles, wrap, needs = ("pad", "unk", "cls", "sep", "mask"), "cls-sep", ("mask",)

    def source(self, plan: RunPlan, store: Store, tokenizer: Tokenizer, train: bool) -> Source:
        """Lines side by side, some of their tokens hidden."""
        config, specials = plan.train, tokenizer.specials
        share, control = plan.data.mask, specials.values()
        masker = Masker(tokenizer.size, specials["mask"], control, share, seed=plan.seed)
        rows, seed = config.batch_tokens // config.length, plan.seed if train else None
        return Packed(store, config.length, rows, seed, masker=masker)


class Seq2Seq(TextKind):
    """Says the other side of pairs."""

    name = "seq2seq"
    model = "an encoder-decoder"
    roles, wrap, needs, rows = ("pad", "eos"), "eos", ("eos",), "pairs"

    def decide(self, settings: RunSettings) -> None:
        """A borrowed encoder must be there, and have positions for the sources."""
        super().decide(settings)
        if settings.values["encoder"] is not None:
            own, length = make_config(settings, ShapeConfig), settings.values["length"]
            path = find_model(settings.values, "encoder")
            count_tokens(borrow_encoder(own.build(8, length)[0], path).front, length)

    def store(self, plan: RunPlan, tokenizer: Tokenizer, path: Path, files: Sequence[str]) -> Store:
        """The ids of sentence pairs."""
        return pair_store(path, files, tokenizer, plan.tell)

    def source(self, plan: RunPlan, store: Store, tokenizer: Tokenizer, train: bool) -> Source:
        """Pairs of like length together."""
        config, end, seed = plan.train, tokenizer.specials["eos"], plan.seed if train else None
        rows = store, config.batch_tokens, tokenizer.specials.get("pad", end), end, seed
        return Buckets(*rows, limit=config.length, even=train and config.compile)

    def texts(self, plan: RunPlan) -> Iterator[str]:
        """Both sides, or the target where the source has a tokenizer of its own."""
        first = 0 if plan.own.encoder is None else 1
        return (f"{side}\n" for pair in all_pairs(plan.files) for side in pair[first:])

    def leaks(self, plan: RunPlan) -> tuple[str, Overlap]:
        """Whole pairs."""
        return "pairs", pair_overlap(all_pairs(plan.files), all_pairs(plan.data.valid))["pair"]

    def shape(self, plan: RunPlan, data: RunData) -> tuple[ModelConfig, str | None]:
        """With a borrowed encoder it is regard's own."""
        config, family = super().shape(plan, data)
        path = plan.own.encoder
        return (config, family) if path is None else (borrow_encoder(config, path), None)

    def make_kit(self, plan: RunPlan, data: RunData) -> Kit:
        """A new one knows the token that a target begins with; a borrowed encoder is frozen."""
        kit = super().make_kit(plan, data)
        if plan.own.encoder is not None:
            fill_encoder(kit.model, plan.own.encoder)
            plan.say(f"reading by the encoder of {plan.own.encoder}, frozen")
        if plan.data.init is None:
            specials = data.tokenizer.specials
            kit.config["decoder_start_token_id"] = specials.get("pad", specials["eos"])
        return kit

    def job(self, plan: RunPlan, data: RunData, kit: Kit) -> dict[str, Any]:
        """BLEU where it is asked for."""
        wanted = plan.train.metric == "bleu" and data.valid is not None
        return {"score": make_bleu(kit, data)} if wanted else {}


LM_RUN, MLM_RUN, SEQ2SEQ_RUN = LM(), MLM(), Seq2Seq()
WORD: dict[str, TextKind] = {kind.name: kind for kind in (LM_RUN, MLM_RUN, SEQ2SEQ_RUN)}
WORD |= {cell: LM(family=cell) for cell in CELLS}
"""The kinds by the words of their commands; rnn, lstm, gru and mlp are lm with such a cell."""


def kind_of(config: ModelConfig) -> str | None:
    """Which kind of training a Transformer is made for."""
    if config.head.size is None or config.head.take != "all":
        return None
    parts = config.encoder is not None, config.decoder is not None, config.target is not None
    kinds = {(False, True, False): "lm", (True, False, False): "mlm", (True, True, True): "seq2seq"}
    return kinds.get(parts)


def make_bleu(kit: Kit, data: RunData) -> Callable[[Model], dict[str, float]]:
    """A function that scores a model's greedy translations of validation pairs by BLEU."""
    store, decode = data.held, data.tokenizer.decode
    chosen = evenly(sorted(range(len(store)), key=lambda n: len(store[2 * n])), JUDGED)  # by length
    sources = [decode(store[2 * n].tolist(), side="source") for n in chosen]
    references = [decode(store[2 * n + 1].tolist(), side="target") for n in chosen]
    bleu_chrf(references, references)  # so that what is missing is said before any work

    @torch.no_grad()
    def score(model: Model) -> dict[str, float]:
        now, translations = replace(kit, model=model), list[str]()
        for at in range(0, len(sources), JUDGED_ROWS):
            batch = now.batch(sources[at : at + JUDGED_ROWS])
            answers = search_kit(now, batch, 2 * batch.inputs.shape[1] + 10)
            for number, found in enumerate(answers):
                translations.append(continue_text(now, batch, number, found[0].tokens))
        return {"bleu": bleu_chrf(translations, references).bleu}

    return score


@torch.no_grad()
def say_more(kit: Kit, prompt: str, length: int) -> str:
    """A greedy continuation, a translation, or from an encoder each seventh token guessed."""
    if kit.model.decoder is None:
        ids = torch.tensor([kit.text_tokenizer.encode(prompt)], device=kit.device)
        hidden = torch.arange(ids.shape[1], device=ids.device) % 7 == 3
        shown = torch.where(hidden, kit.text_tokenizer.specials["mask"], ids)
        best = kit.model(Batch(shown)).argmax(-1)
        return kit.decode_text(torch.where(hidden, best, ids)[0].tolist())
    pair = kit.model.config.target is not None
    size = 0 if pair else len(kit.encode([prompt])[0][0])
    batch = kit.batch(prompt if pair else [prompt_ids(kit.text_tokenizer, prompt)])
    answers = search_kit(kit, batch, min(NEW, max(length - size, 1)))
    return continue_text(kit, batch, 0, answers[0][0].tokens)
