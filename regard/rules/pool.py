"""All atoms over some lines, those that agree on every line side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from regard.rules.description_length import Bits
from regard.rules.encoded_lines import Bools, Coded
from regard.rules.hypothesis_class import FAMILIES, Block
from regard.rules.rule import Atom, Rule, atom_bits, spell

ALIKE = 30  # atoms that agree on every line and are kept as rivals of one another


@dataclass(frozen=True)
class Pool:
    """Different rows of truth values, and the atoms behind each of them, cheapest first."""

    symbols: tuple[str, ...]
    rows: Bools  # (U, N)
    bits: Bits  # (U,) of the cheapest atom, without sign
    atoms: list[list[tuple[Atom, bool]]]
    """Behind each row; False: the row is where the atom does not hold."""

    def rules(self, row: int) -> list[Rule]:
        """The atoms behind a row, with their signs."""
        return [signed(spell(atom, self.symbols), sign) for atom, sign in self.atoms[row]]


def signed(rule: Rule, sign: bool) -> Rule:
    """A rule or its opposite."""
    return rule if sign else Rule("not", parts=(rule,))


def fill(coded: Coded, deadline: float, told: Callable[[str], None] | None = None) -> Pool:
    """Run the families, as far as time allows."""
    atoms: list[Atom] = []
    blocks: list[Bools] = []
    for family in FAMILIES:
        if told is not None:
            told(f"{family.__name__}, {len(atoms):,} rules so far")
        for named, rows in telling(until(deadline, family(coded))):
            atoms += named
            blocks.append(rows)
        if time.monotonic() > deadline and blocks:
            break
    rows = np.concatenate(blocks) if blocks else np.zeros((0, len(coded.ids)), bool)
    return gather(coded, atoms, rows)


def until(deadline: float, blocks: Iterable[Block]) -> Iterable[Block]:
    """Blocks, as long as there is time."""
    for block in blocks:
        yield block
        if time.monotonic() > deadline:
            return


def telling(blocks: Iterable[Block]) -> Iterable[Block]:
    """Without atoms that hold on all lines or on none."""
    for atoms, rows in blocks:
        count = rows.sum(1)
        kept = np.flatnonzero((count > 0) & (count < rows.shape[1]))
        if len(kept):
            yield [atoms[n] for n in kept], rows[kept]


def gather(coded: Coded, atoms: list[Atom], rows: Bools) -> Pool:
    """Rows that are equal or opposite become one."""
    bits = np.array([atom_bits(atom, len(coded.symbols)) for atom in atoms], np.float32)
    order = np.argsort(bits, kind="stable")
    rows, bits = rows[order], bits[order]
    signs = ~rows[:, 0] if len(rows) else np.zeros(0, bool)
    packed = np.packbits(rows ^ rows[:, :1], axis=1)
    keys = packed.view(np.dtype((np.void, packed.shape[1]))).ravel() if len(rows) else packed
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    behind: list[list[tuple[Atom, bool]]] = [[] for _ in first]
    for place, group in enumerate(inverse.ravel().tolist()):
        if len(behind[group]) < ALIKE:
            same_side = bool(signs[place] == signs[first[group]])
            behind[group].append((atoms[order[place]], same_side))
    sorted_by_bits = np.argsort(bits[first], kind="stable")
    chosen = first[sorted_by_bits]
    return Pool(coded.symbols, rows[chosen], bits[chosen], [behind[n] for n in sorted_by_bits])
