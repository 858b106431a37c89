"""`regard probe` as a user calls it."""

from __future__ import annotations

import json
import random
import shutil

import pytest

from tests.cli.small_folders import masker, pair, writer  # noqa: F401

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
def test_labels_of_every_kind_of_model(here, request, treebank, which):
    folder = request.getfixturevalue(which)
    code, out, _ = here("probe", folder, treebank, "--label", "upos", "--control", "--json")
    found = json.loads(out)
    assert code == 0 and len(found["taps"]) == 3
    stack = "decoder" if which == "writer" else "encoder"
    assert [row["tap"] for row in found["taps"]][0] == f"{stack}.embed"
    first = found["taps"][0]
    assert first["accuracy"] == 1.0 and first["selectivity"] < 0.05  # the word alone tells the tag
    assert first["bits_per_word"] < 1 and found["baselines"]["by word type"] == 1.0
    assert sum(found["words"].values()) == sum(
        line[:1].isdigit() for line in treebank.read_text().splitlines()
    )


def test_a_table_for_people_and_one_layer(here, writer, treebank):  # noqa: F811
    code, out, _ = here("probe", writer, treebank, "--label", "upos", "--layer", 1)
    assert code == 0 and "decoder.blocks.1.resid_post" in out and "blocks.0" not in out
    assert "majority" in out and "bits a word" in out and "5 labels" in out
    again = here("probe", writer, treebank, "--label", "upos", "--layer", 1)[1]
    assert again == out  # nothing is left to chance
    small = here("probe", writer, treebank, "--label", "upos", "--layer", 1, "--kind", "mlp")
    assert small[0] == 0 and "mlp probe" in small[1]


def test_taps_in_groups_are_the_same(here, writer, treebank, monkeypatch):  # noqa: F811
    together = here("probe", writer, treebank, "--label", "upos", "--json")[1]
    monkeypatch.setattr("regard.cli.probe_reading.ROOM", 1)
    assert here("probe", writer, treebank, "--label", "upos", "--json")[1] == together


def test_trees(here, writer, treebank, monkeypatch):  # noqa: F811
    monkeypatch.setattr("regard.look.structural_probe.EPOCHS", 5)
    code, out, _ = here("probe", writer, treebank, "--tree", "--layer", 0, "--rank", 4)
    assert code == 0 and "UUAS" in out and "words in a chain" in out and "├─" in out
    assert "gold" in out and "* where the edge up is wrong" in out
    found = json.loads(here("probe", writer, treebank, "--tree", "--layer", 0, "--json")[1])
    assert found["sentences"] == {"train": 48, "dev": 6, "test": 6} and found["left_out"] == 0
    assert 0 <= found["taps"][0]["uuas"] <= 1 and found["best"] == "decoder.blocks.0.resid_post"
    gold, predicted = found["trees"][0]
    assert sorted(word for line in gold.splitlines() for word in line.split()[-1:]) == sorted(
        line.removesuffix(" *").split()[-1] for line in predicted.splitlines()
    )


def test_which_layer_knows_what(here, writer, treebank):  # noqa: F811
    """Several labels: each as it is alone, and a table of all with the best places marked."""
    words = ("probe", writer, treebank, "--drop-rare", "--label")
    both = json.loads(here(*words, "upos", "lemma", "--json")[1])["features"]
    assert both == [json.loads(here(*words, label, "--json")[1]) for label in ("upos", "lemma")]
    table = here(*words, "upos", "lemma")[1].partition("which layer knows what")[2]
    rows = [line.split() for line in table.splitlines()[2:]]
    best = max(both[0]["taps"], key=lambda each: each["accuracy"])
    assert next(row[0] for row in rows if row[2] == "*") == best["tap"]
    assert len(rows) == len(both[0]["taps"]) and table.count("*") == 3


def test_trees_with_and_without_restarts(here, writer, treebank, tmp_path):  # noqa: F811
    spoken = treebank.read_text().replace("\tcat\t", "\tuh\t")
    (tmp_path / "s.conllu").write_text(spoken)
    flags = ("--tree", "--layer", 0, "--rank", 4, "--json")
    found = json.loads(here("probe", writer, tmp_path / "s.conllu", *flags, "--speech")[1])
    alone = json.loads(here("probe", writer, tmp_path / "s.conllu", *flags)[1])
    assert found["spoken"] == alone and found["cleaned"]["chain"] != alone["chain"]
    code, _, err = here("probe", writer, treebank, "--label", "upos", "--speech")
    assert code == 2 and "--speech without --tree" in err


def test_sentences_without_room_are_left_out(here, writer, treebank, tmp_path):  # noqa: F811
    long = "\n".join(f"{n}\tcat\tcat\tNOUN\t_\t_\t0\tdep\t_\t_" for n in range(1, 60))
    (tmp_path / "b.conllu").write_text(f"{treebank.read_text()}\n{long}\n")
    code, _, err = here("probe", writer, tmp_path / "b.conllu", "--label", "upos", "--layer", 0)
    assert code == 0 and "1 sentences have more than 40 tokens, what fits" in err


def test_bad_input_of_probe(here, writer, treebank, folders, tmp_path):  # noqa: F811
    def said(*arguments):
        code, out, err = here("probe", *arguments)
        assert out == "" and "Traceback" not in err
        return code, err

    code, err = said(writer, treebank, "--label", "upso")
    assert code == 3 and "did you mean upos" in err
    (tmp_path / "flat.conll").write_text("the DET\ncat NOUN\n\n")
    code, err = said(writer, tmp_path / "flat.conll", "--tree")
    assert code == 3 and "no column 'head'" in err
    code, err = said(writer, tmp_path / "flat.conll", "--label", "label")
    assert code == 3 and "at least 3" in err
    rows = "".join(f"the DET\ncat {n}\n\n" for n in range(9))
    (tmp_path / "rare.conll").write_text(rows)
    code, err = said(writer, tmp_path / "rare.conll", "--label", "label")
    assert code == 3 and "at least 2 of each of 10 labels" in err and "--drop-rare" in err
    (tmp_path / "loop.conllu").write_text(treebank.read_text().replace("\t0\tdep", "\t1\tdep", 1))
    code, err = said(writer, tmp_path / "loop.conllu", "--tree")
    assert code == 3 and "0 roots in the sentence of line 2" in err
    (tmp_path / "empty.conllu").write_text("# nothing\n")
    assert said(writer, tmp_path / "empty.conllu", "--tree")[0] == 3
    code, err = said(folders / "decoder", treebank, "--label", "upos")
    assert code == 3 and "no tokenizer" in err
    assert said(writer, treebank)[0] == 2
    assert said(writer, treebank, "--label", "upos", "--tree")[0] == 2
    code, err = said(writer, treebank, "--label", "upos", "--layer", 2)
    assert code == 2 and "0 to 1, last or all" in err
    code, err = said(writer, treebank, "--label", "upos", "--taps", "blocks.*.resid_pst")
    assert code == 2 and "resid_post" in err
    shutil.copytree(folders / "picture", tmp_path / "picture")
    shutil.copy(writer / "tokenizer.json", tmp_path / "picture")
    code, err = said(tmp_path / "picture", treebank, "--label", "upos")
    assert code == 2 and "reads image" in err
