"""Phrase structure: trees drawn from a small grammar, bracketings, agreement across distractors.

A verb agrees with the head of its subject, not with the noun before it: "the key to the cabinets
is" (Linzen 2016). Clauses inside clauses make the distance as long as one likes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import NamedTuple

from regard.errors import DataError
from regard.lang.grammar import Grammar, read_grammar

RULES = """
S -> NPs VPs | NPp VPp
NPs -> Det Ns [5] | Det Ns PP [2] | Det Ns Rel [1]
NPp -> Det Np [5] | Det Np PP [2] | Det Np Rel [1]
PP -> Prep NPs | Prep NPp
Rel -> that NPs Ts | that NPp Tp
VPs -> Is [2] | Ts NPs [1] | Ts NPp [1] | is Adj [2]
VPp -> Ip [2] | Tp NPs [1] | Tp NPp [1] | are Adj [2]
Det -> the
Ns -> key | cabinet | dog | cat | child
Np -> keys | cabinets | dogs | cats | children
Prep -> to | near | behind
Is -> sleeps | waits
Ip -> sleep | wait
Ts -> sees | likes
Tp -> see | like
Adj -> old | here
"""
OTHER = {"is": "are", "sleeps": "sleep", "waits": "wait", "sees": "see", "likes": "like"}
OTHER |= {plural: single for single, plural in OTHER.items()}


@cache
def english() -> Grammar:
    """The small grammar: singular and plural, places, clauses inside clauses; unambiguous."""
    return read_grammar(RULES, "the grammar of English")


@dataclass(frozen=True)
class Tree:
    """A phrase with its parts, which are phrases or words."""

    label: str
    parts: tuple[Tree | str, ...]

    def leaves(self) -> list[str]:
        """The words."""
        return [w for p in self.parts for w in (p.leaves() if isinstance(p, Tree) else [p])]

    def __str__(self) -> str:
        """The bracketing, as in treebanks: (S (NP (Det the) (N key)) …)."""
        return f"({self.label} {' '.join(map(str, self.parts))})"

    def lines(self, indent: str = "") -> Iterator[str]:
        """A drawing: one line for each phrase, words beside the phrases that hold one."""
        if len(self.parts) == 1 and isinstance(self.parts[0], str):
            yield f"{indent}{self.label}  {self.parts[0]}"
            return
        yield f"{indent}{self.label}"
        for part in self.parts:
            yield from (
                part.lines(indent + "  ") if isinstance(part, Tree) else [f"{indent}  {part}"]
            )

    def spans(self, start: int = 0) -> set[tuple[int, int]]:
        """First word and end of each phrase of two words or more."""
        found, at = set(), start
        for part in self.parts:
            if isinstance(part, Tree):
                found |= part.spans(at)
                at += len(part.leaves())
            else:
                at += 1
        return found | {(start, at)} if at - start > 1 else found

    def distances(self) -> list[list[int]]:
        """Steps in the tree from each word to each: up to their common phrase and down again."""
        paths = list(self._paths(()))
        return [[_apart(one, two) for two in paths] for one in paths]

    def _paths(self, above: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """The way from the root to each word."""
        for n, part in enumerate(self.parts):
            here = (*above, n)
            yield from part._paths(here) if isinstance(part, Tree) else [here]


def _apart(one: tuple[int, ...], two: tuple[int, ...]) -> int:
    """The length of the way between two ends of a tree."""
    common = 0
    while common < min(len(one), len(two)) and one[common] == two[common]:
        common += 1
    return len(one) + len(two) - 2 * common


def draw_tree(grammar: Grammar, rng: Random, deepest: int = 12) -> Tree:
    """A tree drawn by the weights of the rules; from a depth on by the flattest rules only."""
    grammar = grammar.trim()
    if not grammar.by_left.get(grammar.start):
        raise DataError("drawing a tree", "a grammar that derives no word", "one that does")
    return _draw(grammar, grammar.start, rng, deepest, heights(grammar))


def heights(grammar: Grammar) -> dict[str, int]:
    """How flat the flattest tree of each name is."""
    found: dict[str, int] = {}
    while len(found) < len(grammar.by_left):
        level = 1 + max(found.values(), default=0)
        for left, rules in grammar.by_left.items():
            fits = any(
                all(s.terminal or found.get(s.text, level) < level for s in r.right) for r in rules
            )
            if fits and left not in found:
                found[left] = level
    return found


def _draw(grammar: Grammar, name: str, rng: Random, deepest: int, flat: dict[str, int]) -> Tree:
    """A tree below a name."""
    rules = grammar.by_left[name]
    if deepest <= flat[name]:
        needs = [max([flat[s.text] for s in r.right if not s.terminal], default=0) for r in rules]
        rules = [rule for rule, need in zip(rules, needs, strict=True) if need == min(needs)]
    rule = rng.choices(rules, [rule.weight for rule in rules])[0]
    parts = (
        s.text if s.terminal else _draw(grammar, s.text, rng, deepest - 1, flat) for s in rule.right
    )
    return Tree(name, tuple(parts))


def read_tree(text: str) -> Tree:
    """The tree of a bracketing."""
    stack: list[tuple[str, list[Tree | str]]] = [("", [])]
    for found in re.finditer(r"\(\s*([^\s()]*)|([^\s()]+)|\)", text):
        if found[0].startswith("("):
            stack.append((found[1], []))
        elif found[2]:
            stack[-1][1].append(found[2])
        else:
            if len(stack) == 1:
                place = f") at column {found.start() + 1} that closes nothing"
                raise DataError("reading a bracketing", place, "a ( for each )")
            label, parts = stack.pop()
            stack[-1][1].append(Tree(label, tuple(parts)))
    made = stack[0][1]
    if len(stack) > 1 or len(made) != 1 or isinstance(made[0], str):
        found_there = f"{len(stack) - 1} open brackets" if len(stack) > 1 else f"{len(made)} parts"
        raise DataError("reading a bracketing", found_there, "one tree: (S (NP …) (VP …))")
    return made[0]


def right_branching(words: int) -> set[tuple[int, int]]:
    """The phrases of a tree in which each word has all that follow for its neighbour."""
    return {(start, words) for start in range(words - 1)}


def span_f1(found: set[tuple[int, int]], true: set[tuple[int, int]]) -> float:
    """Unlabelled F1 of phrases."""
    return 2 * len(found & true) / (len(found) + len(true)) if found or true else 1.0


class Agreement(NamedTuple):
    """A beginning of a sentence, the verb that fits, the verb of the other number."""

    prefix: tuple[str, ...]
    right: str
    wrong: str
    distractors: int
    """Nouns between the head and the verb whose number is not the head's."""


def agreement(rng: Random, distractors: int = 1, among: int | None = None) -> Agreement:
    """A subject followed by `among` nouns (as many as distractors), some of another number."""
    among = distractors if among is None else among
    number = rng.choice(("s", "p"))
    rules = {name: [r.right[0].text for r in found] for name, found in english().by_left.items()}
    other = {"s": "p", "p": "s"}[number]
    numbers = [other] * distractors + [number] * (among - distractors)
    rng.shuffle(numbers)
    prefix = ["the", rng.choice(rules[f"N{number}"])]
    for one in numbers:
        prefix += [rng.choice(rules["Prep"]), "the", rng.choice(rules[f"N{one}"])]
    right = rng.choice([*rules[f"I{number}"], "is" if number == "s" else "are"])
    return Agreement(tuple(prefix), right, OTHER[right], distractors)
