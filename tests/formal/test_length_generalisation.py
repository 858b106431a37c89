"""Trained on short sequences, tested on long ones: the layout, the score, the models."""

from __future__ import annotations

from random import Random
from typing import Any, get_args

import pytest
import torch
import torch.nn.functional as F

from regard.formal import LongModel
from regard.formal.length_generalisation import (
    ADDED,
    CELLS,
    INSIDE,
    Lesson,
    accuracy,
    build,
    lay_out,
    mean_accuracy,
    train_model,
)
from regard.formal.length_generalisation import test_lengths as lengths_of
from regard.formal.tasks import TASKS, find_task
from regard.model.batch import Batch


@pytest.mark.parametrize("name", TASKS)
def test_answers_stand_behind_the_question_where_nothing_else_is(name: str) -> None:
    chosen = find_task(name)
    lengths = [chosen.least, 7, 12]
    made = lay_out(chosen, lengths, Random("x"), 12)
    again = Random("x")
    assert made.mask is not None
    for row, length in enumerate(lengths):
        question, answer = chosen.sample(length, again)
        start, end = len(question), len(question) + len(answer)
        assert made.inputs[row, :start].tolist() == question
        assert set(made.inputs[row, start:].tolist()) == {chosen.inputs}  # no answer is shown
        assert int(made.mask[row].sum()) == end
        wanted = [a if c else -100 for a, c in zip(answer, chosen.counts(answer), strict=True)]
        assert made.labels[row].tolist() == [-100] * start + wanted + [-100] * (
            made.labels.shape[1] - end
        )
    assert made.tokens == int((made.labels != -100).sum())


def test_training_holds_no_longer_sequence_and_a_batch_is_a_function_of_its_number() -> None:
    lesson = Lesson(find_task("reverse"), 9, rows=64, seed=3)
    made, again = lesson.batch(5), lesson.batch(5)
    assert torch.equal(made.inputs, again.inputs) and torch.equal(made.labels, again.labels)
    assert not torch.equal(made.inputs, lesson.batch(6).inputs)
    assert made.mask is not None and int(made.mask.sum(1).max()) <= 18
    lengths = {int(n) // 2 for n in made.mask.sum(1)}
    assert lengths == set(range(1, 10))


def test_an_oracle_scores_all_and_a_constant_chance() -> None:
    """A hand-written rule in place of a model has every symbol right, at any length."""
    chosen = find_task("parity")

    def oracle(batch: Batch) -> Any:
        ones = (batch.inputs == 1).sum(1, keepdim=True) % 2
        return F.one_hot(ones.expand(batch.inputs.shape), 2).float()

    class Rule:
        device = torch.device("cpu")

        def __call__(self, batch: Batch) -> Any:
            return oracle(batch)

    model: Any = Rule()
    assert accuracy(model, chosen, 100) == 1
    constant: Any = type(
        "Zero", (Rule,), {"__call__": lambda self, b: torch.zeros(*b.inputs.shape, 2)}
    )()
    assert 0.35 < accuracy(constant, chosen, 100, rows=200) < 0.65


@pytest.mark.parametrize("name", get_args(LongModel))
def test_every_model_runs_beyond_its_training(name: str) -> None:
    chosen = find_task("bucket-sort")
    model, _ = train_model(name, Lesson(chosen, 4, rows=16), steps=2)
    assert 0 <= accuracy(model, chosen, 30, rows=4) <= 1


def test_a_gru_learns_even_pairs_and_holds_beyond() -> None:
    chosen = find_task("even-pairs")
    model, loss = train_model("gru", Lesson(chosen, 6, rows=64), 250, 3e-3)
    assert loss < 0.1
    assert accuracy(model, chosen, 20) > 0.95


def test_names_of_the_verb_are_those_of_the_models() -> None:
    assert set(get_args(LongModel)) == {*ADDED, *INSIDE, *CELLS}
    assert build("relative", find_task("parity")).config.encoder is not None


def test_lengths_reach_the_end_and_each_stands_for_those_before_it() -> None:
    assert lengths_of(40, 500)[:3] == [40, 45, 50] and lengths_of(40, 500)[-1] == 500
    assert lengths_of(5, 8) == [5, 8]
    assert mean_accuracy({40: 0.0, 50: 1.0, 100: 0.5}, 40, 100) == pytest.approx((10 + 25) / 60)
    assert mean_accuracy({40: 1.0}, 40, 100) is None
