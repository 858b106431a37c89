"""`init`: a run that begins with the weights of another model."""

from __future__ import annotations

import pytest
import torch

import regard
from regard.cli.main import main
from regard.errors import DataError, UsageError
from regard.files import file_hash
from regard.loading import load_kit
from regard.receipt import read_receipt
from regard.train.checkpoint import weight_hash
from tests.train.small_runs import train, train_on, write_corpus

RUN = dict(steps=3, length=16, batch_tokens=64, save_every=2)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """The files of all runs, and a model of each kind to begin with."""
    folder = write_corpus(tmp_path_factory.mktemp("corpus"))
    for kind in ("lm", "mlm", "seq2seq"):
        train(kind, folder, folder / kind)
    return folder


def further(kind, corpus, out, **more):
    file = corpus / ("pairs.tsv" if kind == "seq2seq" else "text.txt")
    return train_on(file, kind, out, **RUN | {"init": str(corpus / kind / "final")} | more)


@pytest.mark.parametrize("kind", ["lm", "mlm", "seq2seq"])
def test_steps_of_size_zero_leave_the_weights_it_began_with(kind, corpus, tmp_path):
    run = further(kind, corpus, tmp_path / "r", lr=1e-60)
    old, new = load_kit(corpus / kind / "final"), run.kit
    assert weight_hash(new.model) == weight_hash(old.model)
    assert new.tokenizer.files["tokenizer.json"] == old.tokenizer.files["tokenizer.json"]
    assert new.config == old.config
    file = corpus / kind / "final" / "model.safetensors"
    assert read_receipt(run.folder)["data"][str(file)] == file_hash(file)


def test_it_learns_resumes_and_replays(corpus, tmp_path, capsys):
    whole = further("seq2seq", corpus, tmp_path / "whole")
    assert f"beginning with the weights of {corpus}" in capsys.readouterr().err
    further("seq2seq", corpus, tmp_path / "part", steps=2)
    part = train_on(None, "seq2seq", tmp_path / "part", resume=True, steps=3)
    started = load_kit(corpus / "seq2seq" / "final").model
    assert not torch.equal(next(whole.kit.model.parameters()), next(started.parameters()))
    assert regard.replay(whole.folder / "receipt.json").match
    assert part.metrics[-1]["step"] == 3 and part.weights != weight_hash(started)


def test_int8_weights_are_trained_as_plain_ones(corpus, tmp_path):
    model = str(corpus / "seq2seq" / "final")
    assert main(["export", "int8", model, str(tmp_path / "small")]) == 0
    run = further("seq2seq", corpus, tmp_path / "r", init=str(tmp_path / "small"), lr=1e-60)
    small = load_kit(tmp_path / "small", precision=None).model
    assert run.weights == weight_hash(small)


def test_a_dry_run_counts_its_weights(corpus, tmp_path):
    plan = further("lm", corpus, tmp_path / "r", dry_run=True)
    model = load_kit(corpus / "lm" / "final").model
    assert plan.model["parameters"] == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("more", "kind", "said"),
    [
        ({"dim": 32}, UsageError, "dim = 32"),
        ({"tokens": "chars"}, UsageError, "tokens = chars"),
        ({"preset": "llama-15m"}, UsageError, "with init"),
        ({"init": "nowhere"}, UsageError, "no such file"),
        ({"init": "de-en"}, UsageError, "fr-en"),
        ({"init": "OTHER"}, DataError, "an encoder-decoder"),
    ],
)
def test_what_does_not_go_together(more, kind, said, corpus, tmp_path):
    if more.get("init") == "OTHER":
        more = {"init": str(corpus / "seq2seq" / "final")}
    with pytest.raises(kind, match=said):
        further("lm", corpus, tmp_path / "r", **more)


def test_longer_windows_than_its_table_of_positions(corpus, tmp_path):
    with pytest.raises(DataError, match="length = 64") as caught:
        further("mlm", corpus, tmp_path / "r", length=64)
    assert caught.value.fix == "--length 16"
