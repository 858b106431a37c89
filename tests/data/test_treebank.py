"""Treebanks: CoNLL-U with its comments, spans and empty nodes; simpler files; what is no tree."""

from __future__ import annotations

import lzma

import pytest

from regard.data.treebank import heads_of, read_treebank
from regard.errors import DataError

CONLLU = """# sent_id = 1
# text = Don't go, Al.
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\tVB\t_\t3\taux\t_\t_
2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_
2.1\tever\tever\tADV\tRB\t_\t_\t_\t3:advmod\t_
3\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\tSpaceAfter=No
4\t,\t,\tPUNCT\t,\t_\t5\tpunct\t_\t_
5\tAl\tAl\tPROPN\tNNP\t_\t3\tvocative\t_\tSpaceAfter=No
6\t.\t.\tPUNCT\t.\t_\t3\tpunct\t_\t_

# sent_id = 2
1\tGo\tgo\tVERB\tVB\t_\t0\troot\t_\t_
"""


def test_conllu(tmp_path):
    (tmp_path / "a.conllu").write_text(CONLLU)
    first, second = read_treebank(tmp_path / "a.conllu", ["upos", "head"])
    assert first.forms == ["Do", "n't", "go", ",", "Al", "."] and first.line == 3
    assert first.columns["upos"] == ["AUX", "PART", "VERB", "PUNCT", "PROPN", "PUNCT"]
    assert heads_of("a", first) == [2, 2, -1, 4, 2, 2]
    text, spans = first.text()
    assert text == "Do n't go, Al."
    assert [text[start:end] for start, end in spans] == first.forms
    assert second.forms == ["Go"] and heads_of("a", second) == [-1]


def test_simpler_files(tmp_path):
    with lzma.open(tmp_path / "b.tsv.xz", "wt") as file:
        file.write("1\tThe\tDET\t2\tdet\n2\tcat\tNOUN\t0\troot\n")
    (only,) = read_treebank(tmp_path / "b.tsv.xz", ["head"])
    assert only.columns["upos"] == ["DET", "NOUN"] and heads_of("b", only) == [1, -1]
    assert only.text() == ("The cat", [(0, 3), (4, 7)])
    (tmp_path / "c.conll").write_text("EU B-ORG\nrejects O\n")
    (only,) = read_treebank(tmp_path / "c.conll", ["label"])
    assert only.columns == {"form": ["EU", "rejects"], "label": ["B-ORG", "O"]}
    (tmp_path / "d.conll").write_text("EU NNP B-NP B-ORG\n")
    (only,) = read_treebank(tmp_path / "d.conll", ["ner"], ["form", "pos", "chunk", "ner"])
    assert only.columns["ner"] == ["B-ORG"]


def test_wrong_columns_name_their_line(tmp_path):
    (tmp_path / "c.conll").write_text("\nEU B-ORG\n")
    with pytest.raises(DataError, match="no column 'lable' in line 2") as error:
        list(read_treebank(tmp_path / "c.conll", ["lable"]))
    assert "did you mean label" in str(error.value)
    (tmp_path / "d.conll").write_text("EU NNP B-ORG\n")
    with pytest.raises(DataError, match="3 columns in line 1") as error:
        list(read_treebank(tmp_path / "d.conll"))
    assert "--columns" in str(error.value)
    with pytest.raises(DataError, match="2: form, ner"):
        list(read_treebank(tmp_path / "d.conll", names=["form", "ner"]))
    with pytest.raises(DataError, match="no column 'form'"):
        list(read_treebank(tmp_path / "d.conll", names=["word", "pos", "ner"]))


@pytest.mark.parametrize(
    ("heads", "said"),
    [
        ((2, 3, 1), "0 roots"),
        ((0, 0, 1), "2 roots"),
        ((2, 1, 0), "heads in a circle"),
        ((0, 9, 1), "head '9' of 'b'"),
        ((0, "_", 1), "head '_' of 'b'"),
    ],
)
def test_what_is_no_tree(tmp_path, heads, said):
    rows = [
        f"{n}\t{word}\t{head}" for n, (word, head) in enumerate(zip("abc", heads, strict=True), 1)
    ]
    (tmp_path / "a.conll").write_text("\n\n" + "\n".join(rows) + "\n")
    (only,) = read_treebank(tmp_path / "a.conll", ["head"], ["id", "form", "head"])
    with pytest.raises(DataError, match=said) as error:
        heads_of(tmp_path / "a.conll", only)
    assert "line 3" in str(error.value)
