"""The rung of `regard ladder` that predicts by vectors of word2vec (`history/next_word.py`)."""

from __future__ import annotations

import argparse
import math
import re
import time
from pathlib import Path
from typing import Any

import numpy as np

from regard.cli.doctor import choose_device
from regard.cli.ladder_split import DOING, Split
from regard.cli.show import Show
from regard.cli.texts import perplexity
from regard.cli.tok import open_any
from regard.data.files import read_parts
from regard.errors import DataError
from regard.history.ladder import Question
from regard.history.next_word import ROWS, NextWord, token_vectors, train_next_word
from regard.history.ngram import Ids
from regard.history.ngram_model import encode_lines, joined
from regard.history.vectors import save_folder
from regard.history.word2vec import Word2VecConfig
from regard.tokens.tokenizer import Tokenizer

SHARE, PACE = 0.3, 100_000  # of the rung's time for vectors, at so many tokens a second at least


def token_ids(tokenizer: Tokenizer, file: Path) -> Ids:
    """A file of the split as one running text."""
    return joined(encode_lines(tokenizer, read_parts([file]), False))


def train_vectors(
    args: argparse.Namespace, split: Split, out: Path, seconds: float, show: Show
) -> tuple[NextWord, dict[str, Any]]:
    """Learn vectors, fit the softmax, keep the vectors; the model and what it took."""
    tokenizer = open_any(str(split.tokenizer))
    ids, began = token_ids(tokenizer, split.train), time.perf_counter()
    times = Word2VecConfig().times(len(ids))
    if not args.steps:
        times = max(1, min(times, int(SHARE * seconds * PACE / max(len(ids), 1))))
    with show.progress("training") as progress:
        vectors = token_vectors(
            *(ids, tokenizer.size, args.dim, times, args.seed),
            lambda done, whole: progress(f"vectors: {done:,} of {whole:,} tokens"),
        )
        progress("the softmax over them")
        taken = time.perf_counter() - began
        device = choose_device(args.device)
        left = max(0.0, seconds - taken)
        model, steps = train_next_word(ids, vectors, args.steps, left, args.seed, device)
    taken = time.perf_counter() - began
    pieces = [tokenizer.engine.piece(id, "source") or f"<id{id}>" for id in range(tokenizer.size)]
    words = [re.sub(r"\s", "▁", piece) or f"<id{id}>" for id, piece in enumerate(pieces)]
    counts = np.bincount(ids, minlength=tokenizer.size).tolist()
    both = {"in": vectors.astype(np.float32), "out": model.weight.cpu().numpy()}
    save_folder(out, words, counts, both, {"dim": args.dim, "softmax": "out"})
    read = times * len(ids) + steps * ROWS
    return model, {
        "parameters": model.parameters,
        "seconds": taken,
        "tokens_per_s": read / max(taken, 0.01),
    }


def measure_vectors(model: NextWord, split: Split) -> dict[str, float]:
    """Perplexity and bits of the test text."""
    found = model.logprobs(token_ids(open_any(str(split.tokenizer)), split.test))
    if not len(found):
        raise DataError(DOING, f"no tokens in {split.test}", "one or more")
    loss = -float(found.mean())
    return {"perplexity": perplexity(loss), "bits": loss / math.log(2)}


def answer(model: NextWord, question: Question) -> float:
    """p of what should follow."""
    whole = np.array([*question.before, *question.answer])
    return math.exp(float(model.logprobs(whole)[len(question.before) :].sum()))
