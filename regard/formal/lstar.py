"""Learning an automaton by asking: is this word in the language? (Angluin 1987).

Rows are the words that reach states, columns are endings that tell states apart. A counterexample
gives one new ending, found by bisection (Rivest and Schapire 1993). Who answers may be a network,
whose answers no small automaton gives exactly: the search ends at a number of states, and what is
kept is the smallest automaton among those that agree best, or well, with fresh words.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from operator import ne

from regard.formal.dfa import DFA, Word, explore

Answers = Callable[[Sequence[Word]], Sequence[bool]]
"""Words → whether each is in the language."""

SLACK = 0.003  # of agreement, that a smaller automaton may lose
MERGED = 16  # states up to which all pairs are tried to be one


@dataclass(frozen=True)
class LearntDFA:
    """An automaton, and how it came about."""

    dfa: DFA
    agreement: float
    """Share of fresh words, drawn while learning, on which it says what was answered."""
    queries: int
    """Words that were asked."""
    exact: bool
    """No fresh word contradicted it; else the search was cut off."""


class ObservationTable:
    """Answers for words that reach states, each with every ending."""

    def __init__(self, answers: Answers, alphabet: Iterable[str], endings: Iterable[Word]) -> None:
        self.ask, self.alphabet = answers, tuple(alphabet)
        self.known: dict[Word, bool] = {}
        self.reach: list[Word] = [()]
        self.endings = list(endings)

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

        def closest(row: tuple[bool, ...]) -> int:  # by acceptance first
            unlike = [(row[0] != other[0], sum(map(ne, row, other))) for other in states]
            return unlike.index(min(unlike))

        moves = []
        for word in self.reach:
            after = self.rows([word + (symbol,) for symbol in self.alphabet])
            moves.append(tuple(number[row] if row in number else closest(row) for row in after))
        accepting = frozenset(n for n, row in enumerate(states) if row[0])
        return DFA(self.alphabet, tuple(moves), accepting)

    def split(self, dfa: DFA, word: Word) -> bool:
        """Add the ending that shows where the automaton goes wrong on a word; False: none new."""
        truth = self.answer([word])[0]
        low, high = 0, len(word)  # read by the automaton: the truth still holds, and no longer
        while high - low > 1:
            middle = (low + high) // 2
            if self.answer([self.reach[dfa.path(word[:middle])[-1]] + word[middle:]])[0] == truth:
                low = middle
            else:
                high = middle
        ending = word[high:]
        if ending in self.endings:
            return False
        self.endings.append(ending)
        return True


def learn_dfa(
    answers: Answers,
    alphabet: Iterable[str],
    draw: Callable[[int], Sequence[Word]],
    most: int = 300,
    tries: int = 2000,
    seconds: float = 60.0,
    enough: float = 1.0,
    endings: Iterable[Word] = ((),),
) -> LearntDFA:
    """Ask until `tries` fresh words of `draw` all agree, `most` states or the time are reached.

    An agreement that is `enough` lets a smaller automaton stand for a larger one. `endings`, the
    empty word first, tell states apart from the start.
    """
    table, end = ObservationTable(answers, alphabet, endings), time.monotonic() + seconds
    tried: list[tuple[float, DFA]] = []
    while True:
        table.close(most)
        dfa = table.automaton()
        words = list(draw(tries))
        wrong = disagreements(dfa, words, table.answer(words))
        tried.append((1 - len(wrong) / max(1, len(words)), dfa))
        full = len(table.reach) >= most or time.monotonic() > end
        if not wrong or full or not any(table.split(dfa, w) for w in sorted(wrong, key=len)):
            break
    if not wrong and enough == 1:
        return LearntDFA(dfa.minimise(), 1.0, len(table.known), True)
    least = min(max(share for share, _ in tried) - SLACK, enough)
    words = list(draw(tries))
    said = table.answer(words)
    near = [dfa.minimise() for share, dfa in tried if share >= least]
    smaller = [simplify(dfa, words, said, least) for dfa in near[-3:]] + near
    dfa = min(smaller, key=lambda dfa: (len(dfa.moves), -agreement(dfa, words, said)))
    return LearntDFA(dfa, agreement(dfa, words, said), len(table.known), not wrong)


def simplify(dfa: DFA, words: Sequence[Word], said: Sequence[bool], least: float) -> DFA:
    """Make two states one, again and again, while the agreement stays at `least` or above.

    A wrong answer in the table splits a state that no other word would have split.
    """
    while 1 < len(dfa.moves) <= MERGED:
        merged = [merge(dfa, *pair) for pair in combinations(range(len(dfa.moves)), 2)]
        shares = [agreement(one, words, said) for one in merged]
        if max(shares) < least:
            break
        dfa = merged[shares.index(max(shares))]
    return dfa


def merge(dfa: DFA, kept: int, gone: int) -> DFA:
    """The automaton without a state: who went there goes to another one."""

    def step(state: int, symbol: str) -> int:
        target = dfa.moves[state][dfa.index[symbol]]
        return kept if target == gone else target

    start = kept if dfa.start == gone else dfa.start
    return explore(dfa.alphabet, start, step, dfa.accepting.__contains__).minimise()


def agreement(dfa: DFA, words: Sequence[Word], said: Sequence[bool]) -> float:
    """The share of words of which the automaton says what was said."""
    return 1 - len(disagreements(dfa, words, said)) / max(1, len(words))


def disagreements(dfa: DFA, words: Sequence[Word], said: Sequence[bool]) -> list[Word]:
    """The words of which the automaton says something else."""
    return [word for word, true in zip(words, said, strict=True) if dfa.accepts(word) != true]
