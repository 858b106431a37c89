"""`regard.look.probe`: labels and trees of every kind of model, and wrong calls."""

from __future__ import annotations

import random
import shutil

import pytest

import regard
from regard.errors import DataError, UsageError
from tests.cli.small_folders import masker, pair, writer  # noqa: F401
from tests.properties.small_models import small_kit

WORDS = {"the": "DET", "cat": "NOUN", "dog": "NOUN", "sat": "VERB", "on": "ADP", "fine": "ADJ"}


@pytest.fixture(scope="module")
def treebank(tmp_path_factory):
    """Sentences of words whose tag is known from the word; each hangs from a random one before."""
    rng, lines = random.Random(0), []
    for number in range(60):
        lines.append(f"# sent_id = {number}")
        words = rng.choices(list(WORDS), k=rng.randrange(5, 9))
        for n, word in enumerate(words, 1):
            head, tag = (0 if n == 1 else rng.randrange(1, n)), WORDS[word]
            lines.append(f"{n}\t{word}\t{word}\t{tag}\t_\t_\t{head}\tdep\t_\t_")
        lines.append("")
    file = tmp_path_factory.mktemp("treebank") / "a.conllu"
    file.write_text("\n".join(lines))
    return file


@pytest.mark.parametrize("which", ["writer", "masker", "pair"])
def test_labels_of_every_kind_of_model(request, treebank, which):
    folder = request.getfixturevalue(which)
    found = regard.look.probe(folder, treebank, label=["upos"], control=True)
    stack = "decoder" if which == "writer" else "encoder"
    first = found.taps[0]
    assert len(found.taps) == 3 and first.tap == f"{stack}.embed"
    assert first.accuracy == 1.0 and first.selectivity < 0.05  # the word alone tells the tag
    assert sum(found.words.values()) == sum(
        line[:1].isdigit() for line in treebank.read_text().splitlines()
    )


def test_a_table_for_people_and_one_layer(writer, treebank):  # noqa: F811
    text = str(regard.look.probe(writer, treebank, label=["upos"], layer=1))
    assert "decoder.blocks.1.resid_post" in text and "blocks.0" not in text
    assert "majority" in text and "ADP" in text
    again = regard.look.probe(writer, treebank, label=["upos"], layer="last")
    assert str(again) == text  # nothing is left to chance
    assert "mlp probe" in str(
        regard.look.probe(writer, treebank, label=["upos"], layer=1, kind="mlp")
    )


def test_taps_in_groups_are_the_same(writer, treebank, monkeypatch):  # noqa: F811
    together = regard.look.probe(writer, treebank, label=["upos"])
    monkeypatch.setattr("regard.look.probing.HELD_BYTES", 1)
    assert regard.look.probe(writer, treebank, label=["upos"]) == together


def test_trees(writer, treebank, monkeypatch):  # noqa: F811
    monkeypatch.setattr("regard.look.probing.EPOCHS", 5)
    found = regard.look.probe(writer, treebank, tree=True, layer=0, rank=4)
    text = str(found)
    assert "UUAS" in text and "words in a chain" in text and "├─" in text
    assert "gold" in text and "* where the edge up is wrong" in text
    assert found.sentences == {"train": 48, "dev": 6, "test": 6} and found.left_out == 0
    assert 0 <= found.taps[0].uuas <= 1 and found.best == "decoder.blocks.0.resid_post"
    gold, predicted = found.trees[0]
    assert sorted(word for line in gold.splitlines() for word in line.split()[-1:]) == sorted(
        line.removesuffix(" *").split()[-1] for line in predicted.splitlines()
    )


def test_which_layer_knows_what(writer, treebank):  # noqa: F811
    """Several labels: each as it is alone."""
    both = regard.look.probe(writer, treebank, label=["upos", "lemma"])
    assert both.features == [
        regard.look.probe(writer, treebank, label=[label]) for label in ("upos", "lemma")
    ]
    assert "upos by a linear probe" in str(both) and "lemma by a linear probe" in str(both)


def test_trees_with_and_without_restarts(writer, treebank, tmp_path):  # noqa: F811
    file = tmp_path / "s.conllu"
    file.write_text(treebank.read_text().replace("\tcat\t", "\tuh\t"))
    options = dict(tree=True, layer=0, rank=4)
    found = regard.look.probe(writer, file, speech=True, **options)
    alone = regard.look.probe(writer, file, **options)
    assert found.spoken == alone and found.cleaned.chain != alone.chain
    with pytest.raises(UsageError, match="speech without tree"):
        regard.look.probe(writer, treebank, label=["upos"], speech=True)


def test_sentences_without_room_are_left_out(writer, treebank, tmp_path, capsys):  # noqa: F811
    long = "\n".join(f"{n}\tcat\tcat\tNOUN\t_\t_\t0\tdep\t_\t_" for n in range(1, 60))
    (tmp_path / "b.conllu").write_text(f"{treebank.read_text()}\n{long}\n")
    regard.look.probe(writer, tmp_path / "b.conllu", label=["upos"], layer=0)
    assert "1 sentences have more than 40 tokens, what fits" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        (None, dict(label=["upso"]), "did you mean upos"),
        ("the DET\ncat NOUN\n\n", dict(tree=True), "no column 'head'"),
        ("the DET\ncat NOUN\n\n", dict(label=["label"]), "at least 3"),
        (
            "".join(f"the DET\ncat {n}\n\n" for n in range(9)),
            dict(label=["label"]),
            "two or more labels, 2 words of each to train on\n  to fix: more sentences",
        ),
        ("# nothing\n", dict(tree=True), "no sentences"),
    ],
)
def test_files_without_what_is_asked_for(writer, treebank, tmp_path, content, options, said):  # noqa: F811
    file = treebank if content is None else tmp_path / "a.conll"
    if content is not None:
        file.write_text(content)
    with pytest.raises(DataError, match=said):
        regard.look.probe(writer, file, **options)


def test_a_tree_without_a_root(writer, treebank, tmp_path):  # noqa: F811
    (tmp_path / "loop.conllu").write_text(treebank.read_text().replace("\t0\tdep", "\t1\tdep", 1))
    with pytest.raises(DataError, match="0 roots in the sentence of line 2"):
        regard.look.probe(writer, tmp_path / "loop.conllu", tree=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (dict(), "labels and trees, or neither"),
        (dict(label=["upos"], tree=True), "labels and trees, or neither"),
        (dict(label=["upos"], layer=2), "0 to 1, last or all"),
    ],
)
def test_wrong_calls(writer, treebank, options, said):  # noqa: F811
    with pytest.raises(UsageError, match=said):
        regard.look.probe(writer, treebank, **options)


def test_models_that_read_no_text(writer, treebank, tmp_path):  # noqa: F811
    for name in ("config.json", "model.safetensors"):
        shutil.copy(writer / name, tmp_path)
    with pytest.raises(DataError, match="no tokenizer"):
        regard.look.probe(tmp_path, treebank, label=["upos"])
    picture = small_kit("vit")
    picture.tokenizer = regard.load(writer).tokenizer
    with pytest.raises(UsageError, match="reads image"):
        regard.look.probe(picture, treebank, label=["upos"])
