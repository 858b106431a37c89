"""Regular expressions as trees, and their automata by derivatives (Brzozowski 1964; Owens 2009).

The derivative of an expression by a symbol is an expression of what may follow that symbol, so
expressions themselves are the states; complement and intersection cost nothing extra.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from regard.errors import ResourceError
from regard.formal.dfa import DFA, explore

MOST_STATES, MOST_PARTS = 100, 3_000  # of an automaton and of the expression made of it


@dataclass(frozen=True)
class Symbols:
    """One symbol of a set; of the empty set: no word at all."""

    members: frozenset[str]


@dataclass(frozen=True)
class Concatenation:
    """One part after the other; without parts: the empty word."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Union:
    """A word of any of the parts."""

    parts: frozenset[Node]


@dataclass(frozen=True)
class Intersection:
    """A word that all parts have."""

    parts: frozenset[Node]


@dataclass(frozen=True)
class Complement:
    """Any word but those of the inner expression."""

    inner: Node


@dataclass(frozen=True)
class Star:
    """The inner expression any number of times."""

    inner: Node


Node = Symbols | Concatenation | Union | Intersection | Complement | Star
NOTHING, EMPTY = Symbols(frozenset()), Concatenation(())
ANYTHING = Complement(NOTHING)


# Building, with the laws that keep derivatives few ----------------------------------------------


def concatenate(*parts: Node) -> Node:
    """The parts one after the other."""
    flat: list[Node] = []
    for part in parts:
        if part == NOTHING:
            return NOTHING
        flat += part.parts if isinstance(part, Concatenation) else (part,)
    return flat[0] if len(flat) == 1 else Concatenation(tuple(flat))


def unite(*parts: Node) -> Node:
    """Any of the parts: in any order, each once, single symbols in one set."""
    flat: set[Node] = set()
    members: frozenset[str] = frozenset()
    for part in parts:
        for one in part.parts if isinstance(part, Union) else (part,):
            if isinstance(one, Symbols):
                members |= one.members
            else:
                flat.add(one)
    if ANYTHING in flat:
        return ANYTHING
    if EMPTY in flat and any(nullable(part) for part in flat if part != EMPTY):
        flat.remove(EMPTY)
    if members:
        flat.add(Symbols(members))
    return _one_of(flat, NOTHING, Union)


def intersect(*parts: Node) -> Node:
    """What all parts have."""
    flat: set[Node] = set()
    for part in parts:
        flat |= part.parts if isinstance(part, Intersection) else {part}
    flat.discard(ANYTHING)
    return NOTHING if NOTHING in flat else _one_of(flat, ANYTHING, Intersection)


def _one_of(parts: set[Node], none: Node, kind: type[Union] | type[Intersection]) -> Node:
    """A set of parts, unless there is one part or none."""
    if len(parts) > 1:
        return kind(frozenset(parts))
    return next(iter(parts), none)


def complement(inner: Node) -> Node:
    """All other words."""
    return inner.inner if isinstance(inner, Complement) else Complement(inner)


def star(inner: Node) -> Node:
    """Any number of times; the empty word inside says nothing new."""
    if isinstance(inner, Union) and EMPTY in inner.parts:
        inner = unite(*(inner.parts - {EMPTY}))
    if isinstance(inner, Star):
        return inner
    return EMPTY if inner in (NOTHING, EMPTY) else Star(inner)


def repeat(inner: Node, least: int, most: int | None) -> Node:
    """From `least` to `most` times; None: without end."""
    head = (inner,) * least
    if most is None:
        return concatenate(*head, star(inner))
    tail: Node = EMPTY
    for _ in range(most - least):
        tail = unite(EMPTY, concatenate(inner, tail))
    return concatenate(*head, tail)


# Derivatives ------------------------------------------------------------------------------------


def nullable(node: Node) -> bool:
    """Whether the empty word is one of its words."""
    match node:
        case Symbols():
            return False
        case Star():
            return True
        case Complement(inner):
            return not nullable(inner)
        case Union(parts):
            return any(map(nullable, parts))
        case Concatenation(parts) | Intersection(parts):
            return all(map(nullable, parts))


def derive(node: Node, symbol: str) -> Node:
    """What may follow the symbol."""
    match node:
        case Symbols(members):
            return EMPTY if symbol in members else NOTHING
        case Star(inner):
            return concatenate(derive(inner, symbol), node)
        case Complement(inner):
            return complement(derive(inner, symbol))
        case Union(parts):
            return unite(*(derive(part, symbol) for part in parts))
        case Intersection(parts):
            return intersect(*(derive(part, symbol) for part in parts))
        case Concatenation(parts):
            options = []  # the first part has the symbol, or a later one if those before are empty
            for n, part in enumerate(parts):
                options.append(concatenate(derive(part, symbol), *parts[n + 1 :]))
                if not nullable(part):
                    break
            return unite(*options)


def to_dfa(node: Node, alphabet: Iterable[str]) -> DFA:
    """The smallest automaton of an expression."""
    return explore(alphabet, node, derive, nullable).minimise()


# Back: an expression of an automaton ------------------------------------------------------------


def from_dfa(dfa: DFA) -> Node:
    """An expression of the automaton's language, by taking out one state after the other.

    It can be exponentially longer than the automaton: past MOST_PARTS it is given up.
    """
    dfa = dfa.minimise()
    if len(dfa.live) > MOST_STATES:
        raise too_long(f"{len(dfa.live)} states")
    edges: dict[int, dict[int, Node]] = {-1: {dfa.start: EMPTY}}  # -1: before; -2: after
    for state in dfa.live:
        row = edges.setdefault(state, {-2: EMPTY} if state in dfa.accepting else {})
        for symbol, target in zip(dfa.alphabet, dfa.moves[state], strict=True):
            if target in dfa.live:
                row[target] = unite(row.get(target, NOTHING), Symbols(frozenset({symbol})))
    if dfa.start not in dfa.live:
        return NOTHING
    while len(edges) > 1:
        state = min(edges.keys() - {-1}, key=lambda one: (_cost(edges, one), -one))
        _take_out(edges, state)
        largest = max(size(node) for row in edges.values() for node in row.values())
        if largest > MOST_PARTS:
            raise too_long(f"over {MOST_PARTS:,} parts")
    return edges[-1].get(-2, NOTHING)


def too_long(problem: str) -> ResourceError:
    """Why there is no expression."""
    return ResourceError("finding an expression", problem, f"{MOST_PARTS:,} parts at most")


def size(node: Node) -> int:
    """How long an expression is, about."""
    match node:
        case Symbols(members):
            return min(len(members), 2)
        case Star(inner) | Complement(inner):
            return 1 + size(inner)
        case Concatenation(parts) | Union(parts) | Intersection(parts):
            return 1 + sum(map(size, parts))


def _cost(edges: dict[int, dict[int, Node]], state: int) -> int:
    """How much longer the expressions grow when a state goes (Delgado and Morais 2004)."""
    into = [size(row[state]) for one, row in edges.items() if state in row and one != state]
    out = [size(node) for target, node in edges[state].items() if target != state]
    loop = size(edges[state].get(state, EMPTY))
    grown = sum(into) * len(out) + sum(out) * len(into) + loop * len(into) * len(out)
    return grown - sum(into) - sum(out) - loop


def _take_out(edges: dict[int, dict[int, Node]], state: int) -> None:
    """Every way through a state becomes an edge past it."""
    row = edges.pop(state)
    loop = star(row.pop(state, NOTHING))
    for other in edges.values():
        into = other.pop(state, None)
        if into is None:
            continue
        for target, out in row.items():
            other[target] = tidy(other.get(target, NOTHING), concatenate(into, loop, out))


def tidy(*parts: Node) -> Node:
    """Union, with what both have at their ends written once, and x x* or nothing as x*."""
    union = unite(*parts)
    if not isinstance(union, Union):
        return union
    kept: list[Node] = []
    for part in sorted(union.parts - {EMPTY}, key=key):
        steps = _steps(part)
        for n, other in enumerate(map(_steps, kept)):
            if other[0] == steps[0] or other[-1] == steps[-1]:
                kept[n] = _join(other, steps)
                break
        else:
            kept.append(part)
    joined = unite(*kept)
    if EMPTY not in union.parts:
        return joined
    match joined:
        case Concatenation((*head, Star(inner))) if concatenate(*head) == inner:
            return joined.parts[-1]
        case Concatenation((Star(inner), *tail)) if concatenate(*tail) == inner:
            return joined.parts[0]
    return unite(joined, EMPTY)


def key(node: Node) -> str:
    """Equal for equal expressions, whatever the order of their parts; to sort by."""
    match node:
        case Symbols(members):
            return f"[{' '.join(sorted(members))}]"
        case Star(inner) | Complement(inner):
            return f"{type(node).__name__}({key(inner)})"
        case Concatenation(parts):
            return f"({' '.join(map(key, parts))})"
        case Union(parts) | Intersection(parts):
            return f"{type(node).__name__}({' '.join(sorted(map(key, parts)))})"


def _steps(node: Node) -> tuple[Node, ...]:
    """The parts of an expression that come one after the other."""
    return node.parts if isinstance(node, Concatenation) else (node,)


def _join(one: tuple[Node, ...], two: tuple[Node, ...]) -> Node:
    """Union of two, a common beginning and a common end once."""
    left, right = list(one), list(two)
    head: list[Node] = []
    while left and right and left[0] == right[0]:
        head.append(left.pop(0))
        right.pop(0)
    tail: list[Node] = []
    while left and right and left[-1] == right[-1]:
        tail.insert(0, left.pop())
        right.pop()
    return concatenate(*head, tidy(concatenate(*left), concatenate(*right)), *tail)
