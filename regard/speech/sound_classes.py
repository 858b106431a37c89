"""Runs that learn classes or transcripts of sounds, over frames or patches of a spectrogram.

Patches are those of AST (Gong 2021), the vision Transformer on Kaldi's log-mel; frames are those of
Whisper's encoder, one vector per 20 ms. All else is that of pictures.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.ambient import note, track
from regard.data.example_store import ExampleStore, leave_out
from regard.data.order import Counts
from regard.data.sound import HOP, RATE, read_sound
from regard.data.windows import IGNORED
from regard.errors import DataError, UsageError
from regard.evaluate.results import TranscriptScores
from regard.files import read_json
from regard.history.ngram_model import NgramModel
from regard.interop.side import parse
from regard.kit import Kit
from regard.loading import load_kit, wrong_network
from regard.model.batch import Batch, pad_rows
from regard.model.config import AudioConfig, HeadConfig, ImageConfig
from regard.model.presets import vit, whisper
from regard.result import Failed
from regard.speech.ctc import BLANK, Letters, collapse, ctc_loss, edit_distance, prefix_beam
from regard.speech.results import SpokenSegment, SpokenWord, Transcript
from regard.speech.sound_files import (
    Hearing,
    clip_seconds,
    find_clips,
    hear,
    read_clips,
    read_samples,
)
from regard.train.config import SoundConfig
from regard.train.data import RunData, RunPlan
from regard.train.results import RunSettings
from regard.train.settings import put
from regard.tune.classification import freeze
from regard.tune.prediction import Answer, read_task
from regard.tune.results import Prediction
from regard.vision.augmentation import Augmentation, Preparation
from regard.vision.picture_classes import PROCESSOR, PictureKind

BLANK_NAME, VOCAB = "<pad>", "vocab.json"  # as wav2vec 2.0 calls them
MEAN, STD = -4.2677393, 4.5689974  # of AudioSet, where a folder of AST says nothing
WINDOW, PAUSE = 30 * RATE, 25  # samples that are read at once; rows between two segments
NOTHING, LETTER = "\0", "[^ \0]"  # of the letters of rows
WORD = rf"{LETTER}([^ ]*{LETTER})?"
LONGEST = 10.0  # seconds that are read of a clip, unless others are asked for


@dataclass(frozen=True)
class SoundAugmentation(Augmentation):
    """What is done to spectrograms (B, 1, M, T) before a model learns from them."""

    def change(self, x: Tensor, dice: Tensor, fill: Tensor) -> Tensor:
        """Moved in time and in pitch, faster or slower; what was last goes on after the end."""
        own, mels, frames = self.own, *x.shape[2:]
        later, higher, faster = (2 * dice[:, :3, None] - 1).unbind(1)  # (B, 1)
        rate = frames / own.seconds
        along = torch.arange(frames, device=x.device) * (1 + own.stretch * faster)
        at = (along + rate * own.shift * later).round().long()  # (B, T)
        at = torch.where(at < 0, at + frames, at).clamp(0, frames - 1)
        up = (torch.arange(mels, device=x.device) + own.pitch * higher).round().long()
        x = x.gather(2, up.clamp(0, mels - 1)[:, None, :, None].expand(x.shape))
        return x.gather(3, at[:, None, None].expand(x.shape))

    def blank(self, x: Tensor, dice: Tensor) -> Tensor:
        """A band of channels and a stretch of time become 0, the mean (SpecAugment, Park 2019)."""
        hidden = x.shape[3] * self.own.mask_seconds / self.own.seconds
        for axis, most in ((2, self.own.mask_mels), (3, hidden)):
            size, place = x.shape[axis], 2 * axis - 1  # in the dice: 3, 4 and 5, 6
            width = dice[:, place, None] * min(most, size)
            gone = torch.arange(size, device=x.device) - dice[:, place + 1, None] * (size - width)
            inside = (gone >= 0) & (gone < width)  # (B, size)
            shape = (len(x), 1, size, 1) if axis == 2 else (len(x), 1, 1, size)
            x = x.masked_fill(inside.view(shape), 0.0)
        return x


class SoundKind(PictureKind):
    """Learns the classes of clips, or their transcripts.

    Texts are written by a prefix beam search with an n-gram model `lm`, where one is given.
    """

    name, unit, config = "sound", "clips", SoundConfig
    fields = ("dim", "depth", "heads", "mels", "patch", "stride", "reads")
    find, read, augmentation = staticmethod(find_clips), staticmethod(read_clips), SoundAugmentation
    presets, group = "whisper", 32

    def __init__(self, beam: int = 1, lm: NgramModel | None = None, lm_weight: float = 0.5) -> None:
        self.beam, self.lm, self.lm_weight = beam, lm, lm_weight

    def complete(self, settings: RunSettings) -> None:
        """The length of clips: a model's, or what 19 of 20 have; of transcripts all, slowed."""
        values = settings.values
        init, text = values["init"], values["transcripts"]
        if text and (values["mixup"] or values["reads"] == "patches"):
            fault = "transcripts with mixup, or of patches"
            raise UsageError("training on sound", fault, "--reads frames, --mixup 0")
        if values["seconds"] is not None:
            return
        if init is not None and (frames := self.open(init)[1].frames):
            return put(settings, "seconds", frames / 100, "init")
        lengths, slow = [*clip_seconds(values["files"])] or [LONGEST], text * values["stretch"]
        usual = float(np.quantile(lengths, 1.0 if text else 0.95)) * (1 + slow)
        put(settings, "seconds", round(min(max(usual, 0.2), LONGEST) + 0.05, 1), "the clips")

    def sizes(self, own: Any, front: Any, init: str | None = None) -> Hearing:
        """What `read_clips` is told of the model's front, and of a model to begin with."""
        if isinstance(front, ImageConfig):
            return Hearing("kaldi", front.height, front.width)
        form, usual = ("wave", 0) if front.kind == "wave" else ("whisper", 2 * front.length)
        form = self.open(init)[1].form if init else form
        return Hearing(form, front.mels, frames_of(own) if own else usual)

    def build(self, own: Any, init: str | None, classes: int) -> tuple[Any, str | None]:
        """(shape of the model, architecture that it is saved as), new or as that of a folder."""
        frames, family, sizes = frames_of(own), None, (own.dim, own.depth, own.heads)
        if init is not None:
            kit = self.open(init)[0]
            config, family = kit.model.config, kit.binding and kit.binding.architecture
        elif own.reads == "patches":
            front = ImageConfig(own.dim, own.mels, frames, own.patch, own.stride, 1, distilled=True)
            config, family = replace(vit(*sizes), front=front), "ASTForAudioClassification"
        else:
            config = replace(whisper(*sizes), front=AudioConfig(own.dim, own.mels, frames // 2))
            if own.transcripts:  # a letter sounds alike wherever it comes: distances tell more
                assert config.encoder is not None
                config = replace(config, encoder=replace(config.encoder, position="rotary"))
        if isinstance(config.front, ImageConfig):
            config = replace(config, front=replace(config.front, width=frames))
            head = HeadConfig(classes, "pair", norm=True, eps=config.encoder.block.eps, bias=True)
        else:  # of Whisper the encoder alone
            head = HeadConfig(classes, "all" if own.transcripts else "mean", bias=True)
            family = family if own.transcripts and config.front.kind == "wave" else None
        return replace(config, head=head, decoder=None, target=None), family

    def describe(self, sizes: Any, mean: Any, std: Any) -> dict[str, Any]:
        """What the file beside the weights says that the model reads, as transformers writes it."""
        form, mels, frames = sizes
        if form == "kaldi":  # which divides by twice the deviation
            said = {"feature_extractor_type": "ASTFeatureExtractor", "sampling_rate": RATE}
            said |= {"num_mel_bins": mels, "max_length": frames}
            return said | {"mean": float(mean[0]), "std": float(std[0]) / 2, "do_normalize": True}
        kind = "Whisper" if form == "whisper" else "Wav2Vec2"
        said = {"feature_extractor_type": f"{kind}FeatureExtractor", "sampling_rate": RATE}
        said |= {"feature_size": mels, "do_normalize": form == "wave", "nb_max_frames": frames}
        return said | ({"chunk_length": frames * HOP / RATE} if form == "whisper" else {})

    def open(self, model: Any) -> tuple[Any, Hearing, Preparation]:
        """(model, what it reads, how stored clips are normalised) of a folder or a Kit."""
        kit = model if isinstance(model, Kit) else load_kit(model, precision=None)
        front, said = kit.model.config.front, parse(kit.files, PROCESSOR)
        if isinstance(front, ImageConfig) and front.channels == 1:
            scale = said.get("mean", MEAN), 2 * said.get("std", STD)
        elif isinstance(front, AudioConfig):
            scale = 0.0, 1.0
        else:
            raise wrong_network("reading sound", kit, "a model that reads it")
        hearing = self.sizes(None, front)
        raw = hearing.form == "wave" and not said.get("do_normalize", True)
        frames = int(said.get("nb_max_frames") or hearing.frames)
        hearing = Hearing("raw" if raw else hearing.form, hearing.mels, frames)
        mean, std = torch.tensor(scale, device=kit.device)[:, None, None, None]
        return kit, hearing, Preparation(mean, std)

    def number(self, plan: RunPlan, store: ExampleStore, used: Counts) -> tuple[list[str], Counts]:
        """Of transcripts: (blank and all letters, letters of each clip)."""
        if not plan.own.transcripts:
            return super().number(plan, store, used)
        texts = store.header["names"]
        names = [BLANK_NAME, *sorted({letter for n in used for letter in texts[n]})]
        if new := set("".join(texts)) - set(names):
            raise DataError("reading transcripts", f"{min(new)!r}", f"one of {''.join(names[1:])}")
        rows, _ = pad_rows([[*map(names.index, text)] for text in texts], IGNORED)
        return names, rows.numpy()[store.records["label"]]

    def job(self, plan: RunPlan, data: RunData, kit: Kit) -> dict[str, Any]:
        """Its loss, over what is not frozen."""
        freeze(kit.model, plan.own)
        if kit.binding and plan.own.transcripts:  # as its tokenizer in transformers wants it
            words = {"|" if name == " " else name: n for n, name in enumerate(data.held[0])}
            kit.files[VOCAB], kit.config["pad_token_id"] = json.dumps(words).encode(), 0
        job = super().job(plan, data, kit)
        return {"loss": partial(ctc_loss, **job["loss"].keywords)} if plan.own.transcripts else job

    def places(self, kit: Kit) -> tuple[tuple[int, int], Counts, int]:
        """Patches as those of pictures; else a token for every second frame."""
        if isinstance(kit.model.config.front, ImageConfig):
            return super().places(kit)
        count = self.open(kit)[1].frames // 2
        return (1, count), np.arange(count), 0

    def predict(self, kit: Kit, files: Sequence[str]) -> Iterator[Answer]:
        """Of transcripts: (log-probabilities (T, V), what is said, what is written) of each."""
        if kit.model.config.head.take != "all":
            yield from super().predict(kit, files)
            return
        names, order = self.letters(kit)
        for name, label, samples in read_samples(files):
            if isinstance(samples, Failed):
                yield torch.empty(0), [label], samples
            else:
                logs = self.listen(kit, samples, order)
                yield logs, [label], Prediction(name, self.write(logs, names))

    def transcribe(
        self, kit: Kit, files: Sequence[str | Path], raw: tuple[int, str] | None
    ) -> Iterator[Transcript | Failed]:
        """What is said in each file, and when: words, and segments between pauses."""
        (names, order), clock = self.letters(kit), stride_of(kit) / RATE
        for file in track(files, "transcribing"):
            try:
                samples = read_sound(file, raw)
            except DataError as error:
                yield Failed(error)
                continue
            best = self.listen(kit, samples, order).argmax(-1).tolist()
            rows = "".join(names[n][:1] or NOTHING for n in best)
            words = [SpokenWord(*one) for one in find_times(WORD, rows, clock)]
            parts = find_times(rf"{LETTER}((?![ {NOTHING}]{{{PAUSE}}}).)*", rows, clock)
            segments = [SpokenSegment(a, b, part) for part, a, b in parts]
            said = " ".join(word.word for word in words)
            yield Transcript(str(file), said, "", len(samples) / RATE, segments, words)

    def letters(self, kit: Kit) -> tuple[list[str], list[int]]:
        """A model's letters, blank first, none for <s> and such, and the places of their scores."""
        blank, size = kit.config.get("pad_token_id") or BLANK, kit.model.config.head.size or 0
        if kit.path is not None and (kit.path / VOCAB).is_file():
            words: dict[str, int] = read_json(kit.path / VOCAB, "the letters of a model")
            names = [" " if word == "|" else word for word in sorted(words, key=words.__getitem__)]
            names += [BLANK_NAME] * (size - len(names))
        else:
            names = read_task(kit, "reading letters").names
        order = [blank, *(n for n in range(size) if n != blank)]  # theirs may come last
        spelt = [name if len(name) == 1 or name[:1] not in "<[" else "" for name in names]
        return [spelt[n] for n in order], order

    @torch.no_grad()
    def listen(self, kit: Kit, samples: Tensor, order: list[int]) -> Tensor:
        """Log-probabilities (T, V) of letters in samples (S).

        Long ones are read window by window; each gives the middle three quarters of what it says.
        """
        (_, hearing, prepare), stride, parts = self.open(kit), stride_of(kit), list[Tensor]()
        rows = (HOP * hearing.frames or WINDOW) // stride
        edge = rows // 8
        step = rows - 2 * edge
        begins = range(0, max(1, len(samples) - 2 * edge * stride), step * stride)
        for begin in begins:
            heard = hear(samples[begin : begin + rows * stride], hearing)
            x, _ = prepare(heard[None].to(kit.device))
            logs = kit.run_batch(Batch(x.to(kit.dtype)))[0, :, order].float().log_softmax(-1).cpu()
            end = None if begin == begins[-1] else edge + step
            parts.append(logs[edge if begin else 0 : end])
        return torch.cat(parts)

    def write(self, logs: Tensor, names: Sequence[str]) -> str:
        """The text of log-probabilities (T, V)."""

        def spell(ids: Letters) -> str:
            return "".join(names[n] for n in ids)

        @cache
        def weigh(ids: Letters) -> float:
            assert self.lm is not None
            row = self.lm.tokenizer.encode_batch([spell(ids)], special=False)[0]
            begun: list[Any] = [self.lm.tables.start] if self.lm.lines else []
            return self.lm_weight * float(np.nansum(self.lm.tables.logprobs([*begun, *row])))

        if self.beam == 1 and self.lm is None:
            return spell(collapse(logs.argmax(-1).tolist()))
        return spell(prefix_beam(logs, self.beam, *([weigh] if self.lm else []))[0][0])

    def score(self, kit: Kit, files: Sequence[str]) -> Any:
        """How right a model is on files: ClassScores, or TranscriptScores."""
        if kit.model.config.head.take != "all":
            return super().score(kit, files)
        answers = leave_out(self.predict(kit, files), note)
        pairs = [(label, str(said.label)) for _, (label,), said in answers]
        if not pairs:
            raise DataError(f"evaluating on {', '.join(files)}", "no clips", "one or more")
        rates, splits = list[Any](), (list, str.split)
        for split in splits:
            wrong = sum(edit_distance(split(gold), split(said)) for gold, said in pairs)
            rates.append(wrong / max(1, sum(len(split(gold)) for gold, _ in pairs)))
        right = sum(gold == said for gold, said in pairs) / len(pairs)
        return TranscriptScores(rates[0], rates[1], right, len(pairs))


def find_times(pattern: str, rows: str, clock: float) -> Iterator[tuple[str, float, float]]:
    """What a pattern finds in the letters of rows, repetitions gone, and from when to when."""
    for found in re.finditer(pattern, rows):
        text = "".join(letter for letter, _ in groupby(found[0])).replace(NOTHING, "")
        yield text.strip(), round(found.start() * clock, 2), round(found.end() * clock, 2)


def stride_of(kit: Kit) -> int:
    """Samples from one vector to the next of a model of frames."""
    return math.prod(getattr(kit.model.config.front, "strides", (2 * HOP,)))


def writes_letters(kit: Kit) -> bool:
    """Whether a model writes transcripts letter by letter (CTC)."""
    config = kit.model.config
    return (
        isinstance(config.front, AudioConfig) and not config.decoder and config.head.take == "all"
    )


def frames_of(own: Any) -> int:
    """Frames of 10 ms that are read of a clip, an even number."""
    return int(2 * max(1, round(50 * own.seconds)))


SOUND_RUN = SoundKind()
