"""Views against the patterns themselves, and heads switched off against runs with edits."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from regard.errors import DataError, UsageError
from regard.kit import Kit
from regard.look import attention_maps
from regard.look.attention_maps import add_effects, collect_maps
from regard.look.edits import zero
from regard.look.patching import Goal
from regard.model.presets import recurrent_lm, recurrent_seq2seq
from regard.model.recurrent import Recurrent
from tests.properties.small_models import EVERY, example, randomise, small_kit


def prepare(kit, length=12, source=9):
    one = example(kit, length, source=source)
    given = one.inputs[None], None if one.target is None else one.target[None]
    seen = {k: v[0] for k, v in kit.run(*given, taps="*pattern")[1].items()}
    sizes = [next(iter(seen.values())).shape[2], length]
    names = ["text"] if one.target is None else ["source", "target"]
    sides = {
        name: [f"{name}{n}" for n in range(size)] for name, size in zip(names, sizes, strict=False)
    }
    return kit.batch(*given), sides, seen


def additive():
    model = Recurrent(recurrent_seq2seq("gru", 12, 16, 1, 61, "additive")).eval()
    randomise(model)
    return Kit(model)


@pytest.mark.parametrize("name", [*EVERY, "additive"])
def test_maps_are_the_patterns(name):
    kit = additive() if name == "additive" else small_kit(name)
    batch, sides, seen = prepare(kit)
    view = collect_maps(kit.hooked, batch, sides)
    assert [tap for maps in view.maps for tap in maps.taps] == sorted(
        seen, key=lambda tap: ("cross" in tap, tap.startswith("decoder"))
    )
    for maps in view.maps:
        for tap, heads, small in zip(maps.taps, maps.heads, maps.small, strict=True):
            assert len(heads) == len(seen[tap])
            for head, wanted, little in zip(heads, seen[tap], small, strict=True):
                assert abs(head.dense() - wanted.numpy()).max() <= 1 / 510 + 1e-6
                assert np.allclose(little / 255, head.dense()[:64, :64])
        mean = torch.cat([seen[tap] for tap in maps.taps]).mean(0)
        assert abs(maps.mean.dense() - mean.numpy()).max() <= 1 / 510 + 1e-6


def test_facts_by_hand():
    kit = small_kit("gpt2")
    batch, sides, seen = prepare(kit)
    (maps,) = collect_maps(kit.hooked, batch, sides).maps
    pattern, fact = seen[maps.taps[1]][2].double(), maps.facts[1][2]
    rows, columns = pattern.shape
    cells = [(q, k, float(pattern[q, k])) for q in range(rows) for k in range(columns)]
    distance = sum(w * abs(q - k) for q, k, w in cells) / rows
    entropy = -sum(w * math.log2(w) for *_, w in cells if w > 0) / rows
    best = max((cell for cell in cells if cell[0] != cell[1]), key=lambda cell: cell[2])
    assert fact.distance == pytest.approx(distance) and fact.entropy == pytest.approx(entropy)
    assert fact.link == pytest.approx(best)
    links = maps.heads[1][2].links(7, 3)
    assert [key for key, _ in links] == pattern[7].topk(3).indices.tolist()
    assert [weight for _, weight in links] == pytest.approx(
        pattern[7].topk(3).values.tolist(), abs=2e-3
    )


def test_long_texts_keep_the_heaviest_links(monkeypatch):
    kit = small_kit("llama")
    batch, sides, seen = prepare(kit, 90)
    whole = collect_maps(kit.hooked, batch, sides).maps[0]
    monkeypatch.setattr(attention_maps, "WHOLE", 50)
    monkeypatch.setattr(attention_maps, "LINKS", 90 * 8 * 9)  # 90 tokens, 8 heads, 9 links
    monkeypatch.setattr(attention_maps, "AT_ONCE", 1)  # a block at a time
    maps = collect_maps(kit.hooked, batch, sides).maps[0]
    assert whole.kept is None and maps.kept == 9
    for tap, heads in zip(maps.taps, maps.heads, strict=True):
        for head, wanted in zip(heads, seen[tap], strict=True):
            kept = torch.from_numpy(head.dense())
            assert int((kept > 0).sum(-1).max()) == 9
            top = wanted.topk(9).values.sum(-1)
            assert (kept.sum(-1) - top).abs().max() <= 9 / 510
    assert maps.small.shape == (2, 4, 64, 64)
    largest = torch.nn.functional.adaptive_max_pool2d(seen[maps.taps[0]][None], 64)[0]
    assert np.abs(maps.small[0] / 255 - largest.numpy()).max() <= 1 / 510 + 1e-6


@pytest.mark.parametrize("name", [*EVERY, "additive"])
def test_effects_are_runs_without_the_head(name):
    kit = additive() if name == "additive" else small_kit(name)
    batch, sides, _ = prepare(kit)
    view = add_effects(kit.hooked, batch, collect_maps(kit.hooked, batch, sides))
    with torch.no_grad():
        plain = kit.hooked.run(batch)[0].flatten(0, -2)  # (T, V)
        assert view.forecast.tokens.tolist() == plain.topk(5).indices.tolist()
        shares = torch.from_numpy(view.forecast.probabilities)
        assert torch.allclose(shares, plain.softmax(-1).topk(5).values, atol=1e-6)
        goal = Goal(plain[-1].argmax()[None], kind="logprob")
        for maps in view.maps:
            effects = view.effects[maps.stack]
            assert effects.first == 0
            for block, tap in enumerate(maps.taps):
                place = tap if name == "additive" else tap.replace("pattern", "z")
                for head in range(len(maps.heads[block])):
                    logits = kit.hooked.run(batch, edits={place: zero(head=head)})[0]
                    before, after = (
                        goal(plain[None] if logits.dim() == 3 else plain, batch),
                        goal(logits, batch),
                    )
                    found = effects.changes[block, head, -1]
                    assert found == pytest.approx(float(after - before), abs=1e-4)
                    top = logits.flatten(0, -2).softmax(-1).topk(5)
                    found = torch.from_numpy(effects.probabilities[block, head])
                    assert torch.allclose(found, top.values, atol=1e-5)
    assert all(tap.fn is None for tap in kit.hooked.taps.values())


def test_effects_of_a_long_text_are_of_its_end(monkeypatch):
    kit = small_kit("gpt2")
    batch, sides, _ = prepare(kit)
    view = collect_maps(kit.hooked, batch, sides)
    whole = add_effects(kit.hooked, batch, view).effects["decoder"]
    monkeypatch.setattr(attention_maps, "KEPT", 8 * 5)  # 8 heads
    monkeypatch.setattr(attention_maps, "TOKENS", 30)  # two rows at once
    part = add_effects(kit.hooked, batch, view).effects["decoder"]
    assert part.first == 7 and part.changes.shape == (2, 4, 5)
    assert np.allclose(part.changes, whole.changes[..., 7:], atol=1e-5)


def test_refusals():
    kit = small_kit("gpt2")
    batch, sides, _ = prepare(kit)
    with pytest.raises(DataError, match="0 tokens"):
        collect_maps(kit.hooked, batch, {"text": []})
    with pytest.raises(UsageError, match="one of decoder"):
        collect_maps(kit.hooked, batch, sides).stack("cross")
    lstm = Kit(Recurrent(recurrent_lm("lstm", 8, 8, 1, 61)).eval())
    with pytest.raises(UsageError, match="additive attention"):
        collect_maps(lstm.hooked, lstm.batch([[1, 2]]), {"text": ["a", "b"]})
