"""Steering vectors, resampling and head masks against runs and edits made by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import regard
from regard.decode.beam import BeamConfig
from regard.decode.sampling import Ends
from regard.errors import UsageError
from regard.kit import Kit
from regard.look.patching import head_sites
from regard.model.config import HeadConfig
from tests.properties.small_models import assert_near, random_ids, small_kit

TAP = "decoder.blocks.0.resid_post"


def prompts(kit, lengths, seed=0):
    return kit.batch([random_ids(n, seed + k).tolist() for k, n in enumerate(lengths)])


@pytest.mark.parametrize("position", ["last", "mean", "all", 1, -2])
def test_a_steering_vector_is_the_difference_of_means(position):
    kit = small_kit("llama")
    batches = prompts(kit, (5, 3, 8)), prompts(kit, (4, 6), 9)
    means = []
    for batch in batches:
        rows = []
        for ids, real in zip(batch.ids, batch.mask, strict=True):
            x = kit.run([ids[real].tolist()], taps=TAP)[1][TAP][0]
            at = {"last": x[-1:], "mean": x.mean(0, keepdim=True), "all": x}
            rows.append(at[position] if isinstance(position, str) else x[position][None])
        means.append(torch.cat(rows).mean(0))
    found = regard.steering_vector(kit.hooked, *batches, "blocks.0.resid_post", position)
    assert_near(found, means[0] - means[1])
    with pytest.raises(UsageError, match="2 taps"):
        regard.steering_vector(kit.hooked, *batches, "*.resid_post")
    with pytest.raises(UsageError, match="no prompt"):
        regard.steering_vector(kit.hooked, *batches, TAP, 40)
    real = batches[0].mask
    ids = torch.zeros_like(batches[0].ids).masked_scatter(real.flip(1), batches[0].ids[real])
    left = kit.batch(ids, mask=real.flip(1))  # padding on the left
    assert_near(regard.steering_vector(kit.hooked, left, batches[1], TAP, position), found)


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5"])
def test_it_leans_what_is_written(name):
    """With a very large scale the words are those that the vector alone stands for."""
    kit = small_kit(name)
    toward, away = prompts(kit, (5, 3)), prompts(kit, (4, 6), 9)
    tap = "decoder.blocks.1.resid_post"
    vector = regard.steering_vector(kit.hooked, toward, away, tap, 0 if name == "t5" else "last")
    if name == "t5":
        vector = vector + torch.randn(32, generator=torch.Generator().manual_seed(1))
    for how in (None, BeamConfig(2)):
        with kit.edit({tap: regard.add(1e4 * vector)}):
            found = kit.search(toward, 3, how, Ends())
        x = kit.model.decoder.norm(1e4 * vector[None, None])
        wanted = int(kit.model.score(x)[0, 0].argmax())
        assert [row[0].tokens for row in found] == [[wanted] * 3] * 2


def test_heads_side_by_side_find_their_places():
    kit, tap = small_kit("gpt2"), "decoder.blocks.0.attn.z"
    batches = prompts(kit, (5, 3)), prompts(kit, (4, 6), 9)
    vector = regard.steering_vector(kit.hooked, *batches, tap)
    with kit.edit({tap: regard.add(vector)}):
        found = kit.logits([[1, 2, 3]])
    with kit.edit({tap: regard.add(vector.view(4, 8))}):
        assert torch.equal(kit.logits([[1, 2, 3]]), found)
    wrong = pytest.raises(UsageError, match=r"shape \(7,\)")
    with wrong, kit.edit({TAP: regard.add(torch.ones(7))}):
        kit.logits([[1, 2, 3]])


def test_resampling_takes_the_value_of_another_row():
    kit, ids = small_kit("llama"), torch.stack([random_ids(6, n) for n in range(4)])
    tap, rows = "decoder.blocks.0.attn.z", [2, 0, 3, 1]
    clean = kit.run(ids, taps=tap)[1][tap]
    others = torch.stack([random_ids(6, 20 + n) for n in range(9)])
    corpus = kit.run(others, taps=tap)[1][tap]
    for edit, value in (
        (regard.resample(rows, head=[1, 2], position=3), clean[rows]),
        (regard.resample([8, 8, 0, 5], corpus, head=[1, 2], position=3), corpus[[8, 8, 0, 5]]),
    ):
        with kit.edit({tap: edit}):
            found = kit.logits(ids)
        with kit.edit({tap: regard.patch(value, head=[1, 2], position=3)}):
            assert torch.equal(kit.logits(ids), found)
        assert not torch.allclose(kit.logits(ids), found)
    # All rows at the first tap: the scores change places.
    with kit.edit({"decoder.embed": regard.resample(rows)}):
        found = kit.logits(ids)
    assert_near(found, kit.logits(ids[rows]))


def test_other_rows_leave_none_in_its_place():
    for count in (2, 3, 10):
        drawn = {tuple(regard.other_rows(count, seed).tolist()) for seed in range(30)}
        for rows in drawn:
            assert sorted(rows) == list(range(count))
            assert all(n != row for n, row in enumerate(rows))
        assert len(drawn) == {2: 1, 3: 2}.get(count, 30)
    with pytest.raises(UsageError, match="two or more"):
        regard.other_rows(1)
    with pytest.raises(UsageError, match="one of its rows"):
        regard.resample([0, 5])
    kit = small_kit("gpt2")
    edits = {"*.0.attn.z": regard.resample([1, 0])}
    with pytest.raises(UsageError, match="batch of 3"), kit.edit(edits):
        kit.logits([[1], [2], [3]])
    with pytest.raises(UsageError, match="resample of a run"), kit.edit(edits):
        kit.generate([[1], [2]], 2)


def test_heads_are_masked_by_name():
    kit, ids = small_kit("gpt2"), [random_ids(7, 1).tolist()]
    first, second = "decoder.blocks.0.attn.z", "decoder.blocks.1.attn.z"
    for names, keep, wanted in (
        (["0.1", "1.3"], False, {first: [1], second: [3]}),
        (["1.*"], False, {second: [0, 1, 2, 3]}),
        (["decoder.0.attn.2"], False, {first: [2]}),
        ([f"{second}.0"], True, {first: [0, 1, 2, 3], second: [1, 2, 3]}),
    ):
        with kit.edit(regard.head_mask(kit.hooked, names, keep)):
            found = kit.logits(ids)
        with kit.edit({tap: regard.zero(head=heads) for tap, heads in wanted.items()}):
            assert torch.equal(kit.logits(ids), found)
    with pytest.raises(UsageError, match="such as 1.3"):
        regard.head_mask(kit.hooked, ["1.33"])
    pair = small_kit("t5")
    cross = regard.head_mask(pair.hooked, ["decoder.*.cross.1"])
    assert list(cross) == ["decoder.blocks.0.cross.z", "decoder.blocks.1.cross.z"]
    assert len(head_sites(pair.hooked)) == 24 and not regard.head_mask(
        pair.hooked, ["*"], keep=True
    )
    with pytest.raises(UsageError, match="no head"):
        regard.head_mask(pair.hooked, ["0.1"])
    alone = regard.head_mask(kit.hooked, "0.1")
    assert list(alone) == [first] and alone[first][0].head.tolist() == [1]


def test_what_cannot_be_steered_or_masked():
    kit = small_kit("gpt2")
    one = kit.batch([[1, 2, 3]])
    for batches, tap, position, told in (
        (("good", "bad"), "blocks.0.resid_post", "last", "two batches"),
        ((one, one), "blocks.0.resid_post", "frist", "whole number"),
        ((one, one), "*.resid_post", "last", "one tap"),
    ):
        with pytest.raises(UsageError, match=told):
            regard.steering_vector(kit.hooked, *batches, tap, position)


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
