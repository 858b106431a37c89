"""`regard train w2v`, `analogy`, `neighbours`, `cluster`, `eval analogies`, `eval similarity`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Literal

from regard.cli.counted import leave_receipt, new_folder
from regard.cli.show import Show
from regard.cli.texts import at_least, naming
from regard.data.text_files import read_lines
from regard.data.word_frequencies import words
from regard.errors import DataError, UsageError
from regard.files import check_places, write_whole
from regard.history.analogies import (
    OWN,
    Solved,
    agree,
    read_questions,
    read_similarity,
    solve,
    total,
)
from regard.history.clusters import brown, k_means
from regard.history.word2vec import Corpus, Word2VecConfig, read_corpus, train_word2vec
from regard.history.word_vectors import (
    Near,
    WordVectors,
    is_folder,
    is_vectors,
    read_vectors,
    save_folder,
    write_binary,
    write_text,
)

FORMS = {".bin": write_binary, ".txt": write_text, ".vec": write_text}


def run(args: argparse.Namespace, show: Show) -> int:
    """Do what the verb says."""
    verbs: dict[str, Callable[[argparse.Namespace, Show], None]] = {
        "train w2v": run_train,
        "analogy": run_analogy,
        "neighbours": run_neighbours,
        "cluster": run_cluster,
        "eval analogies": run_analogies,
        "eval similarity": run_similarity,
    }
    verbs[args.verb](args, show)
    return 0


# Training -----------------------------------------------------------------------------------------


def run_train(args: argparse.Namespace, show: Show) -> None:
    """Learn vectors and write them."""
    names = [field.name for field in fields(Word2VecConfig)]
    config = Word2VecConfig(**{name: getattr(args, name) for name in names})
    config.check()
    out = new_folder(args, "training word vectors", "text files or folders")
    at_least("--workers", args.workers)
    with show.progress("training") as progress:
        progress("reading")
        corpus = corpus_of(args.files, args)
        start = time.monotonic()

        def tell(read: int, whole: int) -> None:
            progress(f"{read:,} of {whole:,} words ({100 * read // whole} %)")

        made = train_word2vec(corpus, config, args.workers, tell)
    seconds = time.monotonic() - start
    epochs = config.times(len(corpus.ids))
    found = {
        "out": str(out),
        "words": len(corpus.words),
        "dim": config.dim,
        "tokens": len(corpus.ids),
        "epochs": epochs,
        "seconds": seconds,
        "tokens_per_second": epochs * len(corpus.ids) / seconds,
    }
    if out.suffix in FORMS:
        FORMS[out.suffix](WordVectors(corpus.words, made.inputs), out)
    else:
        settings = asdict(config) | {"epochs": epochs, "files": args.files}
        matrices = {"in": made.inputs, "out": made.outputs}
        save_folder(out, corpus.words, corpus.counts.tolist(), matrices, settings)
        leave_receipt(args, out, found)
    if show.as_json:
        show.result(found)
        return
    size = f"{found['words']:,} words of {config.dim} numbers"
    speed = f"{seconds:.1f} s, {found['tokens_per_second']:,.0f} a second"
    show.line(f"{size}, from {epochs} × {len(corpus.ids):,} words in {speed}, in {out}")
    show.line(f"try: regard neighbours {out} {corpus.words[min(50, len(corpus.words) - 1)]}")


def corpus_of(paths: list[str], args: argparse.Namespace) -> Corpus:
    """The sentences of texts, one on each line."""

    def sentences() -> Iterator[list[str]]:
        for line in read_lines(paths):
            text = line.lower() if args.lower else line
            yield words(text) if args.tokens == "words" else text.split()

    with naming(paths, "reading a corpus"):
        return read_corpus(sentences(), args.min_count)


# Asking -------------------------------------------------------------------------------------------


def way_of(args: argparse.Namespace) -> Literal["add", "mul"]:
    """How analogies are solved."""
    return "mul" if args.mul else "add"


def print_near(title: str, found: list[Near], show: Show) -> None:
    """Words and scores."""
    show.table(title, ("word", "score"), [(near.word, f"{near.score:.4f}") for near in found])


def run_analogy(args: argparse.Namespace, show: Show) -> None:
    """Who is to c as b is to a."""
    question = [args.a, args.b, args.c]
    vectors = read_vectors(args.path, args.matrix)
    found = vectors.analogy(args.a, args.b, args.c, args.top, way_of(args))
    if show.as_json:
        answers = [near._asdict() for near in found]
        show.result(
            {"question": question, "way": way_of(args), "excluded": question, "answers": answers}
        )
        return
    print_near(f"{args.a} is to {args.b} as {args.c} is to", found, show)
    show.line(f"left out, as always: {', '.join(question)}")


def run_neighbours(args: argparse.Namespace, show: Show) -> None:
    """The nearest words."""
    found = read_vectors(args.path, args.matrix).neighbours(args.word, args.top)
    if show.as_json:
        near = [near._asdict() for near in found]
        show.result({"word": args.word, "neighbours": near})
    else:
        print_near(f"nearest to {args.word}, by cosine", found, show)


def run_analogies(args: argparse.Namespace, show: Show) -> None:
    """Score a set of questions, section by section."""
    vectors = read_vectors(args.path, args.matrix)
    scores = solve(vectors, read_questions(args.questions or OWN), way_of(args))
    every = total(scores)
    if not every.asked:
        found = f"none of {every.skipped:,} questions has vectors for its four words"
        raise DataError("solving analogies", found, "questions in the language of the vectors")
    if show.as_json:
        sections = {name: described(score) for name, score in scores.items()}
        show.result({**described(every), "way": way_of(args), "sections": sections})
        return
    rows = [
        (name, f"{score.accuracy:.1%}", *(f"{count:,}" for count in score))
        for name, score in [*scores.items(), ("all", every)]
    ]
    columns = "section", "right", "", "asked", "without vectors"
    show.table(f"analogies by {args.path}", columns, rows)
    low, high = every.interval()
    show.line(f"95 % interval of all: {low:.1%} to {high:.1%}; the question's words are left out")


def described(score: Solved) -> dict[str, Any]:
    """A score as plain data."""
    low, high = score.interval()
    return {"accuracy": score.accuracy, **score._asdict(), "low": low, "high": high}


def run_similarity(args: argparse.Namespace, show: Show) -> None:
    """Compare the order of cosines with people's."""
    if args.pairs is None:
        expected = "a file with lines of two words and people's score"
        fix = "such as WordSim-353: regard eval similarity M wordsim353.tsv"
        raise UsageError("comparing similarities", "no file of pairs", expected, fix)
    found = agree(read_vectors(args.path, args.matrix), read_similarity(args.pairs))
    if show.as_json:
        show.result(found._asdict())
    else:
        without = f", {found.skipped:,} without vectors" if found.skipped else ""
        show.line(f"Spearman's ρ {found.spearman:.4f} over {found.pairs:,} pairs{without}")


# Clustering ---------------------------------------------------------------------------------------


def run_cluster(args: argparse.Namespace, show: Show) -> None:
    """k-means of vectors, Brown's clusters of a text."""
    check_places(args.out)
    path = Path(args.path)
    vectors = is_folder(path) or (not args.brown and is_vectors(path))
    if vectors and args.brown:
        fix = "give the text that the vectors were trained on, or leave --brown out"
        raise UsageError("clustering", f"--brown, but {path} holds vectors", "a text", fix)
    with show.progress("clustering") as progress:
        progress("words")
        if vectors:
            table = read_vectors(path, args.matrix)
            names = table.words
            labels = [str(n) for n in k_means(table.unit, args.k, args.seed).tolist()]
        else:
            corpus = corpus_of([args.path], args)
            names = corpus.words
            made = brown(
                *(corpus.ids, corpus.bounds, len(names), args.k),
                lambda done, whole: progress(f"{done:,} of {whole:,} words"),
            )
            labels = [made.bits[n] for n in made.classes.tolist()]
    classes: dict[str, list[str]] = {}
    for word, label in zip(names, labels, strict=True):
        classes.setdefault(label, []).append(word)
    if args.out:
        lines = [f"{label}\t{word}\n" for label in sorted(classes) for word in classes[label]]
        write_whole(Path(args.out), "".join(lines).encode())
    way, column = ("k-means", "class") if vectors else ("brown", "bits")
    if show.as_json:
        rows = [{column: label, "words": classes[label]} for label in sorted(classes)]
        show.result({"way": way, "k": args.k, "vocabulary": len(names), "classes": rows})
        return
    shown = [
        (label, " ".join(classes[label][: args.top]), f"{len(classes[label]):,}")
        for label in sorted(classes, key=lambda label: (len(label), label) if vectors else label)
    ]
    show.table(f"{len(names):,} words of {args.path}, {way}", (column, "words", ""), shown, left=2)
