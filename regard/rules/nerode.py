"""The automaton of a rule: prefixes that no ending tells apart are one state (Nerode 1958)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from random import Random

from regard.errors import ResourceError
from regard.formal.dfa import DFA, explore
from regard.rules.rule import Accepts, Rule

MAX_STATES, MAX_ENDINGS, CHECKS = 60, 400, 600
UNBOUNDED = {"more", "equal", "most", "mirror", "copy", "prefix"}  # no automaton can count these
EQUAL = {"same", "repeat", "changes", "changemod", "kinds", "top", "mirror", "copy"}


def rule_automaton(rule: Rule, vocabulary: Sequence[str]) -> DFA | None:
    """The smallest automaton of a rule over a vocabulary; None where none that small is found."""
    kinds = {atom.kind for atom in rule.atoms()}
    open_brackets = any(atom.kind == "dyck" and not atom.args[2] for atom in rule.atoms())
    if kinds & UNBOUNDED or open_brackets:
        return None
    named = rule.symbols if not kinds & EQUAL else tuple(vocabulary)
    others = [symbol for symbol in vocabulary if symbol not in named]
    alphabet = (*named, *others[:1])
    if not 1 <= len(alphabet) <= 7:
        return None
    accepts = rule.compile()
    for longest in (3, 5, 7):
        dfa = find_automaton(accepts, alphabet, longest)
        if dfa is not None and agrees(dfa, accepts):
            dfa = dfa.minimise()
            more = others[1:]  # which have the moves of the one that stood for them
            moves = tuple((*row, *[row[-1]] * len(more)) for row in dfa.moves)
            return DFA((*dfa.alphabet, *more), moves, dfa.accepting, dfa.start)
    return None


def find_automaton(accepts: Accepts, alphabet: tuple[str, ...], longest: int) -> DFA | None:
    """An automaton by the verdicts on all short endings."""
    endings: list[tuple[str, ...]] = []
    for length in range(longest + 1):
        if len(endings) + len(alphabet) ** length > MAX_ENDINGS and endings:
            break
        endings += product(alphabet, repeat=length)
    beginnings: dict[tuple[bool, ...], tuple[str, ...]] = {}  # by the verdicts on all endings

    def judge(word: tuple[str, ...]) -> tuple[bool, ...]:
        verdicts = tuple(accepts([*word, *ending]) for ending in endings)
        beginnings.setdefault(verdicts, word)
        return verdicts

    def step(verdicts: tuple[bool, ...], symbol: str) -> tuple[bool, ...]:
        return judge((*beginnings[verdicts], symbol))

    try:
        return explore(alphabet, judge(()), step, lambda verdicts: verdicts[0], MAX_STATES)
    except ResourceError:
        return None


def agrees(dfa: DFA, accepts: Accepts) -> bool:
    """Whether an automaton says the same on random words of many lengths."""
    rng = Random(0)
    words = (rng.choices(dfa.alphabet, k=rng.randrange(16)) for _ in range(CHECKS))
    return all(dfa.accepts(word) == accepts(word) for word in words)
