"""Steering vectors against runs and edits made by hand; positions, functions, several Kits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import regard
from regard.decode.beam import BeamConfig
from regard.decode.sampling import Ends
from regard.errors import UsageError
from regard.kit import Kit
from regard.model.config import HeadConfig
from tests.properties.small_models import assert_near, random_ids, small_kit

TAP = "decoder.blocks.0.resid_post"


def prompts(kit, lengths, seed=0):
    return kit.batch([random_ids(n, seed + k).tolist() for k, n in enumerate(lengths)])


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5"])
def test_it_leans_what_is_written(name):
    """With a very large scale the words are those that the vector alone stands for."""
    kit = small_kit(name)
    toward, tap = prompts(kit, (5, 3)), "decoder.blocks.1.resid_post"
    vector = torch.randn(32, generator=torch.Generator().manual_seed(1))
    for how in (None, BeamConfig(2)):
        with kit.edit({tap: regard.add(1e4 * vector)}):
            found = kit.search(toward, 3, how, Ends())
        x = kit.model.decoder.norm(1e4 * vector[None, None])
        wanted = int(kit.model.score(x)[0, 0].argmax())
        assert [row[0].tokens for row in found] == [[wanted] * 3] * 2


def test_heads_side_by_side_find_their_places():
    kit, tap = small_kit("gpt2"), "decoder.blocks.0.attn.z"
    vector = torch.randn(32, generator=torch.Generator().manual_seed(1))
    with kit.edit({tap: regard.add(vector)}):
        found = kit.logits([[1, 2, 3]])
    with kit.edit({tap: regard.add(vector.view(4, 8))}):
        assert torch.equal(kit.logits([[1, 2, 3]]), found)
    wrong = pytest.raises(UsageError, match=r"shape \(7,\)")
    with wrong, kit.edit({TAP: regard.add(torch.ones(7))}):
        kit.logits([[1, 2, 3]])


# Positions, functions, several Kits ---------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "t5"])
@pytest.mark.parametrize("place", ["blocks.0.resid_post", "blocks.1.attn.pattern"])
def test_positions_are_those_of_the_text_whatever_the_padding(name, place):
    """Five pads on the left change nothing of what an edit at a position does."""
    kit, ids = small_kit(name), random_ids(7, 1)
    stack = "encoder" if name in ("bert", "t5") else "decoder"
    padded = torch.cat([torch.zeros(5, dtype=torch.long), ids])[None]
    real = torch.arange(12)[None] >= 5
    target = [[1, 2, 3]] if name == "t5" else None
    masks = {"source_mask" if target else "mask": real}
    for position in (2, -1, [0, 3], slice(-3, None)):
        edit = regard.zero(position=position)
        with kit.edit({f"{stack}.{place}": edit}):
            wanted, found = kit.logits(ids[None], target), kit.logits(padded, target, **masks)
        assert_near(found[:, found.shape[1] - wanted.shape[1] :], wanted)
        assert not torch.allclose(wanted, kit.logits(ids[None], target), atol=1e-4)


def test_a_position_past_the_text_is_an_error():
    kit = small_kit("gpt2")
    for position in (3, -4, [0, 3]):
        with (
            pytest.raises(UsageError, match="a token of the text"),
            kit.edit({TAP: regard.zero(position=position)}),
        ):
            kit.logits([[1, 2, 3]])
    with kit.edit({TAP: regard.zero(position=3)}):  # of the longer text
        found = kit.logits([[1, 2, 3], [1, 2, 3, 4]])
    assert_near(found[0, :3], kit.logits([[1, 2, 3]])[0])
    short, rows = slice(-9, None), [[1, 2, 3], [1, 2, 3, 4]]  # padding is no position
    with kit.edit({TAP: regard.zero(position=short)}):
        _, seen = kit.run(rows, taps=TAP)
    assert not seen[TAP][0, :3].any() and seen[TAP][0, 3].any() and not seen[TAP][1].any()
    classes = small_kit("gpt2", head=HeadConfig(3, take="first"))
    with (
        pytest.raises(UsageError, match="vector for each token"),
        classes.edit({"logits": regard.zero(position=0)}),
    ):
        classes.logits([[1, 2, 3]])


@pytest.mark.parametrize("place", ["decoder.blocks.0.attn.z", "decoder.blocks.1.resid_mid"])
def test_a_mean_leaves_padding_out(place):
    kit, rows = small_kit("llama"), [random_ids(9, 1).tolist(), random_ids(3, 2).tolist()]
    batch = kit.batch(rows)
    _, seen = kit.run(rows, taps=place)
    expected = seen[place][batch.mask].mean(0)
    with kit.edit({place: regard.mean()}):
        _, seen = kit.run(rows, taps=place)
    assert_near(seen[place][0, 4], expected)
    _, seen = kit.run(rows, taps=place)
    with kit.edit({place: regard.mean(seen[place][batch.mask])}):  # (tokens, …)
        _, seen = kit.run(rows, taps=place)
    assert_near(seen[place][0, 4], expected)


def test_a_function_is_an_edit():
    kit, ids = small_kit("gpt2"), [[1, 2, 3, 4]]
    plain = kit.logits(ids)
    with kit.edit({TAP: lambda x: 0.5 * x, "logits": [lambda x: x + 1, regard.add(1.0)]}):
        halved = kit.logits(ids)
        written = kit.generate(ids, 3)
    x = kit.run(ids, taps=TAP)[1][TAP]
    with kit.edit({TAP: regard.patch(0.5 * x)}):
        assert_near(halved, kit.logits(ids) + 2)
    assert not torch.allclose(plain, halved - 2) and written.shape == (1, 3)
    for wrong, told in ((lambda x: x[0], r"\(4, 32\)"), (lambda x: None, "NoneType")):
        with pytest.raises(UsageError, match=told), kit.edit({TAP: wrong}):
            kit.logits(ids)
    with pytest.raises(UsageError, match="function of the activation"), kit.edit({TAP: 3}):
        pass


def test_gradients_of_a_run():
    kit, ids = small_kit("gpt2"), [[1, 2, 3, 4]]
    out, seen = kit.run(ids, taps=TAP, grad=True)
    (slope,) = torch.autograd.grad(out.logits[0, -1, 5], seen[TAP])
    steer = torch.zeros(32, requires_grad=True)
    with kit.edit({TAP: lambda x: x + steer}):
        kit.run(ids, grad=True)[0].logits[0, -1, 5].backward()
    assert_near(steer.grad, slope[0].sum(0))
    assert not kit.run(ids, taps=TAP)[0].logits.requires_grad
    kit.model.requires_grad_(False)
    out, seen = kit.run(ids, taps=TAP, grad=True)
    assert_near(torch.autograd.grad(out.logits[0, -1, 5], seen[TAP])[0], slope)


def test_what_was_set_by_hand_stays_and_two_kits_share_a_model():
    kit, ids = small_kit("gpt2"), [[1, 2, 3, 4]]
    plain = kit.logits(ids)
    tap = kit.hooked.taps[TAP]
    tap.fn = lambda x: 0 * x
    by_hand = kit.logits(ids)
    _, seen = kit.run(ids, taps=TAP)
    assert not seen[TAP].any() and torch.equal(kit.logits(ids), by_hand)
    tap.fn = None
    assert torch.equal(kit.logits(ids), plain)
    other = Kit(kit.model)
    with kit.edit({TAP: regard.zero()}):
        with other.edit({TAP: regard.add(1.0)}):
            _, seen = other.run(ids, taps=TAP)
            assert torch.equal(seen[TAP], torch.ones_like(seen[TAP]))
        other.run(ids, taps="*")
        assert torch.equal(kit.logits(ids), by_hand)
    assert torch.equal(kit.logits(ids), plain) and tap.fn is None


@pytest.mark.parametrize(
    ("index", "heads"),
    [
        (-1, [3]),
        (torch.tensor([0, 2]), [0, 2]),
        (torch.tensor(1), [1]),
        (np.array([1, -1]), [1, 3]),
        (np.int64(2), [2]),
        (torch.tensor([True, False, False, True]), [0, 3]),
        (slice(None, None, 2), [0, 2]),
        (slice(-2, None), [2, 3]),
        (slice(1, -1), [1, 2]),
        (range(1, 3), [1, 2]),
    ],
)
def test_ways_to_choose(index, heads):
    kit, ids = small_kit("gpt2"), [[1, 2, 3, 4]]  # 4 heads, 4 tokens
    tap = "decoder.blocks.1.attn.z"
    for name in ("head", "position"):
        with kit.edit({tap: regard.zero(**{name: heads})}):
            wanted = kit.logits(ids)
        with kit.edit({tap: regard.zero(**{name: index})}):
            assert torch.equal(kit.logits(ids), wanted)
    for wrong in (1.5, "x", [], [[1]], slice(None, None, -1)):
        with pytest.raises(UsageError, match="whole number"):
            regard.zero(head=wrong)
