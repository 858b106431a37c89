"""What `regard probe` reads: sentences of a treebank as ids, and the vectors of their words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from torch import Tensor

from regard.cli.show import Progress
from regard.cli.texts import groups
from regard.data.treebank import Words
from regard.errors import UsageError
from regard.kit import Kit
from regard.look.activations import (
    Take,
    WordTokens,
    find_word_tokens,
    word_taps,
    word_vectors,
)
from regard.look.text_limits import max_tokens_of

ROOM = 1 << 29  # bytes of vectors that are held at a time; more taps take another run


class Corpus(NamedTuple):
    """Sentences of a file, as the model reads them."""

    sentences: list[Words]
    rows: list[WordTokens]
    """For each sentence its ids and where its words stand."""
    long: int
    """Sentences left out: more tokens than fit."""


def chosen_taps(kit: Kit, layer: str, patterns: Sequence[str] | None = None) -> list[str]:
    """The taps that --taps or --layer asks for; else the usual ones."""
    taps = word_taps(kit.hooked, patterns or ())
    if patterns or layer == "all":
        return taps
    layers = [name for name in taps if not name.endswith("embed")]
    layer = str(len(layers) - 1) if layer == "last" else layer
    if not layer.isdecimal() or int(layer) >= len(layers):
        known = f"0 to {len(layers) - 1}, last or all"
        raise UsageError("choosing a layer", f"--layer {layer}", known)
    return [layers[int(layer)]]


def read_corpus(kit: Kit, sentences: Sequence[Words], take: Take | None) -> Corpus:
    """Ids of each sentence, if the model has room for it."""
    most = max_tokens_of(kit, "probing")
    take = take or ("last" if kit.model.encoder is None else "first")
    rows = [find_word_tokens(kit.text_tokenizer, *sentence.text(), take) for sentence in sentences]
    filled = [n for n, row in enumerate(rows) if row.words]
    kept = [n for n in filled if len(rows[n].ids) <= most]
    return Corpus([sentences[n] for n in kept], [rows[n] for n in kept], len(filled) - len(kept))


def vectors_of(
    kit: Kit, corpus: Corpus, taps: Sequence[str], progress: Progress
) -> Iterator[tuple[str, Tensor]]:
    """Each tap's vectors on the model's device, some taps for each run of the model."""
    one = word_vectors(kit.hooked, corpus.rows[:1], taps)
    words = sum(len(row.columns) for row in corpus.rows)
    widest = max(x.shape[1] for x in one.values())
    count = max(1, ROOM // (4 * words * widest))  # taps for each run

    def tell(done: int) -> None:
        progress(f"reading, {done:,} of {len(corpus.rows):,} sentences")

    for some in groups(taps, count):
        found = word_vectors(kit.hooked, corpus.rows, some, tell)
        for tap in some:
            progress(tap)
            yield tap, found.pop(tap).to(kit.device)
