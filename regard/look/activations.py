"""Activations in memory: what passed the hooks of a model, put together from its separate runs.

Texts that a search has written are run once more, whole (`capture`). A corpus runs in batches of
texts of like length, and each text's vectors land where it stands in the corpus (`gather_rows`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from regard.errors import UsageError
from regard.look.activation_store import DOING
from regard.look.edits import POSITION
from regard.look.hooks import HookedModel
from regard.look.results import Position
from regard.look.tap_names import of_source
from regard.model.batch import Batch, like_lengths, pad_rows
from regard.tokens.tokenizer import Span, Tokenizer

BATCH_TOKENS = 1024  # of a batch of sentences, padding included
Take = Literal["last", "first", "all"]


# While texts are written --------------------------------------------------------------------------


@dataclass(frozen=True)
class Captured:
    """What passed the taps while one text was written.

    At each position the values are those of one forward pass over the finished text.
    """

    ids: Tensor
    """(T,): what was read, the prompt first. The last new token is written but never read."""
    given: int
    """How many of them were there before."""
    source: Tensor | None
    """(S,): the source of an encoder-decoder that reads text."""
    values: dict[str, Tensor]
    """Tap → (T, …), of the source's tokens (S, …); scores and patterns (H, T, S)."""


@contextmanager
def capture(hooked: HookedModel, patterns: str | Sequence[str]) -> Iterator[list[Captured]]:
    """Keep what passes taps inside the `with` block: one more for each text that is written.

    They come in the order in which searches end, each search's rows in theirs.
    """
    names, captured = hooked.find(patterns), list[Captured]()
    if hooked.keep is not None:
        problem = "another capture around this one"
        raise UsageError("capturing while a text is written", problem, "one at a time")
    hooked.keep = lambda *written: captured.extend(run_written(hooked, names, *written))
    try:
        yield captured
    finally:
        hooked.keep = None


@torch.no_grad()
def run_written(
    hooked: HookedModel, names: Sequence[str], batch: Batch, written: Sequence[Sequence[int]]
) -> Iterator[Captured]:
    """What passes taps in one run of finished texts: rows of a batch and what follows each.

    The search may have read them in any pieces, order and company: this is what they come to.
    """
    begun = [row if batch.mask is None else row[batch.mask[n]] for n, row in enumerate(batch.ids)]
    texts = [[*ids.tolist(), *new[:-1]] for ids, new in zip(begun, written, strict=True)]
    ids, mask = pad_rows(texts)
    read: dict[str, Any] = {"inputs" if batch.target is None else "target": ids, "mask": mask}
    whole = replace(batch, **read).to(hooked.model.device)
    _, seen = hooked.run(whole, names)
    for n, text in enumerate(texts):
        source, own = None, slice(len(text))
        other = slice(None) if batch.source_mask is None else batch.source_mask[n]
        if batch.target is not None and batch.inputs.dim() == 2:
            source = batch.inputs[n][other]
        values = {}
        for name, x in seen.items():
            asking = other if of_source(name) else own
            looked_at = other if name.startswith("encoder.") or ".cross." in name else own
            scores = name.rpartition(".")[2] in POSITION  # (H, T, S)
            values[name] = x[n][:, asking][..., looked_at] if scores else x[n][asking]
        yield Captured(whole.ids[n][own], len(begun[n]), source, values)


# Rows of a corpus ---------------------------------------------------------------------------------


class TextIds(NamedTuple):
    """One text as the model reads it."""

    number: int
    """Of the text in its corpus, from 0."""
    ids: Sequence[int]
    target: Sequence[int] | None = None
    """What an encoder-decoder writes, where that is run too; `ids` is its source then."""


@dataclass(frozen=True)
class Selection:
    """What is taken of each text."""

    taps: list[str]
    position: Position = "all"
    source: bool = False
    """The rows are the tokens of an encoder-decoder's source."""
    target: bool = False
    """An encoder-decoder must run its decoder too."""

    def tokens(self, text: TextIds) -> Sequence[int]:
        """The tokens of a text among which some have rows."""
        return text.ids if self.source or text.target is None else text.target

    def columns(self, length: int) -> range:
        """The tokens that a text of so many has a row for."""
        return range(length) if self.position == "all" else range(length)[-1:]


def select_taps(
    hooked: HookedModel, patterns: str | Iterable[str], position: Position = "all"
) -> Selection:
    """The taps that patterns name, if all hold vectors of the same tokens."""
    taps, model = hooked.find(patterns), hooked.model
    for name in taps:
        if name.rpartition(".")[2] in POSITION:
            problem = f"{name}, which has numbers for two tokens each"
            fix = "`regard look attention` shows patterns; extract attn.z or attn.out"
            raise UsageError(DOING, problem, "taps that hold a vector for each token", fix)
        if ".back." in name or (name == "logits" and model.config.head.take != "all"):
            why = "reads from the end" if ".back." in name else "has one answer for a whole text"
            near = "encoder.ahead.*.state" if ".back." in name else "blocks.*.resid_post"
            raise UsageError(DOING, f"{name}, which {why}", f"taps such as {near}")
    pair = model.config.target is not None
    sides = {pair and of_source(name) for name in taps}
    if len(sides) > 1:
        problem, fix = "taps of the source's tokens and of the target's", "'encoder.*', 'decoder.*'"
        raise UsageError(DOING, problem, "one of the two", f"run once for each: {fix}")
    target = pair and not all(name.startswith("encoder.") for name in taps)
    return Selection(taps, position, True in sides, target)


def read_batch(
    hooked: HookedModel,
    texts: Sequence[TextIds],
    selection: Selection,
    columns: Sequence[Sequence[int]],
) -> dict[str, Tensor]:
    """For each tap its vectors (N, D) of some texts, one text after the other, on the device.

    `columns` are the tokens of each text that have rows.
    """
    ids, mask = pad_rows([text.ids for text in texts])
    batch = Batch(ids, mask=mask)
    if selection.target:
        target, written = pad_rows([text.target or [] for text in texts])
        batch = Batch(ids, target, mask=written, source_mask=mask)
    batch, model = batch.to(hooked.model.device), hooked.model
    rows = dict[str, Tensor]()
    with hooked.reading(selection.taps) as hooks:
        if "logits" in selection.taps:
            model(batch)
        elif model.config.target is not None and batch.target is None:
            model.encode(batch)
        else:
            model.hidden(batch)
        for name, hook in hooks.items():
            x = hook.seen  # (B, T, …)
            if x is None:
                problem = f"{name}, which nothing passes"
                raise UsageError(DOING, problem, "a tap that this model uses")
            x = x.flatten(2)  # heads side by side
            at = [row * x.shape[1] + n for row, own in enumerate(columns) for n in own]
            index = torch.tensor(at, dtype=torch.long, device=x.device)
            rows[name] = x.flatten(0, 1).index_select(0, index).float()
    return rows


@torch.no_grad()
def gather_rows(
    hooked: HookedModel,
    texts: Sequence[TextIds],
    selection: Selection,
    tokens: int,
    columns: Sequence[Sequence[int]] | None = None,
) -> dict[str, Tensor]:
    """For each tap the rows (N, D) of texts in their order, on the CPU; and where they come from.

    Texts of like length run together, at most so many `tokens` at once.
    """
    own = [selection.tokens(text) for text in texts]
    columns = [selection.columns(len(row)) for row in own] if columns is None else columns
    starts = [0, *accumulate(map(len, columns))]
    rows = {
        "text": [text.number for text, chosen in zip(texts, columns, strict=True) for _ in chosen],
        "position": [n for chosen in columns for n in chosen],
        "token": [row[n] for row, chosen in zip(own, columns, strict=True) for n in chosen],
    }
    gathered = {name: torch.tensor(numbers) for name, numbers in rows.items()}
    for some in like_lengths([len(text.ids) + len(text.target or ()) for text in texts], tokens):
        seen = read_batch(hooked, [texts[n] for n in some], selection, [columns[n] for n in some])
        places = [row for n in some for row in range(starts[n], starts[n + 1])]
        for name, x in seen.items():
            if name not in gathered:
                gathered[name] = torch.empty(starts[-1], x.shape[1])
            gathered[name][places] = x.cpu()
    return gathered


# Words --------------------------------------------------------------------------------------------


class WordTokens(NamedTuple):
    """A sentence as the model reads it, and the tokens that stand for its words."""

    ids: list[int]
    words: list[int]
    """Words that have a token; one with several that all stand for it, as often."""
    columns: list[int]
    """The token that stands for each of them."""


def find_word_tokens(
    tokenizer: Tokenizer, text: str, spans: Sequence[Span], take: Take = "last"
) -> WordTokens:
    """Ids of a text, and of each word (a span of characters) its first, last, or every token."""
    tokens = tokenizer.offsets(text)
    real = [at for at, (first, last) in enumerate(tokens) if first < last]  # in the text's order
    firsts, lasts = [tokens[at][0] for at in real], [tokens[at][1] for at in real]
    words, columns = list[int](), list[int]()
    for n, (start, end) in enumerate(spans):
        own = real[bisect_right(lasts, start) : bisect_left(firsts, end)]
        own = {"last": own[-1:], "first": own[:1], "all": own}[take]
        words += [n] * len(own)
        columns += own
    return WordTokens(tokenizer.encode(text), words, columns)


def word_vectors(
    hooked: HookedModel, sentences: Sequence[WordTokens], taps: Sequence[str]
) -> dict[str, Tensor]:
    """For each tap the vectors (N, D) of all words that have a token, in order, on the CPU."""
    texts = [TextIds(n, sentence.ids) for n, sentence in enumerate(sentences)]
    columns = [sentence.columns for sentence in sentences]
    rows = gather_rows(hooked, texts, Selection(list(taps)), BATCH_TOKENS, columns)
    return {tap: rows[tap] for tap in taps}
