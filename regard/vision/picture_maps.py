"""Looking inside models of pictures and sounds: attention, reasons, probes by layer.

Rollout (Abnar and Zuidema 2020) and attention are of patches or moments, gradients of pixels, from
zeros on (of pictures the mean colour). A kind of `PictureKind` says how files become planes
(C, H, W): a spectrogram is a picture of one plane, low tones below.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from regard.ambient import current, note, track
from regard.data.example_store import leave_out
from regard.data.text_files import evenly
from regard.errors import DataError, UsageError
from regard.interop.side import parse
from regard.kit import Kit
from regard.loading import open_kit, wrong_network
from regard.look.attention_maps import map_attention
from regard.look.attribution import find_class, integrate, mix_residual, rollout
from regard.look.probing import choose_taps, make_task, probe_vectors
from regard.look.results import AttentionMaps, LabelProbe, Method, MethodScores, Overlay
from regard.model.batch import Batch
from regard.result import Failed
from regard.speech.sound_classes import SOUND_RUN
from regard.verbs import ModelLike, group_texts
from regard.vision.picture_classes import IMAGE_RUN, PROCESSOR, PictureKind
from regard.vision.pixel_tokens import PIXEL_RUN, has_codes
from regard.vision.results import PictureAttribution

DOING = "explaining what a model sees or hears"
Classes = tuple[str | None, str | None]  # explained, the likeliest for None; against which
GROUP = 64  # pictures that are run at once


def open_reader(model: ModelLike, precision: str | None) -> tuple[Kit, PictureKind | None]:
    """A model, and the kind of its pictures where it reads those; else it has a tokenizer."""
    kit = open_kit(model, precision, text=False)
    kind, patches = kit.model.config.front.kind, "num_mel_bins" in parse(kit.files, PROCESSOR)
    if kind == "image" or (kind == "audio" and kit.model.decoder is None):
        return kit, SOUND_RUN if patches or kind == "audio" else IMAGE_RUN
    if has_codes(kit):
        return kit, PIXEL_RUN
    text = kit.model.config.front.kind != "graph" and kit.tokenizer is None
    return open_kit(model, precision) if text else kit, None


def read_picture(kit: Kit, kind: PictureKind, path: str) -> tuple[Batch, Overlay, int]:
    """(one picture as a batch, where its tokens lie on it, how many come before those)."""
    for *_, planes in kind.read([path], kind.open(kit)[1]):
        if isinstance(planes, Failed):
            raise planes.error
        batch = kind.batch(kit, torch.from_numpy(planes.copy())[None])
        grid, places, lead = kind.places(kit)
        shown = planes.transpose(1, 2, 0) if len(planes) == 3 else planes.mean(0)
        return batch, Overlay(shown, grid, places, kind is SOUND_RUN), lead
    raise DataError(f"reading {path}", "no picture or clip", "one that can be read")


def map_picture(
    kit: Kit, kind: PictureKind, path: str, target: str | None, **how: Any
) -> AttentionMaps:
    """Where heads look in a picture; drawn for the class token or all tokens, else the last."""
    batch, overlay, lead = read_picture(kit, kind, path)
    tokens = [*("class", "teacher")[:lead], *overlay.names]
    maps = map_attention(kit, path, target, read=(batch, {"picture": tokens}), **how)
    return replace(maps, overlay=overlay)


def explain_picture(
    kit: Kit,
    kind: PictureKind,
    path: str,
    words: Classes,
    method: Method | Literal["compare"],
    steps: int,
) -> PictureAttribution:
    """What patches, or pixels, a class comes from."""
    if method not in ("ig", "gradient", "attention", "rollout"):
        raise UsageError(DOING, f"method {method}", "ig, gradient, attention or rollout")
    size, labels = kit.model.config.head.size, kit.config.get("id2label") or {}
    if size is None or kit.model.config.head.take == "all":
        raise wrong_network(DOING, kit, "a classifier of pictures or sounds")
    names = {n: str(labels.get(str(n), n)) for n in range(size)}
    batch, overlay, lead = read_picture(kit, kind, path)
    good, bad = (None if word is None else find_class(names, word) for word in words)
    with torch.no_grad():
        good = int(kit.model(batch).argmax()) if good is None else good

    def goal(inputs: Tensor) -> Tensor:
        scores: Tensor = kit.model(Batch(inputs))
        return scores[:, good] - (0 if bad is None else scores[:, bad])

    if method in ("ig", "gradient"):
        x = batch.inputs[0]
        one = integrate(goal, x, torch.zeros_like(x), steps if method == "ig" else 0)
        one = replace(one, scores=one.scores.sum(0).flatten().cpu().double())
        overlay = replace(overlay, grid=tuple(x.shape[1:]), places=np.arange(x[0].numel()))
    else:
        with torch.no_grad():
            patterns = [*kit.hooked.run(batch, "*.attn.pattern")[1].values()]
        mixed = [rollout(mix_residual(patterns)), torch.stack(patterns).mean((0, 2))]
        rows = mixed[method == "attention"][0]  # (T, T)
        row = rows[0] if lead else rows.mean(0)
        one = MethodScores(row[lead:].cpu().double(), share=float(row[lead:].sum()))
    zeros = "zeros" if overlay.upward else "the mean colour"
    said = path, names[good], None if bad is None else names[bad], zeros
    where = overlay.places.tolist(), overlay.names
    return PictureAttribution(*said, *where, method, one, overlay)


@torch.no_grad()
def probe_pictures(
    kit: Kit, kind: PictureKind, files: list[str], layer: str | int, how: Any, count: int
) -> LabelProbe:
    """How well classes of pictures can be read off the mean vectors of each layer (Chen 2020)."""
    taps, seed = choose_taps(kit, layer), current().seed
    examples = evenly(leave_out(kind.read(files, kind.open(kit)[1]), note), count)
    vectors: dict[str, list[Tensor]] = {tap: [] for tap in taps}
    for group in group_texts(track(examples, "reading pictures"), GROUP):
        stored: NDArray[Any] = np.stack([planes for *_, planes in group])
        seen = kit.hooked.run(kind.batch(kit, torch.from_numpy(stored)), taps)[1]
        for tap, x in seen.items():  # as the norm of the next block reads them
            vectors[tap].append(F.layer_norm(x.float(), x.shape[-1:]).mean(1))
    names = [name for name, *_ in examples]
    task = make_task([label for _, label, _ in examples], names, range(len(names)), seed)
    rows = ((tap, torch.cat(parts)) for tap, parts in vectors.items())
    return task.report("class", how, [probe_vectors(tap, x, task, how, seed) for tap, x in rows])
