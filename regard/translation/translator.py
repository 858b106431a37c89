"""Translator: texts of any length, cut into sentences, searched in batches, mended and joined.

A sentence is searched by beams, with words that must and must not be there. What a translation
lost, addresses, numbers, words that exist, is searched for again.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, cached_property
from itertools import islice, takewhile
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from regard.data.sentences import trim
from regard.decode.alternatives import alternatives, extend
from regard.decode.beam import BeamConfig, length_penalty
from regard.decode.constraints import LexicalSearch, ban_phrases, begin_with, find_words, spell_word
from regard.decode.loop import search_kit
from regard.decode.ranking import Scored
from regard.decode.sampling import Ends
from regard.decode.step import Hypothesis, Process, read_sources, without_end
from regard.errors import UsageError
from regard.interop.side import parse
from regard.model.batch import Batch
from regard.model.model import Memory
from regard.translation.config import DOING, TranslateConfig
from regard.translation.dictionary import (
    ENTRIES_FILE,
    FORMS_FILE,
    RULES_FILE,
    Dictionary,
    Entry,
    holds,
    in_turn,
    write_hints,
)
from regard.translation.document import (
    Document,
    Part,
    Segment,
    TargetText,
    distinct,
    gap_before,
    join,
)
from regard.translation.explanation import (
    WordReading,
    align_config,
    explain_part,
    fit_words,
    look_across,
    read_words,
    token_spans,
    word_tokens,
)
from regard.translation.glossary import Glossary, lacks_terms, put_terms
from regard.translation.markup import put_marks
from regard.translation.memory import TranslationMemory
from regard.translation.normalise import tidy
from regard.translation.repair import WORD, coined_words, read_numbers
from regard.translation.results import OtherWord, TargetWord
from regard.translation.segment import Segmenter
from regard.translation.word_confidence import doubt_config

if TYPE_CHECKING:
    from regard.kit import Kit

ROWS = 64  # beams of a batch, about
TOKENS = 3000  # beams × source tokens of a batch, beams at least 2: a bound on its memory
SEARCHES = 3  # for words that exist
PIECES = 6  # tokens of a word at most
LOSS = 7.0  # of log-probability at most, for a word that exists
Row = Sequence[int]
Phrases = set[tuple[int, ...]]
Tell = Callable[[int, int], None]
"""Hears how many of how many sentences are done."""


class Translator:
    """A model, how it is to translate, and the worker pool that helps it, if any."""

    def __init__(self, kit: Kit, config: TranslateConfig) -> None:
        self.kit, self.config = kit, config
        self.workers: Callable[[Sequence[str], Tell | None], list[Document]] | None = None
        self.search = SentenceSearch(kit, config)
        self.glossary = Glossary(config.glossary, kit.files) if config.glossary else None
        self.segmenter, self.memory = Segmenter(kit), TranslationMemory(kit, config.memory)
        self.numbers, self.doubt = read_numbers(kit.files), doubt_config(kit.config)
        self.language = self.segmenter.language

    @cached_property
    def dictionary(self) -> Dictionary | None:
        """The folder's dictionary, for rare words; None where there is none."""
        files = self.kit.files
        if not {ENTRIES_FILE, FORMS_FILE} <= files.keys():
            return None
        counts, rules = self.memory.counts or {}, parse(files, RULES_FILE)
        return Dictionary(files[ENTRIES_FILE], files[FORMS_FILE], counts, rules)

    def entries(self, text: str) -> list[Entry]:
        """What the dictionary and the memory say of rare words and idioms of a text."""
        return self.dictionary.hints(text, self.memory.hints) if self.dictionary else []

    def translate(self, texts: Sequence[str], tell: Tell | None = None) -> list[Document]:
        """What becomes of each text, in order; `tell` hears how far the first search is.

        Segments of like length run together; the answers do not depend on it, nor on a worker pool.
        """
        if self.workers is not None:
            return self.workers(texts, tell)
        cut = [*map(self.cut, texts)]
        documents = self.translate_segments(texts, cut, tell)
        if not self.config.keeps_whole:
            anew = [*map(self.segmenter.cut_around_lost, texts, documents)]
            again = iter(self.translate_segments(texts, anew))
            documents = [next(again) or parts for parts in documents]
        flat = [part for parts in documents for part in parts]
        if not self.config.keeps_whole:
            flat = self.mend_numbers(self.hold_entries(flat))
        rest = (put_marks(self.kit, self.hold_terms(self.add_others(part))) for part in flat)
        documents = [[next(rest) for _ in parts] for parts in documents]
        return [
            Document(text, parts, join(text, parts, self.config.alternatives))
            for text, parts in zip(texts, documents, strict=True)
        ]

    def translate_segments(
        self, texts: Sequence[str], cut: Sequence[Sequence[Segment]], tell: Tell | None = None
    ) -> list[list[Part]]:
        """The segments of each text with their translations; those without tokens as they stand."""
        hinted = [[*map(self.hint, segments)] for segments in cut]
        read = [segment for segments in hinted for segment in segments if segment.ids]
        answered = iter(self.search_segments(read, tell))

        def copy(text: str, segment: Segment) -> Part:
            entry = self.memory.sentences.get(segment.text)
            copied = entry.target if entry else text[slice(*segment.span)]
            return Part(segment, [TargetText(copied, 0.0, [])])

        return [
            [next(answered) if segment.ids else copy(text, segment) for segment in segments]
            for text, segments in zip(texts, hinted, strict=True)
        ]

    def search_segments(self, segments: Sequence[Segment], tell: Tell | None = None) -> list[Part]:
        """Segments with the translation of their tokens, searched in batches, the longest first."""
        order = sorted(range(len(segments)), key=lambda n: -len(segments[n].ids))
        most, width = self.config.batch or max(1, ROWS // self.config.beams), self.config.beams
        parts: dict[int, Part] = {}
        while order:
            size = max(1, min(most, TOKENS // (max(2, width) * len(segments[order[0]].ids))))
            batch, order = order[:size], order[size:]
            answers = self.search.translate([segments[n].ids for n in batch])
            for n, answer in zip(batch, answers, strict=True):
                parts[n] = Part(segments[n], [segments[n].dress(answer)])
            if tell is not None:
                tell(len(parts), len(segments))
        return [parts[n] for n in range(len(segments))]

    def cut(self, text: str) -> list[Segment]:
        """The segments of a text; without tokens where they, or all of it, stand in the memory."""
        segments = self.segmenter.cut(text, self.config.keeps_whole)
        if self.config.keeps_whole or not self.memory.sentences:
            return segments
        if tidy(text) in self.memory.sentences:
            return [Segment(span, tidy(text), [], False) for span in trim(text, 0, len(text))]
        raw = [tidy(text[slice(*segment.span)]) for segment in segments]
        return [
            segment._replace(text=own, ids=[]) if own in self.memory.sentences else segment
            for segment, own in zip(segments, raw, strict=True)
        ]

    def hint(self, segment: Segment) -> Segment:
        """A segment with hints for its rare words, where the model was trained to read them."""
        wanted = segment.ids and self.kit.config.get("hints")
        return self.write(segment, self.entries(segment.text)) if wanted else segment

    def write(self, segment: Segment, entries: Sequence[Entry]) -> Segment:
        """A segment with hints of these entries."""
        if not entries:
            return segment
        ids = self.segmenter.tokenizer.encode(write_hints(segment.text, entries)[0])
        return segment._replace(ids=ids, entries=tuple(entries))

    def read(self, document: Document) -> Document:
        """A document with the words of its translation and the reasons, as far as asked for.

        With others for each word, and the whole text that goes on from them.
        """
        if not self.config.doubt:
            return document
        parts, words = document.parts, list[TargetWord]()
        gaps = [gap_before(document.text, parts, n) for n in range(len(parts))]
        best = [part.translations[0].text for part in parts]
        pieces = [gap + text for gap, text in zip(gaps, best, strict=True)]
        readings = [read_words(self.kit, part, self.doubt) for part in parts]
        for n, (part, reading) in enumerate(zip(parts, readings, strict=True)):
            own = reading.words
            if self.config.words and part.segment.ids:
                around = "".join(pieces[:n]) + gaps[n], "".join(pieces[n + 1 :])
                choices = zip(own, self.search.other_words(part, reading, *around), strict=True)
                own = [replace(word, alternatives=others) for word, others in choices]
            words += fit_words(best[n], own)
        both = zip(parts, readings, strict=True)
        reasons = [explain_part(self, *each) for each in both] if self.config.explain else None
        return document._replace(words=words, reasons=reasons)

    # Mending ------------------------------------------------------------------------------------

    def hold_entries(self, parts: Sequence[Part]) -> list[Part]:
        """Parts whose translations have a word of each hint, as far as they can be had.

        Where one has none, the hint's translations are tried one by one, then firmly. Of those that
        the model then writes that one is taken which is likeliest without hints: its form fits.
        """
        held = list(parts)
        for firm in (False, True):
            tries = [
                (n, hinted)
                for n, (segment, _) in enumerate(parts)
                for entries in in_turn(segment.entries, held[n].translations[0].text, firm)
                if (hinted := self.write(segment, entries)).ids != segment.ids  # was read already
            ]
            answered = self.search_segments([hinted for _, hinted in tries])
            written = defaultdict[int, list[Part]](list)
            for (n, _), part in zip(tries, answered, strict=True):
                if said(parts[n], part) > said(parts[n], held[n]):
                    written[n].append(part)
            for n, several in written.items():
                held[n] = several[0] if len(several) == 1 else self.fittest(parts[n], several)
        return held

    def fittest(self, part: Part, several: Sequence[Part]) -> Part:
        """Of translations with most words of the hints the one that is likeliest without hints."""
        row = self.segmenter.tokenizer.encode(part.segment.text)

        def rank(other: Part) -> tuple[int, float]:
            return said(part, other), self.search.judge(row, other.translations[0].text).logprob

        return max(several, key=rank)

    def mend_numbers(self, parts: Sequence[Part]) -> list[Part]:
        """Parts whose translations have the numbers of the source, as far as they can be had.

        Each digit is a token: long numbers come out short of one now and then, or with one too
        many; numbers in words come out as others. Then the source is read once more with digits for
        words, and 14:30 for 14 h 30; what is still wrong is put right in its place; where none is
        like it, a search is for it.
        """
        numbers = self.numbers
        if numbers is None:
            return list(parts)

        def lost(n: int, part: Part) -> list[str]:
            return numbers.find_lost(sources[n], part.translations[0].text)

        sources = [part.segment.text for part in parts]
        lacking = [lost(n, part) if part.segment.ids else [] for n, part in enumerate(parts)]
        mended, again = list(parts), dict[int, Segment]()
        for n, (segment, _) in enumerate(parts):
            text = numbers.reread(sources[n]) if lacking[n] else sources[n]
            if text != sources[n] and not segment.marks:  # these stand at places of its text
                ids = self.segmenter.tokenizer.encode(text)
                again[n] = segment._replace(text=text, ids=ids, entries=())
        for n, part in zip(again, self.search_segments([*again.values()]), strict=True):
            if len(words := lost(n, part)) < len(lacking[n]):
                mended[n], lacking[n] = part, words
        for n, (segment, (best, *_)) in enumerate(mended):
            right = numbers.put_right(sources[n], best.text) if lacking[n] else ""
            text = numbers.polish(sources[n], right or best.text) if segment.ids else best.text
            with suppress(UsageError):  # perhaps it cannot be had
                if text != best.text and not segment.raised:
                    answer = self.search.judge(segment.ids, text)
                    looked = self.search.look([segment.ids], [answer])
                    mended[n] = Part(segment, [*map(segment.dress, looked)])
                elif lacking[n]:
                    # A beam of 1 is one for each digit that is there: five times as quick as 4, and
                    # as good.
                    wish = replace(self.config, must=(*self.config.must, *lacking[n]), beams=1)
                    search = SentenceSearch(self.kit, wish)
                    new = Part(segment, [segment.dress(*search.translate([segment.ids]))])
                    mended[n] = new if len(lost(n, new)) < len(lacking[n]) else mended[n]
        return mended

    def add_others(self, part: Part) -> Part:
        """A part with other translations after the first, none likelier and none with new words."""
        segment, (best, *_) = part
        if segment.ids and self.config.alternatives > 1:
            with suppress(UsageError):  # there may be none
                others = map(segment.dress, self.search.others(segment.ids, best))
                return Part(segment, distinct([best, *others])[: self.config.alternatives])
        return part

    def hold_terms(self, part: Part) -> Part:
        """A part whose translations hold the terms of the glossary, as far as they can be had."""
        segment, answers = part
        if self.glossary is None or not segment.ids:
            return part
        terms, held = self.glossary.find(segment.text), [*answers]
        for n, answer in enumerate(answers):
            if lacks_terms(answer.text, terms):
                text = self.kit.text(answer.tokens)
                with suppress(UsageError):
                    better = put_terms(self.search, self.glossary, segment, terms, text)
                    held[n] = segment.dress(*self.search.look([segment.ids], [better]))
        return Part(segment, distinct(held))


class SentenceSearch:
    """Beam search whose answers begin as wished, hold some words and lack others."""

    def __init__(self, kit: Kit, config: TranslateConfig) -> None:
        self.kit, self.config, self.strict = kit, config, config.strict
        self.must = [spell_word(kit, word)[0] for word in config.must]
        self.ban = {phrase for word in config.ban for phrase in spell_word(kit, word)}
        self.begin = list(spell_word(kit, config.begin)[-1]) if config.begin else []
        self.beam = BeamConfig(config.beams, 1, length_penalty("gnmt", config.alpha))
        self.encoded: dict[tuple[int, ...], Tensor] = {}  # sources that a search in C has read

    @torch.no_grad()
    def translate(self, rows: Sequence[Row]) -> list[TargetText]:
        """The translation of each source."""
        hypotheses = [row[0] for row in self.search(rows, self.ban, self.beam)]
        read = zip(map(tuple, rows), hypotheses, strict=True)
        self.encoded = {row: h.memory for row, h in read if h.memory is not None}
        answers = [*map(self.text, hypotheses)]
        if not (self.config.keeps_whole or self.kit.written is None):
            changed: Collection[int] = range(len(rows))
            for _ in range(SEARCHES):
                before, answers = answers, self.replace_coined(rows, answers, changed)
                changed = [n for n, answer in enumerate(answers) if answer is not before[n]]
        return self.look(rows, answers)

    def memory(self, rows: Sequence[Row]) -> Memory | None:
        """What the encoder made of sources, where it is known or they can be read apart."""
        batch = self.kit.batch([list(row) for row in rows])
        known = [x for row in rows if (x := self.encoded.get(tuple(row))) is not None]
        if len(known) == len(rows):
            return Memory(pad_sequence(known, True), batch.source_mask)
        return None if self.must or self.strict else read_sources(self.kit.model, batch)

    def text(self, found: Hypothesis) -> TargetText:
        """A hypothesis as text."""
        attention = found.attention
        if attention is not None:
            attention = attention[: len(without_end(found.tokens, self.kit.stops))]
        noted = (found.logprob, found.tokens, found.logprobs, attention)
        return TargetText(self.kit.text(found.tokens), *noted)

    def look(self, rows: Sequence[Row], answers: Sequence[TargetText]) -> list[TargetText]:
        """Answers, with what each of their tokens saw where that is asked for."""
        looked = list(answers)
        unseen = [n for n, answer in enumerate(answers) if answer.attention is None]
        if self.config.doubt and unseen:
            written = [without_end(answers[n].tokens, self.kit.stops) for n in unseen]
            sources, block = [rows[n] for n in unseen], align_config(self.kit.config).block
            patterns = look_across(self.kit, sources, written, self.memory(sources), block)
            for n, seen in zip(unseen, patterns, strict=True):
                noted = answers[n].logprobs or self.score(rows[n], answers[n].tokens)
                attention = seen[0] if seen else None
                looked[n] = answers[n]._replace(logprobs=noted, attention=attention)
        return looked

    def coined(self, row: Row, text: str) -> list[str]:
        """The words of a translation that neither training nor its source ever wrote."""
        written = self.kit.written
        if written is None or not coined_words("", text, written):  # as most often
            return []
        return coined_words(self.kit.text_tokenizer.decode(list(row), side="source"), text, written)

    def replace_coined(
        self, rows: Sequence[Row], answers: Sequence[TargetText], which: Collection[int]
    ) -> list[TargetText]:
        """Translations, of which some get another word for the first that is made up.

        Pieces of words can be put together to words that nobody says: entarté → entarted. From its
        last piece, its middle or its first another one is taken; what stands around it stays. The
        likeliest of these translations is the answer, if it has fewer such words and is not far
        less likely: many a name was never seen.
        """
        kit, turns = self.kit, list[tuple[int, int, range]]()  # answer, place, the word's tokens
        coined = {n: self.coined(rows[n], answers[n].text) for n in which}
        for n, words in coined.items():
            tokens = answers[n].tokens
            if words and len(tokens) + PIECES < (kit.room or torch.inf):
                text, spans = token_spans(kit, tokens)
                start, end = next(m.span() for m in WORD.finditer(text) if m[0] == words[0])
                own = [t for t, (a, b) in enumerate(spans) if a < end and b > start]
                places = {own[0], own[len(own) // 2], own[-1]}
                turns += [(n, place, range(own[0], own[-1] + 1)) for place in sorted(places)]
        if not turns:
            return list(answers)
        begin = kit.batch([list(rows[0])]).ids[0].tolist()
        sources = [list(rows[n]) for n, _, _ in turns]
        old = torch.tensor([[answers[n].tokens[place]] for n, place, _ in turns])

        def another(logits: Tensor, history: Tensor) -> Tensor:
            first = history.shape[1] == 0
            return logits.scatter(1, old.to(logits.device), -torch.inf) if first else logits

        def ended(word: list[int]) -> bool:
            return len(word) > 1 and not kit.token_text(word[-1])[:1].isalnum()

        batch = kit.batch(sources, [[*begin, *answers[n].tokens[:place]] for n, place, _ in turns])
        how = (PIECES, None, Ends(kit.stops, ended), [another, *bans(self.ban)])
        pieces = search_kit(kit, batch, *how, strict=self.strict, memory=self.memory(sources))
        changed = list[tuple[int, int, list[int], int]]()  # answer, place, tokens, made-up words
        for (n, place, whole), (word,) in zip(turns, pieces, strict=True):
            first = place == whole.start  # its own blank does not end a word
            new = takewhile(lambda t: kit.token_text(t)[:1].isalnum(), word.tokens[first:])
            tokens = answers[n].tokens
            tokens = [*tokens[:place], *word.tokens[:first], *new, *tokens[whole.stop :]]
            left = len(self.coined(rows[n], kit.text(tokens)))
            if left < len(coined[n]):
                changed.append((n, place, tokens, left))
        if not changed:
            return list(answers)
        sources = [list(rows[n]) for n, *_ in changed]
        batch = kit.batch(sources, [[*begin, *row[:-1]] for _, _, row, _ in changed])
        memory = self.memory(sources)
        spots = [(m, t) for m, (_, at, row, _) in enumerate(changed) for t in range(at, len(row))]
        at, ids = torch.tensor(spots).T, torch.tensor([[changed[m][2][t]] for m, t in spots])
        if memory is None:
            logits = kit.run_batch(batch, None, self.strict)[*at]
        else:
            x = kit.model.decode(batch, memory)[*at]
            logits = kit.model.score(x[:, None])[:, 0]  # (spots, V)
        log = iter(Scored(logits.float()).logprob(ids.to(logits.device))[:, 0].tolist())
        mended, best = list(answers), dict[int, tuple[int, float]]()
        for n, place, tokens, left in changed:
            logprobs = [*answers[n].logprobs[:place], *islice(log, len(tokens) - place)]
            answer = TargetText(kit.text(tokens), sum(logprobs), tokens, logprobs)
            rank = left, -answer.logprob / self.beam.penalty(len(tokens))
            near = answer.logprob > answers[n].logprob - LOSS
            if near and rank < best.get(n, (left + 1, 0.0)):
                mended[n], best[n] = answer, rank
        return mended

    def search(
        self, rows: Sequence[Row], banned: Phrases, beam: BeamConfig
    ) -> list[list[Hypothesis]]:
        """Hypotheses of each row, at least one."""
        limits = [self.limit(row) for row in rows]
        if len(self.begin) > min(limits):
            wrong = f"a beginning of {len(self.begin)} tokens, and at most {min(limits)} in all"
            raise UsageError(DOING, wrong, "room for it", "a shorter beginning, a larger limit")
        rules = [*([begin_with(self.begin)] if self.begin else []), *bans(banned)]
        if self.must:
            how = LexicalSearch(beam, self.kit.stops, self.must, cache(self.joins), rules)
            hypotheses = [
                search_kit(self.kit, self.kit.batch([list(row)]), limit, how, strict=self.strict)[0]
                for row, limit in zip(rows, limits, strict=True)
            ]
        else:
            hypotheses = search_kit(
                self.kit,
                self.kit.batch([list(row) for row in rows]),
                limits,
                # A beam of one would go on after the end for a better score; it is greedy instead.
                None if beam.width == 1 and not rules else beam,
                processes=rules,
                strict=self.strict,
                shortlist=self.config.shortlist and not rules,
                block=align_config(self.kit.config).block if self.config.doubt else None,
            )
        for n, row in enumerate(hypotheses):
            again = {
                span for h in row for span in find_words(self.kit, h.tokens, self.config.ban)
            } - banned
            if again:  # another cut of a banned word; alone, so that no neighbour matters
                hypotheses[n] = self.search([rows[n]], banned | again, beam)[0]
            elif not row:
                wanted = f"at most {limits[n]} tokens with what must and must not be there"
                raise UsageError(DOING, f"no answer to text {n + 1}", wanted, "ask for less")
        return hypotheses

    def others(self, row: Row, best: TargetText) -> list[TargetText]:
        """Other translations, the likeliest first and none likelier than the best.

        They leave the best one at one place and go on as is likeliest from there. Where these are
        too few, a wider beam has more.
        """
        hypotheses = [] if self.must else self.branch(row, best.tokens)
        answers = self.distinct(row, best, hypotheses)
        if len(answers) < self.config.alternatives - 1:
            width = max(self.config.beams, 2 * self.config.alternatives)
            width = min(width, self.kit.model.config.head.size or width)
            wide = self.search([row], self.ban, replace(self.beam, width=width, count=width))[0]
            answers = self.distinct(row, best, [*hypotheses, *wide])
        return answers

    @torch.no_grad()
    def branch(self, row: Row, written: Row) -> list[Hypothesis]:
        """Answers that leave the best one where another word is nearly as likely, best first.

        Diverse beams (Vijayakumar 2018) were tried: they punish the end of a sentence too, and
        go on after its full stop.
        """
        stops, limit = self.kit.stops, self.limit(row)
        tokens = without_end(written, stops)
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
        return [
            h
            for place, answers in zip(places, hypotheses, strict=True)
            for h in answers
            if h.tokens[place] not in stops
            and not any(find_words(self.kit, h.tokens, self.config.ban))
        ]

    @torch.no_grad()
    def other_words(
        self, part: Part, reading: WordReading, before: str, after: str
    ) -> list[list[OtherWord]]:
        """For each word of a sentence's translation as many others as there are alternatives.

        `before` and `after` are what stands around the sentence in the whole text.
        """
        kit, count, row = self.kit, self.config.alternatives, part.segment.ids
        restore = part.segment.restore
        tokens = without_end(part.translations[0].tokens, kit.stops)
        places = [start for start, end in reading.tokens if end]
        if not places:
            return [[] for _ in reading.words]
        batch, log = self.follow(row, tokens)
        at = (batch, log, tokens, places, self.limit(row), count + 1)
        branched = iter(alternatives(kit, *at, processes=bans(self.ban), strict=self.strict))
        listed = []
        for word, (start, end) in zip(reading.words, reading.tokens, strict=True):
            others: dict[str, OtherWord] = {}
            for branch in next(branched) if end else ():
                text, spans = token_spans(kit, without_end(branch.tokens, kit.stops))
                whole = " ".join(text.split())
                for (a, b), (first, stop) in zip(*word_tokens(text, spans), strict=True):
                    if first == start and stop and text[a:b] != word.text:
                        other = text[a:b]
                        probability = math.exp(sum(branch.logprobs[start:stop]))
                        ending = restore(other, whole.endswith(other))
                        translation = f"{before}{restore(whole)}{after}"
                        others.setdefault(other, OtherWord(ending, probability, translation))
            listed.append(sorted(others.values(), key=lambda other: -other.probability)[:count])
        return listed

    def distinct(
        self, row: Row, best: TargetText, hypotheses: Iterable[Hypothesis]
    ) -> list[TargetText]:
        """The likeliest that have other words than the best: not other stops or capitals alone.

        Two cuts into tokens may spell the same text, which is there once. Those with made-up words
        are left out, and those that are likelier than the best, which the search ranks by its
        length too.
        """
        heard, new = {spoken(best.text)}, list[TargetText]()
        for answer in sorted(map(self.text, hypotheses), key=lambda answer: -answer.logprob):
            words = spoken(answer.text)
            if answer.logprob <= best.logprob and words not in heard:
                if not self.coined(row, answer.text):
                    heard.add(words)
                    new.append(answer)
        return new

    @torch.no_grad()
    def judge(self, row: Row, text: str) -> TargetText:
        """A text as the translation of a source, with its log-probability."""
        tokens = [*spell_word(self.kit, text)[-1], *sorted(self.kit.stops)[:1]]
        logprobs = self.score(row, tokens)
        return TargetText(text, sum(logprobs), tokens, logprobs)

    def score(self, row: Row, tokens: list[int]) -> list[float]:
        """The log-probability of each token of a translation."""
        _, log = self.follow(row, tokens)
        return [float(log[n, token]) for n, token in enumerate(tokens)]

    def follow(self, row: Row, tokens: list[int]) -> tuple[Batch, Tensor]:
        """(The source as a batch, log-probabilities (n + 1, V) of what comes after each token)."""
        batch = self.kit.batch([list(row)])
        scores = self.kit.run_batch(extend(batch, [tokens]), None, self.strict)
        return batch, scores[0, batch.ids.shape[1] - 1 :].float().log_softmax(-1)

    def limit(self, row: Row) -> int:
        """The most new tokens of a row: no more than the decoder has positions for."""
        wanted = len(row) + 50 if self.config.max_new is None else self.config.max_new
        return wanted if self.kit.room is None else min(wanted, self.kit.room - 1)

    # Words --------------------------------------------------------------------------------------

    def joins(self, last: int, token: int) -> bool:
        """Whether a token goes on with the word or number of the one before."""
        before, after = self.kit.text([last]), self.kit.text([last, token])
        return bool(re.match(r"\w|[.,:]\d", after[len(before) :])) and before[-1:].isalnum()


def spoken(text: str) -> str:
    """The words of a text alone, so that two texts with the same ones are alike."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def bans(banned: Phrases) -> list[Process]:
    """The rule that no banned phrase is written, if there is any."""
    return [ban_phrases(sorted(banned))] if banned else []


def said(asked: Part, answered: Part) -> int:
    """Of how many hints of a part the translation of another has a word."""
    return sum(holds(answered.translations[0].text, entry) for entry in asked.segment.entries)
