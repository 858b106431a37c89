"""What a model with an output head of classes, tags or numbers says of texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.ambient import current, note
from regard.data import labelled_texts
from regard.data.labelled_texts import LabelledText, read_number
from regard.errors import DataError, UsageError
from regard.evaluate.classification_scores import score_classes, score_numbers
from regard.evaluate.results import ClassScores, NumberScores
from regard.kit import Kit
from regard.loading import wrong_network
from regard.look.activations import find_word_tokens
from regard.look.text_limits import max_tokens_of
from regard.model.batch import Batch, id_batch, like_lengths
from regard.model.model import Model
from regard.tokens.tokenizer import Tokenizer
from regard.tune.results import Prediction
from regard.verbs import group_texts

BATCH_TOKENS = 8192
GROUP = 1024  # texts that are read before the first is answered
NO_TAG = "_"


Collate = Callable[[list[Any]], Batch]

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


def read_examples(
    path: Path | str, kind: str, text: str | None, label: str | None = None, labelled: bool = True
) -> Iterator[LabelledText]:
    """The texts, or sentences, of a file for a kind of task."""
    if kind == "tag":
        return labelled_texts.read_tagged(path, label, labelled=labelled)
    return labelled_texts.read_labelled(
        path, text, label, several=kind == "several", labelled=labelled
    )


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
    tokenizer: Tokenizer, texts: Sequence[str], limit: int
) -> tuple[list[list[int]], set[int]]:
    """(ids of each text, which were too long): those lose their end, but a control token there."""
    rows, control = tokenizer.encode_batch(list(texts)), set(tokenizer.specials.values())
    cut = {n for n, row in enumerate(rows) if len(row) > limit}
    for n in cut:
        last = rows[n][-1:] if rows[n][-1] in control else []
        rows[n] = [*rows[n][: limit - len(last)], *last]
    return rows, cut


def word_columns(tokenizer: Tokenizer, sentence: LabelledText, row: Sequence[int]) -> list[int]:
    """Where in a row of ids each word begins; −1 where it has no token, or was cut off."""
    ids, words, columns = find_word_tokens(tokenizer, sentence.text, sentence.spans, "first")
    places = [-1] * len(sentence.spans)
    for word, column in zip(words, columns, strict=True):
        places[word] = column if list(row[: column + 1]) == ids[: column + 1] else -1
    return places


def predict_rows(
    kit: Kit, task: Task, examples: Sequence[LabelledText], doing: str
) -> list[Tensor]:
    """Probabilities of classes (C,) of each text, or (W, C) of its words; or its number (1,).

    A word without a token, or past the last one that the model reads, has none: zeros.
    """
    tokenizer, limit = kit.text_tokenizer, max_tokens_of(kit, doing)
    rows, cut = encode_texts(tokenizer, [example.text for example in examples], limit)
    if cut:
        note(f"cut at their end: {len(cut):,} of {len(rows):,} texts, of over {limit:,} tokens")
    scores = run_rows(kit.model, rows, partial(id_batch, pad=tokenizer.specials.get("pad", 0)))
    if task.kind == "regress":
        return [score * task.spread + task.mean for score in scores]
    if task.kind == "several":
        return [score.sigmoid() for score in scores]
    chances = [score.softmax(-1) for score in scores]
    if task.kind == "tag":
        for n, (example, row) in enumerate(zip(examples, rows, strict=True)):
            places = torch.tensor(word_columns(tokenizer, example, row))
            chances[n] = chances[n][places] * (places >= 0)[:, None]
    return chances


def score_file(
    kit: Kit, path: Path | str, wanted: str, text: str | None = None, label: str | None = None
) -> ClassScores | NumberScores:
    """How right a model is on a file; on a class that it never saw it is always wrong."""
    doing = f"evaluating on {path}"
    task = read_task(kit, doing)
    kind = "classify" if task.kind == "several" else task.kind
    if kind != wanted:
        expected = f"one for `tune {wanted}`, or `evaluate {kind}`"
        raise UsageError(f"{doing} with {kit.path}", f"a model for `tune {kind}`", expected)
    examples = list(read_examples(path, task.kind, text, label))
    if not examples:
        raise DataError(doing, "no texts", "one or more")
    answers = predict_rows(kit, task, examples, doing)
    if kind == "regress":
        return score_numbers([read_number(e) for e in examples], torch.cat(answers).tolist())
    labels = [(n, label) for n, example in enumerate(examples) for label in example.labels]
    return score_answers(doing, task, labels, answers)


def score_answers(
    doing: str, task: Task, labels: Sequence[tuple[int, str]], answers: Sequence[Tensor]
) -> ClassScores:
    """Figures of probabilities, (C,) or (W, C) each; `labels` have the numbers of their texts."""
    there = labelled_texts.sort_classes([label for _, label in labels])
    new = [label for label in there if label not in task.names]
    if new == there:
        problem = f"only {', '.join(there[:10])}" if there else "no labels"
        raise DataError(doing, problem, f"some of {', '.join(task.names[:20])}")
    names = task.names + new
    numbers = {name: n for n, name in enumerate(names)}
    chances = torch.cat([answer.view(-1, len(task.names)) for answer in answers])
    chances = F.pad(chances, (0, len(new)))
    texts, gold = torch.tensor([(n, numbers[label]) for n, label in labels]).view(-1, 2).unbind(1)
    if task.kind == "several":
        sets = torch.zeros_like(chances, dtype=torch.bool)
        sets[texts.long(), gold.long()] = True
        texts, gold = torch.arange(len(sets)), sets
    elif without := int((chances == 0).all(1).sum()):
        note(f"{without:,} words have no token of their own: their tag is {NO_TAG}, and wrong")
        names, chances = [*names, NO_TAG], torch.cat([chances, (chances == 0).all(1, True)], 1)
    return score_classes(gold, chances, names, texts, current().seed)


def predict_file(kit: Kit, path: Path | str, text: str | None) -> Iterator[Prediction]:
    """What the model says of each text, or of the words of each sentence, of a file."""
    doing = f"predicting labels of {path}"
    task = read_task(kit, doing)
    for group in group_texts(read_examples(path, task.kind, text, labelled=False), GROUP):
        answers = predict_rows(kit, task, group, doing)
        for example, chances in zip(group, answers, strict=True):
            if task.kind == "regress":
                yield Prediction(example.text, float(chances))
            elif task.kind == "several":
                chosen = (chances > 0.5).nonzero()[:, 0].tolist()
                said = [task.names[n] for n in chosen]
                yield Prediction(example.text, said, chances[chosen].tolist())
            elif task.kind == "classify":
                best = int(chances.argmax())
                yield Prediction(example.text, task.names[best], float(chances[best]))
            else:
                sure, tags = chances.max(-1)
                pairs = zip(tags.tolist(), sure.tolist(), strict=True)
                said = [task.names[n] if p else NO_TAG for n, p in pairs]
                words = [example.text[start:end] for start, end in example.spans]
                yield Prediction(example.text, said, sure.tolist(), words)
