"""Translations that must hold words, lack words or begin with some, and other words for each."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from regard.decode.constraints import find_words
from regard.decode.step import Hypothesis, Process
from regard.errors import DataError, UsageError
from regard.kit import Kit
from regard.model.config import TextConfig
from regard.model.model import Model
from regard.tokens.tokenizer import Tokenizer
from regard.tokens.trainers import train_tokenizer
from regard.translation import translator
from regard.translation.config import TranslateConfig
from regard.translation.document import Segment, TargetText
from regard.translation.translator import TOKENS, Row, SentenceSearch, Translator
from tests.properties.small_models import CONFIGS, randomise
from tests.properties.threads import one_thread  # noqa: F401

WORDS = "the cat sat on a mat and this dog ran to that log so far away"
SOURCE = "the dog sat on a log"


@pytest.fixture(scope="module", params=["words", "bpe"])
def kit(request: pytest.FixtureRequest) -> Kit:
    """An encoder-decoder of random weights whose tokens are words, or pieces of them."""
    size = None if request.param == "words" else 300
    roles = ("pad", "eos", "unk") if size is None else ("pad", "eos")
    tokenizer = train_tokenizer([WORDS] * 5, request.param, size, specials=roles, wrap="eos")
    return made(tokenizer)


def made(tokenizer: Tokenizer, source: Any = None, target: Any = None) -> Kit:
    """The same around any tokenizer; changes of what reads the source and the target."""
    source, target = source or {}, target or {}
    config, vocab = CONFIGS["transformer"], tokenizer.size
    assert isinstance(config.front, TextConfig) and isinstance(config.target, TextConfig)
    config = replace(
        config,
        front=replace(config.front, vocab=vocab, **source),
        target=replace(config.target, vocab=vocab, **target),
        head=replace(config.head, size=vocab),
    )
    model = Model(config).eval()
    randomise(model, 3)
    start = {"decoder_start_token_id": tokenizer.specials["pad"]}
    return Kit(model, tokenizer, config=start | {"eos_token_id": tokenizer.specials["eos"]})


def say(kit: Kit, texts: Any, **options: Any) -> Any:
    """The best translation of a text, or of each of several."""
    found = kit.translate(texts, **options)
    return found.text if isinstance(texts, str) else [one.text for one in found]


def listed(kit: Kit, text: str, **options: Any) -> list[str]:
    """All translations of a text."""
    found = kit.translate(text, **options)
    return [other.text for other in found.alternatives] or [found.text]


def translate(kit: Any, rows: Sequence[Row], config: TranslateConfig) -> Any:
    return SentenceSearch(kit, config).translate(rows)


def holds(text: str, word: str) -> bool:
    return re.search(rf"(?<!\w){word}(?!\w)", text) is not None


@pytest.mark.parametrize("strict", [False, True])
def test_words_that_must_be_there(kit: Kit, strict: bool) -> None:
    for words in (["cat"], ["mat", "dog"]):
        found = listed(kit, SOURCE, beams=3, alternatives=3, strict=strict, must=words, max_new=8)
        assert found and all(word in text for text in found for word in words)
    assert "cat" in say(kit, SOURCE, must="cat", max_new=8)  # one word need not be a list
    alone = [say(kit, text, must=["cat"], max_new=8) for text in (SOURCE, "a cat")]
    assert say(kit, [SOURCE, "a cat"], must=["cat"], max_new=8) == alone


def test_words_that_must_not_be_there(kit: Kit) -> None:
    free = say(kit, SOURCE, max_new=8)
    banned = re.findall(r"\w+", free)[:2]
    assert banned
    for answers in (1, 3):
        wishes = {"alternatives": answers, "ban": banned, "max_new": 8}
        for row in kit.translate([SOURCE, "so far"], **wishes):
            texts = [row.text, *(other.text for other in row.alternatives)]
            assert not any(holds(text, word) for text in texts for word in banned)


def test_the_beginning_can_be_given(kit: Kit) -> None:
    begin = "this cat"
    found = listed(kit, SOURCE, alternatives=4, begin=begin, max_new=10)
    assert all(text.startswith(begin) for text in found)
    assert len({text[: len(begin) + 4] for text in found}) > 1  # what follows is free at once
    assert say(kit, SOURCE, begin=begin, must=["mat"], max_new=8).startswith(begin)


class Pieces:
    """A kit whose texts are letters, and whose search takes the first answer that is allowed."""

    stops, room, strict, hooked, model, written = {0}, None, False, None, None, None
    letters = {1: "c", 2: "a", 3: "t", 4: "ca", 5: "at", 6: "cat", 7: " ", 8: "s"}

    def __init__(self, answers: Sequence[Sequence[int]]) -> None:
        self.answers, self.searches = answers, 0
        self.tokenizer = SimpleNamespace(encode=self.encode, specials={})

    def encode(self, text: str, special: bool, side: str) -> list[int]:
        known = {spelt: id for id, spelt in self.letters.items()}
        return [known[part] for part in re.findall(r"cat|[a-z ]", text)]

    def text(self, tokens: Sequence[int]) -> str:
        return "".join(self.letters.get(id, "") for id in tokens)

    def batch(self, rows: Any, target: Any = None) -> Any:
        return rows

    def search(
        self, batch: Any, limit: Any, how: Any, processes: Sequence[Process], **options: Any
    ) -> list[list[Hypothesis]]:
        self.searches += 1
        rules = processes
        found = [list(answer) for answer in self.answers if self.allowed(answer, rules)]
        return [[Hypothesis(tokens, 0.0, 0.0, True) for tokens in found[:1]] for _ in batch]

    def allowed(self, answer: Sequence[int], rules: Sequence[Process]) -> bool:
        for n, token in enumerate(answer):
            logits, history = torch.zeros(1, 9), torch.tensor([list(answer[:n])]).view(1, n).long()
            for rule in rules:
                logits = rule(logits, history)
            if logits[0, token] == -torch.inf:
                return False
        return True


def test_a_banned_word_is_not_written_in_other_pieces_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four cuts of `cat`, of which the tokenizer knows one; `scat` holds it only inside a word."""
    searched = lambda kit, *given, **options: kit.search(*given, **options)  # noqa: E731
    monkeypatch.setattr(translator, "search_kit", searched)
    kit = Pieces([[7, 6], [1, 2, 3], [4, 3], [1, 5], [8, 7, 1, 2, 8]])
    how = TranslateConfig(ban=("cat",))
    (best,) = translate(kit, [[1]], how)
    assert best.text == "s cas" and kit.searches == 4
    kit = Pieces([[6], [4, 3]])
    with pytest.raises(UsageError, match=r"no answer to text 1[\s\S]*ask for less"):
        translate(kit, [[1]], how)
    inside = Pieces([[8, 1, 2, 3]])
    assert translate(inside, [[1]], how)[0].text == "scat"
    assert not list(find_words(inside, [8, 1, 2, 3], how.ban))  # type: ignore[arg-type]


def test_several_translations_differ_and_begin_with_the_plain_one(kit: Kit) -> None:
    for source in (SOURCE, "a"):
        texts = listed(kit, source, alternatives=5, max_new=6)
        assert texts[0] == say(kit, source, max_new=6) and 1 < len({*texts}) == len(texts)


def test_a_beam_of_one_is_greedy(kit: Kit) -> None:
    """Also where the penalty of the length would let a search go on after the end."""
    assert kit.tokenizer is not None
    kit = made(kit.tokenizer)
    kit.config["eos_token_id"] = [*range(0, kit.tokenizer.size, 3)]  # or it would never end
    texts = [" ".join(WORDS.split()[n : n + 4]) for n in range(12)]
    rows = kit.tokenizer.encode_batch(texts)
    wanted = kit.search(kit.batch(rows), [20] * len(rows), None)
    got = translate(kit, rows, TranslateConfig(beams=1, alpha=5.0, max_new=20))
    assert [found.tokens for found in got] == [found.tokens for (found,) in wanted]
    assert any(len(found.tokens) < 20 for (found,) in wanted)


def test_others_have_other_words_and_are_not_likelier() -> None:
    texts = ["A cat.", "A cat", "a cat..", "The cat.", "A  cat.", "One cat.", "Cat."]
    kit: Any = SimpleNamespace(text=lambda tokens: texts[tokens[0]], written=None)
    logprobs = [-1.0, -2.0, -3.0, -4.0, -5.0, -3.5, -0.5]
    found = [Hypothesis([n], log, log, True) for n, log in enumerate(logprobs)]
    search = SentenceSearch(kit, TranslateConfig(alternatives=3))
    others = search.distinct([1], TargetText("A cat.", -1.0, [0]), found)
    assert [answer.text for answer in others] == ["One cat.", "The cat."]
    kit.written, kit.text_tokenizer = {"cat", "the"}, SimpleNamespace(decode=lambda *_, **__: "")
    others = search.distinct([1], TargetText("A cat.", -1.0, [0]), found)
    assert [answer.text for answer in others] == ["The cat."]  # nobody ever wrote "one"


def test_wishes_that_cannot_be(kit: Kit) -> None:
    with pytest.raises(TypeError, match="musts"):
        say(kit, SOURCE, musts=["cat"])
    with pytest.raises(UsageError, match="the word ' '"):
        say(kit, SOURCE, ban=[" "])
    with pytest.raises(UsageError, match="4 or more"):
        say(kit, SOURCE, must=["cat", "mat", "so far"], max_new=2)


def test_a_word_that_the_vocabulary_lacks() -> None:
    roles = ("pad", "eos", "unk")
    kit = made(train_tokenizer([WORDS], "words", specials=roles, wrap="eos"))
    with pytest.raises(UsageError, match="'zebra', which the vocabulary cannot write"):
        say(kit, SOURCE, must=["zebra"])


def test_the_limit_follows_a_learned_table() -> None:
    """A long source is read in parts; only one that must stay whole fails."""
    tokenizer = train_tokenizer([WORDS], "words", specials=("pad", "eos", "unk"), wrap="eos")
    table = {"position": "learned", "length": 12}
    kit = made(tokenizer, target=table)
    assert kit.room == 12
    assert len(tokenizer.encode(say(kit, SOURCE), special=False)) <= 11
    say(kit, SOURCE, max_new=500)
    say(kit, " ".join([SOURCE] * 9))
    short = made(tokenizer, source=table)
    say(short, " ".join([SOURCE] * 9))
    with pytest.raises(DataError, match="at most 12"):
        say(short, " ".join([SOURCE] * 9), begin="the")


# Words ------------------------------------------------------------------------------------------


@torch.no_grad()
def next_log(kit: Kit, tokens: Sequence[int]) -> Tensor:
    """Log-probabilities of the next token, by a plain pass over everything."""
    assert kit.tokenizer is not None
    start = kit.tokenizer.specials["pad"]
    logits = kit.logits([kit.tokenizer.encode(SOURCE)], [[start, *tokens]])
    return logits[0, -1].log_softmax(-1)


def test_other_words_are_the_likeliest_at_their_place() -> None:
    tokenizer = train_tokenizer([WORDS], "words", specials=("pad", "eos", "unk"), wrap="eos")
    kit, count, limit = made(tokenizer), 3, 6
    found = kit.translate(SOURCE, beams=2, max_new=limit, alternatives=count)
    tokens = tokenizer.encode(found.text, special=False)
    assert " ".join(word.text for word in found.words) == found.text
    for place, word in enumerate(found.words):
        log = next_log(kit, tokens[:place])
        assert word.alternatives is not None
        assert math.log(word.confidence) == pytest.approx(float(log[tokens[place]]), abs=1e-4)
        ranked = log.argsort(descending=True).tolist()[: count + 1]
        names = {id: tokenizer.decode([id]) for id in ranked}
        wanted = [id for id in ranked if names[id] not in ("", word.text)][:count]
        assert [other.text for other in word.alternatives] == [names[id] for id in wanted]
        for id, other in zip(wanted, word.alternatives, strict=True):
            assert math.log(other.probability) == pytest.approx(float(log[id]), abs=1e-4)
            going = [*tokens[:place], id]
            while len(going) < limit and going[-1] != tokenizer.specials["eos"]:
                going.append(int(next_log(kit, going).argmax()))
            assert other.translation == kit.text(going)


def test_what_is_no_text_is_said(kit: Kit) -> None:
    assert say(kit, []) == []
    assert say(kit, (text for text in [SOURCE])) == [say(kit, SOURCE)]
    assert say(kit, np.array([SOURCE])) == [say(kit, SOURCE)]
    for wrong in (b"le chat", None, 3):
        with pytest.raises(UsageError, match="a text"):
            kit.translate(wrong)
    for wishes in ({"beams": 0}, {"beams": 2.5}, {"alternatives": "x"}, {"max_new": 0}):
        with pytest.raises(UsageError, match="a whole number from 1 up"):
            kit.translate(SOURCE, **wishes)


# Batches ----------------------------------------------------------------------------------------

HOW = TranslateConfig(beams=1, batch=4)


def echoing(kit: Kit, sizes: list[int]) -> Translator:
    """A translator whose answers are the tokens of the sources; it writes down the batches."""
    echo = Translator(kit, HOW)

    def translate(rows: Sequence[Row]) -> list[TargetText]:
        sizes.append(len(rows))
        return [TargetText("", 0.0, list(row)) for row in rows]

    echo.search.translate = translate  # type: ignore[method-assign]
    return echo


def segments(rows: Sequence[list[int]]) -> list[Segment]:
    return [Segment((0, 1), "", row, False) for row in rows]


def test_each_segment_gets_its_own_answer(kit: Kit) -> None:
    rows = [[1, 2], [3], [4], [5], [6, 7, 8], [9], *([20 + n] * 3 for n in range(6))]
    sizes, told = list[int](), list[tuple[int, int]]()
    found = echoing(kit, sizes).search_segments(segments(rows), lambda *n: told.append(n))
    assert [part.translations[0].tokens for part in found] == rows
    assert [part.segment.ids for part in found] == rows
    assert sizes == [4, 4, 4]
    assert told == [(4, 12), (8, 12), (12, 12)]
    assert echoing(kit, sizes).search_segments([]) == []


def test_long_sources_make_small_batches(kit: Kit) -> None:
    sizes = list[int]()
    echoing(kit, sizes).search_segments(segments([[1] * (TOKENS // 4)] * 5))
    assert sizes == [2, 2, 1]
    echoing(kit, sizes).search_segments(segments([[2], [1] * TOKENS]))
    assert sizes[3:] == [1, 1]  # the longest first


def test_a_quote_opens_without_a_blank() -> None:
    """Hints begin with a blank, which a model copies after a mark."""
    segment = Segment((0, 1), "", [], False)
    for written, text in (
        ('says " Ivan"', 'says "Ivan"'),
        ('" Oh," he said', '"Oh," he said'),
        ('"a" and "b"', '"a" and "b"'),
        ('5" 3', '5" 3'),
    ):
        assert segment.dress(TargetText(written, 0.0, [])).text == text
