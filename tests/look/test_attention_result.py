"""Attention maps as text, data and pictures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.cells import cell_len

from regard.look.attention_maps import add_effects, collect_maps, spell_words
from regard.look.labels import fit, token_label, token_labels
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
    maps = collect_maps(kit.hooked, batch, {side: tokens for side in names})
    maps = add_effects(kit.hooked, batch, maps) if effects else maps
    return spell_words(maps, lambda token: f" w{token}")


@pytest.mark.parametrize("length", [1, 7, 40, 70])
@pytest.mark.parametrize("name", ["gpt2", "transformer"])
def test_it_fits_a_screen(name, length):
    maps = make(name, length)
    for head in (None, (1, 2)):
        lines = str(replace(maps, shown_head=head)).splitlines()
        assert max(map(cell_len, lines)) <= 130 and len(lines) <= 60
        assert all("\t" not in line for line in lines)


def test_what_it_says():
    maps = replace(make("gpt2", 7), shown_head=(1, 3))
    stack, changes = maps.maps[0], maps.effects["decoder"].changes[..., -1]
    lines = str(maps).splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("  head ")) + 1
    block, head = divmod(int(abs(changes).argmax()), 4)
    name, *_, distance, bits, off = lines[first].split()
    fact = stack.facts[block][head]
    assert name == f"{block}.{head}" and float(off) == pytest.approx(
        changes[block, head], abs=0.006
    )
    assert float(distance) == pytest.approx(fact.distance, abs=0.06)
    assert float(bits) == pytest.approx(fact.entropy, abs=0.06)
    key, weight = stack.heads[1][3].links(6, 1)[0]
    assert f"{fit(TOKENS[key], 14).rstrip()} {weight:.0%}" in lines[-2]
    plain = str(make("gpt2", 7, effects=False))
    assert "if off" not in plain and "the mean of all heads" in plain
    best = maps.forecast.tokens[-1, 0], maps.forecast.probabilities[-1, 0]
    assert f"w{best[0]} {best[1]:.1%}" in lines[-1]
    data = maps.to_dict()
    assert data["head"] == [1, 3] and data["links"][6][0] == {"key": key, "weight": weight}
    assert data["forecast"][0]["text"] == f" w{best[0]}"


def test_labels():
    made = train_tokenizer(["the cat sat; déjà vu 日本 😀"] * 9, "bpe", 320, specials=("eos",))
    ids = made.encode("the cat, déjà vu")
    assert "".join(token_labels(made, ids, "source")) == "the cat, déjà vu"
    assert [token_label(made, id) for id in made.encode("a ##")][-1].strip("#") in ("", " ")
    words = train_tokenizer(["the cats sat"] * 9, "wordpiece", 40, specials=("unk", "cls"))
    text = "".join(token_labels(words, words.encode("the cats sat"), "source"))
    assert text.split() == ["the", "cats", "sat"]  # blanks between words, none within
    spaced = train_tokenizer(["w1 w2"], "spaced")
    assert "".join(token_labels(spaced, spaced.encode("w1 w2"), "source")) == " w1 w2"
    split = made.encode("🜚")  # never seen: a token for each byte
    assert len(split) > 1 and all(token_label(made, id) for id in split)
    assert token_label(made, 10**6) == "#1000000"
    assert fit("abc", 5) == "abc  " and fit("abcdef", 4) == "abc…" and fit("日本語", 4) == "日… "
    assert fit("\n", 2) == "⏎ " and fit(" ", 1) == "␣"


@pytest.mark.parametrize("length", [7, 90])
def test_pictures(length, tmp_path):
    pytest.importorskip("matplotlib")
    maps = make("transformer", length, effects=False)
    files = [tmp_path / f"{n}.png" for n in range(3)]
    replace(maps, shown_stack="encoder").save(files[0])
    for file, head in zip(files[1:], ((1, 3), (0, 3)), strict=True):
        replace(maps, shown_head=head).save(file)
    made = [file.read_bytes() for file in files]
    assert all(one.startswith(b"\x89PNG") for one in made) and made[1] != made[2]
