"""Winograd schemas from every form they come in, and models that judge them."""

from __future__ import annotations

import json

import pytest
import torch
import torch.nn.functional as F

import regard
from regard.core.config import BlockConfig, StackConfig
from regard.errors import DataError, UsageError
from regard.evaluate.winograd_schemas import (
    Judged,
    Schema,
    accuracy,
    fitted,
    judge,
    pair_up,
    read_schemas,
    score_schemas,
)
from regard.loading import load
from regard.model.batch import Batch, pad_rows
from regard.model.config import HeadConfig, ModelConfig, RecurrentConfig, TextConfig
from regard.model.model import Model
from regard.model.recurrent import Recurrent
from regard.tokens.trainers import train_tokenizer
from tests.cli.small_folders import masker, pair, writer  # noqa: F401
from tests.evaluate.schema_sizes import size_schemas

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
    assert one.text(0) == f"{before}the trophy is too big." and one.answer == 0
    assert other.text(1) == f"{before}the café's suitcase is too small." and other.answer == 1
    start, end = other.span(1)
    assert other.text(1)[start:end] == "the café's suitcase" and pair_up([one, other]) == [(0, 1)]


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


def test_xwinograd(tmp_path):
    text = 'Tom said "Check" to Ralph as he took his bishop.'
    words = ["Tom", "said", "``", "Check", "''", "to", "Ralph", "as", "he", "took", "his", "bishop"]
    lines = [
        x_line(text, words, "his", 10, ("Tom", "Ralph"), 1),
        x_line(
            "Il a vu Luc, il dort.", ["Il", "a", "vu", "Luc", ",", "il"], "il", 5, "ab", 0, "fr"
        ),
    ]
    (tmp_path / "a.tsv").write_text("\n".join(lines) + "\n")
    one, other = read_schemas(tmp_path / "a.tsv")
    assert one.text(1) == 'Tom said "Check" to Ralph as he took Ralph\'s bishop.'
    assert (one.answer, one.group, other.group) == (1, "en original", "fr original")
    assert other.text(0) == "Il a vu Luc, a dort."


def test_tables_of_our_own_and_winogrande(tmp_path):
    rows = [
        {"text": "the _ ran", "a": "cat", "b": "dog", "answer": "a", "pair": "p"},
        {"text": "a _ sat", "a": "cat", "b": "dog", "answer": "B"},
        {"text": "the _ hid", "a": "dog", "b": "cat", "answer": "a", "pair": "p"},
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = read_schemas(tmp_path / "a.jsonl")
    assert [schema.answer for schema in found] == [0, 1, 0] and found[0].text(1) == "the dog ran"
    assert pair_up(found) == [(0, 2)]
    cells = [list(rows[0])[:4], *([row[k] for k in list(row)[:4]] for row in rows)]
    (tmp_path / "a.tsv").write_text("\n".join("\t".join(line) for line in cells) + "\n")
    plain = read_schemas(tmp_path / "a.tsv")
    assert [schema.place for schema in plain] == ["line 2", "line 3", "line 4"]
    assert pair_up(plain) == [(0, 1)]  # neighbours, other answers; the third is alone
    both = [
        {"qID": f"3QX-{n}", "sentence": "_ x", "option1": "A", "option2": "B", "answer": str(n)}
        for n in (1, 2)
    ]
    (tmp_path / "w.jsonl").write_text("\n".join(map(json.dumps, both)))
    found = read_schemas(tmp_path / "w.jsonl")
    assert [schema.answer for schema in found] == [0, 1] and pair_up(found) == [(0, 1)]


def schema(answer, pair=None, candidates=("a", "b"), group=""):  # noqa: F811
    return Schema("here", "x ", " y", candidates, answer, pair, group)


def test_pairs():
    assert pair_up([schema(0), schema(0)]) == []
    assert pair_up([schema(0), schema(0, candidates=("B", "a"))]) == [(0, 1)]
    assert pair_up([schema(0), schema(1), schema(0), schema(1)]) == [(0, 1), (2, 3)]
    assert pair_up([schema(0), schema(1), schema(0)]) == [(0, 1)]
    assert pair_up([schema(0), schema(1, candidates=("a", "c"))]) == []
    assert pair_up([schema(0, group="en"), schema(1, group="fr")]) == []
    with pytest.raises(DataError, match="pair 'p'"):
        pair_up([schema(0, "p")] * 3)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"text": "no gap", "a": "u", "b": "v", "answer": "a"}, "line 2: 0 times _"),
        ({"text": "_ and _", "a": "u", "b": "v", "answer": "a"}, "line 2: 2 times _"),
        ({"text": "_", "a": "u", "b": "v", "answer": "c"}, "line 2: answer 'c'"),
        ({"text": "_", "a": "u", "answer": "a"}, "line 2: no b"),
        ({"text": "_", "a": "u", "b": "U", "answer": "a"}, "line 2: candidates"),
        ({"text": "_", "a": 3, "b": "U", "answer": "a"}, "line 2: a 3"),
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
    good = x_line("he ran", ["he", "ran"], "he", 0, ("A", "B"), 1)
    for bad in (
        "en\tone",
        good.replace("he ran", "I sat"),
        good.replace("true", "false"),
        good.replace("[0, 1]", "7"),
    ):
        (tmp_path / "d.tsv").write_text(f"{good}\n{bad}\n")
        with pytest.raises(DataError, match="line 2"):
            read_schemas(tmp_path / "d.tsv")


# A model that was taught the answers --------------------------------------------------------------


SCHEMAS = size_schemas()


@pytest.fixture(scope="module")
def tokenizer():
    texts = [schema.text(n) for schema in SCHEMAS for n in (0, 1)]
    return train_tokenizer(texts, "bpe", 400, specials=("pad", "eos"))


@pytest.fixture(scope="module")
def taught(tokenizer):
    """A decoder that has read each schema with its right candidate."""
    block = BlockConfig(32, 4, 64, causal=True)
    front = TextConfig(32, tokenizer.size, position="learned", length=32)
    config = ModelConfig(front, HeadConfig(tokenizer.size), decoder=StackConfig(block, 2))
    model = Model.fresh(config)
    rows = [tokenizer.encode(schema.text(schema.answer)) for schema in SCHEMAS]
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
    return model


def test_the_generator_counterbalances():
    first = [schema.before.index(schema.candidates[schema.answer]) for schema in SCHEMAS]
    other = [schema.before.index(schema.candidates[1 - schema.answer]) for schema in SCHEMAS]
    assert sum(a < b for a, b in zip(first, other, strict=True)) == len(SCHEMAS) / 2
    assert sum(schema.answer for schema in SCHEMAS) == len(SCHEMAS) / 2


@pytest.mark.parametrize("full", [False, True])
def test_a_taught_model_is_right_about_all(taught, tokenizer, full):
    scores = score_schemas(judge(taught, tokenizer, SCHEMAS, full))
    assert scores.single == accuracy(len(SCHEMAS), len(SCHEMAS))
    assert scores.pairs == accuracy(len(SCHEMAS) // 2, len(SCHEMAS) // 2)
    assert scores.alone == scores.ties == 0


def test_turned_answers_are_wrong(taught, tokenizer):
    turned = [schema._replace(answer=1 - schema.answer) for schema in SCHEMAS]
    assert score_schemas(judge(taught, tokenizer, turned)).single.right == 0
    one_bad = [SCHEMAS[0], turned[1], *SCHEMAS[2:6], turned[6]]
    scores = score_schemas(judge(taught, tokenizer, one_bad))
    assert scores.single == accuracy(5, 7) and scores.pairs == accuracy(2, 2) and scores.alone == 3


def test_scores_are_sums_of_the_right_tokens(taught, tokenizer):
    schema = SCHEMAS[5]
    for candidate in (0, 1):
        text = schema.text(candidate)
        ids = torch.tensor([tokenizer.encode(text)])
        with torch.no_grad():
            log = taught(Batch(ids)).log_softmax(-1)[0]
        each = [float(log[n, ids[0, n + 1]]) for n in range(ids.shape[1] - 1)]
        after = len(tokenizer.encode(schema.after))
        (partial,) = judge(taught, tokenizer, [schema])
        (full,) = judge(taught, tokenizer, [schema], full=True)
        assert partial.scores[candidate] == pytest.approx(sum(each[-after:]), abs=1e-4)
        assert full.scores[candidate] == pytest.approx(sum(each), abs=1e-4)


def test_batches_change_nothing(taught, tokenizer, monkeypatch):
    whole = judge(taught, tokenizer, SCHEMAS[:9])
    monkeypatch.setattr("regard.evaluate.winograd_schemas.TOKENS", 1)
    for one, other in zip(whole, judge(taught, tokenizer, SCHEMAS[:9]), strict=True):
        assert one.scores == pytest.approx(other.scores, abs=1e-4)


def test_a_recurrent_model_scores_too(tokenizer):
    front = TextConfig(8, tokenizer.size)
    model = Recurrent.fresh(RecurrentConfig(front, HeadConfig(tokenizer.size), hidden=8))
    judged = judge(model, tokenizer, SCHEMAS[:4])
    assert all(score < 0 for each in judged for score in each.scores)


def judged(scores, answer=0, pair=None):  # noqa: F811
    return Judged(Schema("here", "x ", " y", ("a", "b"), answer, pair), scores)


def test_pairs_are_counted_by_hand():
    both = [judged((-1.0, -2.0), 0, "p"), judged((-3.0, -2.0), 1, "p")]
    half = [judged((-1.0, -2.0), 0, "q"), judged((-1.0, -2.0), 1, "q")]
    alone = [judged((-1.0, -2.0), 0, "r")]
    tie = [judged((-1.0, -1.0), 0, "s"), judged((-1.0, -1.0), 1, "s")]
    scores = score_schemas([*both, *half, *alone, *tie])
    assert scores.single == accuracy(4, 7) and scores.pairs == accuracy(1, 3)
    assert scores.alone == 1 and scores.ties == 2
    assert scores.pairs.accuracy == pytest.approx(1 / 3) and accuracy(0, 0).accuracy == 0


def test_what_is_refused(taught, tokenizer):
    ends = Schema("line 3", "it was the ", "", ("coin", "van"), 0)
    with pytest.raises(DataError, match="nothing after the gap in line 3") as error:
        judge(taught, tokenizer, [ends])
    assert "--full" in str(error.value)
    assert judge(taught, tokenizer, [ends], full=True)[0].scores[0] < 0
    with pytest.raises(DataError, match="tokens in coin, purse"):
        judge(taught, tokenizer, SCHEMAS, room=5)
    block = BlockConfig(8, 2, 8)
    front = TextConfig(8, tokenizer.size)
    encoder = ModelConfig(front, HeadConfig(tokenizer.size), encoder=StackConfig(block, 1))
    with pytest.raises(UsageError, match="without"):
        judge(Model.fresh(encoder), tokenizer, SCHEMAS)


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
    text = schema.text(candidate)
    return [n for n, (_, e) in enumerate(tokenizer.offsets(text)) if e > schema.span(candidate)[1]]


def transformers_model(name, folder):
    import transformers

    return getattr(transformers, name).from_pretrained(folder).eval()


@pytest.mark.parametrize("full", [False, True])
def test_a_decoder_against_transformers(writer, schemas, full):  # noqa: F811
    scores, tokenizer = regard.evaluate.winograd(writer, schemas, full=full), load(writer).tokenizer
    assert scores.score == ("full" if full else "partial")
    model = transformers_model("GPT2LMHeadModel", writer)
    right = []
    for schema, row in zip(read_schemas(schemas), scores.schemas, strict=True):
        for candidate in (0, 1):
            ids = tokenizer.encode(schema.text(candidate))
            with torch.no_grad():
                log = model(torch.tensor([ids])).logits[0].log_softmax(-1)
            places = range(1, len(ids)) if full else after(tokenizer, schema, candidate)
            wanted = sum(float(log[n - 1, ids[n]]) for n in places)
            assert row.scores[candidate] == pytest.approx(wanted, abs=1e-3)
        a, b = row.scores
        right.append((a > b) if schema.answer == 0 else (b > a))
    assert scores.single == accuracy(sum(right), 3)
    assert scores.pairs == accuracy(int(right[0] and right[1]), 1)
    assert scores.alone == 1 and scores.pairs_at == [(0, 1)]
    assert "1 schemas without their pair" in str(scores)


def test_a_masked_model_hides_the_candidate(masker, schemas):  # noqa: F811
    row = regard.evaluate.winograd(masker, schemas).schemas[0]
    tokenizer, model = load(masker).tokenizer, transformers_model("BertForMaskedLM", masker)
    schema = read_schemas(schemas)[0]
    for candidate in (0, 1):
        text = schema.text(candidate)
        ids, (start, end) = tokenizer.encode(text), schema.span(candidate)
        own = [n for n, (s, e) in enumerate(tokenizer.offsets(text)) if s < end and e > start]
        assert (
            text[tokenizer.offsets(text)[own[0]][0] : tokenizer.offsets(text)[own[-1]][1]]
            == (schema.candidates[candidate])
        )
        scores = []
        for n in own:
            hidden = torch.tensor([ids])
            hidden[0, n] = tokenizer.specials["mask"]
            with torch.no_grad():
                scores.append(float(model(hidden).logits[0, n].log_softmax(-1)[ids[n]]))
        assert row.scores[candidate] == pytest.approx(sum(scores) / len(scores), abs=1e-4)
    assert regard.evaluate.winograd(masker, schemas, full=True).score == "full"


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


def test_n_grams_score_too(schemas, tmp_path):
    (tmp_path / "t.txt").write_text("the cat sat on the mat today\n" * 3 + "the dog sat\n")
    regard.train.ngram(tmp_path / "t.txt", out=tmp_path / "n")
    scores = regard.evaluate.winograd(tmp_path / "n", schemas, count=2)
    assert scores.single.asked == 2 and scores.alone == 0 and scores.schemas[0].right


def test_bad_input_of_winograd(writer, pair, schemas):  # noqa: F811
    with pytest.raises(UsageError, match="an encoder-decoder"):
        regard.evaluate.winograd(pair, schemas)
    schemas.write_text(HEADER + ROWS + "the cat sat\ta\tb\ta\n")
    with pytest.raises(DataError, match="line 5: 0 times _"):
        regard.evaluate.winograd(writer, schemas)
    schemas.write_text(HEADER + "the cat " * 60 + "saw _ there\ta\tb\ta\n")
    with pytest.raises(DataError, match="at most 40"):
        regard.evaluate.winograd(writer, schemas)
