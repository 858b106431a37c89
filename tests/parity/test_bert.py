"""BERT, RoBERTa and DistilBERT against transformers."""

import pytest
import torch

import regard
from regard.model import presets
from tests.parity import compare
from tests.parity.compare import Case

TINY = dict(hidden_size=12, intermediate_size=20, num_hidden_layers=2, num_attention_heads=3)
BERT = dict(vocab_size=17, max_position_embeddings=16, **TINY)
WIDE = BERT | dict(hidden_size=20, num_attention_heads=5, type_vocab_size=3, layer_norm_eps=1e-2)
ROBERTA = BERT | dict(type_vocab_size=1)
DISTIL = dict(dim=12, hidden_dim=20, n_layers=2, n_heads=3, vocab_size=17)
DISTIL |= dict(max_position_embeddings=16)
CASES = {
    "bert body": Case("BertModel", BERT),
    "bert body relu, 3 segments": Case("BertModel", WIDE | dict(hidden_act="relu")),
    "bert masked": Case("BertForMaskedLM", BERT),
    "bert masked untied, gelu_new": Case(
        "BertForMaskedLM", WIDE | dict(tie_word_embeddings=False, hidden_act="gelu_new")
    ),
    "bert classes": Case("BertForSequenceClassification", BERT | dict(num_labels=5)),
    "bert tags": Case("BertForTokenClassification", WIDE | dict(num_labels=7)),
    "roberta body": Case("RobertaModel", ROBERTA),
    "roberta masked": Case("RobertaForMaskedLM", ROBERTA | dict(layer_norm_eps=1e-5)),
    "roberta masked untied, padded with 3": Case(
        "RobertaForMaskedLM", ROBERTA | dict(tie_word_embeddings=False, pad_token_id=3), low=4
    ),
    "roberta classes": Case("RobertaForSequenceClassification", ROBERTA | dict(num_labels=4)),
    "distilbert body": Case("DistilBertModel", DISTIL),
    "distilbert masked": Case("DistilBertForMaskedLM", DISTIL),
    "distilbert masked untied, relu": Case(
        "DistilBertForMaskedLM", DISTIL | dict(tie_word_embeddings=False, activation="relu")
    ),
    "roberta tags": Case("RobertaForTokenClassification", ROBERTA | dict(num_labels=3)),
    "distilbert tags": Case("DistilBertForTokenClassification", DISTIL | dict(num_labels=6)),
    "distilbert classes": Case("DistilBertForSequenceClassification", DISTIL | dict(num_labels=1)),
}
SEGMENTED = [name for name in CASES if name.startswith("bert")]
FEW = ["bert masked", "roberta classes", "distilbert masked"]


@pytest.fixture(params=CASES.values(), ids=CASES)
def pair(request, open_pair):
    return open_pair(request.param)


@pytest.fixture(params=FEW)
def one(request, open_pair):
    return open_pair(CASES[request.param])


def pad_id(pair) -> int:
    """RoBERTa finds its positions by this id."""
    roberta = pair.case.architecture.startswith("Roberta")
    return pair.theirs.config.pad_token_id if roberta else 0


# A pooler takes the first column, so a text for it may not be padded on the left.
POOLED = [name for name in CASES if "classes" in name or name.startswith(("bert b", "roberta b"))]


@pytest.mark.parametrize(
    ("name", "padding"),
    [(n, p) for n in CASES for p in compare.PADDING if p != "left" or n not in POOLED],
)
def test_logits(open_pair, name, padding):
    pair = open_pair(CASES[name])
    assert (pair.ours.model.config.head.take == "first") == (name in POOLED)
    roberta = pair.case.architecture.startswith("Roberta")
    compare.check_text(pair, padding, pad_id(pair), numbered=not roberta)


@pytest.mark.parametrize("padding", compare.PADDING)
@pytest.mark.parametrize("name", ["bert body", "roberta body"])
def test_vectors_below_the_pooler(open_pair, name, padding):
    pair = open_pair(CASES[name])
    rows = compare.texts(pair, padding == "none")
    ids, mask = compare.lay(rows, padding, pad_id(pair))
    ours = pair.ours.model.hidden(pair.ours.batch(ids, mask=mask))
    with torch.no_grad():
        alone = [pair.theirs(torch.tensor([row])).last_hidden_state[0] for row in rows]
    found = torch.cat([our[m] for our, m in compare.each(ours.detach(), mask)])
    compare.assert_close(found, torch.cat(alone))


@pytest.mark.parametrize("padding", ["none", "right"])
@pytest.mark.parametrize("name", SEGMENTED)
def test_segments(open_pair, name, padding):
    pair = open_pair(CASES[name])
    ids, mask = compare.lay(compare.texts(pair, padding == "none"), padding)
    count = pair.theirs.config.type_vocab_size
    segments = torch.randint(count, ids.shape, generator=torch.Generator().manual_seed(1))
    more = {} if mask is None else {"attention_mask": mask.long()}
    theirs = compare.run(pair, input_ids=ids, token_type_ids=segments, **more)
    ours = pair.ours.logits(ids, mask=mask, segments=segments)
    plain = pair.ours.logits(ids, mask=mask)
    if pair.ours.model.config.head.take == "all" and mask is not None:
        ours, theirs, plain = ours[mask], theirs[mask], plain[mask]
    compare.assert_close(ours, theirs)
    assert compare.difference(plain, theirs) > compare.FAR  # the segments matter


def test_a_wrong_table_fails(pair, monkeypatch):
    compare.check_control(pair, monkeypatch)


def test_round_trip(pair, tmp_path):
    compare.check_round_trip(pair, tmp_path)


def test_save(pair, tmp_path):
    compare.check_save(pair, tmp_path)


def test_shards(one, tmp_path):
    compare.check_shards(one, tmp_path)


def test_born(tmp_path):
    compare.check_born(presets.bert(12, 2, 3, vocab=17, length=16), "BertForMaskedLM", tmp_path)


@pytest.mark.parametrize("name", ["roberta masked untied, padded with 3", "distilbert classes"])
def test_born_relatives(open_pair, tmp_path, name):
    # A config.json made from our config alone, for the relatives that have no preset.
    pair = open_pair(CASES[name])
    compare.check_born(pair.ours.model.config, pair.case.architecture, tmp_path, low=pair.case.low)


@pytest.mark.parametrize(
    ("name", "copies"),
    [
        (
            "bert masked",
            {
                "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
                "cls.predictions.decoder.bias": "cls.predictions.bias",
            },
        ),
        (
            "roberta masked",
            {
                "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
                "lm_head.decoder.bias": "lm_head.bias",
            },
        ),
        (
            "distilbert masked",
            {"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
        ),
    ],
)
def test_stored_copies_of_the_tied_head(open_pair, tmp_path, name, copies):
    compare.check_duplicates(open_pair(CASES[name]), tmp_path, copies)


def test_old_extras_of_bert_are_ignored(open_pair, tmp_path):
    # bert-base-uncased's own file: position ids and the next-sentence head.
    pair = open_pair(CASES["bert masked"])
    held = compare.read_tensors(pair.folder)
    extra = {
        "bert.embeddings.position_ids": torch.arange(16)[None],
        "cls.seq_relationship.weight": torch.randn(2, 12),
        "cls.seq_relationship.bias": torch.randn(2),
    }
    ours = regard.load(compare.copy_with(pair, tmp_path / "in", held | extra))
    assert compare.gap(ours, pair.theirs) <= compare.BAR
