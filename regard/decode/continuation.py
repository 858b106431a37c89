"""Continuations: texts that a model goes on with, greedily, by drawing or by beam search."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from regard.ambient import note
from regard.data.statistics import check_finite
from regard.decode import constraints
from regard.decode.alternatives import extend
from regard.decode.beam import BeamConfig
from regard.decode.constraints import StopText
from regard.decode.exhaustive import exhaustive
from regard.decode.loop import search_kit
from regard.decode.prompt import prompt_ids
from regard.decode.results import Continuation, Generation, SearchCost
from regard.decode.sampling import Ends, SampleConfig
from regard.decode.step import Hypothesis, Process, without_end
from regard.errors import DataError, RegardError
from regard.model.batch import Batch

if TYPE_CHECKING:
    from regard.kit import Kit

DOING = "generating"
NONE = frozenset[tuple[int, ...]]()
ROWS = 256  # sequences that exhaustive search runs at once


@dataclass(frozen=True)
class Writer:
    """A model and how it is to go on with texts."""

    kit: Kit
    how: SampleConfig | BeamConfig | None
    """None is greedy."""
    max_new: int
    min_new: int = 0
    no_repeat: int | None = None
    ban: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    search: Literal["exhaustive"] | None = None
    """Score every sequence, for tiny vocabularies."""
    strict: bool | None = None
    watch: Callable[[str], None] | None = None
    """Told of each new stretch of text while one prompt is gone on with."""

    def write(
        self, prompts: Sequence[str], first: int = 0, banned: frozenset[tuple[int, ...]] = NONE
    ) -> list[Generation]:
        """The continuation of each prompt; the first of them is number `first` of all."""
        kit, how, begun = self.kit, self.how, time.perf_counter()
        batch, limits = self.read_prompts(prompts, first)
        if isinstance(how, SampleConfig):
            how = replace(how, first=first)
        stop = StopText(kit.decode_text, self.stop) if self.stop else None
        stream = None if self.watch is None else TextStream(kit, batch, stop, self.watch)
        banned |= {phrase for word in self.ban for phrase in constraints.spell_word(kit, word)}
        rules: list[Process] = [constraints.ban_phrases(sorted(banned))] if banned else []
        rules += [constraints.no_repeat(self.no_repeat)] if self.no_repeat else []
        rules += [constraints.at_least(self.min_new, kit.stops)] if self.min_new else []
        # Which `Ends` cannot do in the middle of a beam.
        forced = isinstance(how, BeamConfig) and bool(kit.stops)
        rules += [constraints.end_after(stop, kit.stops)] if forced and stop is not None else []
        if self.search:
            assert isinstance(how, BeamConfig)
            answers = [search_all(kit, batch, limits[0], how)]
        else:
            ends = Ends(kit.stops, stop, stream)
            answers = search_kit(kit, batch, limits, how, ends, rules, strict=self.strict)
        if not all(answers):
            wrong = "no answer" if rules else "no answer: the scores of the model are no numbers"
            raise RegardError(DOING, wrong, fix="loosen the constraints" if rules else "")
        seconds = (time.perf_counter() - begun) / len(prompts)
        generations = []
        for row, hypotheses in enumerate(answers):
            runs = (constraints.find_words(kit, h.tokens, self.ban) for h in hypotheses)
            again = set(chain.from_iterable(runs))
            if again - banned:  # another cut of a banned word; alone, so that no neighbour matters
                generations += self.write([prompts[row]], first + row, banned | again)
                continue
            listed = list[Continuation]()
            for h in hypotheses:
                check_finite(DOING, [h.logprob])
                if forced and stop is not None and stop(h.tokens[:-1]):
                    h = replace(h, tokens=h.tokens[:-1])  # the end that the rule put there
                text = continue_text(kit, batch, row, h.tokens)
                text = text if stop is None else stop.cut(text)
                listed.append(Continuation(text, h.logprob, h.score, h.finished, h.tokens))
            best = listed[0]
            if stream is not None:
                stream.show(best.text)
            several = listed if isinstance(how, BeamConfig) and how.count > 1 else []
            cost = SearchCost(count_read(batch, row), len(best.tokens), seconds)
            figures = best.tokens, best.text, best.logprob, best.finished, cost, several
            generations.append(Generation(*figures, stream is not None))
        return generations

    def read_prompts(self, prompts: Sequence[str], first: int) -> tuple[Batch, list[int]]:
        """A batch, and how many tokens may follow in each row."""
        kit, most, room = self.kit, self.max_new, self.kit.room
        if kit.model.config.target is not None:
            limit = most if room is None else min(most, room - 1)
            return kit.batch(prompts), [limit] * len(prompts)
        rows = [prompt_ids(kit.text_tokenizer, text) for text in prompts]
        limits = [most if room is None else min(most, room - len(row)) for row in rows]
        for number, (row, limit) in enumerate(zip(rows, limits, strict=True), first + 1):
            if limit < 1:
                wrong = f"{len(row)} tokens in prompt {number}"
                raise DataError(DOING, wrong, f"fewer than {room}, the positions of this model")
            if limit < most:
                note(f"prompt {number}: {limit} new tokens at most, of {room} positions in all")
        return kit.batch(rows), limits


def count_read(batch: Batch, row: int) -> int:
    """Tokens of a row's prompt, or of its source."""
    real = batch.mask if batch.target is None else batch.source_mask
    return batch.inputs.shape[1] if real is None else int(real[row].sum())


def continue_text(kit: Kit, batch: Batch, row: int, new: list[int]) -> str:
    """The text of new ids as it stands after the old ones, its leading space kept."""
    if batch.target is not None:
        return kit.text(new)
    ids = batch.ids[row] if batch.mask is None else batch.ids[row][batch.mask[row]]
    before, new = ids.tolist(), without_end(new, kit.stops)
    start, whole = kit.decode_text(before), kit.decode_text(before + new)
    return whole[len(start) :] if whole.startswith(start) else kit.decode_text(new)


def search_all(kit: Kit, batch: Batch, limit: int, how: BeamConfig) -> list[Hypothesis]:
    """The likeliest of all sequences that can follow one prompt."""

    def log_probs(prefixes: Tensor) -> Tensor:
        scores = []
        for rows in prefixes.split(ROWS):
            longer = extend(batch, rows.tolist()) if rows.shape[1] else batch
            scores.append(kit.run_batch(longer)[:, -1])
        return torch.cat(scores).float().log_softmax(-1)

    size = kit.model.config.head.size
    assert size is not None  # it writes tokens
    return exhaustive(log_probs, size, limit, kit.stops, how.count, how.penalty)


class TextStream:
    """Tells text as it comes; holds back what may still change or be a stop string."""

    def __init__(
        self, kit: Kit, batch: Batch, stop: StopText | None, tell: Callable[[str], None]
    ) -> None:
        self.kit, self.batch, self.stop, self.tell = kit, batch, stop, tell
        self.tokens: list[int] = []
        self.told = 0

    def __call__(self, row: int, token: int) -> None:
        """One more token."""
        self.tokens.append(token)
        text = continue_text(self.kit, self.batch, row, self.tokens)
        # At the end may stand half a character, or the beginning of a stop string.
        half = len(text) - len(text.rstrip("\ufffd"))
        starts = self.stop.strings if self.stop else []
        lengths = (n for stop in starts for n in range(1, len(stop) + 1) if text.endswith(stop[:n]))
        self.show(text[: len(text) - max([half, *lengths])])

    def show(self, text: str) -> None:
        """Tell what is new."""
        self.tell(text[self.told :])
        self.told = max(self.told, len(text))
