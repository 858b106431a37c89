"""Connectionist temporal classification (Graves 2006): a loss, and texts out of frames.

A path writes a letter or nothing (blank, 0) in each frame; what is repeated counts once, and blanks
go. A text is as likely as all its paths together.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.windows import IGNORED
from regard.model.batch import Batch
from regard.model.model import Model
from regard.train.objectives import Loss

BLANK, NEVER = 0, -math.inf
Letters = tuple[int, ...]


def ctc_loss(
    model: Model,
    batch: Batch,
    labels: Tensor,
    *_: Any,
    prepare: Callable[..., tuple[Tensor, Tensor]],
    extra: Mapping[str, Tensor] | None = None,
) -> Loss:
    """−log p of transcripts (B, L), padded with −100; 0 where there are too few frames for one.

    Judged, it also counts the clips whose likeliest path gives the transcript, letter by letter.
    """
    x, _share = prepare(batch.inputs, extra["dice"] if extra else None)
    logs = model(Batch(x)).float().log_softmax(-1)  # (B, T, V)
    lengths = (labels != IGNORED).sum(1)
    frames = torch.full_like(lengths, logs.shape[1])
    known = logs.transpose(0, 1), labels.clamp(min=0), frames, lengths
    total = F.ctc_loss(*known, BLANK, reduction="sum", zero_infinity=True)
    figures = {}
    if not model.training:
        paths, texts = logs.argmax(-1).tolist(), labels.tolist()
        right = [
            [*collapse(p)] == [n for n in t if n >= 0] for p, t in zip(paths, texts, strict=True)
        ]
        figures["accuracy"] = torch.tensor(float(sum(right)), device=labels.device)
    return Loss(total, total.detach(), torch.tensor(len(labels), device=labels.device), figures)


def collapse(path: Sequence[int]) -> Letters:
    """The text of a path: repetitions count once, and blanks go."""
    return tuple(letter for letter, _ in groupby(path) if letter != BLANK)


def prefix_beam(
    logs: Tensor, width: int, weigh: Callable[[Letters], float] = lambda text: 0.0
) -> list[tuple[Letters, float]]:
    """The likeliest texts of log-probabilities (T, V), best first (Hannun 2014).

    Each is (letters, log p of all its paths that were kept); `width` are kept from frame to frame,
    by log p and what `weigh` adds to it, such as a language model's.
    """
    beam: dict[Letters, tuple[float, float]] = {(): (0.0, NEVER)}  # paths that end in a blank; not
    for frame in logs.tolist():
        grown: dict[Letters, list[float]] = defaultdict(lambda: [NEVER, NEVER])
        for text, (blank, letter) in beam.items():
            both, last = np.logaddexp(blank, letter), text[-1] if text else BLANK
            here = grown[text]
            here[0] = np.logaddexp(here[0], both + frame[BLANK])
            for new, log in enumerate(frame):
                if new == BLANK:
                    continue
                if new == last:  # again in the next frame it is the same letter
                    here[1] = np.logaddexp(here[1], letter + log)
                longer = grown[*text, new]
                longer[1] = np.logaddexp(longer[1], (blank if new == last else both) + log)
        worth = {text: np.logaddexp(ends[0], ends[1]) + weigh(text) for text, ends in grown.items()}
        best = sorted(worth, key=worth.__getitem__, reverse=True)[:width]
        beam = {text: (grown[text][0], grown[text][1]) for text in best}
    return [(text, np.logaddexp(ends[0], ends[1])) for text, ends in beam.items()]


def edit_distance(a: Sequence[Any], b: Sequence[Any]) -> int:
    """Parts of `a` to change, put in or take out until it is `b` (Levenshtein)."""
    row = list(range(len(b) + 1))
    for i, one in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, other in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (one != other))
    return row[-1]
