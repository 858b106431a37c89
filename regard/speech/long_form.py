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
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.ambient import current, track
from regard.data.sentences import sentence_spans
from regard.data.sound import HOP, RATE, RawSound, log_mel, read_sound, resample
from regard.decode.constraints import NEVER, ban
from regard.decode.sampling import Ends, SampleConfig
from regard.decode.step import Hypothesis, Process, without_end
from regard.errors import DataError, UsageError, did_you_mean
from regard.interop.side import parse, start_id, whole_number
from regard.model.config import AudioConfig
from regard.model.model import Memory
from regard.result import Failed
from regard.speech.results import SpokenSegment, SpokenWord, Transcript
from regard.speech.time_warping import UNSPACED, TimedWord, split_words, time_words

if TYPE_CHECKING:
    from regard.kit import Kit

TOGETHER = 8  # files whose windows are written in one batch
MOMENT = 2 * HOP / RATE  # seconds of a vector of the encoder and of a time token
TEMPERATURES = (0.2, 0.4, 0.6, 0.8, 1.0)
REPEATED = 2.4  # times that a text is longer than its compressed form
LIKELY, HARDLY = -1.0, -1.5  # natural logs of a token's probability, in the mean
SILENT, QUIET = 0.6, 0.4  # probability that nobody speaks: enough; enough for an unlikely text


@dataclass(eq=False)
class Recording:
    """A sound on its way, and what was written of it."""

    name: str
    picture: Tensor  # (mels, frames)
    frames: int  # that hold sound
    long: bool
    language: str | None
    seek: int = 0
    segments: list[SpokenSegment] = field(default_factory=list)
    words: list[SpokenWord] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


class Transcriber:
    """A Whisper model that listens."""

    def __init__(self, kit: Kit, language: str | None, task: str) -> None:
        from regard.loading import wrong_network

        front = kit.model.config.front
        if not isinstance(front, AudioConfig) or kit.model.decoder is None:
            raise wrong_network("transcribing", kit, "a Whisper model")
        settings = parse(kit.files, "generation_config.json")
        self.kit, self.front, self.window = kit, front, 2 * front.length
        no_times = settings.get("no_timestamps_token_id")
        if no_times is None:
            no_times = kit.text_tokenizer.engine.id("<|notimestamps|>")
        self.no_times = whole_number(no_times, "no_timestamps_token_id")
        self.start = start_id(kit.files, kit.config)
        tokens = settings.get("lang_to_id") or {}
        self.languages = {name.strip("<|>"): int(id) for name, id in tokens.items()}
        self.task = (settings.get("task_to_id") or {}).get(task)
        if language is not None and language not in (self.languages or ("en",)):
            fix = did_you_mean(language, self.languages)
            raise UsageError(
                "transcribing", f"language {language!r}", "one it knows, as a code", fix
            )
        if task == "translate" and (self.task is None or not self.languages):
            raise UsageError("translating speech", "a model of one language", "one of many")
        self.language = language if self.languages else "en"
        room = kit.room or 448
        self.limit = min(int(settings.get("max_length") or room), room - 4)
        never, first = settings.get("suppress_tokens"), settings.get("begin_suppress_tokens")
        self.rules: list[Process] = [ban(never or ())]
        if first:
            self.rules.insert(0, at_first(ban(first)))

    def run(
        self, files: Sequence[str | Path], raw: RawSound | None, out: str | Path | None
    ) -> Iterator[Transcript | Failed]:
        """A transcript of each file in order; one that cannot be read is a `Failed`."""
        for place in track(range(0, len(files), TOGETHER), "transcribing"):
            group = [self.open(file, raw) for file in files[place : place + TOGETHER]]
            recordings = [each for each in group if isinstance(each, Recording)]
            while rest := [each for each in recordings if each.seek < each.frames]:
                with torch.inference_mode():
                    self.listen(rest)
            for each in group:
                if isinstance(each, Failed):
                    yield each
                    continue
                language, seconds = each.language or "en", each.frames * HOP / RATE
                text = "".join(each.texts).strip()
                transcript = Transcript(
                    each.name, text, language, seconds, each.segments, each.words
                )
                if out is not None:
                    transcript.save(str(out).replace("{}", Path(each.name).stem))
                yield transcript

    def open(self, file: str | Path, raw: RawSound | None) -> Recording | Failed:
        """A file as the model reads it."""
        try:
            samples = resample(*read_sound(file, raw))
        except DataError as error:
            return Failed(error)
        frames = -(-len(samples) // HOP)
        long = frames > self.window
        picture = log_mel(samples, mels=self.front.mels, frames=None if long else self.window)
        frames = picture.shape[1] if long else frames
        return Recording(str(file), picture, frames, long, self.language)

    def listen(self, recordings: list[Recording]) -> None:
        """Read the next window of each."""
        kit = self.kit
        cut = [r.picture[:, r.seek : r.seek + self.window] for r in recordings]
        pictures = torch.stack([F.pad(each, (0, self.window - each.shape[1])) for each in cut])
        pictures = pictures.to(kit.device, kit.dtype)
        vectors = torch.cat([kit.model.encode(picture[None]).x for picture in pictures])
        begin = torch.full((len(vectors), 1), self.start, device=kit.device)
        first = kit.model.score(kit.model.decode(begin, Memory(vectors)))[:, 0].float()
        silence = first.softmax(-1)[:, self.no_times - 1].tolist()
        heard: list[tuple[Recording, Tensor, list[int], list[int]]] = []
        for long in (False, True):
            rows = [n for n, r in enumerate(recordings) if r.long is long and silence[n] <= SILENT]
            for n in rows:
                if recordings[n].language is None:
                    known = first[n, [*self.languages.values()]]
                    recordings[n].language = [*self.languages][int(known.argmax())]
            prompts = [self.prompt(recordings[n], long) for n in rows]
            for n, prompt, hypothesis in zip(
                rows, prompts, self.write(pictures[rows], vectors[rows], prompts, long), strict=True
            ):
                poor = repeats(self.text(hypothesis)) or mean(hypothesis) < LIKELY
                if not (poor and silence[n] > QUIET):
                    hypothesis = self.try_again(pictures[n], vectors[n], prompt, hypothesis, long)
                    tokens = without_end(hypothesis.tokens, kit.stops)
                    heard.append((recordings[n], vectors[n], prompt, tokens))
        self.note(heard)
        for recording in recordings:
            if not any(recording is each for each, *_ in heard):
                recording.seek += self.window

    def prompt(self, recording: Recording, times: bool) -> list[int]:
        """The tokens that say what to write."""
        prompt = [self.start]
        if self.languages and recording.language is not None:
            prompt += [self.languages[recording.language]]
            prompt += [] if self.task is None else [self.task]
        return prompt if times else [*prompt, self.no_times]

    def write(
        self,
        pictures: Tensor,
        vectors: Tensor,
        prompts: list[list[int]],
        times: bool,
        how: SampleConfig | None = None,
    ) -> list[Hypothesis]:
        """The text of each window."""
        if not prompts:
            return []
        rules = (
            [*self.rules, time_pairs(self.no_times + 1, self.kit.stops)] if times else self.rules
        )
        batch = self.kit.batch(pictures, prompts)  # type: ignore[arg-type]
        ends, memory = Ends(self.kit.stops), Memory(vectors)
        answers = self.kit.search(batch, self.limit, how, ends, rules, memory=memory)
        return [row[0] for row in answers]

    def try_again(
        self, picture: Tensor, vectors: Tensor, prompt: list[int], first: Hypothesis, times: bool
    ) -> Hypothesis:
        """The first text or, where it is poor, one that is not, drawn at rising temperatures."""
        attempt = first
        for temperature in (*TEMPERATURES, None):
            if not repeats(self.text(attempt)) and mean(attempt) >= HARDLY:
                return attempt
            if temperature is not None:
                how = SampleConfig(temperature, seed=current().seed)
                (attempt,) = self.write(picture[None], vectors[None], [prompt], times, how)
        return first

    def text(self, hypothesis: Hypothesis) -> str:
        """What is written, without control tokens."""
        return self.kit.text([t for t in hypothesis.tokens if t < self.no_times])

    def note(self, heard: list[tuple[Recording, Tensor, list[int], list[int]]]) -> None:
        """Add segments and words to each recording, and go on to its next window."""
        cuts, texts, sizes, prompts = [], [], [], []
        zero, end = self.no_times + 1, min(self.kit.stops)
        for recording, _, prompt, tokens in heard:
            frames = min(self.window, recording.frames - recording.seek)
            cut, read = split_segments(tokens, zero, frames)
            cuts.append((cut, read))
            texts.append([t for _, _, part in cut for t in part if t < end])
            sizes.append(max(1, -(-frames // 2)))
            prompts.append([t for t in prompt if t != self.no_times] + [self.no_times])
        if not heard:
            return
        memory = Memory(torch.stack([vectors for _, vectors, _, _ in heard]))
        moments = time_words(self.kit, memory, prompts, texts, sizes)
        for (recording, *_), (cut, read), text, at in zip(heard, cuts, texts, moments, strict=True):
            spaced = recording.language not in UNSPACED
            pieces = split_words(self.kit, text, spaced)
            words = [TimedWord(word, int(at[a]), int(at[b])) for word, a, b in pieces]
            recording.texts += [word.text for word in words]
            offset, most = recording.seek * HOP / RATE, recording.frames * HOP / RATE

            def when(moment: int, offset: float = offset, most: float = most) -> float:
                return round(min(offset + moment * MOMENT, most), 2)

            for word, start, stop in words:
                recording.words.append(SpokenWord(word.strip(), when(start), when(stop)))
            if recording.long:
                spans = [(a, b, self.kit.decode_text([t for t in p if t < end])) for a, b, p in cut]
            else:
                spans = sentences(words)
            recording.segments += [
                SpokenSegment(when(a), when(b), said.strip())
                for a, b, said in spans
                if said.strip()
            ]
            recording.seek += read if recording.long else self.window


def at_first(process: Process) -> Process:
    """A process for the first new token only."""
    return lambda logits, history: logits if history.shape[1] else process(logits, history)


def time_pairs(zero: int, ends: set[int]) -> Process:
    """Time tokens, `zero` and what follows it, begin a text and stand in pairs that never go back.

    Where all times together are likelier than any word, a time is written.
    """
    end = min(ends)

    def process(logits: Tensor, history: Tensor) -> Tensor:
        ids, step = torch.arange(logits.shape[-1], device=logits.device), history.shape[1]
        banned = (ids == zero - 1).expand_as(logits).clone()
        if step == 0:
            banned |= ids < zero
        else:
            times = history >= zero
            last, before = times[:, -1], times[:, -2] if step > 1 else torch.ones_like(times[:, -1])
            banned |= (last & before)[:, None] & (ids >= zero)
            banned |= (last & ~before)[:, None] & (ids < end)
            newest = torch.where(times, history, zero - 1).amax(1)  # times never go back
            least = torch.where(last & ~before, newest, newest + 1)
            banned |= (ids >= zero) & (ids < least[:, None])
        logits = logits.masked_fill(banned, NEVER)
        likely = logits.log_softmax(-1)
        sooner = likely[:, zero:].logsumexp(-1) > likely[:, :zero].amax(-1)
        return logits.masked_fill(sooner[:, None] & (ids < zero), NEVER)

    return process


def split_segments(
    tokens: list[int], zero: int, frames: int
) -> tuple[list[tuple[int, int, list[int]]], int]:
    """Segments, each with its first and last moment, and how many frames of the window are done.

    Two times in a row end one segment and begin the next; what follows the last pair is heard
    again in the next window, unless the text ends with a time.
    """
    times = [token >= zero for token in tokens]
    cuts = [n + 1 for n in range(len(tokens) - 1) if times[n] and times[n + 1]]
    whole = times[-2:] == [False, True]
    if not cuts:
        moments = [token - zero for token in tokens if token > zero]
        return [(0, moments[-1] if moments else -(-frames // 2), tokens)], frames
    cuts += [len(tokens)] if whole else []
    parts = [tokens[a:b] for a, b in pairwise([0, *cuts])]
    read = frames if whole else 2 * (tokens[cuts[-1] - 1] - zero)
    return [(max(0, part[0] - zero), part[-1] - zero, part) for part in parts], read or frames


def sentences(words: list[TimedWord]) -> list[tuple[int, int, str]]:
    """Sentences of timed words, from the first moment of each to its last."""
    text, ends = "".join(word.text for word in words), list[int]()
    for word in words:
        ends.append((ends[-1] if ends else 0) + len(word.text))
    spans = []
    for start, end in sentence_spans(text):
        inside = [w for w, at in zip(words, ends, strict=True) if start < at <= end]
        if inside:
            spans.append((inside[0].start, inside[-1].end, text[start:end]))
    return spans


def repeats(text: str) -> bool:
    """Whether a text says the same over and over: it can be much compressed."""
    return len(text.encode()) > REPEATED * len(zlib.compress(text.encode()))


def mean(hypothesis: Hypothesis) -> float:
    """The log-probability of a token in the mean."""
    return hypothesis.logprob / max(1, len(hypothesis.tokens))
