"""SMILES: molecules as text (Weininger 1988), read into atoms and bonds."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from regard.errors import DataError

ATOM = re.compile(r"\[\d*([A-Z][a-z]?|[a-z]{1,2}|\*)@{0,2}(H?)(\d?)(\++|-+|[+-]\d+)?(?::\d+)?\]")
TOKEN = re.compile(
    r"(?P<atom>\[[^]\[]*\]|Cl|Br|[BCNOPSFIbcnops*])|(?P<bond>[-=#$:/\\~])|(?P<ring>\d|%\d\d)|[().]"
)
BONDS = {"-": 0, "/": 0, "\\": 0, "~": 0, "=": 1, "#": 2, "$": 2, ":": 3}
ORDERS = 1.0, 2.0, 3.0, 1.5
"""Kinds of bonds: single, double, triple (or more), aromatic."""
ELEMENTS = ["C", "N", "O", "F", "Cl", "Br", "I", "S", "P", "B", "Si", "Se"]
VALENCES = (4, 3, 2, 1, 1, 1, 1, 2, 3, 3)
"""Bonds of the first of them outside of brackets, hydrogens included."""
MOST = 4  # hydrogens


class Molecule(NamedTuple):
    """Atoms as (element, aromatic, charge, hydrogens; −1: to its valence), bonds with kinds."""

    atoms: list[tuple[str, bool, int, int]]
    bonds: list[tuple[int, int, int]]

    def features(self) -> np.ndarray:
        """What is known of each atom (N, 20): element, hydrogens, charge, aromatic or not."""
        rows = np.zeros((len(self.atoms), len(ELEMENTS) + MOST + 4), np.float32)
        used = np.zeros(len(self.atoms))
        for first, second, kind in self.bonds:
            used[[first, second]] += ORDERS[kind]
        for row, (element, aromatic, charge, hydrogens), bonds in zip(
            rows, self.atoms, used, strict=True
        ):
            place = ELEMENTS.index(element) if element in ELEMENTS else len(ELEMENTS)
            if hydrogens < 0:
                hydrogens = max(0, (*VALENCES, 0, 0, 0)[place] - int(np.ceil(bonds)))
            row[[place, len(ELEMENTS) + 1 + min(hydrogens, MOST)]] = 1
            row[-2:] = charge, aromatic
        return rows


def parse_smiles(text: str) -> Molecule:
    """The atoms and bonds of a molecule; stereochemistry and isotopes are read over."""
    molecule, branches, rings = Molecule([], []), list[int](), dict[int, tuple[int, str]]()
    atoms, last, order, at, fault = molecule.atoms, -1, "", 0, -1

    def connect(first: int, second: int, order: str) -> None:
        both = atoms[first][1] and atoms[second][1]
        molecule.bonds.append((first, second, BONDS[order or (":" if both else "-")]))

    while at < len(text) and fault < 0:
        token = TOKEN.match(text, at)
        word, kind = (token[0], token.lastgroup) if token else (text[at], None)
        parts = ATOM.fullmatch(word)
        if kind == "atom" and (parts or word[0] != "["):
            symbol, hydrogen, count, sign = parts.groups("") if parts else (word, "", "", "")
            charge = int(sign) if sign[1:].isdecimal() else sign.count("+") - sign.count("-")
            hydrogens = -1 if parts is None else int(count or 1) if hydrogen else 0
            atoms.append((symbol.capitalize(), symbol.islower(), charge, hydrogens))
            if last >= 0:
                connect(last, len(atoms) - 1, order)
            last, order = len(atoms) - 1, ""
        elif kind == "bond" and last >= 0 and not order:
            order = word
        elif kind == "ring" and last >= 0 and rings.get(int(word.strip("%")), (-1,))[0] != last:
            other, before = rings.pop(int(word.strip("%")), (-1, ""))
            if other >= 0:
                connect(other, last, order or before)
            else:
                rings[int(word.strip("%"))] = last, order
            order = ""
        elif word == "(" and last >= 0 and not order:
            branches.append(last)
        elif word == ")" and branches and not order:
            last = branches.pop()
        elif word == "." and not order:
            last = -1
        else:
            fault = at
        at += len(word)
    if fault >= 0 or branches or rings or order or not atoms:
        what = repr(word) if fault >= 0 else "the end"
        problem = f"{what} at character {1 + (fault if fault >= 0 else len(text))} of {text!r}"
        raise DataError("reading SMILES", problem, "atoms and bonds, with rings and ( ) closed")
    return molecule
