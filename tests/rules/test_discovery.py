"""Structure discovery: every fact of the animals, planted rules, labels that are chance."""

from __future__ import annotations

import math
from itertools import product
from random import Random

import numpy as np
import pytest

from bench.discover import PLANTS, make_case, solved
from regard.errors import DataError
from regard.formal.dfa import DFA
from regard.rules.atoms import Atom
from regard.rules.discovery import discover_rule
from regard.rules.encoded_lines import encode
from regard.rules.hypothesis_class import enumerate_atoms, subsequences
from regard.rules.labelled_lines import (
    ANIMALS,
    WORDS,
    find_in_both,
    read_blocks,
    read_examples,
    thin_sides,
)
from regard.rules.null_model import RandomLines, chance_of, exact_rate, fit_random_lines
from regard.rules.probes import SHORT, edit_lines
from regard.rules.results import LabelledLine
from regard.rules.rule import Rule, join, negate, rule_automaton

L, O = "leeuw", "olifant"  # noqa: E741
R0 = Rule("sub", ((L, O, L),))
R1 = Rule("shape", ((L, O, L),))
R2 = Rule("enclosed", (0, L, O))
R3 = Rule("enclosed", (1, L, O))


@pytest.fixture(scope="module")
def animals():
    return list(read_blocks(ANIMALS))


@pytest.fixture(scope="module")
def found(animals):
    return discover_rule(animals)


def right(rule, lines):
    accepts = rule.compile()
    return sum(accepts(line.tokens) == line.positive for line in lines)


def short(line):
    return "".join("LO"[token == O] for token in line.tokens if token in (L, O))


def test_the_lines_are_those_of_the_lecture(animals):
    assert len(animals) == 26 and {len(line.tokens) for line in animals} == {10}
    assert len({token for line in animals for token in line.tokens}) == 8
    assert [line.positive for line in animals] == [True] * 13 + [False] * 13
    assert not find_in_both(animals) and len({line.tokens for line in animals}) == 26
    positive = "LOLL LLOL LOL LOOL LOL LOL LLOL LOL LOL LOLL LOOL LOL LOL"
    negative = "OLL OL OL O LL OOL L LLO L OLOL LLLL LO LLL"
    assert " ".join(map(short, animals[:13])) == positive
    assert " ".join(map(short, animals[13:])) == negative


def test_no_subsequence_separates_and_lol_is_best(animals):
    coded, labels = encode([line.tokens for line in animals]), np.arange(26) < 13
    best: dict[int, list[tuple[int, tuple[str, ...]]]] = {}
    for atoms, rows in subsequences(coded):
        for atom, count in zip(atoms, (rows == labels).sum(1), strict=True):
            word = tuple(coded.symbols[n] for n in atom.args[0])
            best.setdefault(len(word), []).append((int(count), word))
    assert sorted(best) == [1, 2, 3, 4, 5] and max(max(rows)[0] for rows in best.values()) == 25
    pairs, triples = sorted(best[2])[::-1], sorted(best[3])[::-1]
    assert pairs[:3] == [(23, (L, O)), (21, (O, L)), (20, (L, L))]
    assert triples[0] == (25, (L, O, L)) and triples[1][0] == 20


def test_no_string_of_one_to_three_separates(animals):
    words = {line.tokens[n : n + k] for line in animals for k in (1, 2, 3) for n in range(11 - k)}
    assert all(right(Rule("string", (word,)), animals) not in (0, 26) for word in words)


def test_a_bag_of_words_is_not_enough(animals):
    wrong = [a for a in animals[13:] if a.tokens.count(L) >= 2 and a.tokens.count(O) >= 1]
    assert len(wrong) == 3


def test_the_four_rules(animals):
    assert [right(rule, animals) for rule in (R0, R1, R2, R3)] == [25, 26, 26, 26]
    accepts = R0.compile()
    assert [n for n, line in enumerate(animals[13:], 1) if accepts(line.tokens)] == [10]
    verdicts = {
        "LOLO": (True, False, False, True),
        "LOLOL": (True, False, True, True),
        "OLOL": (True, False, False, False),
    }
    for word, said in verdicts.items():
        tokens = [L if letter == "L" else O for letter in word]
        assert tuple(rule.compile()(tokens) for rule in (R0, R1, R2, R3)) == said


def test_their_automata_and_their_chance(animals):
    words = [line.tokens for line in animals]
    vocabulary = encode(words).symbols
    dfas = [rule_automaton(rule, vocabulary) for rule in (R0, R1, R2, R3)]
    assert [len(dfa.moves) for dfa in dfas] == [4, 5, 5, 5]
    null = fit_random_lines(words[13:], vocabulary)
    rates = [exact_rate(dfa, null) for dfa in dfas]
    binomial = 1 - sum(math.comb(10, k) * (1 / 8) ** k * (7 / 8) ** (10 - k) for k in range(3))
    assert null.even and rates[0] == pytest.approx(binomial, abs=1e-12)
    assert rates == pytest.approx([0.1195, 0.0725, 0.0761, 0.0960], abs=5e-5)
    chance = chance_of(rates[0], 13, 1)
    assert (round(chance.expected, 2), round(chance.p_at_least, 3)) == (1.55, 0.809)
    assert chance.p_exactly == pytest.approx(0.34, abs=0.005) and chance.plausible


def test_the_whole_analysis(found):
    listed = {one.formula: one for one in found.hypotheses}
    assert [listed[rule].right for rule in (R0, R1, R2, R3)] == [25, 26, 26, 26]
    assert [line.line for line in listed[R0].exceptions] == [24]  # row 10 of block two
    assert {R1, R2, R3} == {one.formula for one in found.hypotheses[:3]}
    probes = {"".join("LO"[t == O] for t in probe.sequence): probe for probe in found.probes}
    assert {"LOLO", "LOLOL"} <= set(probes)
    yes = {found.hypotheses[n - 1].formula for n in probes["LOLO"].accepted_by}
    assert [rule in yes for rule in (R0, R1, R2, R3)] == [True, False, False, True]
    assert found.claimed and found.permutation_p == pytest.approx(0.001)
    assert listed[R0].by_chance.observed == 1 and listed[R0].by_chance.plausible
    assert found.leave_one_out is not None and found.leave_one_out > 0.9
    assert (found.positives, found.lines, found.symbols) == (13, 26, 8)


def test_an_answer_ranks_again():
    answers = f"{L} {O} {L} {O} : no", f"{L} {O} {L} {O} {L}: yes"
    again = discover_rule(read_examples([], True, False, WORDS, answers)[0])
    assert again.hypotheses[0].formula == R2 and again.hypotheses[0].right == 28
    assert all(one.formula != R1 or one.right == 27 for one in again.hypotheses)


def test_one_side_alone(animals):
    again = discover_rule(animals[:13], seconds=10)
    assert again.claimed and again.leave_one_out is None and again.hypotheses[0].by_chance is None
    assert {R1, R2} & {one.formula for one in again.hypotheses[:3]}
    assert all(one.right == 13 for one in again.hypotheses[:3])


def test_no_tokens():
    with pytest.raises(DataError, match="no tokens"):
        discover_rule([LabelledLine((), True, "f", 1, "")])


@pytest.mark.parametrize("family", ["subsequence", "count mod"])
def test_a_planted_rule_is_found(family):
    case = make_case(family, Random(f"found {family}"), 0.03, 30)
    found = discover_rule(case.lines, seconds=30)
    assert solved(case, found)[0] and found.claimed


@pytest.mark.slow
def test_planted_rules():
    done = []
    for number in range(60):
        rng = Random(f"slow {number}")
        family, each = list(PLANTS)[number % len(PLANTS)], rng.choice((10, 20, 50, 100, 200))
        case = make_case(family, rng, rng.choice((0, 0.03, 0.1)), each)
        found = discover_rule(case.lines)
        for one in found.hypotheses:
            wrong = sum(one.accepts(line.tokens) != line.positive for line in case.lines)
            assert wrong == len(one.exceptions)
        if not case.hard:
            done.append(solved(case, found)[0])
    assert sum(done) / len(done) >= 0.95


@pytest.mark.slow
def test_chance_labels_are_not_claimed():
    claimed = 0
    for number in range(100):
        rng = Random(number)
        lines = [
            LabelledLine(tuple(rng.choices("abcd", k=rng.randint(4, 12))), n % 2 == 0, "f", n, "")
            for n in range(40)
        ]
        claimed += discover_rule(lines, seconds=10).claimed
    assert claimed <= 5


def test_chance_labels():
    rng = Random(1)
    lines = [
        LabelledLine(tuple(rng.choices("abcd", k=rng.randint(4, 12))), n % 2 == 0, "f", n, "")
        for n in range(30)
    ]
    assert not discover_rule(lines, seconds=10).claimed


def test_signs_and_joins_say_what_they_say():
    one, two, three = (Rule("least", (s, 1)) for s in "abc")
    rules = {
        join("and", one, negate(two)): lambda a, b, c: a and not b,
        join("xor", one, two, three): lambda a, b, c: (a + b + c) % 2 == 1,
        negate(join("xor", one, two, three)): lambda a, b, c: (a + b + c) % 2 == 0,
        negate(join("and", one, two)): lambda a, b, c: not (a and b),
        join("or", join("and", one, two), three): lambda a, b, c: (a and b) or c,
    }
    for rule, truth in rules.items():
        for held in product((False, True), repeat=3):
            word = [s for s, there in zip("abc", held, strict=True) if there]
            assert rule.compile()(word) == bool(truth(*held)), rule.reading


@pytest.mark.parametrize("lengths", [(3, 3, 7), (0, 5, 2)])
def test_rates_of_random_lines_step_by_step(lengths):
    dfa = DFA(("a", "b"), ((1, 0), (1, 1)), frozenset({1}))  # some a
    source = RandomLines(("a", "b"), (0.3, 0.7), lengths, False)
    assert exact_rate(dfa, source) == pytest.approx(np.mean([1 - 0.7**n for n in lengths]))


def test_places_of_symbols_by_a_plain_loop():
    rng = Random(2)
    lines = [rng.choices("abcd", k=rng.randint(1, 9)) for _ in range(30)]
    coded = encode(lines)
    end, following = coded.ids.shape[1], coded.next_place(3)
    for row, line in enumerate(lines):
        for n, symbol in enumerate(coded.symbols):
            at = [place for place, token in enumerate(line) if token == symbol]
            assert coded.first[n, row] == min(at, default=end)
            assert coded.last[n, row] == max(at, default=-1)
            for begin in range(end + 2) if n < 3 else ():
                after = min((place + 1 for place in at if place >= begin), default=end + 1)
                assert following[n, row, begin] == after


def test_time_that_is_up_ends_a_family(monkeypatch):
    taken = []

    def family(coded):
        for n in range(5):
            taken.append(n)
            yield [Atom("sub", ((0,),))], np.zeros((1, len(coded.ids)), bool)

    monkeypatch.setattr("regard.rules.hypothesis_class.FAMILIES", (family,))
    enumerate_atoms(encode(["ab", "b"]), deadline=0.0)
    assert taken == [0]


def test_very_many_lines_are_thinned():
    lines = [LabelledLine(("a",), n < 60, "x", n, "a") for n in range(100)]
    assert [line.line for line in thin_sides(lines, 6)] == [0, 30, 59, 60, 80, 99]
    assert thin_sides(lines, 100) == lines


def test_rules_of_very_long_lines_are_told_apart_on_their_beginnings():
    words = edit_lines([("a", "b") * 25_000], np.random.default_rng(0))
    assert all(SHORT - 3 <= len(word) <= SHORT + 3 for word in words)


@pytest.mark.parametrize("planted", [False, True])
def test_lines_of_many_different_tokens_have_an_answer(planted):
    """Of sixty numbers hardly a pair stands twice in lines of five."""
    rng = Random(0)
    sides = [[rng.choices(range(60), k=5) for _ in range(30)] for _ in "+-"]
    for line in sides[0] if planted else ():
        line[2] = 7
    lines = [
        LabelledLine(tuple(map(str, line)), n == 0, "x", 1, "")
        for n, side in enumerate(sides)
        for line in side
    ]
    found = discover_rule(lines, seconds=6)
    assert found.claimed == planted and found.hypotheses
    assert not planted or "the 3. token is 7" in [one.rule for one in found.hypotheses[:3]]
