"""`regard train ngram`, `train bow` and `train classes`, and `regard eval lm` of such models."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from regard.cli.counted import leave_receipt, new_folder
from regard.cli.show import Progress, Show, human, human_bytes
from regard.cli.texts import at_least, likelihood, naming
from regard.data.text_files import find_files, read_lines, read_parts
from regard.errors import DataError, ResourceError, UsageError
from regard.files import file_hash
from regard.heap import free_memory
from regard.history.class_ngrams import ClassNgrams, train_class_ngrams
from regard.history.clusters import brown_classes
from regard.history.ngram_model import NgramModel, encode_lines, joined
from regard.history.ngrams import Ids, Ngrams
from regard.history.smoothing import train_ngrams
from regard.model_kinds import NGRAMS, find_kind
from regard.tokens.tokenizer import Tokenizer
from regard.tokens.tokenizer_folder import open_tokenizer
from regard.tokens.trainers import KINDS, train_tokenizer, usual_size

DOING = "training an n-gram model"
USUAL_CLASSES = 100
EACH = 110  # bytes that an n-gram takes while it is counted and smoothed
RECURRING = 8  # words of n-grams that mostly recur; longer ones are nearly all different
SENTENCES = ("spaced", "words", "wordpiece")
"""Kinds of tokens for which lines are sentences unless said otherwise."""


def run(args: argparse.Namespace, show: Show) -> int:
    """Count, smooth, write the folder and say what is in it."""
    at_least("--order", args.order)
    if args.verb == "train classes":
        at_least("--classes", args.classes)
    out = new_folder(args, DOING, "text files or folders")
    find_files(args.valid)  # which says that one is not there, before any work
    began = time.perf_counter()
    with show.progress("training") as progress:
        model, tokens = train(args, progress)
        seconds = time.perf_counter() - began
        progress("validation")
        measured = measure(model, args.valid) if args.valid else {}  # what fails leaves no folder
        progress("writing")
        began = time.perf_counter()
        model.save(out)
    seconds += time.perf_counter() - began
    if model.tables.order < args.order:
        why = "no longer run of words is in the text, or is left by --prune"
        show.note(f"order {model.tables.order} instead of {args.order}: {why}")
    made: dict[str, Any] = {
        "out": str(out),
        "tokens": tokens,
        "vocabulary": model.tables.vocab,
        **count_classes(model.tables),
        "ngrams": [len(level) for level in model.tables.levels],
        "smoothing": model.smoothing,
        "seconds": round(seconds, 2),
    }
    if args.valid:
        if same := trained_and_valid(args):
            show.note(
                f"warning: {same} is validated on and trained on: its perplexity is no measure"
            )
        made |= {name: measured[name] for name in ("perplexity", "bits_per_token")}
    leave_receipt(args, out, made)
    if show.as_json:
        show.result(made)
    else:
        order = model.tables.order
        title = f"n-grams up to {order} words" if order > 1 else "a bag of words"
        title = title if isinstance(model.tables, Ngrams) else f"n-grams up to {order} classes"
        show.fields(title, {name: human(value) for name, value in made.items()})
    return 0


def train(args: argparse.Namespace, progress: Progress) -> tuple[NgramModel, int]:
    """The model, and how many tokens it was counted on."""
    progress("tokenizer")
    tokenizer, lines = find_tokenizer(args)
    reader = read_lines if lines else read_parts
    progress("reading")
    ids = joined(encode_lines(tokenizer, reader(args.files), lines))
    if not len(ids):
        raise DataError(DOING, f"no words in {', '.join(args.files)}", "at least one")
    start = tokenizer.specials["bos"] if lines else None
    check_room(ids, start, args.order)
    shape = (args.order, args.smoothing, args.k, start, args.prune)
    tables: Ngrams | ClassNgrams
    if args.classes == 0:
        progress(f"counting {len(ids):,} tokens")
        tables = train_ngrams(ids, tokenizer.size, *shape)
    else:
        tables = train_class_ngrams(ids, find_classes(args, ids, tokenizer, progress), *shape)
    way = f"{args.smoothing} {args.k}" if args.smoothing == "add" else args.smoothing
    return NgramModel(tables, tokenizer, way), len(ids)


def check_room(ids: Ids, start: int | None, order: int) -> None:
    """Refuse an order whose long n-grams, were all of them different, would not fit into memory."""
    begins = np.flatnonzero(ids == start) if start is not None else np.zeros(0, np.int64)
    lengths = np.diff(np.unique(np.concatenate(([0], begins, [len(ids)]))))
    long = np.maximum(np.minimum(lengths, order) - RECURRING, 0)
    needed = int((lengths * long).sum()) * EACH
    free = free_memory()
    if free is not None and needed > free:
        most = RECURRING + free // (len(ids) * EACH)
        found = f"--order {order:,}: up to {human_bytes(needed)} for {len(ids):,} tokens"
        expected = f"at most {human_bytes(free)}, what is free"
        raise ResourceError(DOING, found, expected, f"--order {most:,} fits")


def find_classes(
    args: argparse.Namespace, ids: Ids, tokenizer: Tokenizer, progress: Progress
) -> Ids:
    """Brown's classes of the words of the text; what begins and ends sentences is apart."""
    apart = [id for role, id in tokenizer.specials.items() if role in ("bos", "eos")]
    words = len(np.setdiff1d(ids, apart))
    return brown_classes(
        *(ids, tokenizer.size, args.classes or min(USUAL_CLASSES, words), apart),
        lambda done, whole: progress(f"classes: {done:,} of {whole:,} words"),
    )


def trained_and_valid(args: argparse.Namespace) -> str:
    """The first validation file that is a training file, by its bytes; empty for none."""
    hashes = {file_hash(file) for file in find_files(args.files)}
    both = (str(file) for file in find_files(args.valid) if file_hash(file) in hashes)
    return next(both, "")


def find_tokenizer(args: argparse.Namespace) -> tuple[Tokenizer, bool]:
    """The tokenizer asked for, learnt or opened, and whether lines are sentences."""
    lines = args.tokens in SENTENCES if args.lines is None else args.lines
    if args.tokens in KINDS:
        size = usual_size(args.tokens, args.vocab)
        wrap, roles = ("bos-eos", ["bos", "eos"]) if lines else ("none", [])
        settings: dict[str, Any] = {"specials": roles, "min_count": args.min_count, "wrap": wrap}
        with naming(args.files, "training a tokenizer"):
            return train_tokenizer(read_parts(args.files), args.tokens, size, **settings), lines
    tokenizer = open_tokenizer(args.tokens) if Path(args.tokens).is_dir() else None
    if tokenizer is None:
        expected = f"one of {', '.join(KINDS)}, or a folder with a tokenizer"
        raise UsageError(DOING, f"--tokens {args.tokens}", expected)
    if lines and not {"bos", "eos"} <= set(tokenizer.specials):
        raise UsageError(DOING, f"{args.tokens} has no bos and eos", "them, for lines", "--running")
    return tokenizer, lines


def count_classes(tables: Ngrams | ClassNgrams) -> dict[str, int]:
    """How many classes there are, of n-grams of classes."""
    return {"classes": tables.model.vocab} if isinstance(tables, ClassNgrams) else {}


def is_ngrams(path: str) -> bool:
    """Whether a path holds an n-gram model: a folder of ours, or an ARPA file."""
    found = find_kind(path)
    return found is not None and found.kind is NGRAMS


def measure(model: NgramModel, files: str | Sequence[str]) -> dict[str, Any]:
    """Perplexity, bits per token and per byte of texts; how many tokens had probability 0."""
    total, count, never = 0.0, 0, 0
    read = list(read_lines(files) if model.lines else read_parts(files))
    for found in model.logprobs(read):
        total += float(found.sum())
        count += len(found)
        never += int(np.isneginf(found).sum())
    size = sum(len(line.encode()) + model.lines for line in read)  # the end is its line feed
    if not count:
        names = files if isinstance(files, str) else ", ".join(files)
        raise DataError("evaluating a language model", f"no tokens in {names}", "1 or more")
    return likelihood(total, count, size) | ({"impossible": never} if never else {})
