"""Translators that count words, sentence by sentence: naive Bayes, logistic regression, IBM 1."""

from __future__ import annotations

import math
from collections.abc import Sequence

from regard.ambient import note
from regard.data.sentences import sentence_spans
from regard.history.word_translator import WordTranslator
from regard.translation.config import TranslateConfig
from regard.translation.document import Document, Part, Segment, TargetText, join
from regard.translation.results import TargetWord
from regard.translation.translator import Tell


class CountingTranslator:
    """A model that counts and what is asked of it; stands where a `Translator` does."""

    language, doubt = "", None

    def __init__(self, model: WordTranslator, config: TranslateConfig) -> None:
        self.model, self.config = model, config

    def translate(self, texts: Sequence[str], tell: Tell | None = None) -> list[Document]:
        """What becomes of each text; unknown words are counted."""
        documents, unknown = list[Document](), list[str]()
        for n, text in enumerate(texts, 1):
            parts, words = list[Part](), list[TargetWord]()
            for span in sentence_spans(text):
                sentence = self.model.translate(text[slice(*span)])
                segment = Segment(span, text[slice(*span)], [], False)
                logprob = sum(word.logprob for word in sentence.words)
                parts.append(Part(segment, [TargetText(sentence.text, logprob, [])]))
                words += [
                    TargetWord(word.text, math.exp(word.logprob), [])
                    for word in sentence.words
                    if word.text
                ]
                unknown += sentence.unknown
            whole = join(text, parts, 1)
            documents.append(Document(text, parts, whole, words if self.config.doubt else None))
            if tell is not None:
                tell(n, len(texts))
        if unknown:
            named = ", ".join(dict.fromkeys(unknown[:5])) + (" …" if len(unknown) > 5 else "")
            note(f"{len(unknown):,} unknown words were copied: {named}")
        return documents

    def read(self, document: Document) -> Document:
        """A document with its words, which it has."""
        return document
