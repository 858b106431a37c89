"""Vectors of words: the right token of each word, of every kind of model, in any batch."""

from __future__ import annotations

import pytest
import torch

from regard.core.config import BlockConfig, StackConfig
from regard.kit import Kit
from regard.look.activations import find_word_tokens, word_vectors
from regard.look.probing import choose_taps
from regard.look.word_senses import group_means, sense_cosines
from regard.model.config import HeadConfig, ModelConfig, RecurrentConfig, TextConfig
from regard.model.model import Model
from regard.model.recurrent import model_class
from regard.tokens.trainers import train_tokenizer

TEXTS = ["the naïve cat sat", "on", "mats and cats, naïvely unbelievable"]
TOKENIZER = train_tokenizer(TEXTS[:1] * 9, "bpe", 280, specials=("pad", "eos"), wrap="eos")


def spans_of(text):
    spans, at = [], 0
    for word in text.split():
        at = text.index(word, at)
        spans.append((at, at + len(word)))
        at += len(word)
    return spans


def shape(kind):
    vocab = TOKENIZER.size
    text, head = TextConfig(8, vocab, position="learned", length=99), HeadConfig(vocab)
    own = StackConfig(BlockConfig(8, 2, 16), 2)
    left = StackConfig(BlockConfig(8, 2, 16, causal=True), 2)
    cross = StackConfig(BlockConfig(8, 2, 16, causal=True, cross=True), 2)
    if kind == "decoder":
        return ModelConfig(text, head, decoder=left)
    if kind == "encoder":
        return ModelConfig(text, HeadConfig(3, take="first"), encoder=own)
    if kind == "pair":
        return ModelConfig(text, head, encoder=own, decoder=cross, target=text)
    if kind == "lstm":
        return RecurrentConfig(text, head, hidden=8, depth=2)
    return RecurrentConfig(text, head, target=text, hidden=8, depth=2, attention="additive")


def kit_of(kind):
    config = shape(kind)
    made = model_class(config) if isinstance(config, RecurrentConfig) else Model
    torch.manual_seed(0)
    model = made.fresh(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.5)
    return Kit(model, TOKENIZER, files={"generation_config.json": b'{"decoder_start_token_id": 0}'})


@pytest.mark.parametrize("take", ["first", "last"])
def test_a_word_s_token_holds_its_first_or_last_letter(take):
    for text in TEXTS:
        spans = spans_of(text)
        read = find_word_tokens(TOKENIZER, text, spans, take)
        assert read.ids == TOKENIZER.encode(text) and read.words == list(range(len(spans)))
        tokens = TOKENIZER.offsets(text)
        for (start, end), column in zip(spans, read.columns, strict=True):
            letter = end - 1 if take == "last" else start
            assert tokens[column][0] <= letter < tokens[column][1]
    split = find_word_tokens(TOKENIZER, TEXTS[2], spans_of(TEXTS[2]), "last")
    assert (
        split.columns != find_word_tokens(TOKENIZER, TEXTS[2], spans_of(TEXTS[2]), "first").columns
    )
    none = find_word_tokens(TOKENIZER, "a b", [(0, 1), (5, 9), (2, 3)])
    assert none.words == [0, 2]  # no token stands there


@pytest.mark.parametrize("kind", ["decoder", "encoder", "pair", "lstm", "bahdanau"])
def test_a_batch_gives_what_each_sentence_gives_alone(kind):
    kit = kit_of(kind)
    rows = [find_word_tokens(TOKENIZER, text, spans_of(text)) for text in TEXTS]
    taps = choose_taps(kit)
    together = word_vectors(kit.hooked, rows, taps)
    assert list(together) == taps
    for tap in taps:
        parts = together[tap].split([len(row.columns) for row in rows])
        assert [len(part) for part in parts] == [len(row.columns) for row in rows]
        for row, part in zip(rows, parts, strict=True):
            _, seen = kit.run([row.ids], taps=tap)
            torch.testing.assert_close(part, seen[tap][0, row.columns], atol=1e-5, rtol=1e-5)
    assert not any(tap.fn for tap in kit.hooked.taps.values())


def test_the_usual_places():
    usual = choose_taps(kit_of("decoder"))
    assert usual == ["decoder.embed", *(f"decoder.blocks.{n}.resid_post" for n in (0, 1))]
    assert all(name.startswith("encoder.") for name in choose_taps(kit_of("pair")))
    states = [f"decoder.cells.{n}.state" for n in (0, 1)]
    assert choose_taps(kit_of("lstm")) == ["decoder.embed", *states]
    ahead = [f"encoder.ahead.{n}.state" for n in (0, 1)]
    assert choose_taps(kit_of("bahdanau")) == ["encoder.embed", *ahead]


def test_heads_lie_side_by_side():
    kit = kit_of("decoder")
    rows = [find_word_tokens(TOKENIZER, TEXTS[0], spans_of(TEXTS[0]))]
    (x,) = word_vectors(kit.hooked, rows, ["decoder.blocks.1.attn.z"]).values()
    _, seen = kit.run([rows[0].ids], taps="blocks.1.attn.z")
    wanted = seen["decoder.blocks.1.attn.z"][0, rows[0].columns].flatten(1)
    torch.testing.assert_close(x, wanted, atol=1e-5, rtol=1e-5)


def test_every_token_of_a_word_stands_for_it():
    """Letter by letter: each token of a word, and no other, has a letter of it."""
    for text in TEXTS:
        read, tokens = (
            find_word_tokens(TOKENIZER, text, spans_of(text), "all"),
            TOKENIZER.offsets(text),
        )
        for n, (start, end) in enumerate(spans_of(text)):
            mine = [c for w, c in zip(read.words, read.columns, strict=True) if w == n]
            assert mine == [c for c, (a, b) in enumerate(tokens) if max(a, start) < min(b, end)]
    assert len(read.columns) > len(set(read.words))


def test_means_of_groups_and_cosines_of_senses_by_hand():
    x = torch.tensor([[1.0, 0.0], [3.0, 4.0], [0.0, 2.0], [0.0, 5.0]])
    assert torch.allclose(group_means(x, [0, 1, 0, 0]), torch.tensor([[1 / 3, 7 / 3], [3.0, 4.0]]))
    assert group_means(x[:0], []).shape == (0, 2)
    found = sense_cosines(x, [0, 0, 1, 1])
    wanted = [[0.6, 0.0], [0.6, 0.8], [0.4, 1.0], [0.4, 1.0]]
    assert torch.allclose(found, torch.tensor(wanted, dtype=torch.float64))
    alone = sense_cosines(x, [0, 0, 0, 1])
    assert alone[3, 1].isnan() and not alone[:3].isnan().any()
    assert alone[0, 0] == pytest.approx(0.3)  # (0.6 + 0) / 2: not with itself
