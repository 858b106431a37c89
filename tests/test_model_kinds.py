"""A model of the wrong kind is named, with what the verb takes and which verbs take the model."""

from __future__ import annotations

import contextlib
import io
import json
import shutil

import pytest

import regard
from regard.cli.commands import TABLE
from regard.cli.main import main
from regard.errors import UsageError
from regard.history.ngram_model import NgramModel
from regard.history.word_translator import WordTranslator
from regard.history.word_vectors import WordVectors
from regard.loading import open_kit
from regard.model_kinds import NETWORK, NGRAMS, TRANSLATOR, VECTORS, find_kind

TEXT = ["the cat sat on the mat", "a dog sat on a log", "the dog saw the cat"] * 4
MADE = {
    "ngram": (("train", "ngram", "text"), "ngram", NGRAMS),
    "bow": (("train", "bow", "text"), "bow", NGRAMS),
    "classes": (("train", "classes", "text", "--classes", "3"), "classes", NGRAMS),
    "w2v": (("train", "w2v", "text", "--dim", "4", "--min-count", "1"), "w2v", VECTORS),
    "bin": (("train", "w2v", "text", "--dim", "4", "--min-count", "1"), "v.bin", VECTORS),
    "txt": (("train", "w2v", "text", "--dim", "4", "--min-count", "1"), "v.txt", VECTORS),
    "bayes": (("train", "bayes", "pairs"), "bayes", TRANSLATOR),
    "logreg": (("train", "logreg", "pairs"), "logreg", TRANSLATOR),
    "ibm1": (("train", "ibm1", "pairs"), "ibm1", TRANSLATOR),
}
COMMANDS = {
    "translate": ("translate", "a cat", "--model", "M"),
    "evaluate translate": ("evaluate", "translate", "M", "pairs"),
    "evaluate lm": ("evaluate", "lm", "M", "text"),
    "score": ("score", "M", "the cat"),
    "history entropy": ("history", "entropy", "text", "--model", "M"),
    "history guess": ("history", "guess", "text", "--auto", "--model", "M"),
    "generate": ("generate", "M", "the cat"),
    "history sample": ("history", "sample", "M"),
    "fill": ("fill", "M", "the [MASK]"),
    "look attention": ("look", "attention", "M", "the cat"),
    "look lens": ("look", "lens", "M", "the cat"),
    "look explain": ("look", "explain", "M", "the cat"),
    "history neighbours": ("history", "neighbours", "M", "cat"),
    "history analogy": ("history", "analogy", "M", "the", "cat", "a"),
    "evaluate similarity": ("evaluate", "similarity", "M", "text"),
    "evaluate analogies": ("evaluate", "analogies", "M"),
    "embed": ("embed", "M", "--word", "cat", "--files", "text"),
    "export arpa": ("export", "arpa", "M", "out"),
    "export int8": ("export", "int8", "M", "out"),
    "check": ("check", "M"),
    "plan": ("plan", "M"),
    "train --init": ("train", "lm", "text", "--init", "M", "--steps", "1", "--out", "out"),
}


def call(*words):
    """Exit code, output and messages of a command."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(word) for word in words])
    return code, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    place = tmp_path_factory.mktemp("kinds")
    (place / "text").write_text("\n".join(TEXT) + "\n")
    (place / "pairs").write_text("".join(f"{line}\t{line.upper()}\n" for line in TEXT))
    for words, out, _ in MADE.values():
        named = [place / word if word in ("text", "pairs") else word for word in words]
        assert call(*named, "--out", place / out)[0] == 0
    assert call("export", "arpa", place / "ngram", place / "m.arpa")[0] == 0
    return place


@pytest.mark.parametrize("name", MADE)
def test_the_kind_of_what_was_trained(models, name):
    _, out, kind = MADE[name]
    assert find_kind(str(models / out)).kind is kind


def test_other_paths(models):
    assert find_kind(str(models / "m.arpa")).kind is NGRAMS
    assert find_kind("fr-en").kind is NETWORK
    for path in (models / "text", models, "no such path", "gpt2"):
        assert find_kind(str(path)) is None
    (models / "net").mkdir()
    (models / "net/config.json").write_text('{"model_type": "gpt2"}')
    assert find_kind(str(models / "net")).kind is NETWORK


@pytest.mark.parametrize("name", [name for name in MADE if name not in ("bow", "logreg")])
@pytest.mark.parametrize("verb", COMMANDS)
def test_a_verb_names_a_model_that_it_does_not_take(models, verb, name):
    _, out, kind = MADE[name]
    if verb in kind.verbs:
        return
    words = {"M": models / out, "text": models / "text", "pairs": models / "pairs"}
    words["out"] = models / "out"
    code, said, error = call(*(words.get(word, word) for word in COMMANDS[verb]))
    first, expected, fix = error.strip().splitlines()
    assert code == 2 and not said
    assert str(models / out) in first and kind.title in first
    assert not expected.endswith(": ") and kind.trained not in expected
    assert kind.title in fix and kind.verbs[0] in fix
    assert not (models / "out").exists()


def test_a_network_where_only_counts_will_do(models):
    (models / "own").mkdir(exist_ok=True)
    (models / "own/config.json").write_text('{"model_type": "gpt2"}')
    for verb in (
        "history sample",
        "history neighbours",
        "history analogy",
        "export arpa",
    ):
        words = [models / "own" if word == "M" else word for word in COMMANDS[verb]]
        code, _, error = call(*words)
        assert code == 2 and "config.json says gpt2" in error and "generate" in error


def test_every_verb_of_a_kind_is_one():
    for kind in (NETWORK, NGRAMS, VECTORS, TRANSLATOR):
        for verb in kind.verbs:
            assert verb in TABLE or verb.split()[0] in ("export",)


@pytest.mark.parametrize(
    "name, said",
    [
        ("bin", {"words": 9, "dim": 4}),
        ("txt", {"words": 9, "dim": 4}),
        ("w2v", {"words": 9, "dim": 4}),
        ("bayes", {"translator": "bayes", "source_words": 9, "target_words": 9, "k": 0.1}),
        ("logreg", {"translator": "logreg", "source_words": 9, "l2": 1.0}),
        ("ibm1", {"translator": "ibm1", "source_words": 9, "rounds": 10}),
    ],
)
def test_info_tells_what_was_counted(models, name, said):
    path = models / MADE[name][1]
    code, out, _ = call("info", path, "--json")
    assert code == 0 and said.items() <= json.loads(out).items()
    code, out, _ = call("info", path)
    assert code == 0 and MADE[name][2].title in out
    code, _, error = call("info", path, "--taps")
    assert code == 2 and "there are none" in error


@pytest.mark.parametrize(
    "name, command",
    [
        ("ngram", ("score", "M", "the cat")),
        ("classes", ("history", "sample", "M")),
        ("ibm1", ("translate", "the cat", "--model", "M")),
        ("w2v", ("history", "neighbours", "M", "cat")),
    ],
)
@pytest.mark.parametrize("left", [4, 40, -10])
def test_cut_weights_say_where_they_end(models, tmp_path, name, command, left):
    shutil.copytree(models / name, tmp_path / "m")
    (weights,) = (tmp_path / "m").glob("*.safetensors")
    whole = weights.read_bytes()
    weights.write_bytes(whole[:left])
    size = len(whole[:left])
    code, _, error = call(*(tmp_path / "m" if word == "M" else word for word in command))
    assert code == 3 and weights.name in error and "truncated" in error
    assert f"has {size:,}" in error


def test_info_of_a_cut_file_of_vectors(models):
    data = (models / "v.bin").read_bytes()
    (models / "cut.bin").write_bytes(data[:100])
    code, _, error = call("info", models / "cut.bin")
    assert code == 3 and "byte 86: row 4" in error


def test_what_counts_has_nothing_to_edit(models):
    words = {"ngram": ("score", models / "ngram", "a"), "ibm1": ("translate", "a", "--model")}
    words["ibm1"] += (models / "ibm1",)
    for command in words.values():
        assert call(*command)[0] == 0
        code, _, told = call(*command, "--edit", "*.attn.z=zero")
        assert code == 2 and "a Transformer or a recurrent" in told


@pytest.mark.parametrize("name", MADE)
def test_python_opens_each_kind_and_names_it_where_a_network_is_wanted(models, name):
    path, kind = models / MADE[name][1], MADE[name][2]
    classes = {NGRAMS: NgramModel, VECTORS: WordVectors, TRANSLATOR: WordTranslator}
    assert isinstance(regard.load(path), classes[kind])
    with pytest.raises(UsageError) as caught:
        open_kit(path)
    said = str(caught.value)
    assert f"opening {path}: {kind.title}" in said and NETWORK.trained in said
    assert all(verb in said for verb in kind.verbs)
