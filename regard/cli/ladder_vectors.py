"""The rung of `regard ladder` that predicts by vectors of word2vec (`history/next_word.py`)."""

from __future__ import annotations

import argparse
import math
import re
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from regard.cli.ladder_split import DOING, Split
from regard.cli.show import Show
from regard.cli.texts import perplexity
from regard.data.text_files import read_parts
from regard.errors import DataError
from regard.history.cbow import WINDOW, NextWord, fit_scales, train_next_word
from regard.history.config import Word2VecConfig
from regard.history.ngram_model import encode_lines, joined
from regard.history.ngrams import Ids
from regard.history.word_vectors import save_folder
from regard.tokens import load as load_tokenizer
from regard.tokens.tokenizer import Tokenizer

PACE = 50_000  # tokens a second at least
WORKERS = 2  # the vectors are the same with any number


def token_ids(tokenizer: Tokenizer, file: Path) -> Ids:
    """A file of the split as one running text."""
    return joined(encode_lines(tokenizer, read_parts([file]), False))


def train_vectors(
    args: argparse.Namespace, split: Split, out: Path, seconds: float, show: Show
) -> tuple[NextWord, dict[str, Any]]:
    """Learn vectors, fit their scales on the validation text, keep them; what it took."""
    tokenizer = load_tokenizer(str(split.tokenizer))
    ids, began = token_ids(tokenizer, split.train), time.perf_counter()
    config = Word2VecConfig("cbow", args.dim, WINDOW, min_count=1)
    times = config.times(len(ids))
    if not args.steps:
        times = max(1, min(times, int(seconds * PACE / max(len(ids), 1))))
    config = replace(config, epochs=times)
    with show.progress("training") as progress:

        def tell(done: int, whole: int) -> None:
            progress(f"vectors: {done:,} of {whole:,} tokens")

        model = train_next_word(ids, tokenizer.size, config, args.seed, WORKERS, tell)
        speed = times * len(ids) / max(time.perf_counter() - began, 0.01)
        progress("scales")
        model = fit_scales(model, token_ids(tokenizer, split.valid))
    taken = time.perf_counter() - began
    pieces = [tokenizer.engine.piece(id, "source") or f"<id{id}>" for id in range(tokenizer.size)]
    words = [re.sub(r"\s", "▁", piece) for piece in pieces]
    counts = np.bincount(ids, minlength=tokenizer.size).tolist()
    both = {"in": model.inputs.numpy(), "out": model.outputs.numpy()}
    save_folder(
        out, words, counts, both, {**asdict(config), "seed": args.seed, "a": model.a, "b": model.b}
    )
    return model, {"parameters": model.parameters, "seconds": taken, "tokens_per_s": speed}


def measure_vectors(model: NextWord, split: Split) -> dict[str, float]:
    """Perplexity and bits of the test text."""
    found = model.logprobs(token_ids(load_tokenizer(str(split.tokenizer)), split.test))
    if not len(found):
        raise DataError(DOING, f"no tokens in {split.test}", "one or more")
    loss = -float(found.mean())
    return {"perplexity": perplexity(loss), "bits": loss / math.log(2)}
