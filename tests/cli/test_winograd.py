"""`regard eval winograd` as a user calls it."""

from __future__ import annotations

import json

import pytest
import torch

from regard.data.schemas import read_schemas
from regard.loading import load
from tests.cli.small_folders import masker, pair, writer  # noqa: F401
from tests.cli.test_score import transformers_model

HEADER = "text\ta\tb\tanswer\n"
ROWS = (
    "the cat sat on _ today\tthe mat\tthe log\ta\n"
    "the dog sat on _ today\tthe mat\tthe log\tb\n"
    "the cat saw _ in Paris\tthe capital\tthe dog\ta\n"
)


@pytest.fixture
def schemas(tmp_path):
    file = tmp_path / "s.tsv"
    file.write_text(HEADER + ROWS)
    return file


def after(tokenizer, schema, candidate):
    """Places of tokens after the candidate, by their letters."""
    text = schema.text(candidate)
    return [n for n, (_, e) in enumerate(tokenizer.offsets(text)) if e > schema.span(candidate)[1]]


@pytest.mark.parametrize("full", [False, True])
def test_a_decoder_against_transformers(here, writer, schemas, full):  # noqa: F811
    flags = ["--full"] if full else []
    code, out, _ = here("eval", "winograd", writer, schemas, "--json", *flags)
    found, tokenizer = json.loads(out), load(writer).tokenizer
    assert code == 0 and found["score"] == ("full" if full else "partial")
    model = transformers_model("GPT2LMHeadModel", writer)
    right = []
    for schema, row in zip(read_schemas(schemas), found["schemas"], strict=True):
        for candidate in (0, 1):
            ids = tokenizer.encode(schema.text(candidate))
            with torch.no_grad():
                log = model(torch.tensor([ids])).logits[0].log_softmax(-1)
            places = range(1, len(ids)) if full else after(tokenizer, schema, candidate)
            wanted = sum(float(log[n - 1, ids[n]]) for n in places)
            assert row["scores"][candidate] == pytest.approx(wanted, abs=1e-3)
        a, b = row["scores"]
        right.append((a > b) if schema.answer == 0 else (b > a))
    assert found["single"]["right"] == sum(right) and found["single"]["asked"] == 3
    assert found["pairs"]["right"] == int(right[0] and right[1]) and found["pairs"]["asked"] == 1
    assert found["alone"] == 1 and found["pairs_at"] == [[0, 1]]


def test_a_masked_model_hides_the_candidate(here, masker, schemas):  # noqa: F811
    found = json.loads(here("eval", "winograd", masker, schemas, "--json")[1])
    tokenizer, model = load(masker).tokenizer, transformers_model("BertForMaskedLM", masker)
    schema, row = read_schemas(schemas)[0], found["schemas"][0]
    for candidate in (0, 1):
        text = schema.text(candidate)
        ids, (start, end) = tokenizer.encode(text), schema.span(candidate)
        own = [n for n, (s, e) in enumerate(tokenizer.offsets(text)) if s < end and e > start]
        assert (
            text[tokenizer.offsets(text)[own[0]][0] : tokenizer.offsets(text)[own[-1]][1]]
            == (schema.candidates[candidate])
        )
        scores = []
        for n in own:
            hidden = torch.tensor([ids])
            hidden[0, n] = tokenizer.specials["mask"]
            with torch.no_grad():
                scores.append(float(model(hidden).logits[0, n].log_softmax(-1)[ids[n]]))
        assert row["scores"][candidate] == pytest.approx(sum(scores) / len(scores), abs=1e-4)
    assert here("eval", "winograd", masker, schemas, "--full")[0] == 0


def test_an_edit_changes_what_is_judged(here, writer, schemas, tmp_path):  # noqa: F811
    """As in a folder whose weights say the same."""
    kit = load(writer)
    for block in kit.model.decoder.blocks:
        torch.nn.init.zeros_(block.attn.o.weight)
    kit.save(tmp_path / "changed")
    command = ("eval", "winograd", "--json")
    wanted = json.loads(here(*command, tmp_path / "changed", schemas)[1])["schemas"]
    plain = json.loads(here(*command, writer, schemas)[1])["schemas"]
    found = json.loads(here(*command, writer, schemas, "--edit", "*.attn.z=zero")[1])["schemas"]
    for left, right, before in zip(found, wanted, plain, strict=True):
        assert left["scores"] == pytest.approx(right["scores"], abs=1e-5)
        assert left["scores"] != pytest.approx(before["scores"], abs=1e-5)


def test_a_table_of_pairs(here, writer, schemas):  # noqa: F811
    code, out, _ = here("eval", "winograd", writer, schemas, "-v")
    assert code == 0 and "sat on [the mat] today" in out and "both" in out
    assert "1 schemas without their pair" in out and "single" in out and "pairs" in out
    short = here("eval", "winograd", writer, schemas)[1]
    assert "[the mat]" not in short
    assert (
        json.loads(here("eval", "winograd", writer, schemas, "--limit", 2, "--json")[1])["alone"]
        == 0
    )


def test_n_grams_score_too(here, schemas, tmp_path):
    (tmp_path / "t.txt").write_text("the cat sat on the mat today\n" * 3 + "the dog sat\n")
    assert here("train", "ngram", tmp_path / "t.txt", "--out", tmp_path / "n")[0] == 0
    found = json.loads(here("eval", "winograd", tmp_path / "n", schemas, "--json")[1])
    assert found["single"]["asked"] == 3 and found["schemas"][0]["right"]


def test_bad_input_of_winograd(here, writer, pair, schemas, folders):  # noqa: F811
    code, _, err = here("eval", "winograd", pair, schemas)
    assert code == 2 and "an encoder-decoder" in err
    code, _, err = here("eval", "winograd", folders / "decoder", schemas)
    assert code == 3 and "no tokenizer" in err
    code, _, err = here("eval", "winograd", writer, schemas, "--only", "fr")
    assert code == 2 and "no group 'fr'" in err
    schemas.write_text(HEADER + ROWS + "the cat sat\ta\tb\ta\n")
    code, _, err = here("eval", "winograd", writer, schemas)
    assert code == 3 and "line 5: 0 times _" in err
    schemas.write_text(HEADER + "the cat " * 60 + "saw _ there\ta\tb\ta\n")
    code, _, err = here("eval", "winograd", writer, schemas)
    assert code == 3 and "at most 40" in err
