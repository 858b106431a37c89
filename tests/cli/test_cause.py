"""`regard patch`, `regard circuit` and `regard eval ioi`, as a user types them."""

from __future__ import annotations

import json

import pytest
import torch

import regard
from regard.cli.main import main
from regard.cli.prompts import Line, make_pairs, read_prompts
from regard.kit import Kit
from regard.look.circuit_search import ScoredEdge, edges_within
from regard.look.ioi_task import (
    FRAMES,
    MIN_ATTENTION,
    NAMES,
    PLACES,
    RULES,
    THINGS,
    Roles,
    find_roles,
    make_prompts,
)
from regard.look.patching import Site
from regard.tokens.trainers import train_tokenizer
from tests.cli.small_folders import masker, pair  # noqa: F401
from tests.look.planted import planted_induction
from tests.look.test_circuit_search import repeats
from tests.properties.small_models import small_kit

VOCAB, LENGTH = 24, 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The planted model with a tokenizer of words w0 w1 …, and pairs for it."""
    place = tmp_path_factory.mktemp("cause")
    words = [f"w{n}" for n in range(40)]
    tokenizer = train_tokenizer([" ".join(words)], "spaced", specials=["bos", "eos"])
    model = planted_induction(tokenizer.size, LENGTH, heads=3, previous=1, induction=2)
    Kit(model, tokenizer).save(place / "m")
    pairs = repeats(12)
    lines = []
    for row, twin, good, bad in zip(
        pairs.clean.inputs.tolist(),
        pairs.corrupt.inputs.tolist(),
        pairs.goal.good.tolist(),
        pairs.goal.bad.tolist(),
        strict=True,
    ):
        spelt = (" ".join(words[id] for id in ids) for ids in (row, twin, [good], [bad]))
        lines.append("\t".join(spelt))
    (place / "pairs.tsv").write_text("\n".join(lines) + "\n")
    return place


def call(capsys, *words):
    code = main([str(word) for word in words])
    return code, *capsys.readouterr()


def test_patching_names_the_heads(folder, capsys):
    model, pairs = folder / "m", folder / "pairs.tsv"
    code, said, _ = call(capsys, "patch", model, pairs, "--json")
    made = json.loads(said)
    assert code == 0 and made["pairs"] == 12 and made["clean"] > made["corrupted"] + 5
    best = sorted(made["effects"], key=lambda e: -e["effect"])[:2]
    assert {(e["tap"], e["head"]) for e in best} == {
        ("decoder.blocks.0.attn.z", 1),
        ("decoder.blocks.1.attn.z", 2),
    }
    code, said, _ = call(capsys, "patch", model, pairs, "--top", 2)
    assert code == 0 and "decoder.blocks.1.attn.z head 2" in said and "12 pairs" in said
    code, said, _ = call(capsys, "patch", model, pairs, "--to", "end", "--json")
    direct = {(e["tap"], e["head"]): e["effect"] for e in json.loads(said)["effects"]}
    assert code == 0 and direct["decoder.blocks.1.attn.z", 2] > 0.9  # it alone writes the answer
    assert abs(direct["decoder.blocks.0.attn.z", 1]) < 0.1
    keys = ("--to", "*.1.attn.k:2", "--json")
    code, said, _ = call(capsys, "patch", model, pairs, *keys)
    through = {(e["tap"], e["head"]): e["effect"] for e in json.loads(said)["effects"]}
    assert code == 0 and through["decoder.blocks.0.attn.z", 1] > 0.9  # by the keys of the other


@pytest.mark.parametrize(
    "more", [["--over", "stream"], ["--over", "mlps"], ["--fast"], ["--noise"]]
)
def test_other_ways_to_patch(folder, capsys, more):
    code, said, _ = call(capsys, "patch", folder / "m", folder / "pairs.tsv", *more, "--json")
    assert code == 0 and json.loads(said)["effects"]


def test_a_circuit_and_its_certificate(folder, capsys):
    pytest.importorskip("matplotlib")
    out, png = folder / "circuit.json", folder / "map.png"
    words = ("circuit", folder / "m", folder / "pairs.tsv", "--out", out, "--png", png)
    code, said, _ = call(capsys, *words)
    assert code == 0 and "2 of 8 parts" in said and "faithfulness, mean" in said
    receipt = json.loads(out.read_text())
    assert receipt["command"][:2] == ["regard", "circuit"] and receipt["torch"]
    assert str(folder / "pairs.tsv") in receipt["data"] and len(receipt["data"]) > 2
    made = receipt["results"]
    assert [(n["tap"], n["head"]) for n in made["nodes"]] == [
        ("decoder.blocks.0.attn.z", 1),
        ("decoder.blocks.1.attn.z", 2),
    ]
    told = made["certificate"]
    assert told["pairs"] == 6 and told["faithfulness"]["resample"]["value"] > 0.9
    assert png.read_bytes().startswith(b"\x89PNG")
    best = made["edges"][0]
    assert {best["from"]["tap"], best["to"]["tap"]} <= {
        "decoder.blocks.0.attn.z",
        "decoder.blocks.1.attn.z",
        "decoder.blocks.1.attn.k",
        "decoder.blocks.1.resid_post",
    }


def test_templates_are_named_by_a_column_and_told_apart_by_length(folder):
    kit = regard.load(folder / "m")
    rows = [("w1 w2 w1", "a"), ("w3 w4 w3", "a"), ("w1 w2 w1", "b"), ("w5 w1 w2 w5", "a")]
    pairs = make_pairs(kit, [Line(text, text, "w2", "w3", name) for text, name in rows], print)
    assert pairs.templates.tolist() == [0, 0, 1, 2]
    (folder / "five.tsv").write_text("".join(f"{t}\t{t}\tw2\tw3\t{n}\n" for t, n in rows))
    assert [line.template for line in read_prompts(str(folder / "five.tsv"))] == [
        "a",
        "a",
        "b",
        "a",
    ]


def test_shared_keys_and_values_belong_to_each_of_their_heads():
    """Heads 2 and 3 of a Llama share the second keys and values; head 1 has the first ones."""
    hooked, at = small_kit("llama").hooked, "decoder.blocks.1.attn"
    edges = [
        ScoredEdge(Site("decoder.embed"), Site(f"{at}.{kind}", n), 1.0)
        for kind, count in (("q", 4), ("k", 2), ("v", 2))
        for n in range(count)
    ]
    for head, shared in ((1, 0), (2, 1), (3, 1)):
        found = edges_within(hooked, edges, [Site(f"{at}.z", head)])
        kept = [(edge.receiver.tap[-1], edge.receiver.head) for edge in found]
        assert kept == [("q", head), ("k", shared), ("v", shared)]


def test_a_translator_is_asked_about_its_next_word(pair, tmp_path, capsys):  # noqa: F811
    """What both answers begin with is written; their next tokens are compared."""
    lines = [f"the {noun} cat\tthe {noun} dog\tthe dog sat\tthe cat sat" for noun in ("cat", "mat")]
    (tmp_path / "p.tsv").write_text("\n".join(2 * lines) + "\n")
    words = ("patch", pair, tmp_path / "p.tsv", "--json")
    code, said, _ = call(capsys, *words)
    made = json.loads(said)
    kit = regard.load(pair)
    cut = kit.tokenizer.encode
    sources = [cut(line.split("\t")[0]) for line in lines]
    begun = [kit.tokenizer.specials["pad"], *cut("the", special=False, side="target")]
    good, bad = (cut(f"the {word}", special=False)[len(begun) - 1] for word in ("dog", "cat"))
    with torch.no_grad():
        logits = kit.model(kit.batch(sources, [begun, begun]))[:, -1]
    assert code == 0 and made["clean"] == pytest.approx(
        float((logits[:, good] - logits[:, bad]).mean()), abs=1e-4
    )
    assert {e["tap"].split(".")[0] for e in made["effects"]} == {"encoder", "decoder"}
    code, said, _ = call(capsys, *words, "--over", "stream")
    last = [e for e in json.loads(said)["effects"] if e["tap"] == "encoder.blocks.0.resid_pre"]
    assert code == 0 and len(last) == len(sources[0])
    assert [e["effect"] for e in last[:2]] == pytest.approx([0, 0], abs=1e-4)  # the same tokens
    code, said, error = call(capsys, "circuit", *words[1:], "--draws", 5)
    assert code == 0 and "no edges" in error and json.loads(said)["certificate"]["pairs"] == 2


def test_a_masked_language_model_is_asked_about_its_gap(masker, tmp_path, capsys):  # noqa: F811
    lines = ["the [MASK] sat\ton [MASK] sat\tcat\tdog", "the [MASK] sat\tis [MASK] sat\tcat\tdog"]
    (tmp_path / "p.tsv").write_text("\n".join(lines) + "\n")
    code, said, _ = call(capsys, "patch", masker, tmp_path / "p.tsv", "--json")
    kit = regard.load(masker)
    ids = kit.tokenizer.encode("the [MASK] sat", allow_special=True)
    logits = kit.logits([ids])[0, ids.index(kit.tokenizer.specials["mask"])]
    cat, dog = (kit.tokenizer.encode(word, special=False)[0] for word in ("cat", "dog"))
    assert code == 0
    assert json.loads(said)["clean"] == pytest.approx(float(logits[cat] - logits[dog]), abs=1e-4)
    (tmp_path / "p.tsv").write_text("the [MASK] sat\t[MASK] on sat\tcat\tdog\n")
    code, _, error = call(capsys, "patch", masker, tmp_path / "p.tsv")
    assert code == 3 and "gaps at different tokens" in error


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("w1 w2\tw1 w2 w3\tw4\tw5", "2 and 3 tokens"),
        ("w1 w2\tw1", "line 1: 2 columns"),
        ("w1 w2\tw1 w3\t\tw5", "an empty one"),
        ("", "no lines"),
        ("w1 w2\tw1 w3\tw4\nw1 w2\tw1 w3\tw4\tw5", "all lines alike"),
        ("w1 w2\tw1 w2\tw4\tw5", "alike"),
    ],
)
def test_bad_pairs(folder, tmp_path, capsys, line, told):
    (tmp_path / "p.tsv").write_text(line + "\n")
    code, _, error = call(capsys, "patch", folder / "m", tmp_path / "p.tsv")
    assert code in (2, 3) and told in error


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["patch", "M"], "one of them"),
        (["patch", "M", "P", "--to", "decoder.blocks.7.attn.q"], "no tap is called"),
        (["patch", "M", "P", "--to", "*.attn.q:9"], "heads 0 to 2"),
        (["patch", "M", "P", "--to", "*.attn.q:x"], "TAP:HEAD"),
        (["patch", "M", "P", "--to", "end", "--fast"], "exactly"),
        (["circuit", "M", "P", "--keep", "2"], "between 0 and 1"),
        (["circuit", "M", "nowhere.tsv"], "no such file"),
        (["circuit", "M", "P", "--out", "nowhere/c.json"], "no folder nowhere"),
        (["eval", "ioi", "M", "--out", "."], "is a folder"),
        (["patch", "M", "P", "--png", "nowhere/p.png"], "no folder nowhere"),
        (["eval", "ioi", "M"], "13 tokens\n  expected: at most 12"),
        (["circuit", "fr-en", "--task", "ioi"], "a language model"),
    ],
)
def test_bad_calls(folder, capsys, words, told):
    places = {"M": str(folder / "m"), "P": str(folder / "pairs.tsv")}
    code, _, error = call(capsys, *(places.get(word, word) for word in words))
    assert code in (2, 3) and told in error


# Indirect objects -------------------------------------------------------------------------------


def test_prompts_name_one_once_and_the_other_twice():
    made = make_prompts(2 * len(FRAMES), seed=1)
    assert len({p.frame for p in made}) == len(FRAMES) and made == make_prompts(16, seed=1)
    for number, prompt in enumerate(made):
        assert prompt.clean.count(prompt.s) == 2 and prompt.clean.count(prompt.io) == 1
        first = prompt.clean.index(prompt.io) < prompt.clean.index(prompt.s)
        assert first == bool(number % 2)
        names = [w.strip(",") for w in prompt.corrupt.split() if w.strip(",") in NAMES]
        assert len(set(names)) == len(names) == 3 and not {prompt.io, prompt.s} & set(names)
        assert len(prompt.clean.split()) == len(prompt.corrupt.split())
    assert make_prompts(4, usable=lambda word: False) == []


def test_roles():
    assert find_roles([9, 1, 8, 2, 7, 1, 6], io=2, s=1) == Roles(3, 1, 5, 6)
    assert find_roles([1, 2, 2, 1], io=2, s=1) is None and find_roles([1, 2], io=2, s=1) is None


def test_a_fresh_model_does_not_know_who_is_meant(tmp_path, capsys):
    texts = [p.clean + " " + p.corrupt for p in make_prompts(64)]
    texts += [" ".join([*NAMES, *PLACES, *THINGS])] * 2
    tokenizer = train_tokenizer(texts, "bytes")
    model = planted_induction(tokenizer.size, 160, heads=2, previous=0, induction=1)
    Kit(model, tokenizer).save(tmp_path / "bytes")
    code, _, error = call(capsys, "eval", "ioi", tmp_path / "bytes")
    assert code == 3 and "single tokens" in error  # no name is one byte
    tokenizer = train_tokenizer(texts, "spaced")
    torch.manual_seed(0)
    model = planted_induction(tokenizer.size, 24, heads=2, previous=0, induction=1)
    Kit(model, tokenizer).save(tmp_path / "words")
    words = ("eval", "ioi", tmp_path / "words", "--count", 8, "--heads", "--out")
    code, said, _ = call(capsys, *words, tmp_path / "ioi.json", "--json")
    made = json.loads(said)
    receipt = json.loads((tmp_path / "ioi.json").read_text())
    assert receipt["results"] == made and receipt["seed"] == 0 and receipt["code"]
    assert list(made["heads"]) == list(RULES) and made["thresholds"]["looks"] == MIN_ATTENTION
    assert code == 0 and abs(made["corrupted_difference"]) < 1 and 0 <= made["io_above_s"] <= 1
    found = made["heads"]
    assert (0, 0) in {(h["block"], h["head"]) for h in found["previous token"]}
    assert (1, 1) in {(h["block"], h["head"]) for h in found["induction"]}
    assert max(h["score"] for h in found["induction"]) > 0.9
    code, said, _ = call(capsys, *words[:3], "--count", 1, "--json")
    assert code == 0 and json.loads(said)["plus_minus"] is None  # one prompt says nothing of others
    code, said, _ = call(capsys, *words[:-1])
    assert code == 0 and all(name in said for name in RULES) and "1 % or more" in said
