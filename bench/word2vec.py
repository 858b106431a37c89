"""word2vec beside gensim's: speed, analogies and similarity, in turns over several seeds.

    python bench/word2vec.py TEXT [--questions FILE] [--pairs FILE] [--mode cbow] [--seeds 5]

Needs gensim. Both get the same sentences (lower case, cut at blanks) and settings; reading the text
is not timed, building the vocabulary neither. Seconds depend on what else the machine does, so the
ratio is of runs in turns. An interval is the mean over seeds ± Student's t · standard error.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from regard.data.text_files import read_lines
from regard.history.analogies import OWN, agree, read_questions, read_similarity, solve
from regard.history.config import Word2VecConfig
from regard.history.word2vec import WordCorpus, read_corpus, train_word2vec
from regard.history.word_vectors import WordVectors

STUDENT = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}


class Run(NamedTuple):
    """One training."""

    seconds: float
    figures: dict[str, float]


def ours(
    corpus: WordCorpus, config: Word2VecConfig, seed: int, workers: int
) -> tuple[float, WordVectors]:
    """Seconds and vectors."""
    start = time.perf_counter()
    made = train_word2vec(corpus, config, seed, workers)
    return time.perf_counter() - start, WordVectors(corpus.words, made.inputs)


def theirs(
    lines: list[list[str]], config: Word2VecConfig, seed: int, workers: int
) -> tuple[float, WordVectors]:
    """Seconds and vectors of gensim."""
    from gensim.models import Word2Vec

    skip = config.mode == "skipgram"
    model = Word2Vec(
        vector_size=config.dim,
        window=config.window,
        min_count=config.min_count,
        sample=config.subsample,
        sg=int(skip),
        hs=0,
        negative=config.negative,
        alpha=config.lr or (0.025 if skip else 0.05),
        workers=workers,
        seed=seed,
    )
    model.build_vocab(lines)
    start = time.perf_counter()
    model.train(lines, total_examples=model.corpus_count, epochs=config.epochs)
    return time.perf_counter() - start, WordVectors(model.wv.index_to_key, model.wv.vectors)


def interval(values: list[float]) -> str:
    """Mean and 95 % interval."""
    if len(values) < 2:
        return f"{values[0]:.3f}"
    spread = STUDENT.get(len(values), 2.0) * statistics.stdev(values) / len(values) ** 0.5
    return f"{statistics.mean(values):.3f} ± {spread:.3f}"


def compare(
    runs: dict[str, Callable[[int], tuple[float, WordVectors]]], seeds: int, measure
) -> None:
    """Train in turns and print a row for each, then the table."""
    made: dict[str, list[Run]] = {name: [] for name in runs}
    for seed in range(1, seeds + 1):
        for name, run in runs.items():
            seconds, vectors = run(seed)
            made[name].append(Run(seconds, measure(vectors)))
            shown = "  ".join(f"{k} {v:.4f}" for k, v in made[name][-1].figures.items())
            print(f"seed {seed}  {name:18} {seconds:7.1f} s  {shown}", flush=True)
    first, second = made
    ratios = [b.seconds / a.seconds for a, b in zip(made[first], made[second], strict=True)]
    print(f"\nspeed: {first} is {interval(ratios)} times {second}")
    for figure in made[first][0].figures:
        for name in runs:
            print(f"{figure:20} {name:18} {interval([run.figures[figure] for run in made[name]])}")


def main() -> None:
    """Read the text, train, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("text")
    parser.add_argument("--questions")
    parser.add_argument("--pairs")
    parser.add_argument("--mode", choices=("skipgram", "cbow"), default="skipgram")
    for name, value in (("dim", 100), ("epochs", 5), ("seeds", 5), ("workers", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    logging.disable()
    lines = [words for line in read_lines(args.text) if (words := line.lower().split())]
    shape = Word2VecConfig(args.mode, args.dim, epochs=args.epochs)
    corpus = read_corpus(lines, shape.min_count)
    sets = {"analogies, own": read_questions(OWN)}
    if args.questions:
        sets["analogies"] = read_questions(args.questions)
    pairs = read_similarity(args.pairs) if args.pairs else None

    def measure(vectors: WordVectors) -> dict[str, float]:
        found = dict[str, float]()
        for name, rows in sets.items():
            right, asked, _ = map(sum, zip(*solve(vectors, rows).values(), strict=True))
            found[name] = right / max(asked, 1)
        return found | ({"similarity": agree(vectors, pairs)[0]} if pairs else {})

    print(f"{len(corpus.ids):,} words, {len(corpus.words):,} different; {shape}")
    once = replace(shape, epochs=1)
    hashes = {
        hashlib.sha256(ours(corpus, once, 1, workers)[1].matrix.tobytes()).hexdigest()[:12]
        for workers in (1, 2, 4)
    }
    print(f"bits after one epoch with 1, 2, 4 workers: {', '.join(hashes)}")
    named = {
        f"regard, {args.workers}": lambda seed: ours(corpus, shape, seed, args.workers),
        f"gensim, {args.workers}": lambda seed: theirs(lines, shape, seed, args.workers),
    }
    compare(named, args.seeds, measure)


if __name__ == "__main__":
    main()
