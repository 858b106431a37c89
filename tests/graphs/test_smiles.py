"""SMILES: atoms and bonds counted by hand, and errors with their place."""

from __future__ import annotations

import pytest

from regard.errors import DataError
from regard.graphs.smiles import ELEMENTS, parse_smiles


@pytest.mark.parametrize(
    "text, atoms, bonds",
    [
        ("C", 1, 0),
        ("CCO", 3, 2),
        ("c1ccccc1", 6, 6),
        ("C1CCC2CCCCC2C1", 10, 11),  # decalin
        ("CC(=O)Oc1ccccc1C(=O)O", 13, 13),  # aspirin
        ("CN1C=NC2=C1C(=O)N(C(=O)N2C)C", 14, 15),  # caffeine
        ("C%12CCCCC%12", 6, 6),
        ("[Na+].[Cl-]", 2, 0),
        ("F/C=C\\F", 4, 3),
        ("N[C@@H](C)C(=O)O", 6, 5),
        ("C=1CCCCC=1", 6, 6),
        ("[13CH3:1][nH+]1cccc1", 6, 6),
    ],
)
def test_atoms_and_bonds(text, atoms, bonds):
    molecule = parse_smiles(text)
    assert (len(molecule.atoms), len(molecule.bonds)) == (atoms, bonds)


def test_kinds_of_bonds_charges_and_hydrogens():
    assert [kind for *_, kind in parse_smiles("C=CC#N").bonds] == [1, 0, 2]
    assert {kind for *_, kind in parse_smiles("c1ccccc1").bonds} == {3}
    assert parse_smiles("c1ccccc1-c1ccccc1").bonds[6] == (5, 6, 0)
    assert parse_smiles("C=1CCCCC=1").bonds[-1] == (0, 5, 1)
    atoms = parse_smiles("[NH4+].[O--].[Fe+3].c1cc[nH]c1.[Se-]").atoms
    assert atoms[0] == ("N", 4, 1, False)
    assert atoms[1] == ("O", 0, -2, False)
    assert atoms[2] == ("Fe", 0, 3, False)
    assert atoms[6] == ("N", 1, 0, True)
    rows = parse_smiles("C[Fe+3]").features()
    assert rows.shape == (2, len(ELEMENTS) + 4)
    assert rows[0].nonzero()[0].tolist() == [ELEMENTS.index("C")]
    assert rows[1].nonzero()[0].tolist() == [len(ELEMENTS), len(ELEMENTS) + 2]


@pytest.mark.parametrize(
    "text, place",
    [
        ("CX", 2),
        ("C(C", 4),
        ("CC)C", 3),
        ("C1CC", 5),
        ("C11", 3),
        ("=C", 1),
        ("C==C", 3),
        ("C=", 3),
        ("C[C", 2),
        ("C[Q3]", 2),
        ("C(=)C", 4),
        ("", 1),
        ("1CC1", 1),
    ],
)
def test_errors_name_their_place(text, place):
    with pytest.raises(DataError, match=f"at character {place} of"):
        parse_smiles(text)


def test_all_molecules_as_rdkit_counts_them():
    chem = pytest.importorskip("rdkit.Chem")
    for text in ("CC(=O)Oc1ccccc1C(=O)O", "O=C1c2ccccc2C(=O)N1C1CCC(=O)NC1=O", "[nH]1cccc1.[Na+]"):
        theirs, ours = chem.MolFromSmiles(text), parse_smiles(text)
        assert theirs.GetNumAtoms() == len(ours.atoms)
        assert theirs.GetNumBonds() == len(ours.bonds)
        assert [a.GetIsAromatic() for a in theirs.GetAtoms()] == [a[-1] for a in ours.atoms]
