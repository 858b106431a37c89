"""Fresh strings like given ones: random, or a given one with a few changes; and sets of a rule."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from regard.rules.atoms import Word
from regard.rules.rule import Accepts


class Strings:
    """Draws words that look like the given ones.

    Half are random, with their lengths and frequencies of symbols; half are one of them with one
    to three changes, which is where a rule that few random words keep can be seen.
    """

    def __init__(self, words: Sequence[Word], seed: int = 0, shorter: bool = False) -> None:
        self.words, self.dice = list(words), Random(seed)
        self.symbols = [symbol for word in words for symbol in word]  # as often as they occur
        self.shorter = shorter
        """Random words may have any length up to the given ones', and half as much again."""

    def random(self) -> Word:
        """Symbols drawn one by one."""
        length = len(self.dice.choice(self.words))
        if self.shorter:
            length = self.dice.randint(0, length + length // 2)
        return tuple(self.dice.choice(self.symbols) for _ in range(length)) if self.symbols else ()

    def changed(self, word: Word, changes: int | None = None) -> Word:
        """A word with symbols replaced, left out, put in or exchanged."""
        made = list(word)
        for _ in range(changes or self.dice.randint(1, 3)):
            at, kind = self.dice.randrange(len(made) + 1), self.dice.randrange(5)
            if kind == 0 and self.symbols:
                made.insert(at, self.dice.choice(self.symbols))
            elif kind == 1 and at < len(made):
                del made[at]
            elif kind == 2 and len(made) > 1:
                one, two = self.dice.sample(range(len(made)), 2)
                made[one], made[two] = made[two], made[one]
            elif at < len(made) and self.symbols:
                made[at] = self.dice.choice(self.symbols)
        return tuple(made)

    def draw(self, count: int) -> list[Word]:
        """So many words, random and changed ones in turn."""
        return [
            self.changed(self.dice.choice(self.words)) if n % 2 else self.random()
            for n in range(count)
        ]

    def lesson(self, accepts: Accepts, count: int) -> tuple[list[Word], list[bool]]:
        """Words of which half are accepted, as far as can be found, with near misses, shuffled.

        A word that is accepted is changed until one is not, and the other way round: of long
        random words a rule often accepts almost none, or nearly all.
        """
        kept: dict[bool, list[Word]] = {True: [], False: []}
        pool = list(self.words)
        for _ in range(20 * count):
            wanted = len(kept[True]) < count // 2, len(kept[False]) < count - count // 2
            if not any(wanted):
                break
            near = self.changed(self.dice.choice(pool)) if self.dice.random() < 0.7 else None
            word = self.random() if near is None else near
            label = bool(accepts(word))
            if len(kept[label]) < (count // 2 if label else count - count // 2):
                kept[label].append(word)
                if len(pool) < 4 * len(self.words) + 100:
                    pool.append(word)
        made = [(word, label) for label, words in kept.items() for word in words]
        self.dice.shuffle(made)
        return [word for word, _ in made], [label for _, label in made]
