"""`regard translate`: one line out for each line in, whatever runs with it."""

from __future__ import annotations

import json

import pytest

from regard.cli import translate as module
from regard.loading import load
from tests.cli.small_folders import pair, stdin, writer  # noqa: F401

LINES = ["the cat sat", "", "Paris is the capital of France", "a", "   ", "the dog sat on the log"]


def test_lines_keep_their_order_and_their_gaps(here, pair, stdin, tmp_path, monkeypatch):  # noqa: F811
    flags = ("--model", pair, "--max-new", 6)
    alone = []
    for line in LINES:
        stdin(line + "\n")
        code, out, err = here("translate", *flags)
        assert code == 0 and out.count("\n") == 1 and err == ""
        alone.append(out)
    assert alone[1] == alone[4] == "\n" and all(alone[n].strip() for n in (0, 2, 3, 5))
    stdin("".join(f"{line}\n" for line in LINES))
    assert here("translate", *flags)[1] == "".join(alone)
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(LINES))
    monkeypatch.setattr(module, "SORTED", 4)
    monkeypatch.setattr(module, "ROWS", 8)
    assert here("translate", *flags, "--file", file)[1] == "".join(alone)
    assert here("translate", LINES[0], LINES[2], *flags)[1] == alone[0] + alone[2]
    assert here("translate", *flags, LINES[0], "--strict")[1] == alone[0]


def test_greedy_equals_transformers(here, pair):  # noqa: F811
    import torch
    import transformers

    reference = transformers.T5ForConditionalGeneration.from_pretrained(pair).eval()
    kit = load(pair)
    for line in (LINES[0], LINES[2]):
        ids = torch.tensor([kit.tokenizer.encode(line)])
        made = reference.generate(ids, max_new_tokens=8, do_sample=False)[0, 1:].tolist()
        out = here("translate", line, "--model", pair, "--beams", 1, "--max-new", 8)[1]
        assert out == " ".join(kit.text(made).split()) + "\n"


def test_alternatives(here, pair):  # noqa: F811
    flags = ("--model", pair, "--max-new", 5, "--alternatives", 4)
    code, out, _ = here("translate", LINES[2], "", *flags, "--json")
    first, second = [json.loads(line) for line in out.splitlines()]
    texts = [a["text"] for a in first["alternatives"]]
    assert code == 0 and 2 <= len(texts) <= 4 and len(set(texts)) == len(texts)
    assert sum(a["probability"] for a in first["alternatives"]) == pytest.approx(1)
    assert first["text"] == texts[0] and first["source"] == LINES[2]
    assert second == {"source": "", "text": "", "logprob": 0.0}
    assert here("translate", LINES[2], *flags)[1] == "\t".join(texts) + "\n"


def test_the_command_and_the_kit_agree(here, pair):  # noqa: F811
    assert here("translate", LINES[0], "--model", pair)[1].split() == (
        load(pair).translate(LINES[0]).split()
    )


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--beams", 0), "--beams 0\n  expected: 1 or more"),
        (("--alternatives", 0), "1 or more"),
        (("--max-new", 0), "1 or more"),
        (("--alpha", -1), "alpha = -1.0\n  expected: 0 or more"),
        (("--file", "x"), "texts and --file"),
    ],
)
def test_wrong_calls(here, pair, flags, said):  # noqa: F811
    code, out, err = here("translate", "text", "--model", pair, *flags)
    assert (code, out) == (2, "") and said in err


def test_wrong_models(here, writer):  # noqa: F811
    code, _, err = here("translate", "text", "--model", writer)
    assert code == 2 and "an encoder-decoder" in err
    assert "--model" in here("translate", "text")[2]


def test_more_beams_than_words(here, pair):  # noqa: F811
    code, _, err = here("translate", "a", "--model", pair, "--beams", 5000, "--max-new", 1)
    assert code == 0 and "words in the vocabulary" in err


def test_a_limit_does_not_depend_on_the_neighbours(pair):  # noqa: F811
    kit = load(pair)
    lines = [LINES[0], LINES[2] * 4]
    assert kit.translate(lines, beams=2) == [kit.translate(line, beams=2) for line in lines]
