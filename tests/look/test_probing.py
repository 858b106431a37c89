"""Probes: separable labels, chance, the bound of word types, the optimum, and code lengths."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.data.statistics import share_interval
from regard.errors import DataError
from regard.look.probing import (
    Labelled,
    count_right,
    fit_linear,
    make_task,
    mean_and_spread,
    probe_vectors,
    split_sentences,
)


def draw(seed=0):
    return torch.Generator().manual_seed(seed)


def task_of(labels, words=None, per=5, **how):
    words = words or [f"w{n}" for n in range(len(labels))]
    return make_task(labels, words, [n // per for n in range(len(labels))], **how)


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_separable_labels_are_read_off(kind):
    y = torch.randint(4, (600,), generator=draw())
    x = torch.randn(600, 10, generator=draw(1)) * 0.2
    x[torch.arange(600), y] += 3
    x = x @ torch.randn(10, 10, generator=draw(2)) + 7  # turned, stretched and moved
    made = probe_vectors("tap", x, task_of([f"L{n}" for n in y.tolist()]), kind)
    assert made.accuracy == 1.0


def test_an_mlp_reads_what_no_line_parts():
    x = torch.randn(1500, 4, generator=draw())
    labels = ["odd" if a * b > 0 else "even" for a, b in x[:, :2].tolist()]
    task = task_of(labels)
    line, bent = (probe_vectors("tap", x, task, kind).accuracy for kind in ("linear", "mlp"))
    assert line < 0.65 and bent > 0.9
    again = probe_vectors("tap", x, task, "mlp").accuracy
    assert again == bent  # a seed gives the same probe


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_random_labels_are_read_by_chance(kind):
    x = torch.randn(3000, 8, generator=draw())
    labels = [f"L{n}" for n in torch.randint(3, (3000,), generator=draw(1)).tolist()]
    made = probe_vectors("tap", x, task_of(labels), kind)
    low, high = made.low, made.high
    assert low < 1 / 3 < high


def test_one_hot_words_reach_the_bound_of_their_types():
    words = [f"w{n}" for n in torch.randint(12, (400,), generator=draw()).tolist()]
    labels = [f"L{n}" for n in torch.randint(3, (400,), generator=draw(4)).tolist()]
    task = task_of(labels, words)
    x = torch.eye(12)[task.types]
    part = Labelled(x, task.labels)
    counts = torch.zeros(12, 3)
    counts.index_put_((task.types, task.labels), torch.ones(400), accumulate=True)
    top = counts.sort(1).values
    assert (top[:, -1] > top[:, -2]).all()  # no type has two best labels
    weights = fit_linear(x, task.labels, 3, l2=1e-3)
    right = int((torch.nn.functional.linear(x, *weights).argmax(1) == task.labels).sum())
    assert right == int(counts.amax(1).sum())
    assert count_right("linear", [part, part, part], 3) == right


def test_a_probe_that_remembers_words_has_no_selectivity():
    kinds = torch.randint(40, (2000,), generator=draw())
    words = [f"w{n}" for n in kinds.tolist()]
    task = task_of([f"L{n % 4}" for n in kinds.tolist()], words)
    made = probe_vectors("tap", torch.eye(40)[kinds], task, control=task.control(3))
    assert made.accuracy == 1.0 and abs(made.selectivity) < 0.01
    noise = probe_vectors(
        "tap", torch.randn(2000, 3, generator=draw(5)), task, control=task.control(3)
    )
    assert noise.control < 0.6


def test_a_control_task_draws_one_label_for_each_type():
    words = [f"w{n % 50}" for n in range(1000)]
    labels = ["often" if n % 10 else "seldom" for n in torch.arange(1000).tolist()]
    task = task_of(labels, words)
    control = task.control(1)
    for kind in range(50):
        assert len(control.labels[control.types == kind].unique()) == 1
    assert torch.equal(control.labels, task.control(1).labels)
    assert not torch.equal(control.labels, task.control(2).labels)
    drawn = [float(task.control(n).labels.double().mean()) for n in range(40)]
    assert sum(drawn) / 40 == pytest.approx(0.1, abs=0.02)  # 'seldom' is one in ten


def test_the_linear_probe_is_the_optimum():
    x = torch.randn(200, 6, generator=draw(), dtype=torch.float64)
    y = torch.randint(3, (200,), generator=draw(1))
    weight, bias = (t.numpy() for t in fit_linear(x, y, 3, l2=2.0))
    scores = x.numpy() @ weight.T + bias
    shares = np.exp(scores - scores.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    gap = shares - np.eye(3)[y.numpy()]
    assert np.abs(gap.T @ x.numpy() + 2.0 * weight).max() < 1e-5
    assert np.abs(gap.sum(0)).max() < 1e-5
    warm = fit_linear(x, y, 3, 2.0, fit_linear(x, y, 3, 50.0))
    torch.testing.assert_close(warm[0].numpy(), weight, atol=1e-6, rtol=0)


def test_the_linear_probe_is_that_of_scikit_learn():
    linear = pytest.importorskip("sklearn.linear_model")
    x = torch.randn(200, 6, generator=draw(), dtype=torch.float64)
    y = torch.randint(3, (200,), generator=draw(1))
    weight, bias = fit_linear(x, y, 3, l2=0.5)
    theirs = linear.LogisticRegression(C=2.0, tol=1e-9, max_iter=5000).fit(x.numpy(), y.numpy())
    np.testing.assert_allclose(weight.numpy(), theirs.coef_, atol=1e-5)
    np.testing.assert_allclose((bias - bias.mean()).numpy(), theirs.intercept_, atol=1e-5)


def test_no_sentence_is_in_two_parts():
    sentences = torch.tensor([3, 3, 1, 1, 1, 4, 4, 2, 9, 9, 9, 7])
    parts = split_sentences(sentences, 5)
    inside = [set(sentences[part].tolist()) for part in parts]
    assert inside[0] | inside[1] | inside[2] == {1, 2, 3, 4, 7, 9}
    assert sum(map(len, inside)) == 6 and len(inside[1]) == len(inside[2]) == 1
    assert sorted(torch.cat(parts).tolist()) == list(range(12))
    assert [p.tolist() for p in split_sentences(sentences, 5)] == [p.tolist() for p in parts]
    orders = {tuple(split_sentences(sentences, n).train.tolist()) for n in range(9)}
    assert len(orders) > 3
    with pytest.raises(DataError, match="2 sentences"):
        split_sentences(torch.tensor([0, 0, 1]))


def test_too_few_examples_are_refused_with_what_is_needed(capsys):
    with pytest.raises(DataError, match="two or more labels, 2 words of each") as error:
        task_of(["a", "b", "c", "d", "e"], per=1)
    assert "0 labels" in str(error.value)
    with pytest.raises(DataError, match="1 labels"):
        task_of(["a"] * 30)
    with pytest.raises(DataError, match="no labelled words"):
        task_of(["_"] * 30)


def test_rare_labels_and_words_without_one_are_left_out(capsys):
    labels = ["a", "b"] * 40 + ["_", "c"]
    task = task_of(labels)
    assert "1 labels with fewer than 2 words to train on: c" in capsys.readouterr().err
    assert task.names == ["a", "b"] and task.kept.tolist() == list(range(80))
    assert sorted(torch.cat(task.parts).tolist()) == list(range(80))
    assert [labels[n] for n in task.kept] == [task.names[n] for n in task.labels]


def test_baselines_by_hand():
    words = ["x", "y", "x", "y", "x", "z"] * 10
    labels = ["A", "B", "A", "B", "A", "A"] * 10
    task = task_of(labels, words, per=6)
    assert task.report("label", "linear", []).baselines == {"majority": 4 / len(task.parts.test)}


def test_dimensions_that_do_not_vary_are_left_alone():
    mean, spread = mean_and_spread(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
    assert mean.tolist() == [2, 5] and spread.tolist() == [1, 1]


def test_an_interval_by_hand():
    low, high = share_interval(8, 10)
    assert (low, high) == (pytest.approx(0.49016, abs=1e-5), pytest.approx(0.94332, abs=1e-5))
    assert share_interval(0, 0) == (0, 1)
