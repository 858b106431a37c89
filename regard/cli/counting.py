"""Translators that count words, as `regard translate` and `regard eval translate` see them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from regard.cli.show import Show
from regard.data.sentences import sentence_spans
from regard.errors import UsageError
from regard.history.word_translator import TranslatedSentence, WordTranslator, translator_kind
from regard.passages import Answer, join
from regard.pieces import Part, Piece
from regard.schedule import Tell
from regard.translating import Other, TranslateConfig, Translation, Word

WISHES = ("explain", "must", "ban", "begin", "page")
"""Arguments of `regard translate` that need a search or attention."""


class CountingCrew(NamedTuple):
    """A translator by counting and what was asked of it."""

    counting: WordTranslator
    config: TranslateConfig
    show: Show

    def translate(self, texts: Sequence[str], tell: Tell, words: bool = False) -> list[Answer]:
        """Answers to each text, sentence by sentence; unknown words are counted."""
        answers, unknown = list[Answer](), list[str]()
        for n, text in enumerate(texts):
            parts, found = list[Part](), list[TranslatedSentence]()
            for span in sentence_spans(text):
                sentence = self.counting.translate(text[slice(*span)], self.config.count)
                found.append(sentence)
                parts.append(Part(Piece(span, text[slice(*span)], [], False), written(sentence)))
            chosen = [word for each in found for word in choices(each)] if words else []
            answers.append(Answer(join(text, parts, self.config.count), chosen, parts))
            unknown += [word for each in found for word in each.unknown]
            tell(n + 1, len(texts))
        if unknown:
            named = ", ".join(dict.fromkeys(unknown[:5])) + (" …" if len(unknown) > 5 else "")
            self.show.note(f"{len(unknown):,} unknown words were copied: {named}")
        return answers


def open_crew(
    path: str, args: argparse.Namespace, config: TranslateConfig, show: Show
) -> CountingCrew | None:
    """The translator in a folder of `regard train bayes|logreg|ibm1`; None for any other."""
    kind = translator_kind(Path(path))
    if kind is None:
        return None
    asked = [name for name in WISHES if getattr(args, name, None)]
    if asked:
        found = f"--{asked[0]} with a folder of `regard train {kind}`"
        raise UsageError("translating", found, "a Transformer or a recurrent translator")
    return CountingCrew(WordTranslator.open(Path(path)), config, show)


def written(sentence: TranslatedSentence) -> list[Translation]:
    """The best translations; two that read the same are one."""
    made: dict[str, Translation] = {}
    for words, logprob in sentence.best:
        text = sentence.text(words)
        made.setdefault(text, Translation(text, logprob, []))
    return list(made.values())


def choices(sentence: TranslatedSentence) -> list[Word]:
    """Each word of the best translation with its probability, and what else could stand there."""
    best, made = sentence.best[0].words, list[Word]()
    for n, (first, *rest) in enumerate(sentence.slots):
        if not first.text:
            continue
        others = [
            Other(text, logprob, sentence.text((*best[:n], text, *best[n + 1 :])))
            for text, logprob in rest
        ]
        made.append(Word(first.text, first.logprob, others))
    return made
