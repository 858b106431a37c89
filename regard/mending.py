"""Mending: translations with the numbers of their sources and words that exist.

What mends a text asks for jobs, all that it can name, and is sent their answers; it returns the
text's parts. So the jobs of one text are done beside those of others.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from dataclasses import replace

from regard.coined import coined_words
from regard.figures import lost_figures, mended
from regard.pieces import Job, Part, Piece, in_case
from regard.translating import TranslateConfig, Translation

Mend = Generator[list[Job], list[list[Translation]], list[Part]]
"""Yields jobs of one source each, is sent what became of them, returns the parts of a text."""
SEARCHES = 3  # for words that exist


def with_figures(parts: Sequence[Part], how: TranslateConfig) -> Mend:
    """Parts whose translations have the numbers of the source, as far as they can be had.

    Each digit is a token: long numbers come out short of one now and then, or with one too many.
    Then the right one is put in its place; where none is like it, a search is for it.
    """

    def lost(piece: Piece, answer: Translation) -> list[str]:
        return lost_figures(piece.text, answer.text) if piece.ids else []

    def mend(piece: Piece, answer: Translation) -> Job:
        text = "" if piece.raised else mended(piece.text, answer.text)
        # A beam of 1 is one for each digit that is there: five times as quick as 4, and as good.
        wish = replace(how, must=(*how.must, *lost(piece, answer)), count=1, beams=1)
        return Job([piece.ids], wish, True, text)

    made = list(parts)
    jobs = {
        n: mend(piece, best) for n, (piece, (best, *_)) in enumerate(parts) if lost(piece, best)
    }
    for n, found in zip(jobs, (yield [*jobs.values()]), strict=True):
        piece, (best, *_) = made[n]
        if found and len(lost(piece, found[0])) < len(lost(piece, best)):
            answers = [in_case(piece, found[0]), *made[n].translations]
            made[n] = Part(piece, answers[: max(1, how.count)])
    return made


def with_words(parts: Sequence[Part], written: Collection[str], how: TranslateConfig) -> Mend:
    """Parts whose translations have words that exist, where a search without the others finds any.

    Pieces of words can be put together to words that nobody says: entarté → entarted.
    """

    def coined(piece: Piece, answer: Translation) -> list[str]:
        made = coined_words(piece.text, answer.text, written)
        return [word.lower() for word in made] if piece.raised else made

    made, banned = list(parts), dict[int, list[str]]()
    seen = {n: part.translations for n, part in enumerate(made) if part.piece.ids}
    for _ in range(SEARCHES):
        new = dict[int, list[str]]()
        for n, answers in seen.items():
            words = {word for answer in answers for word in coined(made[n].piece, answer)}
            if words := words - {*banned.get(n, ())}:
                new[n] = banned[n] = [*banned.get(n, ()), *sorted(words)]
        jobs = [
            Job([made[n].piece.ids], replace(how, ban=(*how.ban, *words)), True)
            for n, words in new.items()
        ]
        seen = {
            n: [in_case(made[n].piece, answer) for answer in found]
            for n, found in zip(new, (yield jobs), strict=True)
        }
        for n, answers in seen.items():
            piece, before = made[n]
            both = {answer.text: answer for answer in [*answers, *before]}.values()
            ranked = sorted(both, key=lambda answer: bool(coined(piece, answer)))
            made[n] = Part(piece, ranked[: max(1, how.count)])
    return made
