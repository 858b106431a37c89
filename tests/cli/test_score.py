"""`regard score`: log-probabilities against transformers."""

from __future__ import annotations

import json
import math

import pytest
import torch

from regard.loading import load
from tests.cli.small_folders import masker, pair, stdin, writer  # noqa: F401

TEXT = "the cat sat on the mat"


def transformers_model(name, folder):
    import transformers

    return getattr(transformers, name).from_pretrained(folder).eval()


def test_a_decoder(here, writer, stdin):  # noqa: F811
    code, out, err = here("score", writer, TEXT, "--json")
    found = json.loads(out)
    ids = load(writer).tokenizer.encode(TEXT)
    with torch.no_grad():
        model = transformers_model("GPT2LMHeadModel", writer)
        log = model(torch.tensor([ids])).logits[0].log_softmax(-1)
    wanted = [float(log[n, ids[n + 1]]) for n in range(len(ids) - 1)]
    assert (code, err) == (0, "") and found["tokens"] == ids and found["logprobs"][0] is None
    assert found["logprobs"][1:] == pytest.approx(wanted, abs=1e-4)
    assert found["logprob"] == pytest.approx(sum(wanted), abs=1e-3)
    assert found["perplexity"] == pytest.approx(math.exp(-sum(wanted) / len(wanted)), rel=1e-4)
    stdin(f"{TEXT}\n\nthe cat\n")
    assert json.loads(here("score", writer, "--json")[1].splitlines()[0]) == found
    stdin(f"{TEXT}\n\n")
    code, out, _ = here("score", writer)
    assert code == 0 and "perplexity" in out and "an empty text" in out


def test_a_pair(here, pair):  # noqa: F811
    code, out, _ = here("score", pair, "the cat\tthe dog sat", "--json")
    found, kit = json.loads(out), load(pair)
    source, target = kit.tokenizer.encode("the cat"), kit.tokenizer.encode("the dog sat")
    with torch.no_grad():
        model = transformers_model("T5ForConditionalGeneration", pair)
        labels = torch.tensor([target])
        log = model(torch.tensor([source]), labels=labels).logits[0].log_softmax(-1)
    wanted = [float(log[n, id]) for n, id in enumerate(target)]
    assert code == 0 and found["tokens"] == target
    assert found["logprobs"] == pytest.approx(wanted, abs=1e-4)
    assert here("score", pair, "no tab")[0] == 3


def test_a_masked_model_hides_one_token_at_a_time(here, masker):  # noqa: F811
    found = json.loads(here("score", masker, TEXT, "--json")[1])
    tokenizer, model = load(masker).tokenizer, transformers_model("BertForMaskedLM", masker)
    ids = tokenizer.encode(TEXT)
    assert found["logprobs"][0] is None and found["logprobs"][-1] is None
    for n in range(1, len(ids) - 1):
        hidden = torch.tensor([ids])
        hidden[0, n] = tokenizer.specials["mask"]
        with torch.no_grad():
            wanted = float(model(hidden).logits[0, n].log_softmax(-1)[ids[n]])
        assert found["logprobs"][n] == pytest.approx(wanted, abs=1e-4)


def test_too_long(here, writer):  # noqa: F811
    code, _, err = here("score", writer, TEXT * 20)
    assert code == 3 and "at most 40" in err and "regard evaluate lm" in err


def test_scores_that_are_no_numbers(here, writer, tmp_path):  # noqa: F811
    kit = load(writer)
    with torch.no_grad():
        kit.model.decoder.norm.weight.fill_(torch.nan)
    kit.save(tmp_path / "nan")
    for command in ("score", "generate"):
        code, out, said = here(command, tmp_path / "nan", "the cat", "--json")
        assert (code, out) == (1, "") and "NaN" in said
    assert here("generate", tmp_path / "nan", "the cat", "--beams", 2)[0] == 1
    with torch.no_grad():
        kit.model.decoder.norm.weight.fill_(3e7)
    kit.save(tmp_path / "big")
    code, out, _ = here("score", tmp_path / "big", "the cat", "--json")
    assert code == 0 and json.loads(out)["perplexity"] is None  # too large for a number
    assert here("score", tmp_path / "big", "the cat")[0] == 0


def test_tokens_are_shown_as_text(here, writer):  # noqa: F811
    code, out, _ = here("score", writer, TEXT)
    assert code == 0 and "Ġ" not in out and " mat" in out
    pieces = json.loads(here("score", writer, TEXT, "--json")[1])["pieces"]
    assert "".join(pieces) == TEXT
