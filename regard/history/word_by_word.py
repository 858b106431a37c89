"""Word by word: each source word becomes its likeliest target word, in the order of the source.

Which word is a translation of which, IBM model 1 says (`ibm1.py`). A source word that accounts for
less than one target word on average may become nothing: of its n occurrences, those that no target
word came from.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from regard.history.bag import Option, Slot, Sparse, unknown_slot
from regard.history.ibm1 import IBM1, Floats, Ids, Rows

LEAST = 1e-3  # translations that are less likely are left out
CHOICES = 10  # translations of a word that may stand in a list of several


class WordByWord:
    """A dictionary with probabilities."""

    def __init__(self, table: Sparse, silent: Floats) -> None:
        self.table = table
        """t(target | source)."""
        self.silent = silent
        """How often each source word becomes nothing."""

    def slots(self, sentence: list[str], ids: Ids, targets: list[str]) -> list[Slot]:
        """What could stand at each place; unknown source words (-1) are copied."""
        made = list[Slot]()
        for word, id in zip(sentence, ids, strict=True):
            made.append(unknown_slot(word) if id < 0 else self.options(int(id), targets))
        return made

    def options(self, id: int, targets: list[str]) -> Slot:
        """Translations of one source word, the likeliest first."""
        columns, t = self.table.row(id)
        nothing = float(self.silent[id])
        order = np.argsort(-t, kind="stable")[:CHOICES]
        logs = np.log(t[order]) + np.log1p(-nothing)
        found = [Option(targets[columns[n]], float(p)) for n, p in zip(order, logs, strict=True)]
        if nothing > 0:
            found.append(Option("", float(np.log(nothing))))
        return sorted(found, key=lambda option: -option.logprob)


def train_words(
    sources: Rows,
    targets: Rows,
    sizes: tuple[int, int],
    rounds: int,
    say: Callable[[str], None] = lambda text: None,
) -> WordByWord:
    """Some rounds of EM and a last one without NULL; then what is likely enough is kept."""
    model = IBM1(sources, targets, *sizes)
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        model.step()
    words = sizes[0]
    cells = int(model.bounds[words])  # without NULL's
    model.t[cells:] = np.finfo(np.float64).tiny  # NULL would take half of what stands everywhere
    model.step()
    table = model.table
    whole = Sparse(table.bounds[: words + 1], table.targets[:cells], table.t[:cells])
    row = whole.row_of
    said = np.bincount(row, table.counts[:cells], words) / np.bincount(sources.ids, minlength=words)
    silent = np.clip(1 - said, 0.0, 1 - LEAST)
    best = np.zeros(words)
    np.maximum.at(best, row, whole.values)
    kept = whole.values >= np.minimum(LEAST, best[row])
    return WordByWord(whole.keep(kept, whole.values), silent)
