"""`regard explain`: every kind of model, every method, and what cannot be explained."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from regard.kit import Kit
from regard.loading import load
from regard.model.presets import recurrent_lm
from regard.model.recurrent import model_class
from tests.cli.small_folders import masker, pair, save_model, writer  # noqa: F401
from tests.properties.small_models import randomise

TEXT = "the cat sat on the mat"
METHODS = ["gradient", "ig", "lime", "shap", "attention", "rollout", "flow"]


def asked(here, *arguments):
    code, out, err = here("explain", *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory, masker):  # noqa: F811
    """A classifier with the masked model's tokenizer."""
    folder = tmp_path_factory.mktemp("classifier")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(masker / name, folder)
    sizes = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, vocab_size=200)
    more = dict(intermediate_size=32, max_position_embeddings=40)
    labels = dict(id2label={0: "bad", 1: "good", 2: "neither"})
    save_model(
        folder, "BertForSequenceClassification", "BertConfig", **sizes, **more, **labels,
        label2id={"bad": 0, "good": 1, "neither": 2},
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory, writer):  # noqa: F811
    """An LSTM with the decoder's tokenizer."""
    folder, tokenizer = tmp_path_factory.mktemp("recurrent"), load(writer).tokenizer
    config = recurrent_lm("lstm", 12, 16, 1, tokenizer.size)
    model = model_class(config).fresh(config)
    randomise(model)
    Kit(model, tokenizer).save(folder)
    return folder


def logits_of(folder, *texts):
    return load(folder).logits(*texts)[0]


# What is explained --------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_a_decoder(here, writer, method):  # noqa: F811
    found = asked(here, writer, TEXT, "--method", method, "--samples", 40)
    kit = load(writer)
    logits = kit.logits(TEXT)[0, -1]
    best = int(logits.argmax())
    assert found["tokens"] == kit.tokenizer.encode(TEXT) and "".join(found["pieces"]) == TEXT
    assert len(found["scores"]) == len(found["tokens"])
    assert found["target"] in (kit.tokenizer.decode([best]), kit.tokenizer.pieces([best])[0])
    if method in METHODS[:4]:
        assert found["value"] == pytest.approx(float(logits[best]), abs=1e-3)
    if method in ("ig", "shap"):
        difference = found["value"] - found["baseline_value"]
        near = 0.05 if method == "ig" else 1e-6
        assert sum(found["scores"]) == pytest.approx(difference, rel=near)
    code, out, _ = here("explain", writer, TEXT, "--method", method, "--samples", 40)
    assert code == 0 and " sat" in out and "│" in out
    said = {"gradient": "completeness", "ig": "steps", "lime": "R²", "shap": "orders"}
    assert said.get(method, "attention") in out


def test_a_word_and_another(here, writer):  # noqa: F811
    kit = load(writer)
    logits = kit.logits(TEXT)[0, -1]
    sat, on = (kit.tokenizer.encode(f"{TEXT} {word}")[-1] for word in ("sat", "on"))
    found = asked(here, writer, TEXT, "--target", "sat", "--against", " on")
    assert (found["target"], found["against"]) == (" sat", " on")
    assert found["value"] == pytest.approx(float(logits[sat] - logits[on]), abs=1e-3)
    code, _, err = here("explain", writer, TEXT, "--target", "cat")
    assert code == 0 and err == "'cat' is 2 tokens, Ġc at: its first, Ġc, counts\n"
    found = asked(here, writer, TEXT, "--target", "wonderful")
    assert found["target"] == "w"  # not the blank before it, a token of its own here
    assert here("explain", writer, TEXT, "--target", "cat", "--against", "cat")[0] == 2


def test_a_gap(here, masker):  # noqa: F811
    kit = load(masker)
    text = "the [MASK] sat on the mat"
    found = asked(here, masker, text, "--target", "cat", "--method", "shap")
    ids = kit.tokenizer.encode(text, allow_special=True)
    at, mask = ids.index(kit.tokenizer.specials["mask"]), kit.tokenizer.specials["mask"]
    cat = kit.tokenizer.encode("cat", special=False)[0]
    assert found["value"] == pytest.approx(float(kit.logits([ids])[0, at, cat]), abs=1e-4)
    fixed = kit.tokenizer.specials.values()
    gone = [id if id in fixed else mask for id in ids]  # the mask stands for absent words
    wanted = float(kit.logits([gone])[0, at, cat])
    assert found["baseline_value"] == pytest.approx(wanted, abs=1e-4)
    assert found["baseline"] == "[MASK]" and len(found["scores"]) == len(ids) - 3
    code, _, err = here("explain", masker, text.replace("mat", "[MASK]"))
    assert code == 0 and "the first is explained" in err
    assert here("explain", masker, TEXT)[0] == 3


def test_a_class(here, classifier):
    logits = logits_of(classifier, TEXT)
    names = ["bad", "good", "neither"]
    found = asked(here, classifier, TEXT)
    assert found["target"] == names[int(logits.argmax())]
    found = asked(here, classifier, TEXT, "--target", "good", "--against", "0")
    assert found["against"] == "bad"
    assert found["value"] == pytest.approx(float(logits[1] - logits[0]), abs=1e-4)
    code, _, err = here("explain", classifier, TEXT, "--target", "goood")
    assert code == 2 and "did you mean good" in err


def test_a_translation(here, pair):  # noqa: F811
    kit = load(pair)
    begun = [0, *kit.tokenizer.encode("the dog", special=False)]
    begun[0] = kit.config["decoder_start_token_id"]
    logits = kit.logits([kit.tokenizer.encode("the cat sat")], [begun])[0, -1]
    found = asked(here, pair, "the cat sat", "--target", "the dog", "--method", "gradient")
    assert found["value"] == pytest.approx(float(logits.max()), abs=1e-4)
    assert found["tokens"] == kit.tokenizer.encode("the cat sat", special=False)
    assert found["baseline"] == kit.tokenizer.pieces([kit.tokenizer.specials["pad"]])[0]


def test_absent_tokens(here, writer):  # noqa: F811
    kit = load(writer)
    ids = kit.tokenizer.encode(TEXT)
    sat = ids[3]
    for name, id in (("pad", kit.tokenizer.specials["pad"]), ("Ġon", ids[4]), ("at", ids[2])):
        found = asked(here, writer, TEXT, "--target", "sat", "--baseline", name)
        wanted = float(kit.logits([[id] * len(ids)])[0, -1, sat])
        assert found["baseline_value"] == pytest.approx(wanted, abs=1e-3)
    text = "the [MASK] sat"
    code, _, err = here("explain", writer, text, "--baseline", "mask")
    assert code == 2 and "without mask" in err


def test_words_left_out(here, masker):  # noqa: F811
    text = "the [MASK] sat"
    found = asked(here, masker, text, "--method", "shap", "--baseline", "drop", "--target", "cat")
    kit = load(masker)
    ids = kit.tokenizer.encode("[MASK]", allow_special=True)
    cat = kit.tokenizer.encode("cat", special=False)[0]
    assert found["baseline_value"] == pytest.approx(float(kit.logits([ids])[0, 1, cat]), abs=1e-4)
    assert here("explain", masker, text, "--baseline", "drop")[0] == 2


# All methods --------------------------------------------------------------------------------------


def test_all_methods(here, writer):  # noqa: F811
    options = ("--compare", "--samples", 40, "--seed", 3)
    found = asked(here, writer, TEXT, *options)
    assert list(found["methods"]) == METHODS and list(found["spearman"]) == METHODS
    for name, one in found["methods"].items():
        assert found["spearman"][name][name] == pytest.approx(1)
        assert {"deletion", "insertion", "scores"} <= one.keys()
    assert set(found["random"]) == {"deletion", "insertion"}
    assert asked(here, writer, TEXT, *options) == found
    code, out, _ = here("explain", writer, TEXT, *options)
    assert code == 0 and "random" in out and "Spearman" in out and "deletion" in out


def test_a_recurrent_model_has_no_attention(here, recurrent):
    found = asked(here, recurrent, TEXT, "--compare", "--samples", 40)
    assert list(found["methods"]) == METHODS[:-3]
    for method in METHODS[-3:]:
        code, _, err = here("explain", recurrent, TEXT, "--method", method)
        assert code == 2 and "one with attention" in err


def test_attention_of_a_translator_is_followed(here, pair):  # noqa: F811
    found = asked(here, pair, TEXT, "--target", "the cat", "--compare", "--samples", 20)
    assert list(found["methods"]) == METHODS
    shares = [found["methods"][name]["share"] for name in ("attention", "rollout")]
    assert all(0 < share <= 1 for share in shares)


def test_what_does_not_fit_into_memory(here, writer, monkeypatch):  # noqa: F811
    monkeypatch.setattr("regard.look.text_limits.free_memory", lambda device: 2_000)
    for method in ("ig", "attention"):
        code, out, err = here("explain", writer, TEXT, "--method", method)
        assert (code, out) == (3, "") and "which fit into 2.0 KiB" in err


# Bad input ----------------------------------------------------------------------------------------


def test_bad_input(here, writer, folders, tmp_path):  # noqa: F811
    for arguments, code, said in (
        ((writer, ""), 3, "empty text"),
        ((writer, "  "), 3, "empty text"),
        ((writer, TEXT, "--method", "shapp"), 2, "did you mean shap?"),
        ((writer, TEXT, "--baseline", "zeroo"), 2, "did you mean zero?"),
        ((writer, TEXT, "--target", ""), 3, "no token"),
        ((writer, TEXT, "--samples", "0"), 2, "from 1 up"),
        ((writer, TEXT, "--method", "lime", "--samples", "1"), 2, "2 samples"),
        ((writer, TEXT * 20), 3, "at most 40"),
        ((folders / "picture", TEXT), 3, "no tokenizer"),
        ((tmp_path / "nothing", TEXT), 3, "nothing"),
    ):
        found, out, err = here("explain", *arguments)
        assert (found, out) == (code, "") and said in err, arguments


def test_what_fits_is_said(here, writer):  # noqa: F811
    text = " ".join(str(n) for n in range(60))
    tokenizer = load(writer).tokenizer
    _, _, err = here("explain", writer, text)
    end = err.partition("up to '")[2].partition("' it fits")[0]
    fitting = text[: text.index(end) + len(end)]
    assert len(tokenizer.encode(fitting)) == 40


def test_scores_that_are_no_numbers(here, writer, tmp_path):  # noqa: F811
    kit = load(writer)
    with torch.no_grad():
        kit.model.decoder.norm.weight.fill_(torch.nan)
    kit.save(tmp_path / "nan")
    for method in METHODS[:4]:
        code, out, err = here("explain", tmp_path / "nan", "the cat", "--method", method)
        assert (code, out) == (1, "") and "NaN" in err


def test_a_tagger_predicts_no_words(here, masker, tmp_path):  # noqa: F811
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(masker / name, tmp_path)
    sizes = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=200)
    more = dict(intermediate_size=32, max_position_embeddings=40)
    save_model(tmp_path, "BertForTokenClassification", "BertConfig", **sizes, **more)
    code, _, err = here("explain", tmp_path, TEXT)
    assert code == 2 and "predicts no words" in err
