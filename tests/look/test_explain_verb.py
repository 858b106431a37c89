"""`regard.look.explain`: every kind of model, every method, and what cannot be explained."""

from __future__ import annotations

import re
import shutil

import pytest
import torch

import regard
from regard.errors import DataError, RegardError, UsageError
from regard.kit import Kit
from regard.loading import load
from regard.model.presets import recurrent_lm
from regard.model.recurrent import model_class
from tests.cli.small_folders import masker, pair, save_model, writer  # noqa: F401
from tests.properties.small_models import randomise

TEXT = "the cat sat on the mat"
METHODS = ["gradient", "ig", "lime", "shap", "attention", "rollout"]


def explain(model, text=TEXT, **options):
    return regard.look.explain(model, text, **options).to_dict()


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


# What is explained --------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_a_decoder(writer, method):  # noqa: F811
    result = regard.look.explain(writer, TEXT, method=method, samples=40)
    found, kit = result.to_dict(), load(writer)
    logits = kit.logits(TEXT)[0, -1]
    best = int(logits.argmax())
    assert found["tokens"] == kit.tokenizer.encode(TEXT) and "".join(found["pieces"]) == TEXT
    assert found["scores"] == result.scores and len(result.scores) == len(found["tokens"])
    assert found["target"] in (kit.tokenizer.decode([best]), kit.tokenizer.pieces([best])[0])
    if method in METHODS[:4]:
        assert found["value"] == pytest.approx(float(logits[best]), abs=1e-3)
    if method in ("ig", "shap"):
        difference = found["value"] - found["baseline_value"]
        near = 0.05 if method == "ig" else 1e-6
        assert sum(found["scores"]) == pytest.approx(difference, rel=near)
    said = {"gradient": "completeness", "ig": "steps", "lime": "R²", "shap": "orders"}
    text = str(result)
    assert " sat" in text and "│" in text and said.get(method, "attention") in text
    assert [row.token for row in result.table()] == found["pieces"]


def test_a_word_and_another(writer, capsys):  # noqa: F811
    kit = load(writer)
    logits = kit.logits(TEXT)[0, -1]
    sat, on = (kit.tokenizer.encode(f"{TEXT} {word}")[-1] for word in ("sat", "on"))
    found = explain(writer, target="sat", against=" on")
    assert (found["target"], found["against"]) == (" sat", " on")
    assert found["value"] == pytest.approx(float(logits[sat] - logits[on]), abs=1e-3)
    explain(writer, target="cat")
    assert capsys.readouterr().err == "'cat' is 2 tokens, ' c' 'at': its first, ' c', counts\n"
    found = explain(writer, target="wonderful")
    assert found["target"] == "w"  # not the blank before it, a token of its own here
    with pytest.raises(UsageError, match="against itself"):
        explain(writer, target="cat", against="cat")


def test_a_metric_of_ones_own(writer):  # noqa: F811
    def spread(logits):
        return logits.std(-1)

    kit = load(writer)
    found = explain(kit, metric=spread)
    assert found["target"] == "spread" and found["against"] is None
    assert found["value"] == pytest.approx(float(kit.logits(TEXT)[0, -1].std()), abs=1e-4)
    assert sum(found["scores"]) == pytest.approx(found["value"] - found["baseline_value"], rel=0.05)


def test_a_gap(masker, capsys):  # noqa: F811
    kit = load(masker)
    text = "the [MASK] sat on the mat"
    found = explain(masker, text, target="cat", method="shap")
    ids = kit.tokenizer.encode(text, allow_special=True)
    at, mask = ids.index(kit.tokenizer.specials["mask"]), kit.tokenizer.specials["mask"]
    cat = kit.tokenizer.encode("cat", special=False)[0]
    assert found["value"] == pytest.approx(float(kit.logits([ids])[0, at, cat]), abs=1e-4)
    fixed = kit.tokenizer.specials.values()
    gone = [id if id in fixed else mask for id in ids]  # the mask stands for absent words
    wanted = float(kit.logits([gone])[0, at, cat])
    assert found["baseline_value"] == pytest.approx(wanted, abs=1e-4)
    assert found["baseline"] == "[MASK]" and len(found["scores"]) == len(ids) - 3
    explain(masker, text.replace("mat", "[MASK]"))
    assert "the first is explained" in capsys.readouterr().err
    with pytest.raises(DataError):
        explain(masker, TEXT)


def test_a_class(classifier):
    logits = load(classifier).logits(TEXT)[0]
    names = ["bad", "good", "neither"]
    assert explain(classifier)["target"] == names[int(logits.argmax())]
    found = explain(classifier, target="good", against="0")
    assert found["against"] == "bad"
    assert found["value"] == pytest.approx(float(logits[1] - logits[0]), abs=1e-4)
    with pytest.raises(UsageError, match="did you mean good"):
        explain(classifier, target="goood")


def test_a_translation(pair):  # noqa: F811
    kit = load(pair)
    begun = [0, *kit.tokenizer.encode("the dog", special=False)]
    begun[0] = kit.config["decoder_start_token_id"]
    logits = kit.logits([kit.tokenizer.encode("the cat sat")], [begun])[0, -1]
    found = explain(kit, "the cat sat", target="the dog", method="gradient")
    assert found["value"] == pytest.approx(float(logits.max()), abs=1e-4)
    again = kit.explain("the cat sat", target="the dog", method="gradient")
    assert again.to_dict() == found
    assert found["tokens"] == kit.tokenizer.encode("the cat sat", special=False)
    assert found["baseline"] == kit.tokenizer.pieces([kit.tokenizer.specials["pad"]])[0]


def test_absent_tokens(writer):  # noqa: F811
    kit = load(writer)
    ids = kit.tokenizer.encode(TEXT)
    sat = ids[3]
    for name, id in (("pad", kit.tokenizer.specials["pad"]), ("Ġon", ids[4]), ("at", ids[2])):
        found = explain(writer, target="sat", baseline=name)
        wanted = float(kit.logits([[id] * len(ids)])[0, -1, sat])
        assert found["baseline_value"] == pytest.approx(wanted, abs=1e-3)
    with pytest.raises(UsageError, match="without mask"):
        explain(writer, "the [MASK] sat", baseline="mask")


# All methods --------------------------------------------------------------------------------------


def test_all_methods(writer):  # noqa: F811
    with regard.settings(seed=3):
        result = regard.look.explain(writer, TEXT, compare=True, samples=40)
        again = explain(writer, compare=True, samples=40)
    found = result.to_dict()
    assert list(found["methods"]) == METHODS and list(found["spearman"]) == METHODS
    for name, one in found["methods"].items():
        assert found["spearman"][name][name] == pytest.approx(1)
        assert {"deletion", "insertion", "scores"} <= one.keys()
    assert set(found["random"]) == {"deletion", "insertion"} and again == found
    text = str(result)
    assert "random" in text and "Spearman" in text and "deletion" in text


def test_a_recurrent_model_has_no_attention(recurrent):
    assert list(explain(recurrent, compare=True, samples=40)["methods"]) == METHODS[:-2]
    for method in METHODS[-2:]:
        with pytest.raises(UsageError, match="one with attention"):
            explain(recurrent, method=method)


def test_attention_of_a_translator_is_followed(pair):  # noqa: F811
    found = explain(pair, target="the cat", compare=True, samples=20)
    assert list(found["methods"]) == METHODS
    shares = [found["methods"][name]["share"] for name in ("attention", "rollout")]
    assert all(0 < share <= 1 for share in shares)


def test_what_does_not_fit_into_memory(writer, monkeypatch):  # noqa: F811
    monkeypatch.setattr("regard.look.text_limits.free_memory", lambda device: 2_000)
    for method in ("ig", "attention"):
        with pytest.raises(DataError, match="which fit into 2.0 KiB"):
            explain(writer, method=method)


# Bad input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        (dict(text=""), DataError, "empty text"),
        (dict(text="  "), DataError, "empty text"),
        (dict(method="shapp"), UsageError, "did you mean shap?"),
        (dict(baseline="zeroo"), UsageError, "did you mean zero?"),
        (dict(target=""), DataError, "no token"),
        (dict(samples=0), UsageError, "from 1 up"),
        (dict(method="lime", samples=1), UsageError, "2 samples"),
        (dict(text=TEXT * 20), DataError, "at most 40"),
    ],
)
def test_bad_input(writer, options, kind, said):  # noqa: F811
    with pytest.raises(kind, match=re.escape(said)):
        explain(writer, **options)


def test_models_that_are_not_there(writer, tmp_path):  # noqa: F811
    for name in ("config.json", "model.safetensors"):
        shutil.copy(writer / name, tmp_path)
    with pytest.raises(DataError, match="no tokenizer"):
        explain(tmp_path)
    with pytest.raises(DataError, match="nothing"):
        explain(tmp_path / "nothing")


def test_what_fits_is_said(writer):  # noqa: F811
    text = " ".join(str(n) for n in range(60))
    with pytest.raises(DataError, match="at most 40, which this model reads"):
        explain(writer, text)


def test_scores_that_are_no_numbers(writer):  # noqa: F811
    kit = load(writer)
    with torch.no_grad():
        kit.model.decoder.norm.weight.fill_(torch.nan)
    for method in METHODS[:4]:
        with pytest.raises(RegardError, match="NaN"):
            explain(kit, "the cat", method=method)


def test_a_tagger_predicts_no_words(masker, tmp_path):  # noqa: F811
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(masker / name, tmp_path)
    sizes = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=200)
    more = dict(intermediate_size=32, max_position_embeddings=40)
    save_model(tmp_path, "BertForTokenClassification", "BertConfig", **sizes, **more)
    with pytest.raises(UsageError, match="predicts no words"):
        explain(tmp_path)
