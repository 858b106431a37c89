"""Words that look like given ones: random, or with a few changes."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from regard.formal.dfa import Word
from regard.formal.language import edit
from regard.rules.rule import Accepts


class StringSampler:
    """Draws words that look like the given ones.

    Half are random, with their lengths and frequencies of symbols; half are one of them with one
    to three changes, which is where a rule that few random words keep can be seen.
    """

    def __init__(self, words: Sequence[Word], seed: int = 0, shorter: bool = False) -> None:
        self.words, self.rng = list(words), Random(seed)
        self.symbols = [symbol for word in words for symbol in word]  # as often as they occur
        self.alphabet = tuple(sorted(set(self.symbols)))
        self.shorter = shorter
        """Random words may have any length up to the given ones', and half as much again."""

    def random(self) -> Word:
        """Symbols drawn one by one."""
        length = len(self.rng.choice(self.words))
        if self.shorter:
            length = self.rng.randint(0, length + length // 2)
        return tuple(self.rng.choice(self.symbols) for _ in range(length)) if self.symbols else ()

    def changed(self, word: Word) -> Word:
        """A word with one to three symbols replaced, left out, put in or exchanged."""
        for _ in range(self.rng.randint(1, 3)):
            word = edit(word, self.alphabet, self.rng.choice((-1, 0, 0, 1)), self.rng)
        return word

    def draw(self, count: int) -> list[Word]:
        """So many words, random and changed ones in turn."""
        return [
            self.changed(self.rng.choice(self.words)) if n % 2 else self.random()
            for n in range(count)
        ]

    def lesson(self, accepts: Accepts, count: int) -> tuple[list[Word], list[bool]]:
        """Words of which half are accepted, as far as can be found, with near misses, shuffled.

        A word that is accepted is changed until one is not, and the other way round: of long
        random words a rule often accepts almost none, or nearly all.
        """
        kept: dict[bool, list[Word]] = {True: [], False: []}
        pool, half = list(self.words), count // 2
        for _ in range(20 * count):
            if len(kept[True]) == half and len(kept[False]) == count - half:
                break
            word = self.changed(self.rng.choice(pool)) if self.rng.random() < 0.7 else self.random()
            label = bool(accepts(word))
            if len(kept[label]) < (half if label else count - half):
                kept[label].append(word)
                if len(pool) < 4 * len(self.words) + 100:
                    pool.append(word)
        pairs = [(word, label) for label, words in kept.items() for word in words]
        self.rng.shuffle(pairs)
        return [word for word, _ in pairs], [label for _, label in pairs]
