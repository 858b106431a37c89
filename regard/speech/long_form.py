"""Whisper's long form (Radford et al. 2022): windows of sound, each written by the usual search.

Sound that fits one window is written without time tokens, as transformers does. Longer sound is
written with them, and the next window begins where the last whole segment ended. A text that
repeats itself or is hardly likely is drawn again at higher temperatures; a window in which the
model hears nobody has no text.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.ambient import current, track
from regard.core.cache import Cache
from regard.data.sentences import sentence_spans
from regard.data.sound import HOP, RATE, log_mel, log_power, read_sound, scale_power
from regard.decode.constraints import NEVER, ban
from regard.decode.sampling import Ends, SampleConfig
from regard.decode.step import Hypothesis, Process, without_end
from regard.errors import DataError, UsageError, did_you_mean
from regard.interop.side import parse, whole_number
from regard.loading import wrong_network
from regard.model.batch import Batch
from regard.model.config import AudioConfig
from regard.model.model import Memory
from regard.result import Failed
from regard.speech.results import SpokenSegment, SpokenWord, Transcript
from regard.speech.time_warping import split_words, time_tokens

if TYPE_CHECKING:
    from regard.kit import Kit

TOGETHER = 8  # files whose windows are written in one batch
TEMPERATURES = (0.2, 0.4, 0.6, 0.8, 1.0)
REPEATED = 2.4  # times that a text is longer than its compressed form
LIKELY, HARDLY = -1.0, -1.5  # natural logs of a token's probability, in the mean
SILENT, QUIET = 0.6, 0.4  # probability that nobody speaks: enough; enough for an unlikely text
UNSPACED = ("zh", "ja", "th", "lo", "my", "yue")  # languages that write no blanks


@dataclass(eq=False)
class Recording:
    """A sound on its way, and what was written of it."""

    file: str
    samples: Tensor  # at 16 kHz
    frames: int  # that hold sound
    peak: float | None  # of the powers, where it is longer than a window
    language: str | None
    seek: int = 0
    text: str = ""
    segments: list[SpokenSegment] = field(default_factory=list)
    words: list[SpokenWord] = field(default_factory=list)

    def time(self, moment: int) -> float:
        """Seconds from the beginning, of a vector of the encoder in the window."""
        return round(min(self.seek + 2 * int(moment), self.frames) * HOP / RATE, 2)


class Transcriber:
    """A Whisper model that listens."""

    def __init__(self, kit: Kit, language: str | None, task: str) -> None:
        settings, front = parse(kit.files, "generation_config.json"), kit.model.config.front
        if not isinstance(front, AudioConfig) or kit.model.decoder is None:
            raise wrong_network("transcribing", kit, "a Whisper model, or one that writes letters")
        self.kit, self.start, self.end = kit, kit.start, min(kit.stops)
        self.window, self.mels = 2 * front.length, front.mels
        key, known = "no_timestamps_token_id", settings.get("lang_to_id") or {}
        self.no_times, self.room = whole_number(settings.get(key), key), kit.room or 448
        self.languages = {name.strip("<|>"): int(id) for name, id in known.items()}
        self.task = (settings.get("task_to_id") or {}).get(task)
        if language is not None and language not in (self.languages or ("en",)):
            fix = did_you_mean(language, self.languages)
            raise UsageError("transcribing", f"language {language!r}", "a code it knows", fix)
        if task == "translate" and not self.languages:
            raise UsageError("translating speech", "a model of one language", "one of many")
        self.language = language if self.languages else "en"
        latest = settings.get("max_initial_timestamp_index")
        self.latest = front.length if latest is None else int(latest)
        self.limit = int(settings.get("max_length") or self.room)
        begin = ban(settings.get("begin_suppress_tokens") or ())
        self.rules: list[Process] = [
            lambda logits, history: logits if history.shape[1] else begin(logits, history),
            ban(settings.get("suppress_tokens") or ()),
        ]

    def run(
        self, files: Sequence[str | Path], raw: tuple[int, str] | None
    ) -> Iterator[Transcript | Failed]:
        """A transcript of each file in order; one that cannot be read is a `Failed`."""
        for place in track(range(0, len(files), TOGETHER), "transcribing"):
            group = [self.open(file, raw) for file in files[place : place + TOGETHER]]
            rest = [each for each in group if isinstance(each, Recording)]
            while rest := [each for each in rest if each.seek < each.frames]:
                for long in (False, True):
                    if rows := [each for each in rest if (each.peak is not None) is long]:
                        self.listen(rows, long)
            for each in group:
                if isinstance(each, Failed):
                    yield each
                    continue
                about = each.file, each.text.strip(), each.language or "", each.frames * HOP / RATE
                yield Transcript(*about, each.segments, each.words)

    def open(self, file: str | Path, raw: tuple[int, str] | None) -> Recording | Failed:
        """A file as the model reads it."""
        try:
            samples = read_sound(file, raw)
        except DataError as error:
            return Failed(error)
        frames, peak = -(-len(samples) // HOP), None
        if frames > self.window:
            frames = len(samples) // HOP
            parts = (self.power(samples, begin, frames) for begin in range(0, frames, self.window))
            peak = max(float(part.max()) for part in parts)
        return Recording(str(file), samples, frames, peak, self.language)

    def power(self, samples: Tensor, begin: int, frames: int) -> Tensor:
        """Of the window that begins at a frame, as far as there is sound."""
        return log_power(samples, self.mels, begin, min(begin + self.window, frames))

    def picture(self, row: Recording) -> Tensor:
        """What the model reads of the next window: (mels, frames)."""
        if row.peak is None:
            return log_mel(row.samples, mels=self.mels, frames=self.window)
        part = scale_power(self.power(row.samples, row.seek, row.frames), row.peak)
        return F.pad(part, (0, self.window - part.shape[1]))

    @torch.inference_mode()
    def listen(self, rows: list[Recording], times: bool) -> None:
        """Write the next window of each recording, and go on to the one after it."""
        kit, model = self.kit, self.kit.model
        pictures = torch.stack([self.picture(row) for row in rows])
        cache = model.cache(len(rows), self.room)
        begun = kit.batch(pictures, [[self.start]] * len(rows))
        heard = [model.encode(Batch(each[None])).x for each in begun.inputs]
        cache.source = Memory(torch.cat(heard))
        first = model(begun, cache)[:, 0].float()
        silence = first.softmax(-1)[:, self.no_times - 1].tolist()
        prompts, spans = [], {}
        for row, scores in zip(rows, first, strict=True):
            if row.language is None:
                row.language = [*self.languages][int(scores[[*self.languages.values()]].argmax())]
            spoken = self.languages.get(row.language), self.task if self.languages else None
            wanted = [id for id in spoken if id is not None]
            prompts.append([self.start, *wanted, *([] if times else [self.no_times])])

        def write(numbers: list[int], how: SampleConfig | None = None) -> list[Hypothesis]:
            rules = self.rules + [time_pairs(self.no_times + 1, self.end, self.latest)] * times
            batch = kit.batch(pictures[numbers], [prompts[n] for n in numbers])
            limit = min(self.limit, self.room - batch.ids.shape[1])
            again = reread(cache, numbers)
            answers = kit.search(batch, limit, how, Ends(kit.stops), rules, cache=again)
            return [hypotheses[0] for hypotheses in answers]

        here = [n for n in range(len(rows)) if silence[n] <= SILENT]
        for n, hypothesis in zip(here, write(here) if here else (), strict=True):
            if silence[n] > QUIET and self.is_poor(hypothesis, LIKELY):
                continue
            for temperature in TEMPERATURES if self.is_poor(hypothesis, HARDLY) else ():
                (attempt,) = write([n], SampleConfig(temperature, seed=current().seed))
                if not self.is_poor(attempt, HARDLY):
                    hypothesis = attempt
                    break
            tokens = without_end(hypothesis.tokens, kit.stops)
            frames = min(self.window, rows[n].frames - rows[n].seek)
            spans[n] = split_segments(tokens, self.no_times + 1, frames)
            text = [t for _, _, part in spans[n][0] for t in part if t < self.end]
            if text:
                prompt = [*prompts[n], self.no_times] if times else prompts[n]
                target, size = [*prompt, *text, self.end][: self.room], -(-frames // 2)
                places = slice(len(prompt) - 1, len(prompt) + len(text))
                at = time_tokens(kit, reread(cache, [n]), target, places, size)
                self.note(rows[n], text, at, spans[n][0])
        for n, row in enumerate(rows):
            row.seek += spans[n][1] if n in spans else self.window

    def is_poor(self, hypothesis: Hypothesis, least: float) -> bool:
        """Whether a text repeats itself, or its tokens are less likely than that in the mean."""
        tokens = hypothesis.tokens
        text = self.kit.text([t for t in tokens if t < self.end]).encode()
        repeated = len(text) > REPEATED * len(zlib.compress(text))
        return repeated or hypothesis.logprob < least * len(tokens)

    def note(self, row: Recording, tokens: list[int], at: list[int], spans: list[Span]) -> None:
        """Add the words and segments of a window to what was said before."""
        words = split_words(self.kit, tokens, row.language not in UNSPACED)
        for word, begin, end in words:
            row.words.append(SpokenWord(word.strip(), row.time(at[begin]), row.time(at[end])))
        text = "".join(word for word, _, _ in words)
        row.text += text
        said = [(a, b, self.kit.text([t for t in part if t < self.end])) for a, b, part in spans]
        if row.peak is None:  # each sentence from its first word on
            ends = list(accumulate(len(word) for word, _, _ in words))
            said = []
            for start, stop in sentence_spans(text):
                inside = [n for n, end in enumerate(ends) if start < end <= stop] or [0]
                first, last = words[inside[0]], words[inside[-1]]
                said.append((at[first[1]], at[last[2]], text[start:stop]))
        for a, b, part in said:
            if part.strip():
                row.segments.append(SpokenSegment(row.time(a), row.time(b), part.strip()))


def reread(cache: Cache, rows: list[int]) -> Cache:
    """A cache for these rows that has read their sources, and nothing else."""
    twin = cache.copy()
    twin.shorten(0)
    twin.select(torch.tensor(rows, device=twin.lengths.device))
    return twin


def time_pairs(zero: int, end: int, latest: int) -> Process:
    """Time tokens, `zero` and what follows it, begin a text and stand in pairs that never go back.

    The first is at most `latest` steps after `zero`. Where all times together are likelier than any
    word, a time is written.
    """

    def process(logits: Tensor, history: Tensor) -> Tensor:
        ids, times = torch.arange(logits.shape[-1], device=logits.device), history >= zero
        if history.shape[1] == 0:
            return logits.masked_fill((ids < zero) | (ids > zero + latest), NEVER)
        last = times[:, -1:]
        open = last & ~times[:, -2:-1] if history.shape[1] > 1 else torch.zeros_like(last)
        least = torch.where(times, history, zero - 1).amax(1, keepdim=True) + ~open
        banned = (ids == zero - 1) | (last & ~open & (ids >= zero)) | (open & (ids < end))
        logits = logits.masked_fill(banned | ((ids >= zero) & (ids < least)), NEVER)
        sooner = logits[:, zero:].logsumexp(-1) > logits[:, :zero].amax(-1)
        return logits.masked_fill(sooner[:, None] & (ids < zero), NEVER)

    return process


Span = tuple[int, int, list[int]]
"""The first and last moment of a segment, and its tokens."""


def split_segments(tokens: list[int], zero: int, frames: int) -> tuple[list[Span], int]:
    """The segments of a window, and how many of its frames are done.

    Two times in a row end one segment and begin the next; what follows the last pair is heard
    again in the next window, unless the text ends with a time.
    """
    times = [token >= zero for token in tokens]
    cuts = [n + 1 for n in range(len(tokens) - 1) if times[n] and times[n + 1]]
    if not cuts:
        moments = [token - zero for token in tokens if token > zero]
        return [(0, moments[-1] if moments else -(-frames // 2), tokens)], frames
    whole = times[-2:] == [False, True]
    cuts += [len(tokens)] if whole else []
    parts = [tokens[a:b] for a, b in pairwise([0, *cuts])]
    done = frames if whole else 2 * (parts[-1][-1] - zero)
    return [(max(0, part[0] - zero), part[-1] - zero, part) for part in parts], done or frames
