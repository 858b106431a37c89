"""The terminal view and the pictures."""

from __future__ import annotations

import pytest

from regard.look.labels import cell_width, fit, token_label, token_labels
from regard.look.view import gather_view
from regard.look.view_effects import with_effects
from regard.look.view_png import draw_head, draw_heads
from regard.look.view_text import forecast_line, text_view
from regard.tokens.trainers import train_tokenizer
from tests.properties.small_models import example, small_kit

TOKENS = [
    " the",
    "\n",
    "日本語の言葉がとても長い",
    "a$b",
    " Donaudampfschifffahrtsgesellschaft",
    "e\u0301",
    "\t",
]


def make(name: str, length: int, effects: bool = True):
    kit = small_kit(name)
    one = example(kit, length, source=length)
    names = ["text"] if one.target is None else ["source", "target"]
    batch = kit.batch(one.inputs[None], None if one.target is None else one.target[None])
    tokens = (TOKENS * length)[:length]
    view = gather_view(kit.board, batch, {side: tokens for side in names})
    return with_effects(kit.board, batch, view) if effects else view


@pytest.mark.parametrize("length", [1, 7, 40, 70])
@pytest.mark.parametrize("name", ["gpt2", "transformer"])
def test_it_fits_a_hundred_columns(name, length):
    view = make(name, length)
    for head in (None, (1, 2)):
        for blocks in (True, False):
            lines = text_view(view, None, head, blocks).splitlines()
            assert max(map(cell_width, lines)) <= 100
            assert all("\t" not in line for line in lines)
            ours = {c for line in lines for c in line} & set("▁▂▃▄▅▆▇█")
            assert bool(ours) == blocks
            assert len(lines) <= 60


def test_what_it_says():
    view = make("gpt2", 7)
    maps, changes = view.maps[0], view.effects["decoder"].changes[..., -1]
    lines = text_view(view, "decoder", (1, 3), True).splitlines()
    assert lines[1].split() == ["block", "0", "1", "2", "3"]
    assert [float(cell[:-1]) for cell in lines[3].split()[1:]] == [
        round(fact.distance, 1) for fact in maps.facts[1]
    ]
    first = next(n for n, line in enumerate(lines) if line.startswith("head ")) + 1
    block, head = divmod(int(abs(changes).argmax()), 4)
    name, distance, bits, off, *_ = lines[first].split()
    assert name == f"{block}.{head}" and float(off) == pytest.approx(
        changes[block, head], abs=0.006
    )
    assert float(distance) == pytest.approx(maps.facts[block][head].distance, abs=0.06)
    assert float(bits) == pytest.approx(maps.facts[block][head].entropy, abs=0.06)
    key, weight = maps.heads[1][3].links(6, 1)[0]
    assert f"{fit(TOKENS[key], 16).rstrip()} {weight:.0%}" in lines[-1]
    plain = text_view(make("gpt2", 7, effects=False), None, None, True)
    assert "if off" not in plain and "the mean of all heads" in plain
    said = forecast_line(view, lambda token: f" w{token}")
    assert f"w{view.forecast.tokens[-1, 0]} {view.forecast.probabilities[-1, 0]:.1%}" in said


def test_labels():
    made = train_tokenizer(["the cat sat; déjà vu 日本 😀"] * 9, "bpe", 320, specials=("eos",))
    ids = made.encode("the cat, déjà vu")
    assert "".join(token_labels(made, ids, "source")) == "the cat, déjà vu"
    split = made.encode("🜚")  # never seen: a token for each byte
    assert len(split) > 1 and all(token_label(made, id) for id in split)
    assert token_label(made, 10**6) == "#1000000"
    assert fit("abc", 5) == "abc  " and fit("abcdef", 4) == "abc…" and fit("日本語", 4) == "日… "
    assert fit("\n", 2) == "⏎ " and fit(" ", 1) == "␣"


@pytest.mark.parametrize("length", [7, 90])
def test_pictures(length):
    pytest.importorskip("matplotlib")
    view = make("transformer", length, effects=False)
    for made in (draw_heads(view, "encoder"), draw_head(view, None, (1, 3))):
        assert made.startswith(b"\x89PNG")
    assert draw_head(view, None, (1, 3)) != draw_head(view, None, (0, 3))
