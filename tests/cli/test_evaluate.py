"""`regard eval`: perplexity by a plain loop, BLEU of the same text, and planted leaks (N14)."""

from __future__ import annotations

import json
import math
import shutil

import pytest
import torch

from regard.decode.scoring import windows
from regard.errors import UsageError
from regard.files import file_hash
from regard.interop.families import bind
from regard.kit import Kit
from regard.loading import load
from regard.model.batch import Batch
from regard.model.model import Model
from regard.model.presets import llama
from regard.receipt import write_receipt
from regard.tokens.trainers import train_tokenizer
from regard.translation.document import Document, TargetText
from regard.translation.translator import Translator
from tests.cli.small_folders import pair, writer  # noqa: F401

TEXT = "the cat sat on the mat, and the dog sat on the log.\nParis is the capital of France.\n" * 4


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "test.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "test.tsv"
    path.write_text("the cat\tle chat\nthe dog\tle chien noir\nParis is\tParis est là\n")
    return path


# Language models --------------------------------------------------------------------------------


def plain_loop(folder, length, stride):
    """Sum of log-probabilities, token by token, each seen once."""
    import transformers

    model = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
    ids = load(folder).tokenizer.encode(TEXT)
    total, at = 0.0, 1
    with torch.no_grad():
        for start in range(0, len(ids), stride):
            window = ids[start : start + length + 1]
            log = model(torch.tensor([window[:-1]])).logits[0].log_softmax(-1) if window[1:] else 0
            for n in range(max(at, start + 1), start + len(window)):
                total += float(log[n - start - 1, ids[n]])
                at = n + 1
    return total, len(ids) - 1


@pytest.mark.parametrize(
    ("flags", "length", "stride", "said"),
    [
        ((), 40, 40, "40 tokens; they do not overlap"),
        (("--length", 16), 16, 16, "16 tokens; they do not overlap"),
        (("--length", 16, "--stride", 5), 16, 5, "16 tokens; they begin 5 apart"),
    ],
)
def test_perplexity_by_a_plain_loop(here, writer, text, flags, length, stride, said):  # noqa: F811
    code, out, err = here("eval", "lm", writer, text, *flags, "--json")
    found = json.loads(out)
    total, count = plain_loop(writer, length, stride)
    assert code == 0 and "no --train" in err and found["windows"] == said
    assert found["tokens"] == count
    assert found["loss"] == pytest.approx(-total / count, abs=1e-4)
    assert found["perplexity"] == pytest.approx(math.exp(-total / count), rel=1e-3)
    assert found["bits_per_token"] == pytest.approx(-total / count / math.log(2), abs=1e-4)
    first = load(writer).tokenizer.decode(load(writer).tokenizer.encode(TEXT)[:1])
    assert found["bytes"] == len(TEXT.encode()) - len(first.encode())
    assert found["bits_per_byte"] == pytest.approx(-total / math.log(2) / found["bytes"], abs=1e-4)


@pytest.mark.parametrize(
    ("count", "length", "stride"), [(1, 4, 4), (5, 4, 4), (23, 4, 3), (9, 8, 1)]
)
def test_every_token_but_the_first_counts_once(count, length, stride):
    seen = []
    for window, new in windows(range(count), length, stride):
        assert len(window) <= length + 1 and window == list(range(window[0], window[-1] + 1))
        seen += window[len(window) - new :]
    assert seen == list(range(1, count))
    with pytest.raises(UsageError, match="a stride of 1 to the length"):
        list(windows(range(9), 4, 5))


def test_perplexity_by_position(here, tmp_path, text):
    """A Llama of trained length 16 on windows of 40, each token's place counted by hand."""
    made = train_tokenizer([TEXT], "bpe", 300, specials=("pad", "eos"))
    config = llama(16, 2, 2, 2, 32, vocab=made.size, length=16)
    Kit(Model.fresh(config), made, bind("LlamaForCausalLM")).save(tmp_path / "short")
    flags = ("--length", 40, "--by-position")
    code, out, err = here("eval", "lm", tmp_path / "short", text, *flags, "--json")
    assert code == 0 and "[long-input] 40 tokens" in err and "at most 16" in err
    kit = load(tmp_path / "short")
    kit.model.requires_grad_(False)
    ids, sums = kit.tokenizer.encode(TEXT), {}
    for start in range(0, len(ids) - 1, 40):
        window = ids[start : start + 41]
        log = kit.model(Batch(torch.tensor([window[:-1]])))[0].log_softmax(-1)
        for before in range(1, len(window)):
            sums.setdefault(before, []).append(float(log[before - 1, window[before]]))
    bands = [(1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (17, 32), (33, 64)]
    found = json.loads(out)["by_position"]
    assert [(row["from"], row["to"]) for row in found] == bands
    for row in found:
        values = [v for n in range(row["from"], row["to"] + 1) for v in sums.get(n, [])]
        assert row["tokens"] == len(values)
        assert row["perplexity"] == pytest.approx(math.exp(-sum(values) / len(values)), rel=1e-4)
    assert sum(row["tokens"] for row in found) == json.loads(out)["tokens"]
    shown = here("eval", "lm", tmp_path / "short", text, *flags, "-q")[1]
    assert "33 to 64" in shown and "█" * 40 in shown and "  by_position" not in shown


def test_lm_for_people(here, writer, text):  # noqa: F811
    out = here("eval", "lm", writer, text, "-q")[1]
    assert "bits_per_byte" in out and "not checked" in out


def test_speech_beside_its_cleaned_text(here, writer, tmp_path):  # noqa: F811
    spoken = tmp_path / "talk.txt"
    spoken.write_text("the uh the cat sat on the mat\nParis is um is the capital\n" * 4)
    (tmp_path / "clean.txt").write_text("the cat sat on the mat\nParis is the capital\n" * 4)
    found = json.loads(here("eval", "lm", writer, spoken, "--speech", "--json")[1])
    for name, file in (("spoken", spoken), ("cleaned", tmp_path / "clean.txt")):
        alone = json.loads(here("eval", "lm", writer, file, "--json")[1])
        assert found[name] == {key: alone[key] for key in found[name]}
    assert found["shuffled"]["bytes"] == found["spoken"]["bytes"]
    assert found["shuffled"]["loss"] != found["spoken"]["loss"]
    code, out, _ = here("eval", "lm", writer, spoken, "--speech")
    assert code == 0 and "cleaned" in out
    code, _, err = here("eval", "lm", writer, tmp_path / "clean.txt", "--speech")
    assert code == 3 and "no fillers and no restarts" in err


def test_a_leak_of_lines(here, writer, text, tmp_path):  # noqa: F811
    train = tmp_path / "train.txt"
    train.write_text("another line\nPARIS is the  capital of france.\n")  # six words: by chance
    code, out, _ = here("eval", "lm", writer, text, "--train", train, "--json")
    assert code == 0 and json.loads(out)["overlap"] == "none"
    train.write_text(TEXT.splitlines()[0].upper() + "\n")
    code, out, err = here("eval", "lm", writer, text, "--train", train, "--json")
    assert (code, out) == (3, "") and "4 of 4 by lines of 8 words" in err
    code, out, _ = here("eval", "lm", writer, text, "--train", train, "--allow-overlap", "--json")
    assert code == 0 and json.loads(out)["overlap"].startswith("NOT A SCORE: 4 of 4")


def test_wrong_lm_calls(here, writer, pair, text, tmp_path):  # noqa: F811
    for flags, said in (
        (("--length", 0), "1 or more"),
        (("--length", 41), "at most 40"),
        (("--length", 8, "--stride", 9), "a stride of 1 to the length"),
    ):
        code, _, err = here("eval", "lm", writer, text, *flags)
        assert code == 2 and said in err
    code, _, err = here("eval", "lm", pair, text)
    assert code == 2 and "a decoder" in err
    (tmp_path / "empty").write_text("")
    code, _, err = here("eval", "lm", writer, tmp_path / "empty")
    assert code == 3 and "0 tokens" in err and "2 tokens or more" in err
    assert here("eval", "lm", writer, tmp_path / "none")[0] == 3
    (tmp_path / "bad").write_bytes(b"abc \xff")
    code, _, err = here("eval", "lm", writer, tmp_path / "bad")
    assert code == 3 and "byte 4" in err


# Translation ------------------------------------------------------------------------------------


def test_scores_with_signatures(here, pair, pairs):  # noqa: F811
    code, out, _ = here("eval", "translate", pair, pairs, "--beams", 2, "--json", "-q")
    found = json.loads(out)
    assert code == 0 and 0 <= found["bleu"] < 100 and found["lines"] == 3 and found["beams"] == 2
    assert "tok:13a" in found["bleu_signature"] and "nc:6" in found["chrf_signature"]


def test_the_same_text_has_100(here, pair, pairs, monkeypatch):  # noqa: F811
    lines = [line.split("\t")[1] for line in pairs.read_text().splitlines()]
    lines = [f"{line} et encore des mots" for line in lines]
    pairs.write_text("".join(f"x\t{line}\n" for line in lines))
    answers = [Document("", [], [TargetText(line, 0.0, [])]) for line in lines]
    monkeypatch.setattr(Translator, "translate", lambda crew, given, tell: answers)
    found = json.loads(here("eval", "translate", pair, pairs, "--json", "-q")[1])
    assert found["bleu"] == pytest.approx(100) and found["chrf"] == pytest.approx(100)


@pytest.mark.parametrize(
    ("leak", "side"),
    [("the cat\tun autre", "1 of 3 by source"), ("x\tLE CHAT", "1 of 3 by target")],
)
def test_planted_leaks_are_caught(here, pair, pairs, tmp_path, leak, side):  # noqa: F811
    train = tmp_path / "train.tsv"
    train.write_text(f"a\tb\n{leak}\n")
    code, out, err = here("eval", "translate", pair, pairs, "--train", train, "--json")
    assert (code, out) == (3, "") and side in err and "line 1" in err and "--allow-overlap" in err
    flags = ("--train", train, "--allow-overlap", "--beams", 1, "--json")
    found = json.loads(here("eval", "translate", pair, pairs, *flags)[1])
    assert found["overlap"].startswith("NOT A SCORE")
    train.write_text("a\tb\n")
    found = json.loads(here("eval", "translate", pair, pairs, *flags)[1])
    assert found["overlap"] == "none"


def test_without_sacrebleu(here, pair, pairs, monkeypatch):  # noqa: F811
    import sys

    monkeypatch.setitem(sys.modules, "sacrebleu.metrics.bleu", None)
    code, _, err = here("eval", "translate", pair, pairs, "--beams", 1)
    assert code == 2 and "pip install 'regard[score]'" in err


def test_wrong_pairs(here, pair, writer, pairs, tmp_path):  # noqa: F811
    (tmp_path / "odd").write_text("one\ttwo\nno tab\n")
    code, _, err = here("eval", "translate", pair, tmp_path / "odd")
    assert code == 3 and "line 2" in err
    (tmp_path / "empty").write_text("")
    assert here("eval", "translate", pair, tmp_path / "empty")[0] == 3
    assert "an encoder-decoder" in here("eval", "translate", writer, pairs)[2]


# What a run was trained on ----------------------------------------------------------------------


@pytest.fixture
def run(tmp_path):
    """Puts a folder where a run leaves it, with a receipt that names training files."""

    def make(folder, files, valid=()):
        made = tmp_path / "run" / "final"
        shutil.copytree(folder, made)
        names = {"files": [f.name for f in files], "valid": [f"data/{f.name}" for f in valid]}
        data = {str(f): file_hash(f) for f in (*files, *valid)}
        receipt = {"config": names, "data": data, "results": {}}
        write_receipt(made.parent / "receipt.json", receipt)
        return made

    return make


def test_a_run_knows_what_it_was_trained_on(here, writer, text, run, tmp_path):  # noqa: F811
    leak, clean, valid = tmp_path / "a.txt", tmp_path / "b.txt", tmp_path / "data" / "a.txt"
    valid.parent.mkdir()
    leak.write_text(f"something else\n{TEXT.splitlines()[0].upper()}\n")
    clean.write_text("nothing of the kind\n")
    valid.write_text(TEXT)  # a model is not trained on what it was chosen by
    made = run(writer, [leak, clean], [valid])
    code, out, err = here("eval", "lm", made, text, "--json")
    assert (code, out) == (3, "") and "4 of 4 by lines of 8 words" in err and str(leak) in err
    code, out, _ = here("eval", "lm", made, text, "--allow-overlap", "--json", "-q")
    assert code == 0 and json.loads(out)["overlap"].startswith("NOT A SCORE")
    code, out, _ = here("eval", "lm", made, text, "--train", clean, "--json", "-q")
    assert code == 0 and json.loads(out)["overlap"] == "none"  # what is said goes before
    leak.write_text("another text\n")
    code, out, err = here("eval", "lm", made, text, "--json")
    said = json.loads(out)["overlap"]
    assert code == 0 and said.startswith("none in 1 files; not checked") and "SHA-256" in said
    leak.unlink()
    clean.unlink()
    code, out, err = here("eval", "lm", made, text, "--json")
    said = json.loads(out)["overlap"]
    assert code == 0 and said.startswith("not checked") and said.count("No such file") == 2
    assert f"overlap {said}" in err
    (made.parent / "receipt.json").unlink()
    assert "no --train" in here("eval", "lm", made, text)[2]


@pytest.mark.parametrize("two", [False, True])
def test_pairs_that_a_run_was_trained_on(here, pair, pairs, run, tmp_path, two):  # noqa: F811
    if two:
        files = [tmp_path / "train.fr", tmp_path / "train.en"]
        files[0].write_text("le chien\nthe cat\n")
        files[1].write_text("the dog\nun autre\n")
    else:
        files = [tmp_path / "train.tsv"]
        files[0].write_text("le chien\tthe dog\nthe cat\tun autre\n")
    code, _, err = here("eval", "translate", run(pair, files), pairs)
    assert code == 3 and "1 of 3 by source" in err


def test_a_tokenizer_of_another_model(here, writer, pair, text, run, tmp_path):  # noqa: F811
    file = tmp_path / "train.txt"
    file.write_text("nothing\n")
    made = run(writer, [file])
    load(writer).tokenizer.save(made.parent / "tokenizer")
    assert here("eval", "lm", made, text, "-q")[0] == 0
    load(pair).tokenizer.save(made)  # fewer ids, so that it would run
    code, _, err = here("eval", "lm", made, text)
    assert code == 3 and "differs from the one of the run" in err
    many = " ".join(str(7919 * n) for n in range(500))
    large, size = train_tokenizer([many], "bpe", 400), load(writer).tokenizer.size
    assert large.size > size
    large.save(made)
    code, _, err = here("eval", "lm", made, text)
    assert code == 3 and f"a tokenizer of {large.size} ids, a model of {size}" in err
