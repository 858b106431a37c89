"""Multiple choice: the answer whose tokens are likeliest after a prompt, perhaps with examples.

Few-shot prompts (Brown 2020) hold k examples of the training file before each question; several
orders draw other ones. The calibrated answer divides by what the model would say to a prompt
without content (Zhao 2021). Minimal pairs (BLiMP, Warstadt 2020) are questions without a prompt:
which of two sentences is likelier. Options are scored by the sum or the mean of the
log-probabilities of their tokens, cut together with what stands before them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.data.labelled_texts import bare_columns
from regard.data.statistics import check_finite, share_interval
from regard.data.tabular import TableRow, check_columns, read_table
from regard.decode.prompt import prompt_ids
from regard.decode.scoring import score_endings
from regard.errors import DataError, UsageError
from regard.evaluate.results import Accuracy, FewShotScore, MinimalPairs

if TYPE_CHECKING:
    from regard.kit import Kit

DOING = "answering questions"
CONTENT_FREE = ("N/A", "", "[MASK]")  # as Zhao 2021 has them
BETWEEN = "\n\n"  # examples of a prompt
DRAWS = 1000  # of the bootstrap


class Question(NamedTuple):
    """Something asked, and what may be answered."""

    cells: Mapping[str, Any]
    """What the template has names for."""
    options: tuple[str, ...]
    answer: int


def read_questions(paths: Iterable[str | Path], words: Mapping[str, str]) -> list[list[Question]]:
    """Of each file its rows, with `choices` and `answer`, or with a `label` of those of all files.

    A .tsv without header has text and label; `words` are what labels are called in prompts.
    """
    tables = list[tuple[str, list[TableRow]]]()
    for path in paths:
        rows = list(read_table(path, names=bare_columns(path)))
        tables.append((f"reading {path}", rows))
        for line, cells in rows:
            check_columns(path, ["answer" if "choices" in cells else "label"], cells, line)
    every = [cells for _, rows in tables for _, cells in rows]
    labels = sorted({str(cells["label"]) for cells in every if "label" in cells})

    def question(doing: str, line: int, cells: Mapping[str, Any]) -> Question:
        own = "choices" in cells
        right, options = cells["answer" if own else "label"], cells["choices"] if own else labels
        options = [str(option) for option in options]
        place = options.index(str(right)) if str(right) in options else right
        if not isinstance(place, int) or not 0 <= place < len(options) > 1:
            fault = f"line {line}: the answer {right!r} of {len(options)}: {options}"
            raise DataError(doing, fault, "one of two or more, by its text or its place from 0")
        return Question(cells, tuple(o if own else words.get(o, o) for o in options), place)

    return [[question(doing, *row) for row in rows] for doing, rows in tables]


def fill_template(template: str, cells: Mapping[str, Any]) -> str:
    """The prompt before the answer."""
    try:
        return template.partition("{answer}")[0].format(**cells)
    except (KeyError, IndexError, ValueError) as error:
        fault = f"{error} in the template {template!r}"
        raise UsageError(DOING, fault, f"{{answer}} and columns: {', '.join(cells)}") from None


def score_options(
    kit: Kit, prompts: Sequence[str], options: Sequence[Sequence[str]], mean: bool = False
) -> list[list[float]]:
    """For each prompt the score of each of its options; what prompts share is read once."""
    tokenizer, rows, begins = kit.text_tokenizer, list[list[int]](), list[int]()
    start = [tokenizer.specials[role] for role in ("bos", "eos") if role in tokenizer.specials][:1]
    asked = ((p, text) for p, texts in zip(prompts, options, strict=True) for text in texts)
    for prompt, text in asked:
        ids, spans = prompt_ids(tokenizer, prompt + text), tokenizer.offsets(prompt + text)
        before = len(prompt.rstrip())  # a blank before the answer counts with every answer
        begin = sum(end <= before for _, end in spans[: len(ids)])
        if begin == 0:  # nothing stands before it: the token that begins texts
            ids, begin = [*start, *ids], 1
        if not text.strip() or begin >= len(ids) or (kit.room is not None and len(ids) > kit.room):
            fault = f"{len(ids)} tokens, {begin} before the answer: … {(prompt + text)[-80:]!r}"
            raise DataError(DOING, fault, f"an answer, and at most {kit.room or 'any'} tokens")
        rows.append(ids)
        begins.append(begin)
    logprobs = score_endings(kit.model, rows, begins)
    scores = [sum(each) / (len(each) if mean else 1) for each in logprobs]
    check_finite(DOING, scores)
    left = iter(scores)
    return [[next(left) for _ in texts] for texts in options]


def accuracy(right: int, asked: int) -> Accuracy:
    """A share of right answers; 0 where nothing was asked."""
    return Accuracy(right / asked if asked else 0.0, right, asked, *share_interval(right, asked))


def evaluate_fewshot(
    kit: Kit,
    questions: Sequence[Question],
    pool: Sequence[Question],
    template: str,
    orders: Mapping[int, int],
    mean: bool,
    seed: int,
) -> list[FewShotScore]:
    """Accuracy, plain and calibrated, with each number of examples in so many orders."""
    alike = list(dict.fromkeys(each.options for each in questions))
    texts = CONTENT_FREE[: None if len(alike) == 1 else 1]  # own choices: for each question
    free = [dict.fromkeys(questions[0].cells, text) for text in texts]
    asked = [(each.cells, each.options) for each in questions]
    asked += [(cells, options) for options in alike for cells in free]
    end = template.partition("{answer}")[2] + BETWEEN
    results, first = list[FewShotScore](), np.zeros(0)
    for k in sorted(orders):
        right = list[list[list[bool]]]()  # plain and calibrated, of each order
        for order in range(orders[k]):
            chosen = np.random.default_rng(seed + order).permutation(len(pool))[:k]
            shots = [pool[n] for n in chosen]
            examples = [fill_template(template, q.cells) + q.options[q.answer] + end for q in shots]
            prompts = ["".join(examples) + fill_template(template, cells) for cells, _ in asked]
            scores = score_options(kit, prompts, [options for _, options in asked], mean)
            prior: dict[tuple[str, ...], Any] = dict.fromkeys(alike, -np.inf)
            for (_, options), row in list(zip(asked, scores, strict=True))[len(questions) :]:
                prior[options] = np.logaddexp(prior[options], row - np.logaddexp.reduce(row))
            judged = zip(questions, scores, strict=False)
            both = [(q.answer, row, row - prior[q.options]) for q, row in judged]
            right.append([[np.argmax(row) == answer for row in rows] for answer, *rows in both])
        hits = np.array(right)  # (orders, questions, 2)
        first = first if results else hits[:, :, 0].mean(0)
        hits = np.dstack([hits, hits[:, :, 0] - first])  # plain, calibrated, gain
        each, means, ends = hits[:, :, 0].mean(1), hits.mean((0, 1)), bootstrap(hits, seed)
        (own, calibrated, gain), sides = means, ends.T
        figures = own, *sides[0], gain, *sides[2], each.min(), each.max(), calibrated, *sides[1]
        results.append(FewShotScore(k, *figures))
    return results


def bootstrap(right: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """95 % intervals (2, …) of the mean of (orders, questions, …): both are drawn many times."""
    dice, (orders, asked) = np.random.default_rng(seed), right.shape[:2]
    means = [
        right[dice.integers(orders, size=orders)][:, dice.integers(asked, size=asked)].mean((0, 1))
        for _ in range(DRAWS)
    ]
    return np.asarray(np.quantile(means, (0.025, 0.975), axis=0))


def evaluate_pairs(kit: Kit, path: str | Path, count: int | None, mean: bool) -> MinimalPairs:
    """Of which pairs the acceptable sentence is likelier; a tie is not right."""
    seen, names, options = Counter[str](), list[tuple[str, str]](), list[tuple[str, str]]()
    for _, cells in read_table(path, ("sentence_good", "sentence_bad")):
        name = str(cells.get("UID", "all"))
        seen[name] += 1
        if count is None or seen[name] <= count:
            names.append((name, str(cells.get("linguistics_term", name))))
            options.append((cells["sentence_good"], cells["sentence_bad"]))
    if not options:
        raise DataError(f"reading {path}", "no pairs", "one or more")
    right = [good > bad for good, bad in score_options(kit, [""] * len(options), options, mean)]
    groups = list[dict[str, Accuracy]]()
    for named in zip(*names, strict=True):
        asked = Counter(named)
        hits = Counter(name for name, is_right in zip(named, right, strict=True) if is_right)
        groups.append({name: accuracy(hits[name], asked[name]) for name in sorted(asked)})
    total = accuracy(sum(right), len(right))
    return MinimalPairs(**vars(total), paradigms=groups[0], phenomena=groups[1])
