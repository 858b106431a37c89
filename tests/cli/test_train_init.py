"""`regard train … --init`: a run that begins with the weights of another model."""

from __future__ import annotations

import json

import pytest
import torch

from regard.files import file_hash
from regard.loading import load
from regard.train.checkpoint import weight_hash
from tests.cli.train_runs import words, write_corpus

RUN = "--steps 3 --length 16 --batch-tokens 64 --device cpu --save-every 2".split()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """The files of all runs, and a model of each kind to begin with."""
    from regard.cli.main import main

    folder = write_corpus(tmp_path_factory.mktemp("corpus"))
    for kind in ("lm", "mlm", "seq2seq"):
        assert main([str(w) for w in words(kind, folder, folder / kind, "-q")]) == 0
    return folder


def further(kind, corpus, out, *more):
    file = corpus / ("pairs.tsv" if kind == "seq2seq" else "text.txt")
    return ["train", kind, file, "--init", corpus / kind / "final", "--out", out, *RUN, *more]


@pytest.mark.parametrize("kind", ["lm", "mlm", "seq2seq"])
def test_steps_of_size_zero_leave_the_weights_it_began_with(kind, here, corpus, tmp_path):
    assert here(*further(kind, corpus, tmp_path / "r", "--lr", "1e-60"))[0] == 0
    old, new = (load(p / "final") for p in (corpus / kind, tmp_path / "r"))
    assert weight_hash(new.model) == weight_hash(old.model)
    assert new.tokenizer.files["tokenizer.json"] == old.tokenizer.files["tokenizer.json"]
    assert new.config == old.config
    receipt = json.loads((tmp_path / "r" / "receipt.json").read_text())
    file = corpus / kind / "final" / "model.safetensors"
    assert receipt["data"][str(file)] == file_hash(file)


def test_it_learns_resumes_and_replays(here, corpus, tmp_path):
    code, _, err = here(*further("seq2seq", corpus, tmp_path / "whole"))
    assert code == 0 and f"beginning with the weights of {corpus}" in err
    assert here(*further("seq2seq", corpus, tmp_path / "part", "--steps", "2"))[0] == 0
    assert here("train", "--resume", "--out", tmp_path / "part", "--steps", "3")[0] == 0
    whole, part = (load(tmp_path / name / "final").model for name in ("whole", "part"))
    started = load(corpus / "seq2seq" / "final").model
    assert not torch.equal(next(whole.parameters()), next(started.parameters()))
    assert here("replay", tmp_path / "whole" / "receipt.json")[0] == 0
    steps = [json.loads(s) for s in (tmp_path / "part" / "metrics.jsonl").read_text().splitlines()]
    assert steps[-1]["step"] == 3 and weight_hash(part) != weight_hash(started)


def test_int8_weights_are_trained_as_plain_ones(here, corpus, tmp_path):
    assert here("export", "int8", corpus / "seq2seq" / "final", tmp_path / "small")[0] == 0
    more = ["--init", tmp_path / "small", "--lr", "1e-60"]
    assert here(*further("seq2seq", corpus, tmp_path / "r", *more))[0] == 0
    small = load(tmp_path / "small", precision=None).model
    assert weight_hash(load(tmp_path / "r" / "final").model) == weight_hash(small)


def test_a_dry_run_counts_its_weights(here, corpus, tmp_path):
    code, out, _ = here(*further("lm", corpus, tmp_path / "r", "--dry-run", "--json"))
    model = load(corpus / "lm" / "final").model
    assert code == 0
    assert json.loads(out)["model"]["parameters"] == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (["--dim", "32"], 2, "dim = 32"),
        (["--tokens", "chars"], 2, "tokens = chars"),
        (["--preset", "llama-15m"], 2, "with init"),
        (["--init", "nowhere"], 2, "no such file"),
        (["--init", "de-en"], 2, "fr-en"),
        (["--init", "OTHER"], 3, "an encoder-decoder"),
    ],
)
def test_what_does_not_go_together(more, code, said, here, corpus, tmp_path):
    more = [corpus / "seq2seq" / "final" if word == "OTHER" else word for word in more]
    done = here(*further("lm", corpus, tmp_path / "r", *more))
    assert done[0] == code and said in done[2]


def test_longer_windows_than_its_table_of_positions(here, corpus, tmp_path):
    long = ["--length", "64", "--batch-tokens", "64"]
    code, _, err = here(*further("mlm", corpus, tmp_path / "r", *long))
    assert code == 3 and "length = 64" in err and "--length 16" in err
