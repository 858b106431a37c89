"""Learning an automaton by asking: is this word in the language? (Angluin 1987).

Rows are the words that reach states, columns are endings that tell states apart. A counterexample
gives one new ending, found by bisection (Rivest and Schapire 1993). Who answers may be a network,
whose answers no small automaton gives exactly: the search ends at a number of states, and what is
kept is the smallest automaton among those that agree best with fresh words.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from regard.lang.dfa import DFA

Word = tuple[str, ...]
Answers = Callable[[Sequence[Word]], Sequence[bool]]
"""Words → whether each is in the language."""

SLACK = 0.003  # of agreement, that a smaller automaton may lose


@dataclass(frozen=True)
class Learnt:
    """An automaton, and how it came about."""

    dfa: DFA
    agreement: float
    """Share of fresh words, drawn while learning, on which it says what was answered."""
    queries: int
    """Words that were asked."""
    exact: bool
    """No fresh word contradicted it; else the search was cut off."""


class Table:
    """Answers for words that reach states, each with every ending."""

    def __init__(self, answers: Answers, alphabet: Iterable[str]) -> None:
        self.ask, self.alphabet = answers, tuple(alphabet)
        self.known: dict[Word, bool] = {}
        self.reach: list[Word] = [()]
        self.endings: list[Word] = [()]

    def answer(self, words: Iterable[Word]) -> list[bool]:
        """What is said of each word; each is asked once, all at the same time."""
        listed = list(words)
        fresh = list(dict.fromkeys(word for word in listed if word not in self.known))
        if fresh:
            self.known |= zip(fresh, map(bool, self.ask(fresh)), strict=True)
        return [self.known[word] for word in listed]

    def rows(self, words: Sequence[Word]) -> list[tuple[bool, ...]]:
        """For each word, the answers with every ending."""
        said = self.answer(word + ending for word in words for ending in self.endings)
        width = len(self.endings)
        return [tuple(said[n * width : (n + 1) * width]) for n in range(len(words))]

    def close(self, most: int) -> None:
        """Give a state to every row that is one symbol away from a state; `most` states at most."""
        states = set(self.rows(self.reach))
        waiting = list(self.reach)
        while waiting:
            onward = [word + (symbol,) for word in waiting for symbol in self.alphabet]
            waiting = []
            for word, row in zip(onward, self.rows(onward), strict=True):
                if row not in states and len(self.reach) < most:
                    states.add(row)
                    self.reach.append(word)
                    waiting.append(word)

    def automaton(self) -> DFA:
        """Its states are numbered as `reach`; a row without a state is the state most like it."""
        states = self.rows(self.reach)
        number = {row: n for n, row in enumerate(states)}
        moves = []
        for word in self.reach:
            after = self.rows([word + (symbol,) for symbol in self.alphabet])
            moves.append(tuple(number[r] if r in number else closest(r, states) for r in after))
        accepting = frozenset(n for n, row in enumerate(states) if row[0])
        return DFA(self.alphabet, tuple(moves), accepting)

    def split(self, dfa: DFA, word: Word) -> bool:
        """Add the ending that shows where the automaton goes wrong on a word; False: none new."""
        truth = self.answer([word])[0]
        low, high = 0, len(word)  # read by the automaton: the truth still holds, and no longer
        while high - low > 1:
            middle = (low + high) // 2
            state = dfa.path(word[:middle])[-1]
            if self.answer([self.reach[state] + word[middle:]])[0] == truth:
                low = middle
            else:
                high = middle
        ending = word[high:]
        if ending in self.endings:
            return False
        self.endings.append(ending)
        return True


def closest(row: tuple[bool, ...], states: Sequence[tuple[bool, ...]]) -> int:
    """The state whose row differs least, by acceptance first."""

    def unlike(n: int) -> tuple[bool, int]:
        other = states[n]
        return row[0] != other[0], sum(a != b for a, b in zip(row, other, strict=True))

    return min(range(len(states)), key=unlike)


def learn(
    answers: Answers,
    alphabet: Iterable[str],
    draw: Callable[[int], Sequence[Word]],
    most: int = 300,
    tries: int = 2000,
    seconds: float = 60.0,
) -> Learnt:
    """Ask until `tries` fresh words of `draw` all agree, `most` states or the time are reached."""
    table, end = Table(answers, alphabet), time.monotonic() + seconds
    found: list[tuple[float, DFA]] = []
    while True:
        table.close(most)
        dfa = table.automaton()
        words = list(draw(tries))
        wrong = disagreements(dfa, words, table.answer(words))
        found.append((1 - len(wrong) / max(1, len(words)), dfa))
        full = len(table.reach) >= most or time.monotonic() > end
        if not wrong or full or not any(table.split(dfa, w) for w in sorted(wrong, key=len)):
            break
    best = max(share for share, _ in found)
    near = [(share, dfa.minimise()) for share, dfa in found if share >= best - SLACK]
    share, dfa = min(near, key=lambda pair: (len(pair[1].moves), -pair[0]))
    return Learnt(dfa, share, len(table.known), not wrong)


def disagreements(dfa: DFA, words: Sequence[Word], said: Sequence[bool]) -> list[Word]:
    """The words of which the automaton says something else."""
    return [word for word, true in zip(words, said, strict=True) if dfa.accepts(word) != true]
