"""Winograd schemas from every form they come in, and models that judge them."""

from __future__ import annotations

import json

import pytest
import torch
import torch.nn.functional as F

import regard
from regard.core.config import BlockConfig, StackConfig
from regard.errors import DataError, UsageError
from regard.evaluate import winograd_schemas
from regard.evaluate.multiple_choice import accuracy
from regard.evaluate.results import JudgedSchema
from regard.evaluate.winograd_schemas import (
    Schema,
    evaluate_schemas,
    fitted,
    judge,
    pair_up,
    read_schemas,
)
from regard.kit import Kit
from regard.loading import load
from regard.model.batch import Batch, pad_rows
from regard.model.config import HeadConfig, ModelConfig, RecurrentConfig, TextConfig
from regard.model.model import Model
from regard.model.recurrent import Recurrent
from regard.tokens.trainers import train_tokenizer
from tests.cli.small_folders import masker, pair, writer  # noqa: F401
from tests.evaluate.schema_sizes import size_schemas
from tools import xwinograd

XML = """<?xml version="1.0" encoding="ISO-8859-1"?>
<collection>{}</collection>"""
ONE = """<schema><text><txt1>
{} </txt1><pron> {} </pron><txt2> {}
</txt2></text><quote><quote1></quote1><pron>it</pron><quote2>is</quote2></quote>
<answers><answer>{} </answer><answer>{}
</answer></answers><correctAnswer> {}. </correctAnswer><source>x</source></schema>"""
TROPHY = ("The trophy doesn't fit into the suitcase because", "it")


def xml(*schemas):
    return XML.format("".join(ONE.format(*schema) for schema in schemas)).encode("latin-1")


def text_of(schema, candidate):
    """The sentence with a candidate in it."""
    return schema.before + schema.candidates[candidate] + schema.after


def x_line(text, words, pronoun, place, both, right, language="en"):
    packed = [
        json.dumps(words),
        json.dumps([pronoun, [place, place + 1], [pronoun]]),
        json.dumps([[name, [0, 1], [name], n == right] for n, name in enumerate(both)]),
    ]
    return "\t".join([language, "original", "?", text, *packed])


def test_the_challenge(tmp_path):
    both = "The trophy", "the café's suitcase"
    (tmp_path / "a.xml").write_bytes(
        xml((*TROPHY, "is too big.", *both, "A"), (*TROPHY, "is too small.", *both, "B"))
    )
    one, other = read_schemas(tmp_path / "a.xml")
    before = "The trophy doesn't fit into the suitcase because "
    assert text_of(one, 0) == f"{before}the trophy is too big." and one.answer == 0
    assert text_of(other, 1) == f"{before}the café's suitcase is too small."
    assert other.answer == 1 and pair_up([one, other]) == [(0, 1)]


@pytest.mark.parametrize(
    ("name", "before", "pronoun", "after", "wanted"),
    [
        ("The man", "because ", "he", " left", "the man"),
        ("the man", "It rained. ", "He", " left", "The man"),
        ("Ann", "near ", "her", " house", "Ann's"),
        ("Ann", "told ", "her", ".", "Ann"),
        ("Susan's", "so ", "she", " left", "Susan"),
        ("Tina's", "and ", "it", " looked", "Tina's"),
        ("The men", "on ", "their", " heads", "the men's"),
        ("La coupe", "car ", "elle", " est", "la coupe"),
        ("Le Havre Fan", "", "il", " est", "Le Havre Fan"),
    ],
)
def test_a_candidate_takes_the_pronoun_s_shape(name, before, pronoun, after, wanted):
    assert fitted(name, before, pronoun, after) == wanted


def test_a_table_of_xwinograd_becomes_ours(tmp_path, monkeypatch):
    text = 'Tom said "Check" to Ralph as he took his bishop.'
    words = ["Tom", "said", "``", "Check", "''", "to", "Ralph", "as", "he", "took", "his", "bishop"]
    french = ["Il", "a", "vu", "Luc", ",", "il"]
    lines = [
        x_line(text, words, "his", 10, ("Tom", "Ralph"), 1),
        x_line("Il a vu Luc, il dort.", french, "il", 5, ("Max", "Luc"), 0, "fr"),
    ]
    table, out = tmp_path / "x.tsv", tmp_path / "ours.tsv"
    table.write_text("\n".join(lines) + "\n")
    monkeypatch.setattr("sys.argv", ["xwinograd.py", str(table), str(out)])
    xwinograd.main()
    one, other = read_schemas(out)
    assert text_of(one, 1) == 'Tom said "Check" to Ralph as he took Ralph\'s bishop.'
    assert one.answer == 1 and text_of(other, 0) == "Il a vu Luc, Max dort."
    monkeypatch.setattr("sys.argv", ["xwinograd.py", str(table), str(out), "--language", "fr"])
    xwinograd.main()
    assert [text_of(each, 0) for each in read_schemas(out)] == ["Il a vu Luc, Max dort."]
    good = x_line("he ran", ["he", "ran"], "he", 0, ("A", "B"), 1)
    for bad in (
        "en\tone",
        good.replace("he ran", "I sat"),
        good.replace("true", "false"),
        good.replace("[0, 1]", "7"),
    ):
        table.write_text(f"{good}\n{bad}\n")
        with pytest.raises(SystemExit, match="line 2"):
            xwinograd.main()


def test_tables_of_our_own(tmp_path):
    rows = [
        {"text": "the _ ran", "a": "cat", "b": "dog", "answer": "a"},
        {"text": "a _ sat", "a": "cat", "b": "dog", "answer": "B"},
        {"text": "the _ hid", "a": "dog", "b": "cat", "answer": "a"},
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "a.tsv").write_text(
        "\n".join("\t".join(line) for line in [rows[0], *(row.values() for row in rows)]) + "\n"
    )
    for name, first in (("a.jsonl", 1), ("a.tsv", 2)):
        found = read_schemas(tmp_path / name)
        assert [schema.answer for schema in found] == [0, 1, 0]
        assert text_of(found[0], 1) == "the dog ran"
        assert [schema.place for schema in found] == [f"line {first + n}" for n in range(3)]
        assert pair_up(found) == [(0, 1)]  # neighbours, other answers; the third is alone


def schema(answer, candidates=("a", "b")):
    return Schema("here", "x ", " y", candidates, answer)


def test_pairs():
    assert pair_up([schema(0), schema(0)]) == []
    assert pair_up([schema(0), schema(0, candidates=("B", "a"))]) == [(0, 1)]
    assert pair_up([schema(0), schema(1), schema(0), schema(1)]) == [(0, 1), (2, 3)]
    assert pair_up([schema(0), schema(1), schema(0)]) == [(0, 1)]
    assert pair_up([schema(0), schema(1, candidates=("a", "c"))]) == []


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"text": "no gap", "a": "u", "b": "v", "answer": "a"}, "line 2: 0 times _"),
        ({"text": "_ and _", "a": "u", "b": "v", "answer": "a"}, "line 2: 2 times _"),
        ({"text": "_", "a": "u", "b": "v", "answer": "c"}, "line 2: answer 'c'"),
        ({"text": "_", "a": "u", "answer": "a"}, "no column 'b' in line 2"),
        ({"text": "_", "a": "u", "b": "U", "answer": "a"}, "line 2: candidates"),
        ({"text": "_", "a": " ", "b": "U", "answer": "a"}, "line 2: candidates"),
    ],
)
def test_malformed_lines_are_named(tmp_path, row, said):
    good = {"text": "_ x", "a": "u", "b": "v", "answer": "a"}
    (tmp_path / "a.jsonl").write_text(f"{json.dumps(good)}\n{json.dumps(row)}\n")
    with pytest.raises(DataError, match=said):
        read_schemas(tmp_path / "a.jsonl")


def test_other_malformed_files(tmp_path):
    (tmp_path / "a.xml").write_bytes(xml((*TROPHY, "is big.", "a", "b", "C")))
    with pytest.raises(DataError, match="schema 1: pronoun 'it', answer 'c'"):
        read_schemas(tmp_path / "a.xml")
    (tmp_path / "b.xml").write_text("<collection><schema>")
    with pytest.raises(DataError, match="line 1"):
        read_schemas(tmp_path / "b.xml")
    (tmp_path / "c.xml").write_text("<collection></collection>")
    with pytest.raises(DataError, match="no schemas"):
        read_schemas(tmp_path / "c.xml")


# A model that was taught the answers --------------------------------------------------------------


SCHEMAS = size_schemas()


@pytest.fixture(scope="module")
def tokenizer():
    texts = [text_of(schema, n) for schema in SCHEMAS for n in (0, 1)]
    return train_tokenizer(texts, "bpe", 400, specials=("pad",))


@pytest.fixture(scope="module")
def taught(tokenizer):
    """A decoder that has read each schema with its right candidate."""
    block = BlockConfig(32, 4, 64, causal=True)
    front = TextConfig(32, tokenizer.size, position="learned", length=32)
    config = ModelConfig(front, HeadConfig(tokenizer.size), decoder=StackConfig(block, 2))
    model = Model.fresh(config)
    rows = [tokenizer.encode(text_of(schema, schema.answer)) for schema in SCHEMAS]
    ids, mask = pad_rows(rows)
    mask = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
    after = ids[:, 1:].masked_fill(~mask[:, 1:], -100)
    adam = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(120):
        logits = model(Batch(ids[:, :-1], mask=mask[:, :-1]))
        loss = F.cross_entropy(logits.flatten(0, 1), after.flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
    return Kit(model, tokenizer)


def test_the_generator_counterbalances():
    first = [schema.before.index(schema.candidates[schema.answer]) for schema in SCHEMAS]
    other = [schema.before.index(schema.candidates[1 - schema.answer]) for schema in SCHEMAS]
    assert sum(a < b for a, b in zip(first, other, strict=True)) == len(SCHEMAS) / 2
    assert sum(schema.answer for schema in SCHEMAS) == len(SCHEMAS) / 2


def test_a_taught_model_is_right_about_all(taught):
    scores = evaluate_schemas(taught, SCHEMAS)
    assert scores.single == accuracy(len(SCHEMAS), len(SCHEMAS))
    assert scores.pairs == accuracy(len(SCHEMAS) // 2, len(SCHEMAS) // 2)
    assert scores.alone == scores.ties == 0


def test_turned_answers_are_wrong(taught):
    turned = [schema._replace(answer=1 - schema.answer) for schema in SCHEMAS]
    assert evaluate_schemas(taught, turned).single.right == 0
    one_bad = [SCHEMAS[0], turned[1], *SCHEMAS[2:6], turned[6]]
    scores = evaluate_schemas(taught, one_bad)
    assert scores.single == accuracy(5, 7) and scores.pairs == accuracy(2, 2) and scores.alone == 3


def test_scores_are_sums_of_the_right_tokens(taught, tokenizer):
    schema = SCHEMAS[5]
    for candidate in (0, 1):
        ids = torch.tensor([tokenizer.encode(text_of(schema, candidate))])
        with torch.no_grad():
            log = taught.model(Batch(ids)).log_softmax(-1)[0]
        each = [float(log[n, ids[0, n + 1]]) for n in range(ids.shape[1] - 1)]
        after = len(tokenizer.encode(schema.after))
        (partial,) = judge(taught, [schema])
        assert partial.scores[candidate] == pytest.approx(sum(each[-after:]), abs=1e-4)


def test_a_recurrent_model_scores_too(tokenizer):
    front = TextConfig(8, tokenizer.size)
    model = Recurrent.fresh(RecurrentConfig(front, HeadConfig(tokenizer.size), hidden=8))
    judged = judge(Kit(model, tokenizer), SCHEMAS[:4])
    assert all(score < 0 for each in judged for score in each.scores)


def test_pairs_are_counted_by_hand(monkeypatch):
    scored = [((-1.0, -2.0), True), ((-3.0, -2.0), True)]  # both right
    scored += [((-1.0, -2.0), True), ((-1.0, -2.0), False)]  # one of them
    scored += [((-1.0, -2.0), True)]  # alone
    scored += [((-1.0, -1.0), False), ((-1.0, -1.0), False)]
    judged = [JudgedSchema("here", "x _ y", ("a", "b"), "a", *each) for each in scored]
    monkeypatch.setattr(winograd_schemas, "judge", lambda *_: judged)
    monkeypatch.setattr(winograd_schemas, "pair_up", lambda _: [(0, 1), (2, 3), (5, 6)])
    scores = evaluate_schemas(None, [])
    assert scores.single == accuracy(4, 7) and scores.pairs == accuracy(1, 3)
    assert scores.alone == 1 and scores.ties == 2
    assert scores.pairs.accuracy == pytest.approx(1 / 3) and accuracy(0, 0).accuracy == 0


def test_what_is_refused(taught):
    ends = Schema("line 3", "it was the ", "", ("coin", "van"), 0)
    with pytest.raises(DataError, match="it was the coin"):
        judge(taught, [ends])


# Models of every kind -----------------------------------------------------------------------------


HEADER = "text\ta\tb\tanswer\n"
ROWS = (
    "the cat sat on _ today\tthe mat\tthe log\ta\n"
    "the dog sat on _ today\tthe mat\tthe log\tb\n"
    "the cat saw _ in Paris\tthe capital\tthe dog\ta\n"
)


@pytest.fixture
def schemas(tmp_path):
    file = tmp_path / "s.tsv"
    file.write_text(HEADER + ROWS)
    return file


def after(tokenizer, schema, candidate):
    """Places of tokens after the candidate, by their letters."""
    end = len(schema.before + schema.candidates[candidate])
    spans = tokenizer.offsets(text_of(schema, candidate))
    return [n for n, (_, last) in enumerate(spans) if last > end]


def transformers_model(name, folder):
    import transformers

    return getattr(transformers, name).from_pretrained(folder).eval()


def test_a_decoder_against_transformers(writer, schemas):  # noqa: F811
    scores, tokenizer = regard.evaluate.winograd(writer, schemas), load(writer).tokenizer
    model = transformers_model("GPT2LMHeadModel", writer)
    right = []
    for schema, row in zip(read_schemas(schemas), scores.schemas, strict=True):
        for candidate in (0, 1):
            ids = tokenizer.encode(text_of(schema, candidate))
            with torch.no_grad():
                log = model(torch.tensor([ids])).logits[0].log_softmax(-1)
            places = after(tokenizer, schema, candidate)
            wanted = sum(float(log[n - 1, ids[n]]) for n in places)
            assert row.scores[candidate] == pytest.approx(wanted, abs=1e-3)
        a, b = row.scores
        right.append((a > b) if schema.answer == 0 else (b > a))
    assert scores.single == accuracy(sum(right), 3)
    assert scores.pairs == accuracy(int(right[0] and right[1]), 1)
    assert scores.alone == 1 and scores.pairs_at == [(0, 1)]
    assert "not in pairs" in str(scores) and "asked     3" in str(scores)


def test_an_edit_changes_what_is_judged(writer, schemas, tmp_path):  # noqa: F811
    """As in a folder whose weights say the same."""
    kit = load(writer)
    for block in kit.model.decoder.blocks:
        torch.nn.init.zeros_(block.attn.o.weight)
    kit.save(tmp_path / "changed")
    wanted = regard.evaluate.winograd(tmp_path / "changed", schemas).schemas
    plain = regard.evaluate.winograd(writer, schemas).schemas
    edited = regard.evaluate.winograd(writer, schemas, edit=["*.attn.z=zero"]).schemas
    for left, right, before in zip(edited, wanted, plain, strict=True):
        assert left.scores == pytest.approx(right.scores, abs=1e-5)
        assert left.scores != pytest.approx(before.scores, abs=1e-5)


def test_bad_input_of_winograd(writer, masker, pair, schemas):  # noqa: F811
    for model in (masker, pair):
        with pytest.raises(UsageError, match="a decoder"):
            regard.evaluate.winograd(model, schemas)
    schemas.write_text(HEADER + ROWS + "the cat sat\ta\tb\ta\n")
    with pytest.raises(DataError, match="line 5: 0 times _"):
        regard.evaluate.winograd(writer, schemas)
    schemas.write_text(HEADER + "the cat " * 60 + "saw _ there\ta\tb\ta\n")
    with pytest.raises(DataError, match="at most 40"):
        regard.evaluate.winograd(writer, schemas)
