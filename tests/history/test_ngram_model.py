"""n-gram models of text: folders, running texts, searches, draws."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from regard.decode.beam import BeamConfig, beam
from regard.decode.exhaustive import exhaustive
from regard.errors import DataError, UsageError
from regard.history import ngram_model
from regard.history.ngram_model import NgramModel, encode_lines
from regard.history.smoothing import train_ngrams
from regard.tokens.trainers import train_tokenizer

LINES = ["the cat sat on the mat", "the dog sat", "", "a cat on a mat sat on the dog", "the mat"]
WRAPPED = {"specials": ["bos", "eos"], "wrap": "bos-eos"}


class NgramStep:
    """Rows and what each has read (`decode/step.py`); a sentence begins with its start id."""

    def __init__(self, tables, rows=1):
        self.tables, self.rows = tables, [list[int]() for _ in range(rows)]

    def __call__(self, ids):
        """Read the next ids (N, t) of each row; log p (N, V) of the one after them."""
        assert len(ids) == len(self.rows)
        made = []
        for row, new in zip(self.rows, ids.tolist(), strict=True):
            row += new
            del row[: max(0, len(row) - self.tables.order)]
            made.append(self.tables.distribution(row))
        return torch.from_numpy(np.stack(made))

    def select(self, rows, group=1):
        """Go on with these rows."""
        self.rows = [list(self.rows[row]) for row in rows.tolist()]


def counted(order=3, way="kneser-ney", kind="spaced", texts=LINES):
    lines = kind == "spaced"
    options = WRAPPED if lines else {"specials": []}
    tokenizer = train_tokenizer(texts, kind, **options)
    ids = np.concatenate(list(encode_lines(tokenizer, texts, lines)))
    start = tokenizer.specials["bos"] if lines else None
    return NgramModel(train_ngrams(ids, tokenizer.size, order, way, start=start), tokenizer, way)


@pytest.mark.parametrize("kind", ["spaced", "chars"])
@pytest.mark.parametrize("way", ["kneser-ney", "add"])
def test_a_folder_holds_all_of_it(tmp_path, way, kind):
    model = counted(way=way, kind=kind)
    model.save(tmp_path / "m")
    again = NgramModel.open(tmp_path / "m")
    assert again.lines == model.lines and again.smoothing == way
    texts = ["the cat on a zebra", "mat"]
    for a, b in zip(model.logprobs(texts), again.logprobs(texts), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(model.tables.levels, again.tables.levels, strict=True):
        np.testing.assert_array_equal(a.count, b.count)


def test_an_arpa_file_is_the_same_model(tmp_path):
    model = counted()
    model.write_arpa(tmp_path / "m.arpa")
    again = NgramModel.open(tmp_path / "m.arpa")
    texts = ["the cat on a zebra", "", "dog"]
    (a,), (b,) = model.logprobs(texts), again.logprobs(texts)
    np.testing.assert_allclose(a, b, rtol=1e-12)
    assert len(a) == 5 + 1 + 1 + 1  # two ends; the blank line is no sentence


def test_a_running_text_goes_on_from_batch_to_batch(monkeypatch):
    model = counted(kind="chars", order=4)
    whole = np.concatenate(list(model.logprobs(LINES)))
    monkeypatch.setattr(ngram_model, "TOGETHER", 1)
    assert len(list(model.logprobs(LINES))) == len(LINES)
    np.testing.assert_array_equal(np.concatenate(list(model.logprobs(LINES))), whole)
    unigrams = counted(kind="chars", order=1)
    assert len(np.concatenate(list(unigrams.logprobs(LINES)))) == len(whole)


def test_the_search_of_the_library_writes_its_likeliest_sentence():
    model = counted(order=2)
    start, end = model.tables.start, model.tokenizer.specials["eos"]
    begin = torch.tensor([[start]])
    (found,) = beam(NgramStep(model.tables), begin, 3, {end}, BeamConfig(200))
    wanted = exhaustive(
        lambda prefixes: NgramStep(model.tables, len(prefixes))(
            torch.cat((begin.expand(len(prefixes), 1), prefixes), 1)
        ),
        model.tables.vocab,
        3,
        {end},
    )
    assert found[0].tokens == wanted[0].tokens and len(found[0].tokens) > 1
    total = np.nansum(model.tables.logprobs([start, *found[0].tokens]))
    assert found[0].logprob == pytest.approx(total, abs=1e-5)


def test_drawn_texts_have_only_ngrams_that_were_seen():
    model = counted(order=3)
    ids = np.concatenate(list(model.encode(LINES)))
    seen = {n: {tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)} for n in (1, 2, 3)}
    dice = np.random.default_rng(0)
    for order in (1, 2, 3):
        context = [model.tables.start]
        for _ in range(300):
            word, used, _ = model.tables.draw(context, order, dice.random())
            assert used == min(order, len(context) + 1)  # something always followed
            context.append(word)
            assert tuple(context[-used:]) in seen[used]
            if word == model.tokenizer.specials["eos"]:
                context = [model.tables.start]
    # after what was never seen, fewer words are looked at
    odd = [model.tokenizer.engine.id("dog"), model.tokenizer.engine.id("a")]
    assert model.tables.draw([*odd, *odd], 3, 0.5)[1] == 2


def test_draws_are_as_frequent_as_counts():
    model = counted(order=2)
    start = model.tables.start
    words = [model.tables.draw([start], 2, (n + 0.5) / 400)[0] for n in range(400)]
    the = model.tokenizer.engine.id("the")
    assert words.count(the) == 300  # three of four sentences begin with it


def test_what_cannot_be_opened(tmp_path):
    model = counted()
    with pytest.raises(UsageError, match="without counts"):
        model.write_arpa(tmp_path / "m.arpa")
        NgramModel.open(tmp_path / "m.arpa").tables.draw([], 2, 0.5)
    model.save(tmp_path / "m")
    weights, config = tmp_path / "m" / "model.safetensors", tmp_path / "m" / "config.json"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:100])
    with pytest.raises(DataError, match=r"model\.safetensors"):
        NgramModel.open(tmp_path / "m")
    weights.write_bytes(whole)
    config.write_text(json.dumps(json.loads(config.read_text()) | {"order": 4}))
    with pytest.raises(DataError, match=r"4\.context"):
        NgramModel.open(tmp_path / "m")
    config.write_text('{"model_type": "gpt2"}')
    with pytest.raises(DataError, match="no n-gram model"):
        NgramModel.open(tmp_path / "m")
