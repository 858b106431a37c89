"""What a run returns: stacks, what heads wrote, the stream taken apart; and heads' weights."""

from __future__ import annotations

from copy import copy

import numpy as np
import pytest
import torch

from regard.errors import UsageError
from tests.properties.small_models import DECODERS, assert_near, random_ids, small_kit

IDS = [random_ids(6, 1).tolist(), random_ids(4, 2).tolist()]


def test_names_find_their_tensors():
    kit = small_kit("llama")
    _, seen = kit.run(IDS, taps=["*.z", "*.resid_post"])
    z = seen["decoder.blocks.1.attn.z"]
    assert seen["blocks.1.attn.z"] is z and seen["blocks.1.attn.hook_z"] is z
    assert torch.equal(seen["blocks.1.attn.z"], z) and type(copy(seen)) is dict
    for name, told in (("blocks.0.attn.q", "not read"), ("*.z", "2 taps"), ("nose", "no tap")):
        with pytest.raises(UsageError, match=told):
            seen[name]


@pytest.mark.parametrize("name", [*DECODERS, "bert", "t5"])
def test_the_stream_is_the_sum_of_its_parts(name):
    kit = small_kit(name)
    target = [[1, 2, 3]] * 2 if name == "t5" else None
    _, seen = kit.run(IDS, target, taps="*")
    stack = kit.model.decoder or kit.model.encoder
    names, residuals = seen.residuals()
    assert len(names) == len(residuals) == 1 + len(stack.blocks)
    if stack.config.block.norm_at != "pre":
        with pytest.raises(UsageError, match="pre-norm"):
            seen.parts()
        return
    names, x = seen.parts()
    assert_near(x.sum(0), residuals[-1])
    heads = sum(".attn." in each and each[-1].isdigit() for each in names)
    assert heads == len(stack.blocks) * stack.config.block.heads and len(set(names)) == len(names)


def test_what_each_head_writes():
    kit = small_kit("gpt2")
    _, seen = kit.run(IDS, taps=["*.z", "*.attn.out"])
    attention = kit.model.decoder.blocks[1].attn
    found = seen.head_results(1)
    assert found.shape == (2, 6, 4, 32)
    assert_near(found.sum(2) + attention.o.bias.detach(), seen["blocks.1.attn.out"])
    assert torch.equal(found, seen.head_results("decoder.blocks.1.attn"))


def test_patterns_are_read_or_rebuilt():
    kit = small_kit("gpt2")
    _, whole = kit.run(IDS, taps="*.pattern")
    _, seen = kit.run(IDS, taps=["*.q", "*.k"])
    assert_near(seen.pattern(1), whole.pattern(1))
    assert torch.equal(whole.pattern(0), whole["blocks.0.attn.pattern"])
    with pytest.raises(UsageError, match="not read"):
        kit.run(IDS, taps="*.z")[1].pattern(0)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@torch.no_grad()
def test_matrices_of_heads_by_name(name):
    """Against the projections themselves; llama's heads share keys and values."""
    kit = small_kit(name)
    attention, x = kit.model.decoder.blocks[1].attn, torch.randn(5, 32)
    groups = [head * attention.groups // attention.heads for head in range(4)]
    for part in (attention.q, attention.k, attention.v):
        if part.bias is not None:
            part.bias.zero_()
    q, k, v = (getattr(attention, n)(x).unflatten(-1, (-1, attention.width)) for n in "qkv")
    qk, ov = kit.matrix("blocks.1.attn.qk"), kit.matrix("blocks.1.attn.ov")
    assert qk.shape == ov.shape == (4, 32, 32)
    for head, group in enumerate(groups):
        assert_near(x @ qk[head] @ x.T, q[:, head] @ k[:, group].T)
        o = attention.o.weight[:, head * attention.width : (head + 1) * attention.width]
        assert_near(x @ ov[head], v[:, group] @ o.T)
    assert torch.equal(kit.matrix("blocks.1.attn.ov", head=-1), ov[3])
    for head in (slice(1, 3), [1, 2], np.array([1, 2]), torch.tensor([1, 2])):
        assert torch.equal(kit.matrix("blocks.1.attn.qk", head=head), qk[1:3])
    assert kit.matrix("blocks.0.attn.o").shape == (4, attention.width, 32)
    for wrong, told in (("blocks.1.attn.oq", "did you mean"), ("blocks.9.attn.ov", "no tap")):
        with pytest.raises(UsageError, match=told):
            kit.matrix(wrong)
    with pytest.raises(UsageError, match="heads 0 to 3"):
        kit.matrix("blocks.1.attn.ov", head=4)
