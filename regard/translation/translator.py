"""Translator: texts of any length, cut into sentences, searched in batches, mended and joined.

A sentence is searched by beams, with words that must and must not be there. What a translation
lost, addresses, numbers, words that exist, is searched for again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from regard.data.sentences import trim
from regard.decode.alternatives import after_each, alternatives, extend
from regard.decode.beam import BeamConfig, length_penalty
from regard.decode.constraints import (
    LexicalSearch,
    ban_phrases,
    begin_with,
    find_words,
    spell_word,
)
from regard.decode.loop import search_kit
from regard.decode.step import Hypothesis, Process, without_end
from regard.errors import UsageError
from regard.model.batch import Batch
from regard.translation.config import DOING, TranslateConfig
from regard.translation.document import Document, Part, Segment, TargetText, join
from regard.translation.memory import MEMORY_FILE, Memory
from regard.translation.normalise import tidy
from regard.translation.repair import coined_words, letter_runs, read_numbers
from regard.translation.segment import Segmenter

if TYPE_CHECKING:
    from regard.kit import Kit
    from regard.translation.worker_pool import WorkerPool

ROWS = 64  # beams of a batch, about
TOKENS = 3000  # beams × source tokens of a batch, beams at least 2: a bound on its memory
FEW = 4  # sentences that are no quicker in two batches
SEARCHES = 3  # for words that exist
REGRET = 10.0  # nats that a translation by the memory may be less likely than a made-up word
Row = Sequence[int]
Phrases = set[tuple[int, ...]]
Tell = Callable[[int, int], None]
"""Hears how many of how many sentences are done."""


class Job(NamedTuple):
    """Sources that are translated together."""

    rows: list[Row]
    config: TranslateConfig
    optional: bool = False
    """There may be no answer: what is asked for perhaps cannot be had. Its source is alone."""
    text: str = ""
    """A translation that is there already: what is asked for is its log-probability."""


class Translator:
    """A model, how it is to translate, and the worker pool that helps it, if any."""

    def __init__(
        self,
        kit: Kit,
        config: TranslateConfig,
        strict: bool | None = None,
        pool: WorkerPool | None = None,
        memory: Sequence[str | Path] = (),
    ) -> None:
        if kit.model.config.target is None:
            raise UsageError(DOING, "a model without encoder", "an encoder-decoder")
        self.kit, self.config, self.strict, self.pool = kit, config, strict, pool
        self.segmenter, self.memory = Segmenter(kit), Memory(kit, memory)
        self.numbers = read_numbers(kit.files)

    def translate(self, texts: Sequence[str], tell: Tell | None = None) -> list[Document]:
        """What becomes of each text, in order; `tell` hears how far the first search is.

        Segments of like length run together; the answers do not depend on it, nor on who runs them.
        """
        config = self.config
        cut = self.segmenter.cut(texts, config.keeps_whole)
        if self.memory.sentences and not config.keeps_whole:
            cut = [self.recall(*both) for both in zip(texts, cut, strict=True)]
        documents = self.translate_segments(texts, cut, tell)
        if not config.keeps_whole:
            anew = [
                self.segmenter.cut_around_lost(text, parts)
                for text, parts in zip(texts, documents, strict=True)
            ]
            again = iter(self.translate_segments(texts, anew))
            documents = [next(again) or parts for parts in documents]
            mended = [part for parts in documents for part in parts]
            if self.numbers is not None:
                mended = self.mend_numbers(mended)
            if self.kit.written and (self.memory.own or MEMORY_FILE in self.kit.files):
                mended = self.mend_rare_words(mended)
            if not config.coin and self.kit.written:
                mended = self.mend_words(mended)
            rest = iter(mended)
            documents = [[next(rest) for _ in parts] for parts in documents]
        return [
            Document(text, parts, join(text, parts, config.alternatives))
            for text, parts in zip(texts, documents, strict=True)
        ]

    def translate_segments(
        self, texts: Sequence[str], cut: Sequence[Sequence[Segment]], tell: Tell | None = None
    ) -> list[list[Part]]:
        """The segments of each text with their translations; those without tokens as they stand."""
        rows = [segment.ids for segments in cut for segment in segments if segment.ids]
        answered = iter(self.run([Job([row], self.config) for row in rows], tell))
        documents = []
        for text, segments in zip(texts, cut, strict=True):
            parts = []
            for segment in segments:
                if segment.ids:
                    answers = [segment.dress(answer) for answer in next(answered)]
                    best = {answer.text: answer for answer in reversed(answers)}
                    parts.append(Part(segment, [*best.values()][::-1]))  # of equals the first
                else:
                    entry = self.memory.sentences.get(segment.text)
                    copied = entry.target if entry else text[slice(*segment.span)]
                    parts.append(Part(segment, [TargetText(copied, 0.0, [])]))
            documents.append(parts)
        return documents

    def recall(self, text: str, segments: Sequence[Segment]) -> list[Segment]:
        """Segments without tokens where they, or the whole text, stand in the user's memory."""
        if tidy(text) in self.memory.sentences:
            return [Segment(span, tidy(text), [], False) for span in trim(text, 0, len(text))]
        read = [(segment, tidy(text[slice(*segment.span)])) for segment in segments]
        return [
            segment._replace(text=raw, ids=[]) if raw in self.memory.sentences else segment
            for segment, raw in read
        ]

    # Mending ------------------------------------------------------------------------------------

    def mend_numbers(self, parts: Sequence[Part]) -> list[Part]:
        """Parts whose translations have the numbers of the source, as far as they can be had.

        Each digit is a token: long numbers come out short of one now and then, or with one too
        many. Then the right one is put in its place; where none is like it, a search is for it.
        """
        numbers = self.numbers
        assert numbers is not None
        jobs: dict[int, Job] = {}
        for n, (segment, (best, *_)) in enumerate(parts):
            if segment.ids and (lost := numbers.find_lost(segment.text, best.text)):
                text = "" if segment.raised else numbers.put_right(segment.text, best.text)
                # A beam of 1 is one for each digit that is there: five times as quick as 4, and as
                # good.
                must = (*self.config.must, *lost)
                wish = replace(self.config, must=must, alternatives=1, beams=1)
                jobs[n] = Job([segment.ids], wish, True, text)
        mended = list(parts)
        for n, answers in zip(jobs, self.run([*jobs.values()]), strict=True):
            segment, before = parts[n]
            old, new = (
                len(numbers.find_lost(segment.text, some[0].text)) if some else torch.inf
                for some in (before, answers)
            )
            if new < old:
                both = [segment.dress(answers[0]), *before]
                mended[n] = Part(segment, both[: self.config.alternatives])
        return mended

    def mend_rare_words(self, parts: Sequence[Part]) -> list[Part]:
        """Parts with fewer words that training never wrote: rare ones as the memory has them.

        A copied or a made-up word stands for one that the model does not know: magnat → tycoon.
        """
        jobs = list[tuple[int, Job]]()
        for n, (segment, (best, *_)) in enumerate(parts):
            if segment.ids and not segment.raised and self.unwritten(best.text):
                for hint in self.memory.rare_hints(segment.text):
                    must = (*self.config.must, *self.memory.content(hint))
                    wish = replace(self.config, must=must, alternatives=1, beams=2)
                    jobs.append((n, Job([segment.ids], wish, True)))
        mended = list(parts)
        answered = self.run([job for _, job in jobs])
        for (n, _), answers in zip(jobs, answered, strict=True):
            segment, (best, *others) = mended[n]
            for answer in map(segment.dress, answers):
                fewer = self.unwritten(answer.text) < self.unwritten(best.text)
                if fewer and answer.logprob > parts[n].translations[0].logprob - REGRET:
                    both = [answer, best, *others]
                    mended[n] = Part(segment, both[: self.config.alternatives])
        return mended

    def unwritten(self, text: str) -> int:
        """How many words of a translation training never wrote."""
        return sum(run.lower() not in (self.kit.written or ()) for run in letter_runs(text))

    def mend_words(self, parts: Sequence[Part]) -> list[Part]:
        """Parts whose translations have words that exist, where a search without the others can.

        Pieces of words can be put together to words that nobody says: entarté → entarted.
        """
        mended, banned = list(parts), dict[int, list[str]]()
        seen = {n: part.translations for n, part in enumerate(parts) if part.segment.ids}
        for _ in range(SEARCHES):
            jobs = dict[int, Job]()
            for n, answers in seen.items():
                segment, old = parts[n].segment, banned.get(n, [])
                words = {word for answer in answers for word in self.coined(segment, answer)}
                if words - {*old}:
                    banned[n] = [*old, *sorted(words - {*old})]
                    wish = replace(self.config, ban=(*self.config.ban, *banned[n]))
                    jobs[n] = Job([segment.ids], wish, True)
            answered = zip(jobs, self.run([*jobs.values()]), strict=True)
            seen = {n: [parts[n].segment.dress(a) for a in answers] for n, answers in answered}
            for n, answers in seen.items():
                segment, before = mended[n]
                both = {answer.text: answer for answer in [*answers, *before]}.values()
                ranked = sorted(both, key=lambda a: bool(self.coined(segment, a)))  # noqa: B023
                mended[n] = Part(segment, ranked[: self.config.alternatives])
        return mended

    def coined(self, segment: Segment, answer: TargetText) -> list[str]:
        """The words of a translation that neither training nor its source ever wrote."""
        words = coined_words(segment.text, answer.text, self.kit.written or ())
        return [word.lower() for word in words] if segment.raised else words

    # Batches ------------------------------------------------------------------------------------

    def run(self, jobs: Sequence[Job], tell: Tell | None = None) -> list[list[TargetText]]:
        """What becomes of jobs of one source each; plain ones run in batches, the longest first."""
        alone = [[n] for n, job in enumerate(jobs) if job.optional]
        order = [n for n, job in enumerate(jobs) if not job.optional]
        order.sort(key=lambda n: -len(jobs[n].rows[0]))
        batches, width = list[list[int]](), self.config.width
        most = self.config.batch or max(1, ROWS // width)
        if self.pool is not None:  # some for each, but no more batches than are quicker
            most = min(most, max(FEW, -(-len(order) // self.pool.count)))
        while order:
            longest = len(jobs[order[0]].rows[0])
            size = max(1, min(most, TOKENS // (max(2, width) * longest)))
            batches.append(order[:size])
            order = order[size:]
        batches += alone
        joint = [
            jobs[batch[0]]._replace(rows=[jobs[n].rows[0] for n in batch]) for batch in batches
        ]
        results: Iterator[list[list[TargetText]]] = (
            map(self.do, joint) if self.pool is None else self.pool.run(joint)
        )
        answers: dict[int, list[TargetText]] = {}
        for batch, found in zip(batches, results, strict=True):
            answers |= zip(batch, found, strict=True)
            if tell is not None:
                tell(len(answers), len(jobs))
        return [answers[n] for n in range(len(jobs))]

    def do(self, job: Job) -> list[list[TargetText]]:
        """What becomes of each source of a job."""
        search = SentenceSearch(self.kit, job.config, self.strict)
        if job.text:
            return [[search.judge(row, job.text)] for row in job.rows]
        try:
            return search.translate(job.rows)
        except UsageError:
            if not job.optional:
                raise
            return [[] for _ in job.rows]


class SentenceSearch:
    """Beam search whose answers begin as wished, hold some words and lack others."""

    def __init__(self, kit: Kit, config: TranslateConfig, strict: bool | None = None) -> None:
        self.kit, self.config, self.strict = kit, config, strict
        self.must = [spell_word(kit, word)[0] for word in config.must]
        self.ban = {phrase for word in config.ban for phrase in spell_word(kit, word)}
        self.begin = list(spell_word(kit, config.begin)[-1]) if config.begin else []
        self.beam = BeamConfig(
            config.width, config.alternatives, length_penalty("gnmt", config.alpha)
        )

    def translate(self, rows: Sequence[Row]) -> list[list[TargetText]]:
        """Translations of each source, best first and each text once.

        Of several, the first is what a search for one would find; the others leave it at one place
        and go on as is likeliest from there. Where these are too few, the beam has more.
        """
        hypotheses = self.search(rows, self.ban)
        if self.config.alternatives > 1 and not self.must:
            for row, answers in zip(rows, hypotheses, strict=True):
                answers[1:] = [*self.branch(row, answers[0]), *answers[1:]]
        return [self.distinct(row) for row in hypotheses]

    def search(self, rows: Sequence[Row], banned: Phrases) -> list[list[Hypothesis]]:
        """Hypotheses of each row, at least one."""
        limits = [self.limit(row) for row in rows]
        if len(self.begin) > min(limits):
            wrong = f"a beginning of {len(self.begin)} tokens, and at most {min(limits)} in all"
            raise UsageError(DOING, wrong, "room for it", "a shorter beginning, a larger limit")
        rules = [*([begin_with(self.begin)] if self.begin else []), *bans(banned)]
        if self.must:
            how = LexicalSearch(self.beam, self.kit.stops, self.must, rules, cache(self.joins))
            hypotheses = [
                search_kit(self.kit, self.batch(row), limit, how, strict=self.strict)[0]
                for row, limit in zip(rows, limits, strict=True)
            ]
        else:
            # A beam of one would go on after the end for a better score; it is greedy instead.
            beam = None if self.beam.width == 1 and not rules else self.beam
            hypotheses = search_kit(
                self.kit,
                self.kit.batch([list(row) for row in rows]),
                limits,
                beam,
                processes=rules,
                strict=self.strict,
                shortlist=self.config.shortlist and self.config.alternatives == 1 and not rules,
            )
        for n, row in enumerate(hypotheses):
            again = {
                span for h in row for span in find_words(self.kit, h.tokens, self.config.ban)
            } - banned
            if again:  # another cut of a banned word; alone, so that no neighbour matters
                hypotheses[n] = self.search([rows[n]], banned | again)[0]
            elif not row:
                wanted = f"at most {limits[n]} tokens with what must and must not be there"
                raise UsageError(DOING, f"no answer to text {n + 1}", wanted, "ask for less")
        return hypotheses

    @torch.no_grad()
    def branch(self, row: Row, best: Hypothesis) -> list[Hypothesis]:
        """Answers that leave the best one where another word is nearly as likely, best first.

        Diverse beams (Vijayakumar 2018) were tried: they punish the end of a sentence too, and
        go on after its full stop.
        """
        stops, limit = self.kit.stops, self.limit(row)
        tokens = without_end(best.tokens, stops)
        if not tokens:
            return []
        batch, log = self.follow(row, tokens)
        own = torch.tensor(tokens, device=log.device)[:, None]
        others = log[: len(tokens)].scatter(1, own, -torch.inf)
        others[:, sorted(stops)] = -torch.inf
        regret = log[: len(tokens)].gather(1, own)[:, 0] - others.amax(1)
        regret[: len(self.begin)] = torch.inf  # these words are given
        free = min(len(tokens) - len(self.begin), limit, 2 * self.config.alternatives)
        places = sorted(regret.topk(max(0, free), largest=False).indices.tolist())
        rules = bans(self.ban)  # what it begins with is written already
        at = (batch, log, tokens, places, limit, 3)
        hypotheses = alternatives(
            self.kit, *at, how=BeamConfig(2), processes=rules, strict=self.strict
        )
        return sorted(
            (
                replace(h, score=h.logprob / self.beam.penalty(len(h.tokens)))
                for place, answers in zip(places, hypotheses, strict=True)
                for h in answers
                if h.tokens[place] not in stops
                and not any(find_words(self.kit, h.tokens, self.config.ban))
            ),
            key=lambda h: -h.score,
        )

    def distinct(self, hypotheses: Sequence[Hypothesis]) -> list[TargetText]:
        """The first and the likeliest of the rest: other words rather than other stops, capitals.

        Two cuts into tokens may spell the same text, which is there once.
        """
        texts: dict[str, TargetText] = {}
        for h in hypotheses:
            text = self.kit.text(h.tokens)
            texts.setdefault(" ".join(text.split()), TargetText(text, h.logprob, h.tokens))
        heard: set[str] = set()
        new, alike = list[TargetText](), list[TargetText]()
        for text, answer in texts.items():
            words = " ".join(re.findall(r"\w+", text.casefold()))
            (alike if words in heard else new).append(answer)
            heard.add(words)
        first, *rest = [*new, *alike][: self.config.alternatives]
        return [first, *sorted(rest, key=lambda answer: -answer.logprob)]

    @torch.no_grad()
    def judge(self, row: Row, text: str) -> TargetText:
        """A text as the translation of a source, with its log-probability."""
        tokens, end = [*spell_word(self.kit, text)[-1]], sorted(self.kit.stops)[:1]
        _, log = self.follow(row, tokens)
        logprob = sum(float(log[n, token]) for n, token in enumerate([*tokens, *end]))
        return TargetText(text, logprob, [*tokens, *end])

    def follow(self, row: Row, tokens: list[int]) -> tuple[Batch, Tensor]:
        """(The source as a batch, log-probabilities (n + 1, V) of what comes after each token)."""
        batch = self.batch(row)
        scores = self.kit.run_batch(extend(batch, [tokens]), None, self.strict)
        return batch, after_each(scores, batch, len(tokens))

    def batch(self, row: Row) -> Batch:
        """One source."""
        return self.kit.batch([list(row)])

    def limit(self, row: Row) -> int:
        """The most new tokens of a row: no more than the decoder has positions for."""
        wanted = len(row) + 50 if self.config.max_new is None else self.config.max_new
        return wanted if self.kit.room is None else min(wanted, self.kit.room - 1)

    # Words --------------------------------------------------------------------------------------

    def joins(self, last: int, token: int) -> bool:
        """Whether a token goes on with the word or number of the one before."""
        before, after = self.kit.text([last]), self.kit.text([last, token])
        return bool(re.match(r"\w|[.,:]\d", after[len(before) :])) and before[-1:].isalnum()


def bans(banned: Phrases) -> list[Process]:
    """The rule that no banned phrase is written, if there is any."""
    return [ban_phrases(sorted(banned))] if banned else []
