"""Winograd schemas by a model that was taught the answers, and pairs counted by hand."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from regard.core.config import BlockConfig, StackConfig
from regard.data.schemas import Schema
from regard.errors import DataError, UsageError
from regard.evaluate.winograd_schemas import Judged, Share, judge, judge_lines, lines_of, report
from regard.model.batch import Batch, pad_rows
from regard.model.config import HeadConfig, ModelConfig, RecurrentConfig, TextConfig
from regard.model.model import Model
from regard.model.recurrent import Recurrent
from regard.tokens.trainers import train_tokenizer
from tests.score.sizes import size_schemas

SCHEMAS = size_schemas()


@pytest.fixture(scope="module")
def tokenizer():
    texts = [schema.text(n) for schema in SCHEMAS for n in (0, 1)]
    return train_tokenizer(texts, "bpe", 400, specials=("pad", "eos"))


@pytest.fixture(scope="module")
def taught(tokenizer):
    """A decoder that has read each schema with its right candidate."""
    block = BlockConfig(32, 4, 64, causal=True)
    front = TextConfig(32, tokenizer.size, position="learned", length=32)
    config = ModelConfig(front, HeadConfig(tokenizer.size), decoder=StackConfig(block, 2))
    model = Model.fresh(config)
    rows = [tokenizer.encode(schema.text(schema.answer)) for schema in SCHEMAS]
    ids, mask = pad_rows(rows)
    mask = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
    after = ids[:, 1:].masked_fill(~mask[:, 1:], -100)
    adam = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(120):
        logits = model(Batch(ids[:, :-1], mask=mask[:, :-1]))
        loss = F.cross_entropy(logits.flatten(0, 1), after.flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
    return model


def test_the_generator_counterbalances():
    first = [schema.before.index(schema.candidates[schema.answer]) for schema in SCHEMAS]
    other = [schema.before.index(schema.candidates[1 - schema.answer]) for schema in SCHEMAS]
    assert sum(a < b for a, b in zip(first, other, strict=True)) == len(SCHEMAS) / 2
    assert sum(schema.answer for schema in SCHEMAS) == len(SCHEMAS) / 2


@pytest.mark.parametrize("full", [False, True])
def test_a_taught_model_is_right_about_all(taught, tokenizer, full):
    made = report(judge(taught, tokenizer, SCHEMAS, full))
    assert made.single == Share(len(SCHEMAS), len(SCHEMAS))
    assert made.pairs == Share(len(SCHEMAS) // 2, len(SCHEMAS) // 2)
    assert made.alone == made.ties == 0


def test_turned_answers_are_wrong(taught, tokenizer):
    turned = [schema._replace(answer=1 - schema.answer) for schema in SCHEMAS]
    assert report(judge(taught, tokenizer, turned)).single.right == 0
    one_bad = [SCHEMAS[0], turned[1], *SCHEMAS[2:6], turned[6]]
    made = report(judge(taught, tokenizer, one_bad))
    assert made.single == Share(5, 7) and made.pairs == Share(2, 2) and made.alone == 3


def test_scores_are_sums_of_the_right_tokens(taught, tokenizer):
    schema = SCHEMAS[5]
    for candidate in (0, 1):
        text = schema.text(candidate)
        ids = torch.tensor([tokenizer.encode(text)])
        with torch.no_grad():
            log = taught(Batch(ids)).log_softmax(-1)[0]
        each = [float(log[n, ids[0, n + 1]]) for n in range(ids.shape[1] - 1)]
        after = len(tokenizer.encode(schema.after))
        (partial,) = judge(taught, tokenizer, [schema])
        (full,) = judge(taught, tokenizer, [schema], full=True)
        assert partial.scores[candidate] == pytest.approx(sum(each[-after:]), abs=1e-4)
        assert full.scores[candidate] == pytest.approx(sum(each), abs=1e-4)


def test_batches_change_nothing(taught, tokenizer, monkeypatch):
    whole = judge(taught, tokenizer, SCHEMAS[:9])
    monkeypatch.setattr("regard.evaluate.winograd_schemas.TOKENS", 1)
    for one, other in zip(whole, judge(taught, tokenizer, SCHEMAS[:9]), strict=True):
        assert one.scores == pytest.approx(other.scores, abs=1e-4)


def test_a_recurrent_model_scores_too(tokenizer):
    front = TextConfig(8, tokenizer.size)
    model = Recurrent.fresh(RecurrentConfig(front, HeadConfig(tokenizer.size), hidden=8))
    made = judge(model, tokenizer, SCHEMAS[:4])
    assert all(score < 0 for each in made for score in each.scores)


def judged(scores, answer=0, pair=None):
    return Judged(Schema("here", "x ", " y", ("a", "b"), answer, pair), scores)


def test_pairs_are_counted_by_hand():
    both = [judged((-1.0, -2.0), 0, "p"), judged((-3.0, -2.0), 1, "p")]
    half = [judged((-1.0, -2.0), 0, "q"), judged((-1.0, -2.0), 1, "q")]
    alone = [judged((-1.0, -2.0), 0, "r")]
    tie = [judged((-1.0, -1.0), 0, "s"), judged((-1.0, -1.0), 1, "s")]
    made = report([*both, *half, *alone, *tie])
    assert made.single == Share(4, 7) and made.pairs == Share(1, 3)
    assert made.alone == 1 and made.ties == 2
    assert made.pairs.accuracy == pytest.approx(1 / 3) and Share(0, 0).accuracy == 0


def test_what_is_refused(taught, tokenizer):
    ends = Schema("line 3", "it was the ", "", ("coin", "van"), 0)
    with pytest.raises(DataError, match="nothing after the gap in line 3") as error:
        judge(taught, tokenizer, [ends])
    assert "--full" in str(error.value)
    assert judge(taught, tokenizer, [ends], full=True)[0].scores[0] < 0
    with pytest.raises(DataError, match="tokens in coin, purse"):
        judge(taught, tokenizer, SCHEMAS, room=5)
    assert len(judge_lines(lines_of(taught), tokenizer, SCHEMAS[:3])) == 3
    block = BlockConfig(8, 2, 8)
    front = TextConfig(8, tokenizer.size)
    encoder = ModelConfig(front, HeadConfig(tokenizer.size), encoder=StackConfig(block, 1))
    with pytest.raises(UsageError, match="without"):
        judge(Model.fresh(encoder), tokenizer, SCHEMAS)
