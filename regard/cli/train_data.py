"""From files to batches: the tokenizer, the token stores and the sources of each kind."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.cli.train_flags import RunConfig
from regard.data.bucket import Buckets
from regard.data.duplicates import WORDS, overlap, pair_overlap
from regard.data.packing import Masker, Packed
from regard.data.pairs import all_pairs, couples
from regard.data.text_files import find_files, naming, read_lines, read_parts
from regard.data.token_store import Store, fingerprint, hold_out, pair_store, text_store
from regard.data.windows import Source, Streams, Windows
from regard.errors import DataError, UsageError
from regard.tokens import load as load_tokenizer
from regard.tokens.tokenizer import Tokenizer
from regard.tokens.trainers import KINDS, train_tokenizer, usual_size
from regard.train.config import TrainConfig

Say = Callable[[str], None]
ROLES = {
    "lm": (("pad", "eos"), "none"),
    "mlm": (("pad", "unk", "cls", "sep", "mask"), "cls-sep"),
    "seq2seq": (("pad", "eos"), "eos"),
}
"""Control tokens of each kind, and what is put around a text."""


@dataclass(frozen=True)
class Data:
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


def prepare(run: RunConfig, config: TrainConfig, folder: Path, say: Say, progress: Say) -> Data:
    """Tokenizer, stores and sources of a run, in `folder`; what is there already is used again."""
    tokenizer = find_tokenizer(run, folder, say, progress)
    make = pair_stores if run.kind == "seq2seq" else text_stores
    known = (folder / "data" / "valid.store").exists()
    train, valid = make(run, tokenizer, folder / "data", (say, progress))
    whole = train
    if valid is not None and not known:
        progress("looking for validation data in the training data")
        warn_of_leaks(run, train, valid, say)
    if valid is None:
        train, valid = hold_out(whole, run.holdout, by_tokens=run.kind == "lm")
        if valid is not None:
            say(f"held out for validation: the last {amount(valid, run.kind)}")
    stores = [whole, *([valid] if valid is not None and valid.path != whole.path else [])]
    hashes = {s["path"]: s["sha256"] for store in stores for s in store.header["sources"]}
    tags = [digest[:12] for digest in hashes.values()]
    identity = {"data": tags, "tokenizer": fingerprint(tokenizer)[:12]}
    say(f"training on {amount(train, run.kind)}, {tokenizer.size:,} ids")
    sources = [source(run, config, s, tokenizer, s is train, say) for s in (train, valid) if s]
    held = valid if valid is not None else train
    checked = None if valid is None else amount(valid, run.kind)
    sizes = {"train": amount(train, run.kind), "valid": checked}
    return Data(tokenizer, sources[0], (*sources, None)[1], held, identity, hashes, sizes)


def amount(store: Store, kind: str) -> str:
    """How much a store holds, in words."""
    if kind == "lm":
        return f"{store.tokens:,} tokens"
    return f"{len(store):,} {'pairs' if store.sides == 2 else 'lines'}"


# Tokenizer --------------------------------------------------------------------------------------


def find_tokenizer(run: RunConfig, folder: Path, say: Say, progress: Say) -> Tokenizer:
    """The run's own tokenizer if it is there, else the one asked for, learnt or opened."""
    place = folder / "tokenizer"
    if not place.exists():
        assert run.tokens is not None
        learn = run.tokens in KINDS
        made = learn_tokenizer(run, progress) if learn else open_folder(run.tokens)
        draft = folder / ".tokenizer"
        shutil.rmtree(draft, ignore_errors=True)
        made.save(draft)
        os.replace(draft, place)
        say(f"tokenizer: {run.tokens}, {made.size:,} ids")
    tokenizer = load_tokenizer(str(place))
    needed = {"mlm": ("mask",), "seq2seq": ("eos",)}.get(run.kind, ())
    missing = [role for role in needed if role not in tokenizer.specials]
    if missing:
        found = f"a tokenizer without {missing[0]}"
        raise DataError(f"training {run.kind}", found, f"one with a {missing[0]} token")
    return tokenizer


def open_folder(path: str) -> Tokenizer:
    """A tokenizer that is there already."""
    if not Path(path).exists():
        expected = f"one of {', '.join(KINDS)}, or a folder"
        raise UsageError("choosing tokens", f"{path!r}", expected)
    return load_tokenizer(path)


def learn_tokenizer(run: RunConfig, progress: Say) -> Tokenizer:
    """A tokenizer of the training files, both sides of pairs together."""
    assert run.tokens is not None
    roles, wrap = ROLES[run.kind]
    size = usual_size(run.tokens, run.vocab)
    texts: Iterator[str] = iter(())
    if run.tokens != "bytes":
        sides = (f"{side}\n" for pair in all_pairs(run.files) for side in pair)
        texts = sides if run.kind == "seq2seq" else read_parts(run.files)
    progress("learning the tokenizer")
    with naming(run.files, "training a tokenizer"):
        return train_tokenizer(texts, run.tokens, size, specials=roles, wrap=wrap)


def warn_of_leaks(run: RunConfig, train: Store, valid: Store, say: Say) -> None:
    """Say so where validation data is training data: whole files by their bytes, else lines."""
    if same := same_sources(train, valid):
        say(f"warning: {same} is validated on and trained on: the loss there is no measure")
        return
    if run.kind == "seq2seq":
        what, found = "pairs", pair_overlap(all_pairs(run.files), all_pairs(run.valid))["pair"]
    else:
        what = f"lines of {WORDS} words or more"
        found = overlap(read_lines(run.files), read_lines(run.valid), WORDS)
    if found.found:
        where = f"line {', '.join(f'{line:,}' for line in found.lines)}"
        many = f"{found.found:,} of {found.total:,} validation {what} ({where})"
        say(f"warning: {many} are trained on too: the loss looks better than it is")


def same_sources(train: Store, valid: Store) -> str:
    """The first validation file that is a training file, by its bytes; empty for none."""
    hashes = {source["sha256"] for source in train.header["sources"]}
    both = (source["path"] for source in valid.header["sources"] if source["sha256"] in hashes)
    return next(both, "")


# Stores and sources -----------------------------------------------------------------------------


def text_stores(
    run: RunConfig, tokenizer: Tokenizer, folder: Path, tell: tuple[Say, Say]
) -> tuple[Store, Store | None]:
    """Training and, where files are given, validation text."""
    say, progress = tell
    lines = run.kind == "mlm" or run.split == "line"

    def make(name: str, files: tuple[str, ...]) -> Store:
        several = lines or len(find_files(files)) > 1
        end = tokenizer.specials.get("eos") if run.kind == "lm" and several else None
        split: Any = "line" if lines else "file"
        wrapped = run.kind == "mlm"
        return text_store(folder / name, files, tokenizer, split, end, wrapped, say, progress)

    return make("train.store", run.files), make("valid.store", run.valid) if run.valid else None


def pair_stores(
    run: RunConfig, tokenizer: Tokenizer, folder: Path, tell: tuple[Say, Say]
) -> tuple[Store, Store | None]:
    """Training and, where files are given, validation pairs."""

    def make(name: str, files: tuple[str, ...]) -> Store:
        return pair_store(folder / name, couples([Path(f) for f in files]), tokenizer, *tell)

    return make("train.store", run.files), make("valid.store", run.valid) if run.valid else None


def source(
    run: RunConfig, config: TrainConfig, store: Store, tokenizer: Tokenizer, train: bool, say: Say
) -> Source:
    """Batches of a store: shuffled for training, in order for validation."""
    seed = config.seed if train else None
    rows = config.batch_tokens // config.length
    if run.kind == "lm":
        if run.carry:
            return Streams(store, config.length, rows)
        length = config.length if train else min(config.length, max(store.tokens - 1, 1))
        return Windows(store, length, rows, seed, whole=train and config.compile)
    specials = tokenizer.specials
    if run.kind == "mlm":
        hide = Masker(
            tokenizer.size, specials["mask"], specials.values(), run.mask, seed=config.seed
        )
        return Packed(store, config.length, rows, seed, masker=hide)
    start = specials.get("pad", specials["eos"])
    budget, end = config.batch_tokens, specials["eos"]
    even = train and config.compile
    made = Buckets(store, budget, start, end, seed, limit=config.length, even=even)
    if made.left_out:
        say(f"left out: {made.left_out:,} pairs with a side over {config.length} tokens")
    return made
