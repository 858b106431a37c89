"""Configs refuse what cannot be built, and say what can."""

from dataclasses import FrozenInstanceError, fields

import pytest

from regard.core.config import LINEARS, BlockConfig, RotaryScaling, StackConfig
from regard.core.mlp import MLP
from regard.errors import UsageError


def test_heads_that_do_not_divide_dim_get_the_divisors():
    with pytest.raises(UsageError) as failure:
        BlockConfig(dim=12, heads=5, hidden=8)
    assert "heads = 5 does not divide dim = 12" in str(failure.value)
    assert "[1, 2, 3, 4, 6, 12]" in str(failure.value)


def test_head_dim_frees_heads_from_dim():
    block = BlockConfig(dim=12, heads=5, hidden=8, head_dim=4)
    assert (block.width, block.groups) == (4, 5)


def test_derived_widths():
    block = BlockConfig(dim=12, heads=4, hidden=8, kv_heads=2)
    assert (block.width, block.groups) == (3, 2)


def test_key_value_heads_must_divide_heads():
    with pytest.raises(UsageError, match="kv_heads = 3 does not divide heads = 4"):
        BlockConfig(dim=12, heads=4, hidden=8, kv_heads=3)


def test_bias_by_name():
    assert BlockConfig(12, 4, 8).bias == LINEARS
    with pytest.raises(UsageError, match="'w'"):
        BlockConfig(12, 4, 8, bias=("q", "w"))


@pytest.mark.parametrize(
    ("field", "wrong", "close"),
    [("norm", "layr", "layer"), ("norm_at", "pres", "pre"), ("norm_at", "Post", "post")],
)
def test_a_wrong_name_in_a_block_gets_the_nearest(field, wrong, close):
    with pytest.raises(UsageError, match=rf"{field} = '{wrong}'[\s\S]*did you mean {close}"):
        BlockConfig(12, 4, 8, **{field: wrong})


@pytest.mark.parametrize(("wrong", "close"), [("rotery", "rotary"), ("relativ", "relative")])
def test_a_wrong_name_in_a_stack_gets_the_nearest(wrong, close):
    with pytest.raises(UsageError, match=rf"position = '{wrong}'[\s\S]*did you mean {close}"):
        StackConfig(BlockConfig(12, 4, 8), 1, position=wrong)


def test_rotary_positions_need_pairs():
    with pytest.raises(UsageError, match="even"):
        StackConfig(BlockConfig(12, 4, 8), 1, position="rotary")


def test_configs_are_frozen_and_within_their_budget():
    with pytest.raises(FrozenInstanceError):
        BlockConfig(12, 4, 8).dim = 3
    assert len(fields(BlockConfig)) <= 20
    assert hash(StackConfig(BlockConfig(12, 4, 8), 2, rotary_scaling=RotaryScaling()))


@pytest.mark.parametrize(
    ("field", "word", "meant"),
    [
        ("position", "rope", "rotary"),
        ("position", "RoPE", "rotary"),
        ("position", "rottary", "rotary"),
        ("position", "t5", "relative"),
    ],
)
def test_other_names_of_a_value_lead_to_ours(field, word, meant):
    with pytest.raises(UsageError) as caught:
        StackConfig(BlockConfig(8, 2, 8), 1, **{field: word})
    assert caught.value.fix == f"did you mean {meant}?"


def test_a_word_like_no_other_has_no_guess():
    with pytest.raises(UsageError) as caught:
        StackConfig(BlockConfig(8, 2, 8), 1, position="banana")
    assert caught.value.fix == "" and "rotary" in caught.value.expected
    with pytest.raises(UsageError, match="swish") as caught:
        MLP(BlockConfig(8, 2, 8, act="swish"))
    assert caught.value.fix == "did you mean silu?"
