"""Atoms: rows of truth values against the printed Python; prices; automata by the thousand."""

from __future__ import annotations

from itertools import product
from random import Random

import numpy as np
import pytest

from regard.formal.dfa import DFA
from regard.rules.atoms import KINDS, atom_bits, fill
from regard.rules.description_length import (
    contrast_code,
    label_code,
    leave_one_out,
    posterior,
)
from regard.rules.encoded_lines import encode
from regard.rules.hypothesis_class import FAMILIES, enumerate_atoms
from regard.rules.permutation_test import best_of_pairs, best_of_rows
from regard.rules.probes import find_probes, short_words
from regard.rules.rule import Rule, name_symbols, rule_automaton
from regard.rules.rule_search import best_pairs, best_xor, row_of
from regard.rules.transition_tables import run_tables, small_tables


def random_lines(symbols, count, seed=0, shortest=1, longest=12):
    rng = Random(seed)
    return [rng.choices(symbols, k=rng.randint(shortest, longest)) for _ in range(count)]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
@pytest.mark.parametrize("symbols", ["ab", "abcd", ("it's", 'a "b"', "c\\", "é", "x", "yy")])
def test_rows_are_what_the_source_says(family, symbols):
    lines, rng = random_lines(symbols, 40), Random(1)
    coded, found = encode(lines), []
    for atoms, rows in family(coded):
        assert rows.shape == (len(atoms), 40)
        found += zip(atoms, rows, strict=True)
    for atom, row in rng.sample(found, min(len(found), 120)):
        rule = name_symbols(atom, coded.symbols)
        assert [rule.compile()(line) for line in lines] == row.tolist(), rule.reading
        assert rule.reading and set(rule.symbols) <= set(symbols)


@pytest.mark.parametrize("symbols", ["ab", "abcde", "abcdefghij"])
def test_prices_are_those_of_a_prefix_code(symbols):
    coded = encode(random_lines(symbols, 200))
    atoms = {atom for family in FAMILIES for block, _ in family(coded) for atom in block}
    assert sum(2.0 ** -atom_bits(*atom, len(symbols)) for atom in atoms) < 1


def test_small_automata_are_all_there_once():
    tables, finals = small_tables()
    assert len(finals) == (24 + 1028) // 2  # minimal automata of 2 and 3 states over 2 symbols
    lines = ["".join(word) for size in range(6) for word in product("ab", repeat=size)]
    coded = encode([list(line) for line in lines])
    order = tuple(coded.symbols.index(s) for s in "ab")
    ends = run_tables(tables, coded, order)
    for n in Random(0).sample(range(len(finals)), 25):
        one = finals[n]
        moves = tuple(tuple(map(int, row)) for row in one.moves)
        dfa = DFA(("a", "b"), moves, frozenset(map(int, one.accepting)))
        said = [str(state) in one.accepting for state in ends[one.table].tolist()]
        assert said == [dfa.accepts(line) for line in lines]


def noise_bits(lines):
    """Bits of labels of which k go against the rule, for each k."""
    return label_code(lines, 0).table[::-1, 0].tolist()


def test_the_noise_is_integrated_out():
    bits = noise_bits(30)
    rates = (np.arange(200_000) + 0.5) / 200_000
    prior = rates**-0.5 * (1 - rates) ** 8.5
    for k in (0, 1, 7):
        mean = (prior * rates**k * (1 - rates) ** (30 - k)).sum() / prior.sum()
        assert bits[k] == pytest.approx(-np.log2(mean), abs=0.02)
    assert bits == sorted(bits)[: len(bits)] or bits[0] < bits[1] < bits[7]


def test_totals_of_labels_are_a_probability():
    """Over all labellings the code lengths of one rule add up to one: the bound rests on it."""
    code = noise_bits(8)
    labellings = (sum(word) for word in product((0, 1), repeat=8))
    assert sum(2.0 ** -code[wrong] for wrong in labellings) == pytest.approx(1)


def test_a_rule_that_is_rare_by_chance_is_worth_more():
    code = contrast_code(10, 400)
    assert code.table[10, 2] < code.table[10, 40] < code.table[10, 400] + 1
    assert code.table[10, 40] < code.table[8, 40] and abs(code.table[10, 400]) < 2


def test_shuffles_are_searched_like_the_labels():
    rng = np.random.default_rng(0)
    rows, bits = rng.random((12, 20)) < 0.5, rng.integers(3, 9, 12).astype(np.float32)
    labels, code = np.arange(20) < 8, label_code(8, 12)
    columns = np.stack([labels, rng.permutation(labels)], 1)
    by_errors = noise_bits(20)

    def total(row, price, column):
        wrong = int((row != column).sum())
        return price + min(by_errors[wrong], by_errors[20 - wrong])

    singles, pairs = [], []
    for column in columns.T:
        singles.append(min(total(rows[n], bits[n], column) for n in range(12)))
        joined = [
            total(row, bits[i] + bits[j], column)
            for i in range(12)
            for j in range(i)
            for row in (rows[i] & rows[j], rows[i] & ~rows[j], ~rows[i] & rows[j])
            + (~rows[i] & ~rows[j],)
        ]
        crossed = [
            total(rows[i] ^ rows[j], bits[i] + bits[j], column) for i in range(12) for j in range(i)
        ]
        pairs.append(min(joined + crossed))
    floats = columns.astype(np.float32)
    assert best_of_rows(rows, bits, floats, code) == pytest.approx(singles, abs=1e-4)
    assert best_of_pairs(rows, bits, floats, code) == pytest.approx(pairs, abs=1e-4)
    found = best_pairs((rows, bits), (rows, bits), labels, code, 5)
    assert found[0].total == pytest.approx(pairs[0], abs=1e-4)
    wrong = int((row_of(found[0], rows, rows) != labels).sum())
    price = bits[found[0].one] + bits[found[0].two]
    assert by_errors[wrong] + price == pytest.approx(found[0].total, abs=1e-4)
    cross = best_xor(rows, bits, labels, code, 5)[0]
    wrong = int((row_of(cross, rows, rows) != labels).sum())
    price = bits[cross.one] + bits[cross.two]
    assert by_errors[wrong] + price == pytest.approx(cross.total, abs=1e-4)


def test_leave_one_out_chooses_anew():
    """Two rules of a price, each wrong on one line: the line left out decides against itself."""
    labels = np.array([True, True, False, False])
    rows = np.stack([labels ^ (np.arange(4) == n) for n in (0, 3)])
    found = leave_one_out(rows, np.zeros(2, np.float32), labels, label_code(2, 2))
    # without line 0 rule 0 is best and wrong on it; so is rule 1 without line 3
    assert found == pytest.approx(0.5)


def test_posteriors():
    shares = posterior(np.array([10.0, 10.0, 12.0]), 12.0)
    assert shares == pytest.approx(np.array([4, 4, 1]) / 10)


def test_rules_that_hardly_differ_share_their_posterior():
    shares = posterior(np.array([10.0, 11.0, 11.7]), 12.0)
    assert shares[0] == shares[1] > shares[2]
    weight = np.exp2(-np.array([10, 11, 11.7, 12]))
    assert shares[:2].sum() == pytest.approx(weight[:2].sum() / weight.sum())


def test_equal_rows_stand_together():
    lines = random_lines("ab", 30, seed=3)
    atoms = enumerate_atoms(encode(lines), float("inf"))
    keys = {row.tobytes() for row in atoms.rows} | {(~row).tobytes() for row in atoms.rows}
    assert len(keys) == 2 * len(atoms.rows)
    for n in range(0, len(atoms.rows), 7):
        for rule in atoms.rules(n):
            assert [rule.compile()(line) for line in lines] == atoms.rows[n].tolist()


@pytest.mark.parametrize(
    ("rule", "states"),
    [
        (Rule("mod", ("a", 3, 1)), 3),
        (Rule("sub", (("a", "b", "a"),)), 4),
        (Rule("string", (("a", "a"),)), 3),
        (Rule("string", (("a", "b", "c", "a", "b", "a"),)), 7),
        (Rule("least", ("a", 15)), 16),
        (Rule("near", (("a", "b", "c"), 2)), 12),
        (Rule("nested", ("a", "b", "c", "d", 3)), 16),
        (Rule("dyck", ("a", "b", 2)), 4),
        (Rule("dyck", ("a", "b", 0)), None),
        (Rule("more", ("a", "b", 1)), None),
        (Rule("mirror", ()), None),
        (Rule("repeat", (1,)), 5),
    ],
)
def test_the_automaton_of_a_rule(rule, states):
    dfa = rule_automaton(rule, "abcd" if rule.kind == "nested" else "abc")
    assert (dfa and len(dfa.moves)) == states
    if dfa:
        accepts = rule.compile()
        for word in random_lines("abc", 200, seed=5, shortest=0, longest=20):
            assert dfa.accepts(word) == accepts(word)


def test_probes_are_short_and_tell_all_apart():
    rules = {n: Rule("least", ("a", n)) for n in (1, 2, 3)}
    probes = find_probes(rules, [1.0, 1.0, 1.0], list(short_words("ab", 100)))
    sides = {probe.text: (probe.accepted_by, probe.refused_by) for probe in probes}
    assert sides == {"a": ([1], [2, 3]), "a a": ([1, 2], [3])}


def test_rests_are_below_their_divisor():
    assert fill(KINDS["every"].words, ("a", 2, 1)) == "some a at a position that is 0 mod 2"
