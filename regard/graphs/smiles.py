"""SMILES: molecules as text (Weininger 1988), read into atoms and bonds."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from regard.errors import DataError

ATOM = re.compile(r"\[\d*([A-Z][a-z]?|[a-z]{1,2}|\*)@*(?:(H)(\d?))?(\++|-+|[+-]\d+)?(?::\d+)?\]")
TOKEN = re.compile(
    r"(?P<atom>\[[^]\[]*\]|Cl|Br|[BCNOPSFIbcnops*])|(?P<bond>[-=#$:/\\~])|(?P<ring>\d|%\d\d)|[().]"
)
BONDS = {"-": 0, "/": 0, "\\": 0, "~": 0, "=": 1, "#": 2, "$": 2, ":": 3}
"""Kinds of bonds: single, double, triple (or more), aromatic."""
ELEMENTS = ["B", "C", "N", "O", "F", "Si", "P", "S", "Cl", "Se", "Br", "I"]


class Molecule(NamedTuple):
    """Atoms as (element, hydrogens in brackets, charge, aromatic), bonds with their kinds."""

    atoms: list[tuple[str, int, int, bool]]
    bonds: list[tuple[int, int, int]]

    def features(self) -> np.ndarray:
        """What is known of each atom (N, 16): its element, or another, and the rest in numbers."""
        rows = np.zeros((len(self.atoms), len(ELEMENTS) + 4), np.float32)
        for row, (element, *numbers) in zip(rows, self.atoms, strict=True):
            row[ELEMENTS.index(element) if element in ELEMENTS else len(ELEMENTS)] = 1
            row[-3:] = numbers
        return rows


def parse_smiles(text: str) -> Molecule:
    """The atoms and bonds of a molecule; stereochemistry and isotopes are read over."""
    molecule, branches, rings = Molecule([], []), list[int](), dict[int, tuple[int, str]]()
    atoms, last, order, at, fault = molecule.atoms, -1, "", 0, -1

    def connect(first: int, second: int, order: str) -> None:
        both = atoms[first][-1] and atoms[second][-1]
        molecule.bonds.append((first, second, BONDS[order or (":" if both else "-")]))

    while at < len(text) and fault < 0:
        token = TOKEN.match(text, at)
        word, kind = (token[0], token.lastgroup) if token else (text[at], None)
        parts = ATOM.fullmatch(word)
        if kind == "atom" and (parts or word[0] != "["):
            symbol, hydrogen, count, sign = parts.groups("") if parts else (word, "", "", "")
            charge = int(sign) if sign[1:].isdecimal() else sign.count("+") - sign.count("-")
            hydrogens = int(count or 1) if hydrogen else 0
            atoms.append((symbol.capitalize(), hydrogens, charge, symbol.islower()))
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
