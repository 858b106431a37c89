"""Explanations: the numbers of a second reading, word by word."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bench.align import alignment_error_rate, read_links
from regard.data.word_frequencies import write_counts
from regard.decode.step import without_end
from regard.kit import Kit
from regard.tokens.trainers import train_tokenizer
from regard.translation.config import TranslateConfig
from regard.translation.document import Part, Segment, TargetText
from regard.translation.explanation import fit_words, read_words, token_spans
from regard.translation.results import Explanation, SourceWord, TargetWord
from regard.translation.translator import Translator
from tests.properties.threads import one_thread  # noqa: F401
from tests.translation.test_segment import CORPUS
from tests.translation.test_translator import made
from tests.translation.test_word_alignment import PAIRS

TEXT = "Le chat dort sur la table."


def explain(kit: Kit, text: str, **how: Any) -> list[Explanation]:
    reasons = kit.translate(text, explain=True, **how).explain
    assert reasons is not None
    return reasons


def best_of(kit: Kit, text: str) -> TargetText:
    (document,) = Translator(kit, TranslateConfig(max_new=8)).translate([text])
    return document.translations[0]


@pytest.fixture(scope="module", params=["bpe", "words"])
def kit(request: pytest.FixtureRequest) -> Kit:
    size = 400 if request.param == "bpe" else None
    roles = ("pad", "eos") if size else ("pad", "eos", "unk")
    return made(train_tokenizer(CORPUS, request.param, size, specials=roles, wrap="eos"))


def test_confidence_is_the_probability_of_the_translation(kit: Kit) -> None:
    """The words' probabilities, with that of the end, make up the one of the search."""
    (found,) = explain(kit, TEXT, max_new=8)
    best = best_of(kit, TEXT)
    end = best.tokens[-1] in kit.stops
    tokens = without_end(best.tokens, kit.stops)
    assert kit.tokenizer is not None
    out, _ = kit.run([kit.tokenizer.encode(TEXT)], [[*kit.batch(TEXT).ids[0].tolist(), *tokens]])
    log = out.logits[0].log_softmax(-1)
    total = sum(math.log(word.confidence) for word in found.words)
    total += float(log[-1, best.tokens[-1]]) if end else 0.0
    text, spans = token_spans(kit, tokens)
    blank = sum(
        float(log[n, token])
        for n, (token, (a, b)) in enumerate(zip(tokens, spans, strict=True))
        if not text[a:b].strip()
    )
    assert total + blank == pytest.approx(best.logprob, abs=1e-3)


def test_a_word_is_as_likely_as_all_its_tokens() -> None:
    pieces = ["un", "seen", " c", "at", ".", " "]

    def text(tokens: list[int]) -> str:
        return "".join(pieces[n] for n in tokens)

    logs = [-1.0, -2.0, -0.5, -0.25, -0.125, -9.0]
    kit: Any = SimpleNamespace(decode_text=text, token_text=lambda n: pieces[n], stops={})
    answer = TargetText("unseen cat.", sum(logs), [*range(6)], logs)
    reading = read_words(kit, Part(Segment((0, 1), "x", [1], False), [answer]))
    assert [word.text for word in reading.words] == ["unseen", "cat", "."]
    sure = [math.log(word.confidence) for word in reading.words]
    assert sure == pytest.approx([-3.0, -0.75, -0.125])
    assert reading.tokens == [(0, 2), (2, 4), (4, 5)]


def test_words_are_fitted_to_what_became_of_the_text() -> None:
    """In capitals, without the stop, with another number: the least sure word counts."""
    read = [TargetWord("cat", 0.9, ["chat"]), TargetWord("12", 0.5, ["13"])]
    read += [TargetWord("kg", 0.4, ["kg"]), TargetWord(".", 0.3, ["."])]
    fitted = fit_words("CAT 13 KG", read)
    assert [(word.text, word.confidence) for word in fitted] == [
        ("CAT", 0.9),
        ("13", 0.5),
        ("KG", 0.4),
    ]
    assert fitted[1].aligned == ["13"] and fit_words("Oh", []) == [TargetWord("Oh", 1.0, [])]


@pytest.mark.parametrize("strict", [False, True])
def test_weights_and_links(kit: Kit, strict: bool) -> None:
    (found,) = explain(kit, TEXT, max_new=8, strict=strict)
    assert [w.text for w in found.source_words] == ["Le", "chat", "dort", "sur", "la", "table", "."]
    weights = torch.tensor(found.weights)
    assert weights.shape == (len(found.words), 7)
    torch.testing.assert_close(weights.sum(1), torch.ones(len(weights)))
    assert all(0 <= s < 7 and 0 <= t < len(weights) for s, t in found.links)
    assert found.text == kit.translate(TEXT, max_new=8).text
    assert "".join(w.text for w in found.words) == "".join(found.text.split())


def test_the_pattern_is_that_of_the_chosen_block(kit: Kit) -> None:
    """A block whose attention is forced to one source token aligns all words with its word."""
    assert kit.tokenizer is not None
    assert kit.model.decoder is not None
    place, block = 3, len(kit.model.decoder.blocks) - 1
    spans = kit.tokenizer.offsets(TEXT)
    name = f"decoder.blocks.{block}.cross.pattern"
    before = explain(kit, TEXT, max_new=8)[0]
    tap = kit.hooked.taps[name]

    def forced(pattern: torch.Tensor) -> torch.Tensor:
        only = torch.zeros_like(pattern)
        only[..., place] = 1
        return only

    tap.fn = forced
    try:
        found = explain(kit, TEXT, max_new=8)[0]
    finally:
        tap.fn = None
    start = spans[place][0] + (TEXT[spans[place][0]] == " ")
    word = sum(c == " " for c in TEXT[:start])
    assert all(row[word] == pytest.approx(1) for row in found.weights)
    assert before.weights != found.weights and tap.fn is None


def test_rarity(kit: Kit) -> None:
    counts = {"le": 900, "chat": 9, "dort": 10}
    seen = replace(kit, files=kit.files | {"words.tsv": write_counts(counts)})  # type: ignore[arg-type]
    (found,) = explain(seen, TEXT, max_new=8)
    known = {word.text: (word.seen, word.rare) for word in found.source_words}
    assert known["Le"] == (900, False) and known["chat"] == (9, True)
    assert known["dort"] == (10, False) and known["table"] == (0, True) and known["."] == (0, False)
    assert len(found.notes) == 4 and "“table” (never seen in training)" in found.notes[-1]
    assert all(word.seen is None for word in explain(kit, TEXT, max_new=8)[0].source_words)


def test_pieces_make_up_the_word(kit: Kit) -> None:
    (found,) = explain(kit, "Le chat entarté dort.", max_new=8)
    for word in found.source_words:
        assert "".join(word.pieces) == word.text or len(word.pieces) == 1
    assert kit.tokenizer is not None


def test_copied_and_raised_sentences(kit: Kit) -> None:
    number, raised = explain(kit, "42 ! LE CHAT DORT.", max_new=8)
    assert number.copied and number.text == "42 !" and "Copied" in number.notes[0]
    assert raised.text.isupper() or not any(map(str.isalpha, raised.text))
    assert all(word.text == word.text.upper() for word in raised.words)


def test_data_and_page_hold_everything(kit: Kit) -> None:
    found = explain(kit, f"{TEXT} 42 !", alternatives=2, max_new=8)
    data = found[0].to_dict()
    assert data["links"] == [list(link) for link in found[0].links]
    assert len(data["weights"]) == len(data["words"]) == len(found[0].words)
    text = kit.translate(f"{TEXT} 42 !", explain=True, alternatives=2, max_new=8).page()
    assert text.count("<table>") == 2 and found[0].source in text  # of the sentence not copied


def test_a_rare_word_that_nothing_came_from() -> None:
    rare = SourceWord("entarté", ["ent", "arté"], 0, True)
    lone = Explanation("entarté", "x", [rare], [TargetWord("x", 0.25, [])], [], [[1.0]])
    assert "No word of the translation comes from it" in lone.notes[0]
    assert "(25%) is a guess" in replace(lone, links=[(0, 0)]).notes[0]
    assert [SourceWord("", [], n, True).rarity() for n in (0, 1, 2, 1500)] == [
        "never seen in training",
        "seen once in training",
        "seen twice in training",
        "seen 1,500 times in training",
    ]


def test_the_error_rate_of_a_model_can_be_measured(kit: Kit) -> None:
    """A smoke test: random weights, so that any rate will do."""
    source, target, notation = PAIRS[0].split("\t")
    sure, possible = read_links(source, target, notation)
    links = explain(kit, source, max_new=8)[0].links
    assert 0 <= alignment_error_rate([links], [sure], [possible]) <= 1
