"""`regard.look.patch`, `regard.look.circuit` and `regard.evaluate.ioi`, and their prompts."""

from __future__ import annotations

import json
import re

import pytest
import torch

import regard
from regard.cli.main import main
from regard.errors import DataError, UsageError
from regard.kit import Kit
from regard.look.circuit_search import edges_within
from regard.look.ioi_task import (
    FRAMES,
    MIN_ATTENTION,
    NAMES,
    PLACES,
    THINGS,
    Roles,
    locate_roles,
    make_prompts,
)
from regard.look.patching import Goal, Pairs
from regard.look.prompts import PromptPair, make_pairs, read_prompts
from regard.look.results import CircuitEdge, Site
from regard.model.batch import Batch
from regard.tokens.trainers import train_tokenizer
from tests.cli.small_folders import masker, pair  # noqa: F401
from tests.look.planted import planted_induction
from tests.look.test_circuit_search import repeats
from tests.properties.small_models import small_kit

LENGTH = 12
FIRST, SECOND = Site("decoder.blocks.0.attn.z", 1), Site("decoder.blocks.1.attn.z", 2)  # planted


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


def by_site(result):
    return {Site(e.tap, e.head, e.position): e.effect for e in result.effects}


def test_patching_names_the_heads(folder):
    model, pairs = folder / "m", folder / "pairs.tsv"
    found = regard.look.patch(model, pairs, top=2)
    assert found.pairs == 12 and found.clean > found.corrupted + 5
    assert set(sorted(by_site(found), key=lambda s: -by_site(found)[s])[:2]) == {FIRST, SECOND}
    listed = str(found).partition("standard error")[2]
    assert SECOND.tap in listed and len(listed.splitlines()) == 3  # two places
    direct = by_site(regard.look.patch(model, pairs, to=["end"]))
    assert direct[SECOND] > 0.9 and abs(direct[FIRST]) < 0.1  # it alone writes the answer
    through = by_site(regard.look.patch(model, pairs, to=["*.1.attn.k:2"]))
    assert through[FIRST] > 0.9  # by the keys of the other


@pytest.mark.parametrize("options", [dict(over="stream"), dict(over="mlps")])
def test_other_ways_to_patch(folder, options):
    assert regard.look.patch(folder / "m", folder / "pairs.tsv", **options).effects


def test_a_metric_of_ones_own(folder):
    """A function of logits in place of the answers of the file."""

    def gap(logits, goal):
        rows = torch.arange(len(logits))
        return logits[rows, goal.good] - logits[rows, goal.bad]

    model, pairs = folder / "m", folder / "pairs.tsv"
    assert by_site(regard.look.patch(model, pairs, metric=gap)) == by_site(
        regard.look.patch(model, pairs)
    )
    doubled = regard.look.patch(model, pairs, metric=lambda x, goal: 2 * gap(x, goal))
    plain = regard.look.patch(model, pairs)
    assert doubled.clean == pytest.approx(2 * plain.clean)
    assert [e.effect for e in doubled.effects] == pytest.approx([e.effect for e in plain.effects])
    found = regard.look.circuit(model, pairs, metric=gap, draws=5)
    assert [Site(node.tap, node.head) for node in found.nodes] == [FIRST, SECOND]
    spread = regard.look.patch(model, pairs, metric=lambda logits: logits.std(-1)).clean
    assert spread > 0 and spread != pytest.approx(plain.clean)
    for wrong in (lambda logits: logits, lambda logits: float(logits.sum())):
        with pytest.raises(UsageError, match="one number a row"):
            regard.look.patch(model, pairs, metric=wrong)


def test_a_circuit_and_its_certificate(folder):
    found = regard.look.circuit(folder / "m", folder / "pairs.tsv")
    assert [Site(node.tap, node.head) for node in found.nodes] == [FIRST, SECOND]
    assert found.certificate.pairs == 6 and found.certificate.faithfulness["resample"].value > 0.9
    best = found.edges[0]
    assert {best.sender.tap, best.receiver.tap} <= {
        "decoder.blocks.0.attn.z",
        "decoder.blocks.1.attn.z",
        "decoder.blocks.1.attn.k",
        "decoder.blocks.1.resid_post",
    }
    assert found.tried == 8 and "decoder.blocks.0.attn.z head 1" in str(found)
    table = str(found).partition("faithfulness")[2].splitlines()
    assert [line.split()[0] for line in table[2:5]] == ["resample", "mean", "zero"]
    with pytest.raises(UsageError, match="between 0 and 1"):
        regard.look.circuit(folder / "m", folder / "pairs.tsv", keep=1.0)


def test_a_receipt_and_a_picture(folder, capsys):
    pytest.importorskip("matplotlib")
    out, png = folder / "circuit.json", folder / "map.png"
    words = ["look", "circuit", folder / "m", folder / "pairs.tsv", "--draws", 5]
    assert main([*map(str, words), "--receipt", str(out), "--save", str(png), "--json"]) == 0
    receipt = json.loads(out.read_text())
    assert receipt["function"] == "regard.look.circuit" and receipt["torch"]
    assert str(folder / "pairs.tsv") in receipt["data"] and len(receipt["data"]) > 2
    assert receipt["results"] == json.loads(capsys.readouterr().out)
    assert png.read_bytes().startswith(b"\x89PNG")
    assert regard.replay(out).match
    receipt["results"]["certificate"]["model"] += 1
    out.write_text(json.dumps(receipt))
    assert "certificate.model" in regard.replay(out).compared
    regard.look.patch(folder / "m", folder / "pairs.tsv", over="stream").save(png)


def test_shared_keys_and_values_belong_to_each_of_their_heads():
    """Heads 2 and 3 of a Llama share the second keys and values; head 1 has the first ones."""
    hooked, at = small_kit("llama").hooked, "decoder.blocks.1.attn"
    edges = [
        CircuitEdge(Site("decoder.embed"), Site(f"{at}.{kind}", n), 1.0)
        for kind, count in (("q", 4), ("k", 2), ("v", 2))
        for n in range(count)
    ]
    for head, shared in ((1, 0), (2, 1), (3, 1)):
        found = edges_within(hooked, edges, [Site(f"{at}.z", head)])
        kept = [(edge.receiver.tap[-1], edge.receiver.head) for edge in found]
        assert kept == [("q", head), ("k", shared), ("v", shared)]


# Prompts ----------------------------------------------------------------------------------------


def test_templates_are_named_by_a_column_and_told_apart_by_length(folder):
    kit = regard.load(folder / "m")
    rows = [("w1 w2 w1", "a"), ("w3 w4 w3", "a"), ("w1 w2 w1", "b"), ("w5 w1 w2 w5", "a")]
    pairs = make_pairs(kit, [PromptPair(text, text, "w2", "w3", name) for text, name in rows])
    assert pairs.templates.tolist() == [0, 0, 1, 2]
    (folder / "five.tsv").write_text("".join(f"{t}\t{t}\tw2\tw3\t{n}\n" for t, n in rows))
    assert [one.template for one in read_prompts(folder / "five.tsv")] == ["a", "a", "b", "a"]


def test_a_translator_is_asked_about_its_next_word(pair, tmp_path, capsys):  # noqa: F811
    """What both answers begin with is written; their next tokens are compared."""
    lines = [f"the {noun} cat\tthe {noun} dog\tthe dog sat\tthe cat sat" for noun in ("cat", "mat")]
    (tmp_path / "p.tsv").write_text("\n".join(2 * lines) + "\n")
    kit = regard.load(pair)
    found = regard.look.patch(kit, tmp_path / "p.tsv")
    cut = kit.tokenizer.encode
    sources = [cut(line.split("\t")[0]) for line in lines]
    begun = [kit.tokenizer.specials["pad"], *cut("the", special=False, side="target")]
    good, bad = (cut(f"the {word}", special=False)[len(begun) - 1] for word in ("dog", "cat"))
    with torch.no_grad():
        logits = kit.model(kit.batch(sources, [begun, begun]))[:, -1]
    wanted = float((logits[:, good] - logits[:, bad]).mean())
    assert found.clean == pytest.approx(wanted, abs=1e-4)
    assert {effect.tap.split(".")[0] for effect in found.effects} == {"encoder", "decoder"}
    stream = regard.look.patch(kit, tmp_path / "p.tsv", over="stream").effects
    last = [e.effect for e in stream if e.tap == "encoder.blocks.0.resid_pre"]
    assert len(last) == len(sources[0])
    assert last[:2] == pytest.approx([0, 0], abs=1e-4)  # the same tokens
    assert regard.look.circuit(kit, tmp_path / "p.tsv", draws=5).certificate.pairs == 2
    assert "no edges" in capsys.readouterr().err


def test_a_masked_language_model_is_asked_about_its_gap(masker, tmp_path):  # noqa: F811
    lines = ["the [MASK] sat\ton [MASK] sat\tcat\tdog", "the [MASK] sat\tis [MASK] sat\tcat\tdog"]
    (tmp_path / "p.tsv").write_text("\n".join(lines) + "\n")
    kit = regard.load(masker)
    found = regard.look.patch(masker, tmp_path / "p.tsv")
    ids = kit.tokenizer.encode("the [MASK] sat", allow_special=True)
    logits = kit.logits([ids])[0, ids.index(kit.tokenizer.specials["mask"])]
    cat, dog = (kit.tokenizer.encode(word, special=False)[0] for word in ("cat", "dog"))
    assert found.clean == pytest.approx(float(logits[cat] - logits[dog]), abs=1e-4)
    (tmp_path / "p.tsv").write_text("the [MASK] sat\t[MASK] on sat\tcat\tdog\n")
    with pytest.raises(DataError, match="gaps at different tokens"):
        regard.look.patch(masker, tmp_path / "p.tsv")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("w1 w2\tw1 w2 w3\tw4\tw5", "2 and 3 tokens"),
        ("w1 w2\tw1", "line 1: 2 columns"),
        ("w1 w2\tw1 w3\t\tw5", "an empty one"),
        ("", "no lines"),
        ("w1 w2\tw1 w3\tw4\nw1 w2\tw1 w3\tw4\tw5", "all lines alike"),
        ("w1 w2\tw1 w2\tw4\tw5", "alike"),
    ],
)
def test_bad_pairs(folder, tmp_path, line, said):
    (tmp_path / "p.tsv").write_text(line + "\n")
    with pytest.raises((DataError, UsageError), match=said):
        regard.look.patch(folder / "m", tmp_path / "p.tsv")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (dict(task="ioi"), "one of them"),
        (dict(to=["decoder.blocks.7.attn.q"]), "no tap is called"),
        (dict(to=["*.attn.q:9"]), "heads 0 to 2"),
        (dict(to=["*.attn.q:x"]), "TAP:HEAD"),
        (dict(to=["end"], over="mlps"), "paths from heads"),
        (dict(over="neurons"), "one of heads, mlps, stream"),
    ],
)
def test_wrong_calls(folder, options, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        regard.look.patch(folder / "m", folder / "pairs.tsv", **options)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("look circuit M nowhere.tsv", "no such file"),
        ("look circuit M P --receipt nowhere/c.json", "no folder nowhere"),
        ("look patch M P --save nowhere/p.png", "no folder nowhere"),
        ("evaluate ioi M --receipt .", "is a folder"),
        ("evaluate ioi M", "13 tokens\n  expected: at most 12"),
        ("look circuit fr-en --task ioi", "a language model"),
    ],
)
def test_bad_places(folder, capsys, words, said):
    places = {"M": str(folder / "m"), "P": str(folder / "pairs.tsv")}
    code = main([places.get(word, word) for word in words.split()])
    assert code in (2, 3) and said in capsys.readouterr().err


# Indirect objects -------------------------------------------------------------------------------


def test_prompts_name_one_once_and_the_other_twice():
    made = make_prompts(2 * len(FRAMES), seed=1)
    assert {p.template for p in made} == set(FRAMES) and made == make_prompts(16, seed=1)
    for number, prompt in enumerate(made):
        assert prompt.clean.count(prompt.bad) == 2 and prompt.clean.count(prompt.good) == 1
        first = prompt.clean.index(prompt.good) < prompt.clean.index(prompt.bad)
        assert first == bool(number % 2)
        names = [w.strip(",") for w in prompt.corrupt.split() if w.strip(",") in NAMES]
        assert len(set(names)) == len(names) == 3 and not {prompt.good, prompt.bad} & set(names)
        assert len(prompt.clean.split()) == len(prompt.corrupt.split())
    assert make_prompts(4, usable=lambda word: False) == []


def test_roles():
    goal = Goal(torch.tensor([2]), torch.tensor([1]))

    def locate(*ids):
        batch = Batch(torch.tensor([ids]))
        return locate_roles(Pairs(batch, batch, goal))

    assert locate(9, 1, 8, 2, 7, 1, 6) == [Roles(3, 1, 5, 6)]
    for wrong in ((1, 2, 2, 1), (1, 2)):
        with pytest.raises(DataError, match="once and twice"):
            locate(*wrong)


def test_a_fresh_model_does_not_know_who_is_meant(tmp_path):
    texts = [p.clean + " " + p.corrupt for p in make_prompts(64)]
    texts += [" ".join([*NAMES, *PLACES, *THINGS])] * 2
    tokenizer = train_tokenizer(texts, "bytes")
    model = planted_induction(tokenizer.size, 160, heads=2, previous=0, induction=1)
    with pytest.raises(DataError, match="single tokens"):  # no name is one byte
        regard.evaluate.ioi(Kit(model, tokenizer))
    tokenizer = train_tokenizer(texts, "spaced")
    torch.manual_seed(0)
    kit = Kit(planted_induction(tokenizer.size, 24, heads=2, previous=0, induction=1), tokenizer)
    found = regard.evaluate.ioi(kit, count=8, heads=True)
    assert found.thresholds["looks"] == MIN_ATTENTION
    previous, induction = (
        [h for h in found.heads if h.role == role] for role in ("previous token", "induction")
    )
    assert abs(found.corrupted_difference) < 1 and 0 <= found.io_above_s <= 1
    assert (0, 0) in {(h.block, h.head) for h in previous}
    assert (1, 1) in {(h.block, h.head) for h in induction}
    assert max(h.score for h in induction) > 0.9
    kit.save(tmp_path / "m")
    words = f"evaluate ioi {tmp_path}/m --count 4 --heads --quiet --receipt {tmp_path}/r.json"
    assert main(words.split()) == 0 and regard.replay(tmp_path / "r.json").match
    alone = regard.evaluate.ioi(kit, count=1).to_dict()
    assert alone["plus_minus"] is None  # one prompt says nothing of others
    assert "heads" not in alone
