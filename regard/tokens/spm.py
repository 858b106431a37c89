"""The engine around the `sentencepiece` library; spm_families.py builds it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from regard.errors import UsageError

LANGUAGE_CODE = re.compile(">>.*?<<", re.DOTALL)


class Language:
    """One SentencePiece model and the ids of its pieces, which need not be its own ids."""

    def __init__(self, processor: Any, vocab: dict[str, int], controls: set[str]) -> None:
        self.processor, self.vocab = processor, vocab
        self.names = {id: piece for piece, id in vocab.items()}
        # Unknown characters come back spelled as they are; they must not find a control token.
        self.plain = {piece: id for piece, id in vocab.items() if piece not in controls}


def spelled(tokens: set[str]) -> re.Pattern[str]:
    """A pattern that finds these tokens in a text, the longest first; without any, nothing."""
    longest = sorted(tokens, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest)) if tokens else "(?!)")


class SentencePieceEngine:
    """SentencePiece models (Kudo and Richardson 2018), one per side of the translation.

    `before` and `after` are the control tokens that stand around a text, `words` the added
    tokens that are found in any text.
    """

    def __init__(
        self,
        languages: dict[str, Language],
        controls: set[str],
        unk: str,
        before: list[str],
        after: list[str],
        words: set[str] | None = None,
        translation: bool = False,
    ) -> None:
        self.languages, self.controls, self.unk = languages, controls, unk
        self.before, self.after, self.translation = before, after, translation
        self.size = len(languages["source"].vocab)
        self.literal = spelled(words or set())
        self.marked = spelled(controls | (words or set()))

    def _parts(
        self, text: str, allow_special: bool, side: str
    ) -> Iterator[tuple[int, str, int | None]]:
        """The text in parts: where each starts, its characters, its id if it is one token."""
        vocab, start = self.languages[side].vocab, 0
        if self.translation and (code := LANGUAGE_CODE.match(text)):
            yield 0, code[0], vocab.get(code[0], vocab[self.unk])
            start = code.end()
        for match in (self.marked if allow_special else self.literal).finditer(text, start):
            yield start, text[start : match.start()], None
            yield match.start(), match[0], vocab[match[0]]
            start = match.end()
        yield start, text[start:], None

    def encode(self, text: str, special: bool, allow_special: bool, side: str) -> list[int]:
        """The ids of one text."""
        language = self.languages[side]
        unk, ids = language.vocab[self.unk], []
        for _, part, id in self._parts(text, allow_special, side):
            if id is not None:
                ids.append(id)
            else:
                pieces = language.processor.encode(part, out_type=str)
                ids += [language.plain.get(piece, unk) for piece in pieces]
        if not special:
            return ids
        find = language.vocab.__getitem__
        return [*map(find, self.before), *ids, *map(find, self.after)]

    def encode_batch(
        self, texts: Sequence[str], special: bool, allow_special: bool, side: str
    ) -> list[list[int]]:
        """The ids of each text."""
        return [self.encode(text, special, allow_special, side) for text in texts]

    def offsets(
        self, text: str, special: bool, allow_special: bool, side: str
    ) -> list[tuple[int, int]]:
        """One span per id, in characters of the text as given."""
        spans: list[tuple[int, int]] = []
        for start, part, id in self._parts(text, allow_special, side):
            found = [(0, len(part))] if id is not None else self._spans(part, side)
            spans += [(start + first, start + last) for first, last in found]
        if not special:
            return spans
        return [(0, 0)] * len(self.before) + spans + [(0, 0)] * len(self.after)

    def _spans(self, part: str, side: str) -> list[tuple[int, int]]:
        try:
            answer = self.languages[side].processor.encode(part, return_type="offset_mapping")
        except TypeError:
            raise UsageError(
                "finding the offsets of pieces",
                "a sentencepiece library that cannot tell them",
                "sentencepiece 0.2.2 or later",
                "pip install -U sentencepiece",
            ) from None
        return list(answer["offsets"])

    def decode(self, ids: list[int], special: bool, side: str) -> str:
        """The text of the ids."""
        language = self.languages[side]
        runs: list[list[str]] = [[]]  # pieces of text; a control token stands alone
        for id in ids:
            piece = language.names[id]
            if piece not in self.controls:
                runs[-1].append(piece)
            elif special:
                runs += [[piece], []]
        texts = [
            run[0] if run and run[0] in self.controls else language.processor.decode(run)
            for run in runs
        ]
        # A piece that the other language brought keeps its mark in the library's answer.
        text = "".join(texts).replace("▁", " ")
        return text.strip() if self.translation else text

    def piece(self, id: int, side: str) -> str | None:
        """The spelling of one id."""
        return self.languages[side].names.get(id)

    def id(self, piece: str) -> int | None:
        """The id of one spelling."""
        return self.languages["source"].vocab.get(piece)
