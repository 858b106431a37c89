"""Random repeats are ordinary tokens, as many as a model reads."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from regard.errors import UsageError
from regard.look.head_scores import random_repeats, repeats_for
from regard.tokens.trainers import train_tokenizer
from tests.properties.small_models import VOCAB, small_kit

ROLES = ("pad", "unk", "cls", "sep", "mask")


def test_repeats_are_ordinary_tokens_twice():
    made = random_repeats(range(10, 30), 12, rows=3, seed=5, first=[1], begin=2)
    ids, target = made.batch.inputs, made.batch.target
    assert (
        ids.shape == (3, 25) and ids[:, 0].tolist() == [1] * 3 and target[:, 0].tolist() == [2] * 3
    )
    assert torch.equal(ids[:, 1:13], ids[:, 13:]) and torch.equal(ids[:, 1:], target[:, 1:])
    assert ids[:, 1:].min() >= 10 and ids[:, 1:].max() < 30
    assert all(len(set(row.tolist())) == 12 for row in ids[:, 1:13])
    assert not torch.equal(ids[0], ids[1])
    again = random_repeats(range(10, 30), 12, rows=3, seed=5, first=[1])
    assert torch.equal(again.batch.inputs, ids)
    assert not torch.equal(
        random_repeats(range(10, 30), 12, rows=3, seed=6).batch.inputs, ids[:, 1:]
    )
    assert made.start("encoder.blocks.0.attn") == 1 and again.start("decoder.blocks.0.attn") == 1
    for length in (1, 21):
        with pytest.raises(UsageError, match="2 to 20"):
            random_repeats(range(10, 30), length)


def test_as_long_as_suits_the_model():
    gpt2, t5 = small_kit("gpt2"), replace(small_kit("t5"), config={"decoder_start_token_id": 7})
    assert repeats_for(gpt2).batch.inputs.shape == (4, 96)  # 96 positions
    made = repeats_for(t5, rows=2)
    assert made.length == VOCAB and made.batch.inputs.shape == (2, 2 * VOCAB)
    assert made.batch.target[:, 0].tolist() == [7, 7]
    assert repeats_for(gpt2, length=5).batch.inputs.shape == (4, 10)
    with pytest.raises(UsageError, match="at most 48"):
        repeats_for(gpt2, length=49)
    with pytest.raises(UsageError, match="reads image"):
        repeats_for(small_kit("vit"))
    with pytest.raises(UsageError, match="reads audio"):
        repeats_for(small_kit("whisper"))


def test_no_control_tokens_and_the_beginning_that_a_tokenizer_wants():
    corpus = ["the cat sat on the mat", "naïve café"] * 5
    made = train_tokenizer(corpus, "wordpiece", 60, specials=ROLES, wrap="cls-sep")
    found = repeats_for(replace(small_kit("bert"), tokenizer=made), 6)
    assert not set(found.batch.inputs[:, 1:].flatten().tolist()) & set(made.specials.values())
    assert found.batch.inputs[:, 0].tolist() == [made.specials["cls"]] * 4
    assert found.start("encoder.x") == 1 and found.batch.inputs.max() < VOCAB
    assert found.batch.inputs.shape == (4, 13)
    ended = train_tokenizer(corpus, "bpe", 300, specials=("pad", "eos"), wrap="eos")
    assert repeats_for(replace(small_kit("gpt2"), tokenizer=ended), 6).before == 0
