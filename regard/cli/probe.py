"""`regard probe`: labels or trees that can be read off a model's vectors, place by place."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import Any

from regard.cli.opening import open_kit
from regard.cli.probe_reading import Corpus, chosen_taps, read_corpus, vectors_of
from regard.cli.probe_tree import run_tree
from regard.cli.show import Progress, Show
from regard.data.speech import clean_tree
from regard.data.statistics import share_interval
from regard.data.text_files import evenly
from regard.data.treebank import Words, heads_of, read_treebank
from regard.errors import DataError, UsageError
from regard.kit import Kit
from regard.look.probing import ProbeCounts, ProbingTask, make_task, probe_layers
from regard.look.text_limits import max_tokens_of


def run(args: argparse.Namespace, show: Show) -> int:
    """Probe each place."""
    need = ["head"] if args.tree else args.label
    sentences = evenly(read_treebank(args.file, need, args.columns), args.limit)
    if not sentences:
        raise DataError(f"reading {args.file}", "no sentences", "words, one on each line")
    versions = versions_of(args, sentences)  # before the model is opened
    kit = open_kit(args.path, args.device, "fp32")
    made = {}
    for name, some in versions.items():
        corpus = read_corpus(kit, some, args.token)
        taps = chosen_taps(kit, args.layer, args.taps)
        if corpus.long:
            most = max_tokens_of(kit, "probing")
            long = f"{corpus.long:,} sentences have more than {most:,} tokens, what fits"
            show.note(f"{long}: left out")
        if not corpus.rows:
            expected = "shorter sentences"
            raise DataError("probing", "no sentence that the model has room for", expected)
        with show.progress("probing") as progress:
            if len(versions) > 1 and not show.as_json:
                show.line(f"{name}: {sum(len(one.forms) for one in some):,} words")
            probed = run_tree if args.tree else run_label
            made[name] = probed(args, show, kit, corpus, taps, progress)
    if show.as_json:
        show.result(made if len(made) > 1 else made["spoken"])
    return 0


def versions_of(args: argparse.Namespace, sentences: list[Words]) -> dict[str, list[Words]]:
    """The sentences as they are, and with --speech without fillers and restarts (#116)."""
    if args.speech and not args.tree:
        raise UsageError("probing", "--speech without --tree", "both")
    if args.tree:
        for sentence in sentences:
            heads_of(args.file, sentence)
    made = {"spoken": sentences}
    if args.speech:
        made["cleaned"] = [clean_tree(sentence) for sentence in sentences]
        if made["cleaned"] == sentences:
            found = "no fillers and no restarts"
            raise DataError(f"cleaning {args.file}", found, "a treebank of spontaneous speech")
    return made


# Labels -------------------------------------------------------------------------------------------


def run_label(
    args: argparse.Namespace,
    show: Show,
    kit: Kit,
    corpus: Corpus,
    taps: Sequence[str],
    progress: Progress,
) -> dict[str, Any]:
    """Probes of labels at each tap; the object of --json."""
    tasks = {label: task_of(corpus, label, args) for label in args.label}
    controls = {name: task.control(args.seed) for name, task in tasks.items() if args.control}
    vectors = vectors_of(kit, corpus, taps, progress)
    made = probe_layers(vectors, tasks, args.kind, args.seed, controls)
    if not show.as_json:
        for label, task in tasks.items():
            print_label(args, show, label, task, made[label])
    if len(tasks) > 1 and not show.as_json:
        print_layers(show, made)
    found = [label_data(args, label, tasks[label], made[label]) for label in tasks]
    return found[0] if len(found) == 1 else {"features": found}


def label_data(
    args: argparse.Namespace, label: str, task: ProbingTask, made: dict[str, ProbeCounts]
) -> dict[str, Any]:
    """One label as plain data."""
    train, dev, test = map(len, task.parts)
    plain = {"majority": task.majority(), "by word type": task.by_type()}
    return {
        "label": label,
        "kind": args.kind,
        "labels": task.names,
        "words": {"train": train, "dev": dev, "test": test},
        "baselines": {name: right / test for name, right in plain.items()},
        "taps": [{"tap": tap, **as_data(each, task)} for tap, each in made.items()],
    }


def print_label(
    args: argparse.Namespace,
    show: Show,
    label: str,
    task: ProbingTask,
    made: dict[str, ProbeCounts],
) -> None:
    """One label for people."""
    train, dev, test = map(len, task.parts)
    plain = {"majority": task.majority(), "by word type": task.by_type()}
    rows = [(name, *shares(right, test), "", "", "") for name, right in plain.items()]
    rows += [(tap, *label_cells(each)) for tap, each in made.items()]
    columns = "tap", "accuracy", "95 % interval", "control", "selectivity", "bits a word"
    show.table(f"{label} by a {args.kind} probe of {args.path}", columns, rows)
    show.line(
        f"{len(task.names)} labels; words to train on {train:,}, to choose by {dev:,}, "
        f"to test on {test:,}; no sentence is in two parts"
    )
    show.line(f"bits: online code of the training labels; {math.log2(len(task.names)):.3f} uniform")


def print_layers(show: Show, made: dict[str, dict[str, ProbeCounts]]) -> None:
    """Which layer knows what: the accuracy of each label at each place, the best ones marked."""
    best = {label: max(each, key=lambda tap: each[tap].right) for label, each in made.items()}
    places = list(next(iter(made.values())))
    rows = [
        (tap, *(f"{each[tap].accuracy:.1%}{' *' * (best[n] == tap)}" for n, each in made.items()))
        for tap in places
    ]
    show.table("which layer knows what (* most)", ("tap", *made), rows)


def task_of(corpus: Corpus, label: str, args: argparse.Namespace) -> ProbingTask:
    """The labels of the words that have a token."""
    labels, words, numbers = list[str](), list[str](), list[int]()
    for n, (sentence, row) in enumerate(zip(corpus.sentences, corpus.rows, strict=True)):
        labels += [sentence.columns[label][word] for word in row.words]
        words += [sentence.forms[word] for word in row.words]
        numbers += [n] * len(row.words)
    return make_task(labels, words, numbers, args.seed, args.drop_rare)


def as_data(made: ProbeCounts, task: ProbingTask) -> dict[str, Any]:
    """A measurement as plain data."""
    low, high = made.interval
    control = None if made.control is None else made.control / made.asked
    bits = made.bits
    return {
        "accuracy": made.accuracy,
        "low": low,
        "high": high,
        "control": control,
        "selectivity": made.selectivity,
        "bits": bits,
        "bits_per_word": None if bits is None else bits / made.coded,
        "compression": None if not bits else made.coded * math.log2(len(task.names)) / bits,
    }


def shares(right: int, asked: int) -> tuple[str, str]:
    """A share and its interval."""
    low, high = share_interval(right, asked)
    return f"{right / asked if asked else 0:.1%}", f"{low:.1%} to {high:.1%}"


def label_cells(made: ProbeCounts) -> tuple[str, str, str, str, str]:
    """A measurement for people."""
    control, selectivity = made.control, made.selectivity
    return (
        *shares(made.right, made.asked),
        "–" if control is None else f"{control / made.asked:.1%}",
        "–" if selectivity is None else f"{100 * selectivity:+.1f}",
        "–" if made.bits is None else f"{made.bits / made.coded:.3f}",
    )
