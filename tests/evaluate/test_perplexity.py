"""Perplexity by a plain loop, by position, of speech; and what is no language model."""

from __future__ import annotations

import math

import pytest
import torch

import regard
from regard.decode.scoring import windows
from regard.errors import DataError, RegardWarning, UsageError
from regard.interop.families import bind
from regard.kit import Kit
from regard.loading import load
from regard.model.batch import Batch
from regard.model.model import Model
from regard.model.presets import llama
from regard.tokens.trainers import train_tokenizer
from tests.cli.small_folders import pair, writer  # noqa: F401
from tests.evaluate.runs import TEXT, run, text  # noqa: F401


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
        ({}, 40, 40, "40 tokens; they do not overlap"),
        ({"length": 16}, 16, 16, "16 tokens; they do not overlap"),
        ({"length": 16, "stride": 5}, 16, 5, "16 tokens; they begin 5 apart"),
    ],
)
def test_perplexity_by_a_plain_loop(writer, text, flags, length, stride, said):  # noqa: F811
    score = regard.evaluate.lm(writer, text, **flags)
    total, count = plain_loop(writer, length, stride)
    assert score.windows == said and score.tokens == count
    assert score.loss == pytest.approx(-total / count, abs=1e-4)
    assert score.perplexity == pytest.approx(math.exp(-total / count), rel=1e-3)
    assert score.bits_per_token == pytest.approx(-total / count / math.log(2), abs=1e-4)
    first = load(writer).tokenizer.decode(load(writer).tokenizer.encode(TEXT)[:1])
    assert score.bytes == len(TEXT.encode()) - len(first.encode())
    assert score.bits_per_byte == pytest.approx(-total / math.log(2) / score.bytes, abs=1e-4)


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


def test_perplexity_by_position(tmp_path, text):  # noqa: F811
    """A Llama of trained length 16 on windows of 40, each token's place counted by hand."""
    tokenizer = train_tokenizer([TEXT], "bpe", 300, specials=("pad", "eos"))
    config = llama(16, 2, 2, 2, 32, vocab=tokenizer.size, length=16)
    Kit(Model.fresh(config), tokenizer, bind("LlamaForCausalLM")).save(tmp_path / "short")
    kit = load(tmp_path / "short")
    with pytest.warns(RegardWarning, match=r"\[long-input\] 40 tokens.*at most 16"):
        score = regard.evaluate.lm(kit, text, length=40, by_position=True)
    kit.model.requires_grad_(False)
    ids, sums = kit.tokenizer.encode(TEXT), {}
    for start in range(0, len(ids) - 1, 40):
        window = ids[start : start + 41]
        log = kit.model(Batch(torch.tensor([window[:-1]])))[0].log_softmax(-1)
        for before in range(1, len(window)):
            sums.setdefault(before, []).append(float(log[before - 1, window[before]]))
    bands = [(1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (17, 32), (33, 64)]
    assert [(row.low, row.high) for row in score.by_position] == bands
    for row in score.by_position:
        values = [v for n in range(row.low, row.high + 1) for v in sums.get(n, [])]
        assert row.tokens == len(values)
        assert row.perplexity == pytest.approx(math.exp(-sum(values) / len(values)), rel=1e-4)
    assert sum(row.tokens for row in score.by_position) == score.tokens
    assert "33    64" in str(score)
    (line,) = score.plot().axes[0].get_lines()
    assert line.get_ydata().tolist() == [row.perplexity for row in score.by_position]


def test_ngrams_have_nothing_to_edit_or_to_regularise(tmp_path, text):  # noqa: F811
    regard.train.ngram(text, out=tmp_path / "ngrams", tokens="spaced")
    for model in (tmp_path / "ngrams", load(tmp_path / "ngrams")):
        for how in ({"edit": ["*.z=zero"]}, {"nv": 0.3}):
            with pytest.raises(UsageError, match=f"--{[*how][0]} with n-grams"):
                regard.evaluate.lm(model, text, allow_overlap=True, **how)


def test_speech_beside_its_cleaned_text(writer, tmp_path):  # noqa: F811
    spoken, cleaned = tmp_path / "talk.txt", tmp_path / "clean.txt"
    spoken.write_text("the uh the cat sat on the mat\nParis is um is the capital\n" * 4)
    cleaned.write_text("the cat sat on the mat\nParis is the capital\n" * 4)
    scores = regard.evaluate.lm(writer, spoken, speech=True)
    for of_version, file in ((scores.texts["spoken"], spoken), (scores.texts["cleaned"], cleaned)):
        alone = regard.evaluate.lm(writer, file).to_dict()
        assert of_version.to_dict() == {key: alone[key] for key in of_version.to_dict()}
    assert scores.texts["shuffled"].bytes == scores.texts["spoken"].bytes
    assert scores.texts["shuffled"].loss != scores.texts["spoken"].loss and "cleaned" in str(scores)
    with pytest.raises(DataError, match="no fillers and no restarts"):
        regard.evaluate.lm(writer, cleaned, speech=True)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"length": 0}, "from 1 up"),
        ({"length": 41}, "at most 40"),
        ({"length": 8, "stride": 9}, "a stride of 1 to the length"),
    ],
)
def test_lengths_that_do_not_fit(writer, text, flags, said):  # noqa: F811
    with pytest.raises(UsageError, match=said):
        regard.evaluate.lm(writer, text, **flags)


def test_what_is_no_text_or_no_language_model(writer, pair, text, tmp_path):  # noqa: F811
    with pytest.raises(UsageError, match="a decoder"):
        regard.evaluate.lm(pair, text)
    (tmp_path / "empty").write_text("")
    with pytest.raises(DataError, match="0 tokens") as error:
        regard.evaluate.lm(writer, tmp_path / "empty")
    assert error.value.expected == "2 tokens or more"
    with pytest.raises(DataError, match="no such file"):
        regard.evaluate.lm(writer, tmp_path / "none")
    (tmp_path / "bad").write_bytes(b"abc \xff")
    with pytest.raises(DataError, match="byte 4"):
        regard.evaluate.lm(writer, tmp_path / "bad")


def test_a_tokenizer_of_another_model(writer, pair, text, run, tmp_path):  # noqa: F811
    file = tmp_path / "train.txt"
    file.write_text("nothing\n")
    folder = run(writer, [file])
    load(writer).tokenizer.save(folder.parent / "tokenizer")
    regard.evaluate.lm(folder, text)
    load(pair).tokenizer.save(folder)  # fewer ids, so that it would run
    with pytest.raises(DataError, match="differs from the one of the run"):
        regard.evaluate.lm(folder, text)
    many = " ".join(str(7919 * n) for n in range(500))
    large, size = train_tokenizer([many], "bpe", 400), load(writer).tokenizer.size
    assert large.size > size
    large.save(folder)
    with pytest.raises(DataError, match=f"a tokenizer of {large.size} ids, a model of {size}"):
        regard.evaluate.lm(folder, text)


@pytest.mark.parametrize("stride", [None, 3])
def test_unknown_words_of_a_network_are_counted_too(tmp_path, stride):
    tokenizer = train_tokenizer(["the cat sat on the mat\n"], "spaced", specials=["eos"])
    model = Model.fresh(llama(16, 1, 2, 2, 32, vocab=tokenizer.size, length=8), 0)
    kit = Kit(model, tokenizer, bind("LlamaForCausalLM"))
    (tmp_path / "test.txt").write_text("the cat saw a zebra on the mat\nthe cat sat on été\n")
    score = regard.evaluate.lm(kit, tmp_path / "test.txt", stride=stride)
    assert score.unknown == 4  # saw, a, zebra, été
    spelt = sum(len(word.encode()) + 1 for word in ("saw", "a", "zebra", "été"))
    bits = score.bits_per_token * score.tokens + 8 * spelt
    assert score.bits_per_byte == pytest.approx(bits / score.bytes)
    ids = tokenizer.encode((tmp_path / "test.txt").read_text(), special=False)
    if stride is None:  # windows that do not overlap, token by token
        logs = []
        for start in range(0, len(ids) - 1, 8):
            window = ids[start : start + 9]
            with torch.no_grad():
                rows = model(Batch(torch.tensor([window[:-1]])))[0].log_softmax(-1)
            logs += [float(row[id]) for row, id in zip(rows, window[1:], strict=True)]
        unk = tokenizer.specials["unk"]
        known = [log for log, id in zip(logs, ids[1:], strict=True) if id != unk]
        assert len(logs) == score.tokens
        assert score.perplexity_known == pytest.approx(math.exp(-sum(known) / len(known)), rel=1e-4)
