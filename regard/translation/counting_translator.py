"""Translators that count words, sentence by sentence: naive Bayes, logistic regression, IBM 1."""

from __future__ import annotations

import math
from collections.abc import Sequence

from regard.ambient import note
from regard.data.sentences import sentence_spans
from regard.history.word_translator import TranslatedSentence, WordTranslator
from regard.translation.config import TranslateConfig
from regard.translation.document import Document, Part, Segment, TargetText, distinct, join
from regard.translation.results import OtherWord, TargetWord
from regard.translation.translator import Tell


class CountingTranslator:
    """A model that counts and what is asked of it; stands where a `Translator` does."""

    language, doubt = "", None

    def __init__(self, model: WordTranslator, config: TranslateConfig) -> None:
        self.model, self.config = model, config

    def translate(self, texts: Sequence[str], tell: Tell | None = None) -> list[Document]:
        """What becomes of each text; unknown words are counted."""
        documents, unknown, count = list[Document](), list[str](), self.config.alternatives
        for n, text in enumerate(texts, 1):
            parts, words = list[Part](), list[TargetWord]()
            for span in sentence_spans(text):
                sentence = self.model.translate(text[slice(*span)], count)
                segment = Segment(span, text[slice(*span)], [], False)
                best = (TargetText(sentence.text(each), log, []) for each, log in sentence.best)
                parts.append(Part(segment, distinct(best)))
                words += list_words(sentence, count > 1)
                unknown += sentence.unknown
            whole = join(text, parts, count)
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


def list_words(sentence: TranslatedSentence, several: bool) -> list[TargetWord]:
    """Each word of the best translation with its probability, and what else could stand there."""
    best, listed = sentence.best[0].words, list[TargetWord]()
    for n, (first, *rest) in enumerate(sentence.slots):
        if not first.text:
            continue
        others = [
            OtherWord(text, math.exp(logprob), sentence.text((*best[:n], text, *best[n + 1 :])))
            for text, logprob in rest
        ]
        chosen = others if several else None
        listed.append(TargetWord(first.text, math.exp(first.logprob), [], chosen))
    return listed
