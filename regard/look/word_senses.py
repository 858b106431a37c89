"""Word senses: the vectors of one word in each line, within and between files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.ambient import note
from regard.data.text_files import find_files, read_lines
from regard.data.word_frequencies import Span, key, word_spans
from regard.decode.results import LeftOut, SenseLayer, WordSenses, WordUse
from regard.errors import DataError, did_you_mean
from regard.history.word_vectors import WordVectors
from regard.look.activations import find_word_tokens
from regard.look.probing import choose_taps, tap_vectors
from regard.look.text_limits import max_tokens_of
from regard.model.fronts import TextFront

if TYPE_CHECKING:
    from regard.kit import Kit

DOING = "embedding"
SHOWN = 10  # lines without the word that are named


class WordLine(NamedTuple):
    """A line that holds the word: its places first, then those of all other words."""

    place: WordUse
    text: str
    spans: list[Span]
    names: list[str]
    """Of the words; none of the word itself."""


def study_word(
    kit: Kit, name: str, word: str, files: Sequence[str | Path], layer: str | None, top: int
) -> WordSenses:
    """Cosines and neighbours of a word's vectors, a file for each sense."""
    left = list[LeftOut]()
    paths = list(map(str, find_files(files)))
    uses, layers = read_layers(kit, word, find_word(word, paths, left), left, layer or "last", top)
    for line in left[:SHOWN]:
        note(f"left out: {line.file}:{line.line}: {line.why}")
    if len(left) > SHOWN:
        note(f"left out: {len(left) - SHOWN:,} lines more; --json names them all")
    held = list(dict.fromkeys(use.file for use in uses))
    if len(held) == 1 and len(paths) > 1:
        note(f"{word!r} stands in {held[0]} only: there is no other file to compare")
    return WordSenses(name, word, held, uses, layers, left)


def find_word(word: str, paths: Sequence[str], left: list[LeftOut]) -> list[WordLine]:
    """Lines with the word, in any case; the others are left out."""
    pattern = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)", re.IGNORECASE)
    lines, seen = list[WordLine](), set[str]()
    for path in paths:
        for number, text in enumerate(read_lines([path]), 1):
            own = [match.span() for match in pattern.finditer(text)]
            spans = [span for span in word_spans(text) if text[span[0]].isalnum()]
            free = [(a, b) for a, b in spans if all(b <= start or end <= a for start, end in own)]
            names = [key(text[a:b]) for a, b in free]
            if own:
                place = WordUse(path, number)
                lines.append(WordLine(place, text, own + free, [""] * len(own) + names))
            elif spans:
                left.append(LeftOut(path, number, f"no {word!r}"))
                seen.update(names)
    if not lines:
        doing, fix = f"looking for {word!r} in {', '.join(paths)}", did_you_mean(word, sorted(seen))
        raise DataError(doing, f"{len(left):,} lines, none with it", "a line with the word", fix)
    return lines


def read_layers(
    kit: Kit, word: str, lines: Sequence[WordLine], left: list[LeftOut], layer: str, top: int
) -> tuple[list[WordUse], list[SenseLayer]]:
    """The word by the model's table of tokens, and by each layer asked for."""
    most, taps = max_tokens_of(kit, DOING), choose_taps(kit, layer)
    assert isinstance(kit.model.front, TextFront)
    read = [(s, find_word_tokens(kit.text_tokenizer, s.text, s.spans, "all")) for s in lines]
    why = f"more than {most:,} tokens"
    left += [LeftOut(s.place.file, s.place.line, why) for s, row in read if len(row.ids) > most]
    read = [(s, row) for s, row in read if len(row.ids) <= most]
    words = [(n, place) for n, (_, row) in enumerate(read) for place in dict.fromkeys(row.words)]
    number = {place: k for k, place in enumerate(words)}
    owner = [number[n, place] for n, (_, row) in enumerate(read) for place in row.words]
    names = [read[n][0].names[place] for n, place in words]
    own, rest = ([k for k, name in enumerate(names) if bool(name) == other] for other in (0, 1))
    uses = [read[words[k][0]][0].place for k in own]
    if not uses:
        raise DataError(DOING, f"no line with {word!r} that fits", f"at most {most:,} tokens")
    types = {name: k for k, name in enumerate(dict.fromkeys(filter(None, names)))}

    def compare(name: str, x: Tensor) -> SenseLayer:
        x = group_means(x.float().cpu(), owner)  # tokens → words
        others = group_means(x[rest], [types[names[k]] for k in rest])
        return compare_uses(name, x[own], uses, WordVectors(list(types), others.numpy()), top)

    ids = torch.tensor([row.ids[column] for _, row in read for column in row.columns])
    rows = [row for _, row in read]
    with torch.no_grad():
        static = compare("static", kit.model.front.tokens(ids.to(kit.device)))
        return uses, [static, *(compare(*seen) for seen in tap_vectors(kit, rows, taps))]


def compare_uses(
    name: str, x: Tensor, uses: list[WordUse], table: WordVectors, top: int
) -> SenseLayer:
    """Cosines of the uses (N, D), and the words of a table that are nearest to each file's."""
    files = list(dict.fromkeys(use.file for use in uses))
    sense = [files.index(use.file) for use in uses]
    cosines = sense_cosines(x, sense)
    near = F.normalize(group_means(x, sense), dim=1).numpy() @ table.unit.T  # (files, words)
    return SenseLayer(
        name,
        group_means(cosines, sense).tolist(),  # (files, files)
        cosines.tolist(),
        [[n.to_dict() for n in table.best(row, [], top)] for row in near],
    )


def group_means(x: Tensor, group: Sequence[int]) -> Tensor:
    """Rows (N, D) of groups numbered from 0 → the mean of each group (G, D)."""
    index = torch.tensor(group, dtype=torch.long, device=x.device)
    sums = x.new_zeros(max(group, default=-1) + 1, x.shape[1]).index_add_(0, index, x)
    return sums / index.bincount()[:, None]


def sense_cosines(x: Tensor, sense: Sequence[int]) -> Tensor:
    """Mean cosine (N, senses) of each vector with all others of each sense; NaN without others."""
    unit = F.normalize(x.double(), dim=1)
    own = F.one_hot(torch.tensor(sense, device=x.device)).double()  # (N, senses)
    total = unit @ (own.T @ unit).T - own * unit.square().sum(1, keepdim=True)  # not with itself
    count = own.sum(0) - own
    return torch.where(count > 0, total / count, torch.nan)
