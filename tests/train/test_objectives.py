"""The loss of a batch: independent of its split, blind to padding, ln V at the start."""

from __future__ import annotations

import math

import pytest
import torch

from regard.data.bucket import Buckets
from regard.data.token_store import hold_out
from regard.errors import DataError, UsageError
from regard.model.batch import Batch
from regard.model.config import HeadConfig
from regard.model.model import Model
from regard.model.presets import gpt2, recurrent_lm, transformer, vit
from regard.model.recurrent import Recurrent
from regard.train.cross_entropy import IGNORE, check_labels
from regard.train.objectives import token_loss
from regard.train.trainer import with_dropout
from tests.train.runs import make_parts


def gradients(model, pieces, total):
    model.zero_grad(set_to_none=True)
    value = 0.0
    for batch, labels in pieces:
        loss = token_loss(model, batch, labels)
        (loss.sum / total).backward()
        value += float(loss.plain)
    return value / total, {name: p.grad.clone() for name, p in model.named_parameters()}


def test_any_split_of_a_batch_gives_the_same_loss_and_gradient():
    torch.manual_seed(0)
    model = Model.fresh(gpt2(8, 2, 2, 13, 6)).double()
    ids, labels = torch.randint(0, 13, (6, 6)), torch.randint(0, 13, (6, 6))
    labels[0, 2:] = IGNORE  # unequal counts: a mean of means would be another number
    labels[5] = IGNORE
    total = int((labels != IGNORE).sum())
    whole = gradients(model, [(Batch(ids), labels)], total)
    for sizes in ([3, 3], [1, 5], [1, 1, 1, 1, 1, 1], [5, 1]):
        pieces = list(zip(map(Batch, ids.split(sizes)), labels.split(sizes), strict=True))
        value, found = gradients(model, pieces, total)
        assert value == pytest.approx(whole[0], rel=1e-12)
        for name, gradient in found.items():
            assert (gradient - whole[1][name]).abs().max() <= 1e-12, name


def test_padding_contributes_nothing():
    torch.manual_seed(1)
    model = Model.fresh(transformer(8, 1, 2, 13)).double()
    source, target = torch.randint(0, 13, (2, 5)), torch.randint(0, 13, (2, 4))
    labels = torch.randint(0, 13, (2, 4))
    real, right = torch.ones(2, 5, dtype=bool), torch.ones(2, 4, dtype=bool)
    real[1, 3:], right[1, 2:] = False, False
    labels[1, 2:] = IGNORE
    batch = Batch(source, target, mask=right, source_mask=real)
    first = gradients(model, [(batch, labels)], 6)
    source[1, 3:], target[1, 2:] = 7, 9
    second = gradients(model, [(batch, labels)], 6)
    alone = gradients(
        model,
        [
            (Batch(source[:1], target[:1]), labels[:1]),
            (Batch(source[1:, :3], target[1:, :2]), labels[1:, :2]),
        ],
        6,
    )
    assert first[0] == second[0] and first[0] == pytest.approx(alone[0], rel=1e-12)
    for name, gradient in first[1].items():
        assert torch.equal(gradient, second[1][name]), name
        assert (gradient - alone[1][name]).abs().max() <= 1e-12, name


def test_padding_at_the_end_of_a_target_needs_no_mask():
    model = Model.fresh(transformer(32, 2, 4, 50)).double().train()
    source, target = torch.randint(0, 50, (2, 3, 9))
    real = torch.arange(9) < torch.tensor([[9], [4], [6]])
    labels = torch.randint(0, 50, (3, 9)).masked_fill(~real, IGNORE)
    losses, gradients = [], []
    for mask in (real, None):
        model.zero_grad()
        loss = token_loss(model, Batch(source, target, mask=mask), labels)
        loss.sum.backward()
        losses.append(loss.sum.detach())
        gradients.append(model.front.tokens.weight.grad.clone())
    torch.testing.assert_close(*losses, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", ["lm", "mlm", "seq2seq"])
def test_a_fresh_model_knows_nothing(kind, tmp_path):
    shape, _, tokens, _, valid = make_parts(kind, tmp_path)
    examples = valid.batch(0, 0)
    loss = token_loss(Model.fresh(shape), Batch(**examples.parts()), examples.labels)
    value, count = float(loss.plain) / examples.tokens, int(loss.tokens)
    assert count == examples.tokens and value == pytest.approx(math.log(tokens.size), abs=0.3)


def test_eight_pairs_are_learnt_by_heart(tmp_path):
    shape, _, tokens, source, _ = make_parts("seq2seq", tmp_path)
    count = len(source.store)
    store = hold_out(source.store, (count - 8) / count, by_tokens=False)[0]
    eight = Buckets(store, 500, source.start, source.end, None)
    batches = [eight.batch(0, n) for n in range(eight.count(0))]
    model = Model.fresh(transformer(64, 2, 4, tokens.size)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(150):
        optimizer.zero_grad()
        for examples in batches:
            loss = token_loss(model, Batch(**examples.parts()), examples.labels, 0.1)
            (loss.sum / 40).backward()
        optimizer.step()
    hits = [(model(Batch(**e.parts())).argmax(-1) == e.labels)[e.labels != IGNORE] for e in batches]
    assert torch.cat(hits).float().mean() > 0.99


def test_a_label_outside_the_vocabulary_is_named():
    with pytest.raises(DataError, match="label 9 at row 1, position 0"):
        check_labels(torch.tensor([[1, IGNORE], [9, 0]]), 9)
    check_labels(torch.tensor([[8, IGNORE]]), 9)


def test_a_model_without_token_scores_is_refused():
    model = Model.fresh(vit(8, 1, 2, 4, 8, 3))
    assert isinstance(model.config.head, HeadConfig)
    with pytest.raises(DataError, match="without token scores"):
        token_loss(model, Batch(torch.zeros(1, 3, 8, 8)), torch.zeros(1, 1))


def test_r_drop_is_nothing_where_no_dropout_is_drawn_and_something_where_it_is():
    torch.manual_seed(2)
    model = Model.fresh(transformer(8, 1, 2, 13)).double()
    batch = Batch(torch.randint(0, 13, (3, 5)), torch.randint(0, 13, (3, 4)))
    labels = torch.randint(0, 13, (3, 4))
    labels[1, 2:] = IGNORE
    plain, twice = (token_loss(with_dropout(model, 0.0), batch, labels, r_drop=r) for r in (0, 5))
    for one, other in zip(plain[:3], twice[:3], strict=True):
        assert float(one.detach()) == pytest.approx(float(other.detach()), rel=1e-12)
    loss = token_loss(with_dropout(model.train(), 0.5), batch, labels, r_drop=5.0)
    assert float(loss.sum.detach()) > float(loss.plain)  # no smoothing: what is more is divergence


def test_r_drop_of_a_recurrent_model_is_refused():
    model = Recurrent.fresh(recurrent_lm("lstm", 4, 4, 1, 9))
    with pytest.raises(UsageError, match="r_drop with a recurrent model"):
        ids = torch.zeros(1, 3, dtype=torch.long)
        token_loss(model, Batch(ids), ids, past=model.carry(1), r_drop=5.0)
