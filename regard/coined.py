"""Coined words: those of a translation that neither training nor its source ever wrote."""

from __future__ import annotations

import re
from collections.abc import Collection

RUN = re.compile(r"[^\W\d_]{3,}")


def letter_runs(text: str) -> list[str]:
    """Words of letters alone, three or more; parts of well-known are two."""
    return RUN.findall(text)


def coined_words(source: str, target: str, written: Collection[str]) -> list[str]:
    """The words of a translation that are made up, each once; a copied name is none of them."""
    copied = {run.lower() for run in letter_runs(source)}
    runs = dict.fromkeys(letter_runs(target))
    return [run for run in runs if run.lower() not in written and run.lower() not in copied]
