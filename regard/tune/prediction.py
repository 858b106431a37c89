"""What a model with an output head of classes, tags or numbers says of texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.ambient import current, note
from regard.data.example_store import leave_out
from regard.data.labelled_texts import LabelledText, read_labelled, sort_classes
from regard.data.token_store import Say
from regard.errors import DataError, UsageError
from regard.evaluate.classification_scores import score_classes, score_numbers
from regard.kit import Kit
from regard.loading import wrong_network
from regard.look.activations import find_word_tokens
from regard.look.text_limits import max_tokens_of
from regard.model.batch import Batch, id_batch, like_lengths
from regard.model.model import Model
from regard.result import Failed
from regard.tokens.tokenizer import Tokenizer
from regard.tune.results import Prediction
from regard.verbs import group_texts

BATCH_TOKENS = 8192
GROUP = 1024  # texts that are read before the first is answered
NO_TAG = "_"


Collate = Callable[[list[Any]], Batch]
Answer = tuple[Tensor, list[str], Prediction | Failed]
"""Probabilities, labels as they are written, and what is said, or why nothing."""

PROBLEMS = {
    "classify": "single_label_classification",
    "several": "multi_label_classification",
    "regress": "regression",
}
"""What transformers calls the kinds of tasks."""


class Task(NamedTuple):
    """What an output head says."""

    kind: str
    """classify, several labels a text, tag or regress."""
    names: list[str]
    """Of its classes or tags; of numbers one, their column."""
    mean: float = 0.0
    spread: float = 1.0
    """Of the numbers that it was trained on; its own are how far from the mean, in spreads."""
    weights: Tensor | None = None
    """(C,): of the classes in the loss."""

    def describe(self) -> dict[str, Any]:
        """What config.json says of it, as transformers calls it."""
        said: dict[str, Any] = {"id2label": {str(n): name for n, name in enumerate(self.names)}}
        said["label2id"] = {name: n for n, name in enumerate(self.names)}
        if self.kind in PROBLEMS:
            said["problem_type"] = PROBLEMS[self.kind]
        if self.kind == "regress":
            said |= {"label_mean": self.mean, "label_std": self.spread}
        return said

    def chances(self, scores: Tensor) -> Tensor:
        """Probabilities of scores (…, C); of a number itself."""
        if self.kind == "regress":
            return scores * self.spread + self.mean
        return scores.sigmoid() if self.kind == "several" else scores.softmax(-1)

    def answer(self, text: str, chances: Tensor, words: list[str] | None = None) -> Prediction:
        """What is said of a text, or whatever else has that name, by its probabilities (C,).

        Of `words` those are (W, C); where they are 0 a word has no token.
        """
        if self.kind == "regress":
            return Prediction(text, float(chances))
        if self.kind == "several":
            chosen = (chances > 0.5).nonzero()[:, 0].tolist()
            return Prediction(text, [self.names[n] for n in chosen], chances[chosen].tolist())
        sure, best = chances.max(-1)
        if words is None:
            return Prediction(text, self.names[int(best)], float(sure))
        pairs = zip(best.tolist(), sure.tolist(), strict=True)
        tags = [self.names[n] if chance else NO_TAG for n, chance in pairs]
        return Prediction(text, tags, sure.tolist(), words)


def read_task(kit: Kit, doing: str) -> Task:
    """What the folder of a classifier says of its head; other models are refused."""
    head, config = kit.model.config.head, kit.config
    labels = config.get("id2label") or {}
    if head.size is None or (head.take == "all" and head.size != len(labels)):
        raise wrong_network(doing, kit, "a classifier or tagger: `regard tune` makes one")
    names = [str(labels.get(str(n), f"LABEL_{n}")) for n in range(head.size)]
    if head.take == "all":
        return Task("tag", names)
    problem = config.get("problem_type")
    if problem == PROBLEMS["regress"] or head.size == 1:
        return Task("regress", names, config.get("label_mean", 0.0), config.get("label_std", 1.0))
    return Task("several" if problem == PROBLEMS["several"] else "classify", names)


@torch.no_grad()
def run_rows(
    model: Model,
    rows: Sequence[Any],
    collate: Collate,
    call: Callable[[Batch], Tensor] | None = None,
) -> list[Tensor]:
    """Scores of rows, (C,) or (T, C) each, or what `call` makes of a batch, on the CPU."""
    out: list[Tensor] = [torch.empty(0)] * len(rows)
    lengths = [len(row) for row in rows]
    for some in like_lengths(lengths, BATCH_TOKENS):
        scores = (call or model)(collate([rows[n] for n in some]).to(model.device)).float().cpu()
        for place, n in enumerate(some):
            out[n] = scores[place] if scores.dim() == 2 else scores[place, : lengths[n]]
    return out


def encode_texts(
    tokenizer: Tokenizer, texts: Sequence[LabelledText], limit: int, say: Say
) -> list[list[int]]:
    """Ids of each text; one that is too long loses its end, but a control token there."""
    rows = tokenizer.encode_batch([text.text for text in texts])
    control = set(tokenizer.specials.values())
    cut = [n for n, row in enumerate(rows) if len(row) > limit]
    for n in cut:
        last = rows[n][-1:] if rows[n][-1] in control else []
        rows[n] = [*rows[n][: limit - len(last)], *last]
    if cut:
        many = f"{len(cut):,} of {len(rows):,} texts, of more than {limit:,} tokens"
        say(f"cut at their end: {many}")
    return rows


def word_columns(tokenizer: Tokenizer, sentence: LabelledText, row: Sequence[int]) -> list[int]:
    """Where in a row of ids each word begins; −1 where it has no token, or was cut off."""
    ids, words, columns = find_word_tokens(tokenizer, sentence.text, sentence.spans, "first")
    places = [-1] * len(sentence.spans)
    for word, column in zip(words, columns, strict=True):
        places[word] = column if list(row[: column + 1]) == ids[: column + 1] else -1
    return places


def predict_texts(
    kit: Kit, doing: str, path: Path | str, text: str | None, label: str | None, labelled: bool
) -> Iterator[Answer]:
    """What a model says of each text, or of the words of each sentence, of a file.

    A word without a token, or past the last one that the model reads, has probabilities of 0.
    """
    task, limit, tokenizer = read_task(kit, doing), max_tokens_of(kit, doing), kit.text_tokenizer
    collate = partial(id_batch, pad=tokenizer.specials.get("pad", 0))
    for group in group_texts(read_labelled(path, task.kind, text, label, labelled), GROUP):
        rows = encode_texts(tokenizer, group, limit, note)
        scored = zip(group, rows, run_rows(kit.model, rows, collate), strict=True)
        for each, row, scores in scored:
            chances, words = task.chances(scores), None
            if task.kind == "tag":
                places = torch.tensor(word_columns(tokenizer, each, row))
                chances = chances[places] * (places >= 0)[:, None]
                words = [each.text[start:end] for start, end in each.spans]
            yield chances, each.labels, task.answer(each.text, chances, words)


def score_file(
    kit: Kit, path: Path | str, wanted: str, text: str | None = None, label: str | None = None
) -> Any:
    """How right a model is on a file of texts."""
    doing = f"evaluating on {path}"
    task = read_task(kit, doing)
    kind = "classify" if task.kind == "several" else task.kind
    if kind != wanted:
        expected = f"one for `tune {wanted}`, or `evaluate {kind}`"
        raise UsageError(f"{doing} with {kit.path}", f"a model for `tune {kind}`", expected)
    return score_answers(kit, doing, predict_texts(kit, doing, path, text, label, True))


def score_answers(kit: Kit, doing: str, answers: Iterable[Answer]) -> Any:
    """ClassScores or NumberScores of answers; a class that the model never saw is always wrong."""
    there, task = [*leave_out(answers, note)], read_task(kit, doing)
    if not there:
        raise DataError(doing, "nothing to judge", "one example or more")
    chances = torch.cat([chances.view(-1, len(task.names)) for chances, *_ in there])
    labels = [(n, label) for n, (_, some, _) in enumerate(there) for label in some]
    if task.kind == "regress":
        return score_numbers([float(label) for _, label in labels], chances[:, 0].tolist())
    seen = sort_classes([label for _, label in labels])
    new = [label for label in seen if label not in task.names]
    if seen and new == seen:
        expected = f"some of {', '.join(task.names[:20])}"
        raise DataError(doing, f"only {', '.join(new[:10])}", expected)
    names = task.names + new
    chances = F.pad(chances, (0, len(new)))
    pairs = torch.tensor([(n, names.index(label)) for n, label in labels])
    texts, gold = pairs.view(-1, 2).unbind(1)
    if task.kind == "several":
        sets = torch.zeros_like(chances, dtype=torch.bool)
        sets[texts.long(), gold.long()] = True
        texts, gold = torch.arange(len(sets)), sets
    elif without := int((chances == 0).all(1).sum()):
        note(f"{without:,} words have no token of their own: their tag is {NO_TAG}, and wrong")
        names, chances = [*names, NO_TAG], torch.cat([chances, (chances == 0).all(1, True)], 1)
    return score_classes(gold, chances, names, texts, current().seed)
