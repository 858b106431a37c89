"""BLEU and chrF of translations by sacrebleu, as a whole and by length of the source."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from regard.data.pairs import Pair
from regard.errors import UsageError
from regard.evaluate.results import LengthBand

LENGTHS = (5, 10, 15, 20, 30, 50)  # most source words of each band but the last


class BleuChrf(NamedTuple):
    """Scores with sacrebleu's signatures (Papineni 2002, Popović 2015, Post 2018)."""

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str


def bleu_chrf(
    translations: Sequence[str], references: Sequence[str], spaced: bool = False
) -> BleuChrf:
    """Corpus scores against one reference each; `spaced`: blanks before marks are meant."""
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ModuleNotFoundError:
        fix = "pip install 'regard[score]'"
        raise UsageError("scoring translations", "sacrebleu is not installed", fix=fix) from None
    values: list[float | str] = []
    for metric in (BLEU(force=spaced), CHRF()):
        score = metric.corpus_score(list(translations), [list(references)])
        values += [float(score.score), str(metric.get_signature())]
    return BleuChrf(*values)  # type: ignore[arg-type]


def bleu_by_length(
    pairs: Sequence[Pair], translations: Sequence[str], spaced: bool
) -> list[LengthBand]:
    """BLEU of the lines whose sources have so many words, in bands."""
    sizes = [len(source.split()) for source, _ in pairs]
    groups: dict[int, list[int]] = {}
    for n, size in enumerate(sizes):
        groups.setdefault(bisect_left(LENGTHS, size), []).append(n)
    bands = []
    for _, lines in sorted(groups.items()):
        own = [sizes[n] for n in lines]
        scores = bleu_chrf([translations[n] for n in lines], [pairs[n][1] for n in lines], spaced)
        bands.append(LengthBand(min(own), max(own), len(lines), scores.bleu))
    return bands
