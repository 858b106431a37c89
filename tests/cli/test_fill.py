"""`regard fill`: words for a gap, as transformers ranks them."""

from __future__ import annotations

import json

import pytest
import torch

from regard.loading import load
from tests.cli.small_folders import masker, stdin, writer  # noqa: F401

TEXT = "Paris is the [MASK] of France"


@pytest.fixture(scope="module")
def spelt(masker):  # noqa: F811
    tokenizer = load(masker).tokenizer
    return TEXT.replace("[MASK]", tokenizer.pieces([tokenizer.specials["mask"]])[0])


def test_as_transformers_ranks_them(here, masker, spelt):  # noqa: F811
    import transformers

    code, out, err = here("fill", masker, spelt, "--top", 7, "--json")
    assert (code, err) == (0, "")
    (gap,) = json.loads(out)["masks"]
    tokenizer = load(masker).tokenizer
    ids = tokenizer.encode(spelt, allow_special=True)
    place = ids.index(tokenizer.specials["mask"])
    model = transformers.BertForMaskedLM.from_pretrained(masker).eval()
    with torch.no_grad():
        best = model(torch.tensor([ids])).logits[0, place].softmax(-1).topk(7)
    assert [word["id"] for word in gap] == best.indices.tolist()
    found = [word["probability"] for word in gap]
    assert found == pytest.approx(best.values.tolist(), abs=1e-5)
    table = here("fill", masker, spelt, "--top", 7)[1]
    assert [line.split()[0] for line in table.splitlines()[2:]] == [w["word"] for w in gap]


def test_other_spellings_and_several_gaps(here, masker, spelt):  # noqa: F811
    wanted = json.loads(here("fill", masker, spelt, "--json")[1])["masks"]
    for spelling in ("<mask>", "[MASK]"):
        text = TEXT.replace("[MASK]", spelling)
        assert json.loads(here("fill", masker, text, "--json")[1])["masks"] == wanted
    two = json.loads(here("fill", masker, "<mask> is <mask>", "--json")[1])["masks"]
    assert [len(gap) for gap in two] == [5, 5]


def test_lines_of_stdin(here, masker, stdin):  # noqa: F811
    stdin("the <mask>\na <mask>\n")
    code, out, _ = here("fill", masker, "--json")
    assert code == 0 and [json.loads(line)["text"] for line in out.splitlines()] == [
        "the <mask>",
        "a <mask>",
    ]


def test_no_other_control_token_gets_in(here, masker):  # noqa: F811
    tokenizer = load(masker).tokenizer
    piece = tokenizer.pieces([tokenizer.specials["sep"]])[0]
    code, _, err = here("fill", masker, f"the <mask> {piece} end")
    assert code == 3 and f"spells the control token {piece}" in err


def test_wrong_calls(here, masker, writer):  # noqa: F811
    code, _, err = here("fill", masker, "no gap here")
    assert code == 3 and "where a word is missing" in err
    code, _, err = here("fill", masker, "<mask>", "--top", 0)
    assert code == 2 and "from 1 up" in err
    code, _, err = here("fill", writer, "the <mask>")
    assert code == 2 and "a masked language model" in err
