"""A probing task: words with labels, split by sentence, and what knows no vectors at all.

The control task (Hewitt and Liang 2019) gives each word type a label drawn at random: a probe that
solves it remembers words, and what it finds of real labels may be no more than that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from regard.errors import DataError

LEAST = 2  # examples of each label in the training part
HELD = 10  # one sentence in so many is for choosing, one for testing
NO_LABEL = "_"


class Split(NamedTuple):
    """Places of words: to train on, to choose by, to test on. No sentence is in two of them."""

    train: Tensor
    dev: Tensor
    test: Tensor


@dataclass(frozen=True)
class Task:
    """Labels of N words."""

    kept: Tensor
    """(N,): which of the words that were given; the others have no label, or a rare one."""
    labels: Tensor
    """(N,): number of the label."""
    names: list[str]
    """The labels."""
    types: Tensor
    """(N,): number of the word type; equal words have equal numbers."""
    parts: Split

    def control(self, seed: int = 0) -> Task:
        """The control task: each type has one label, drawn as labels are spread in training."""
        generator = torch.Generator().manual_seed(seed)
        seen, count = self.labels[self.parts.train], int(self.types.max()) + 1
        drawn = seen[torch.randint(len(seen), (count,), generator=generator)]
        return replace(self, labels=drawn[self.types])

    def majority(self) -> int:
        """How many test words have the most frequent label of the training part."""
        counts = self.labels[self.parts.train].bincount(minlength=len(self.names))
        return int((self.labels[self.parts.test] == counts.argmax()).sum())

    def by_type(self) -> int:
        """How many test words have their type's most frequent label; unseen types: of all."""
        train, test = self.parts.train, self.parts.test
        types, count = int(self.types.max()) + 1, len(self.names)
        cells = self.types[train] * count + self.labels[train]
        table = cells.bincount(minlength=types * count).view(types, count)
        table[table.sum(1) == 0] = table.sum(0)
        return int((table.argmax(1)[self.types[test]] == self.labels[test]).sum())


def make_task(
    labels: Sequence[str],
    words: Sequence[str],
    sentences: Sequence[int],
    seed: int = 0,
    drop_rare: bool = False,
) -> Task:
    """Words with their labels and numbers of sentences → a task; `_` is no label.

    `drop_rare` leaves out labels with fewer than two words to train on; otherwise they are refused.
    """
    kept = torch.tensor([n for n, label in enumerate(labels) if label != NO_LABEL])
    if not len(kept):
        raise DataError("probing", "no labelled words", "words with labels")
    parts = split_sentences(torch.tensor(sentences)[kept], seed)
    there = [labels[n] for n in kept.tolist()]
    if drop_rare:
        known = Counter(there[n] for n in parts.train.tolist())
        common = torch.tensor([known[label] >= LEAST for label in there])
        parts = Split(*((common.cumsum(0) - 1)[part[common[part]]] for part in parts))
        kept = kept[common]
        there = [labels[n] for n in kept.tolist()]
    names = sorted(set(there))
    places, types = {name: n for n, name in enumerate(names)}, dict[str, int]()
    task = Task(
        kept,
        torch.tensor([places[label] for label in there], dtype=torch.long),
        names,
        torch.tensor([types.setdefault(words[n], len(types)) for n in kept.tolist()]),
        parts,
    )
    check_enough(task)
    return task


def split_sentences(sentences: Tensor, seed: int = 0) -> Split:
    """Eight tenths, a tenth and a tenth of the sentences, in an order drawn from the seed."""
    each, place = sentences.unique(return_inverse=True)
    if len(each) < 3:
        found = f"{len(each)} sentences with labels"
        raise DataError("splitting by sentence", found, "at least 3, one of them for each part")
    order = torch.randperm(len(each), generator=torch.Generator().manual_seed(seed))
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order))
    held = max(1, len(each) // HELD)
    bounds = len(each) - 2 * held, len(each) - held
    by_rank = rank[place]  # (N,)
    words = by_rank.argsort(stable=True)  # whole sentences in the drawn order
    inside = by_rank[words]
    return Split(
        words[inside < bounds[0]],
        words[(inside >= bounds[0]) & (inside < bounds[1])],
        words[inside >= bounds[1]],
    )


def check_enough(task: Task) -> None:
    """Refuse what no probe can learn: one label, fewer words than labels, rare labels."""
    fix = "more sentences (--limit), or leave rare labels out (--drop-rare)"
    count, train = len(task.names), task.parts.train
    if count < 2:
        raise DataError("probing", f"one label, {task.names[0]!r}" if count else "no label", "two")
    if len(train) < count:
        found = f"{len(train)} words to train on, {count} labels"
        raise DataError("probing", found, f"at least {max(count, LEAST * count)} words", fix)
    counts = task.labels[train].bincount(minlength=count)
    rare = (counts < LEAST).nonzero()[:, 0].tolist()
    if rare:
        some = ", ".join(f"{task.names[n]} {int(counts[n])}" for n in rare[:5])
        some += f" and {len(rare) - 5} more labels" if len(rare) > 5 else ""
        found = f"too few words to train on, of {len(train):,}: {some}"
        raise DataError("probing", found, f"at least {LEAST} of each of {count} labels", fix)
    if not len(task.parts.dev) or not len(task.parts.test):
        found = "no words to choose by or to test on"
        raise DataError("probing", found, "at least one of each", "more sentences (--limit)")
