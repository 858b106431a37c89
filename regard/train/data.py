"""From files to batches: the tokenizer, the token stores and the sources of each kind of run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard import tokens
from regard.data.bucket import Buckets
from regard.data.duplicates import WORDS, overlap, pair_overlap
from regard.data.packing import Masker, Packed
from regard.data.pairs import all_pairs, couples
from regard.data.text_files import find_files, naming, read_lines, read_parts
from regard.data.token_store import Store, fingerprint, hold_out, pair_store, text_store
from regard.data.windows import Source, Streams, Windows
from regard.errors import DataError, UsageError
from regard.tokens.tokenizer import Tokenizer
from regard.tokens.trainers import KINDS, train_tokenizer
from regard.train.config import DataConfig, ShapeConfig, TrainConfig
from regard.train.distributed import World
from regard.train.results import RunSettings

Say = Callable[[str], None]
ROLES = {
    "lm": (("pad", "eos"), "none"),
    "mlm": (("pad", "unk", "cls", "sep", "mask"), "cls-sep"),
    "seq2seq": (("pad", "eos"), "eos"),
}
"""Control tokens of each kind, and what is put around a text."""


@dataclass(frozen=True)
class RunPlan:
    """A run that is decided upon."""

    settings: RunSettings
    kind: str
    files: tuple[str, ...]
    seed: int
    data: DataConfig
    shape: ShapeConfig
    train: TrainConfig
    folder: Path
    device: str
    world: World = World()


@dataclass(frozen=True)
class RunData:
    """What a run reads."""

    tokenizer: Tokenizer
    train: Source
    valid: Source | None
    store: Store
    """Where the validation examples stand, for samples."""
    identity: dict[str, Any]
    """Hashes of the files and of the tokenizer."""
    hashes: dict[str, str]
    """SHA-256 of each file."""
    sizes: dict[str, str | None]
    """How much there is to train and to validate on, in words."""


def prepare_data(plan: RunPlan, folder: Path, say: Say, progress: Say) -> RunData:
    """Tokenizer, stores and sources of a run, in `folder`; what is there already is used again."""
    tokenizer = find_tokenizer(plan, folder, say, progress)
    place, valid_files = folder / "data", plan.data.valid
    checked = (place / "valid.store").exists()
    whole = train = make_store(plan, tokenizer, place / "train.store", plan.files, (say, progress))
    valid: Store | None = None
    if valid_files:
        valid = make_store(plan, tokenizer, place / "valid.store", valid_files, (say, progress))
        if not checked:
            progress("looking for validation data in the training data")
            warn_of_leaks(plan, train, valid, say)
    else:
        stream = plan.kind == "lm" and plan.data.split != "row"
        train, valid = hold_out(whole, plan.data.holdout, by_tokens=stream)
        if valid is not None:
            say(f"held out for validation: the last {amount(valid, plan.kind)}")
    stores = [whole, *([valid] if valid is not None and valid.path != whole.path else [])]
    hashes = {name: tag for store in stores for name, tag in store.header["hashes"].items()}
    tags = [digest[:12] for digest in hashes.values()]
    say(f"training on {amount(train, plan.kind)}, {tokenizer.size:,} ids")
    return RunData(
        tokenizer,
        make_source(plan, train, tokenizer, True, say),
        None if valid is None else make_source(plan, valid, tokenizer, False, say),
        train if valid is None else valid,
        {"data": tags, "tokenizer": fingerprint(tokenizer)[:12]},
        hashes,
        {
            "train": amount(train, plan.kind),
            "valid": None if valid is None else amount(valid, plan.kind),
        },
    )


def amount(store: Store, kind: str) -> str:
    """How much a store holds, in words."""
    if kind == "lm":
        return f"{store.tokens:,} tokens"
    return f"{len(store):,} {'pairs' if store.sides == 2 else 'lines'}"


# Tokenizer --------------------------------------------------------------------------------------


def find_tokenizer(plan: RunPlan, folder: Path, say: Say, progress: Say) -> Tokenizer:
    """The run's own tokenizer if it is there, else the one asked for, learnt or opened."""
    place, asked = folder / "tokenizer", plan.data.tokens
    assert asked is not None
    if not place.exists():
        if asked in KINDS:
            progress("learning the tokenizer")
            tokenizer = learn_tokenizer(plan, asked)
        elif Path(asked).exists():
            tokenizer = tokens.load(asked)
        else:
            expected = f"one of {', '.join(KINDS)}, or a folder"
            raise UsageError("choosing tokens", f"{asked!r}", expected)
        draft = folder / ".tokenizer"
        shutil.rmtree(draft, ignore_errors=True)
        tokenizer.save(draft)
        os.replace(draft, place)
        say(f"tokenizer: {asked}, {tokenizer.size:,} ids")
    tokenizer = tokens.load(place)
    needed = {"mlm": ("mask",), "seq2seq": ("eos",)}.get(plan.kind, ())
    missing = [role for role in needed if role not in tokenizer.specials]
    if missing:
        problem = f"a tokenizer without {missing[0]}"
        raise DataError(f"training {plan.kind}", problem, f"one with a {missing[0]} token")
    return tokenizer


def learn_tokenizer(plan: RunPlan, kind: str) -> Tokenizer:
    """A tokenizer of the training files, both sides of pairs together."""
    roles, wrap = ROLES[plan.kind]
    texts: Iterator[str] = iter(())
    if kind != "bytes":
        sides = (f"{side}\n" for pair in all_pairs(plan.files) for side in pair)
        texts = sides if plan.kind == "seq2seq" else read_parts(plan.files)
    with naming(plan.files, "training a tokenizer"):
        return train_tokenizer(texts, kind, plan.data.vocab, specials=roles, wrap=wrap)


def warn_of_leaks(plan: RunPlan, train: Store, valid: Store, say: Say) -> None:
    """Say so where validation data is training data: whole files by their bytes, else lines."""
    trained = train.header["hashes"].values()
    for path, tag in valid.header["hashes"].items():
        if tag in trained:
            say(f"warning: {path} is validated on and trained on: the loss there is no measure")
            return
    files, held = plan.files, plan.data.valid
    if plan.kind == "seq2seq":
        what, seen = "pairs", pair_overlap(all_pairs(files), all_pairs(held))["pair"]
    else:
        what = f"lines of {WORDS} words or more"
        seen = overlap(read_lines(files), read_lines(held), WORDS)
    if seen.found:
        where = f"line {', '.join(f'{line:,}' for line in seen.lines)}"
        many = f"{seen.found:,} of {seen.total:,} validation {what} ({where})"
        say(f"warning: {many} are trained on too: the loss looks better than it is")


# Stores and sources -----------------------------------------------------------------------------


def make_store(
    plan: RunPlan, tokenizer: Tokenizer, path: Path, files: Sequence[str], tell: tuple[Say, Say]
) -> Store:
    """The ids of sentence pairs or texts; documents of a language model end with a token."""
    if plan.kind == "seq2seq":
        return pair_store(path, couples([Path(file) for file in files]), tokenizer, *tell)
    wrapped = plan.kind == "mlm"
    lines = wrapped or plan.data.split != "file"
    several = lines or len(find_files(files)) > 1
    end = tokenizer.specials.get("eos") if plan.kind == "lm" and several else None
    return text_store(path, files, tokenizer, "line" if lines else "file", end, wrapped, *tell)


def make_source(plan: RunPlan, store: Store, tokenizer: Tokenizer, train: bool, say: Say) -> Source:
    """Batches of a store: shuffled for training, in order for validation."""
    config, specials = plan.train, tokenizer.specials
    seed = plan.seed if train else None
    rows = config.batch_tokens // config.length
    if plan.kind == "lm":
        if plan.data.carry:
            return Streams(store, config.length, rows)
        if plan.data.split == "row":
            return Packed(store, config.length, rows, seed)
        length = config.length if train else min(config.length, max(store.tokens - 1, 1))
        return Windows(store, length, rows, seed, whole=train and config.compile)
    if plan.kind == "mlm":
        share, control = plan.data.mask, specials.values()
        masker = Masker(tokenizer.size, specials["mask"], control, share, seed=plan.seed)
        return Packed(store, config.length, rows, seed, masker=masker)
    start, end = specials.get("pad", specials["eos"]), specials["eos"]
    even = train and config.compile
    buckets = Buckets(store, config.batch_tokens, start, end, seed, limit=config.length, even=even)
    if buckets.left_out:
        say(f"left out: {buckets.left_out:,} pairs with a side over {config.length} tokens")
    return buckets
