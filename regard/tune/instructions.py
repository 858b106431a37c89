"""Instruction data: prompts with answers to learn from, from JSONL, CSV or TSV, as token ids.

A prompt is a text, a conversation (a list of messages with role and content), or instruction and
input in Alpaca's words. Where the model's folder has a chat template, prompts are put into it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from regard.data.tabular import check_columns, kind_of, read_table
from regard.data.text_files import find_files, read_lines
from regard.data.token_store import Documents, Store, prepare
from regard.data.windows import IGNORED, Examples, batch_rows
from regard.decode.prompt import prompt_ids
from regard.errors import DataError
from regard.model.batch import pad_rows
from regard.tokens.chat_template import encode_chat, find_template
from regard.tokens.tokenizer import Tokenizer

ANSWERS = {
    "sft": (("answer",), ("completion",), ("response",), ("output",)),
    "dpo": (("chosen", "rejected"),),
    "reward": (("answers",), ("chosen", "rejected")),
    "prompts": ((),),
}
"""Columns of the answers, best first; the first that are there count."""
NAMED = 5  # examples that a message names


class Instruction(NamedTuple):
    """A prompt and what was answered, best first."""

    place: str
    """File and line."""
    prompt: str | list[Mapping[str, Any]]
    answers: list[str]


def read_instructions(files: Sequence[str], kind: str, chat: bool) -> Iterator[Instruction]:
    """The rows of files; of a conversation under `messages`, each turn of the assistant is one.

    Instruction and input are put into Alpaca's words (Taori 2023) where there is no chat template.
    """
    for file in find_files(files):
        if kind == "prompts" and kind_of(file) not in ("jsonl", "ndjson", "csv", "tsv"):
            lines = enumerate(read_lines(file), 1)
            yield from (Instruction(f"{file}:{n}", text, []) for n, text in lines if text.strip())
            continue
        for line, cells in read_table(file):
            place = f"{file}:{line}"
            if kind == "sft" and "messages" in cells:
                turns = list(cells["messages"])
                for n, message in enumerate(turns):
                    if n and message["role"] == "assistant":
                        yield Instruction(place, turns[:n], [message["content"]])
                continue
            forms = ANSWERS[kind]
            names = next((form for form in forms if cells.keys() >= set(form)), forms[0])
            check_columns(file, names, cells, line)
            answers = cells["answers"] if names == ("answers",) else [cells[n] for n in names]
            if "prompt" in cells:
                prompt = cells["prompt"]
            elif answers and isinstance(answers[0], list):  # whole conversations
                prompt = answers[0][:-1]
            else:
                wanted = "instruction" if cells.keys() & {"instruction", "input"} else "prompt"
                check_columns(file, [wanted], cells, line)
                task, context = cells["instruction"], cells.get("input")
                prompt = f"{task}\n\n{context}" if context else task
                if not chat:
                    context = f"### Input:\n{context}\n\n" if context else ""
                    prompt = f"### Instruction:\n{task}\n\n{context}### Response:\n"
            texts = [a[-1]["content"] if a and isinstance(a, list) else a for a in answers]
            for value, kinds in [(prompt, str | list), *((text, str) for text in texts)]:
                if not isinstance(value, kinds):
                    fault = f"line {line}: {value!r}, a {type(value).__name__}"
                    raise DataError(f"reading {file}", fault, "a text, or a list of messages")
            yield Instruction(place, prompt, texts)


def encode_instruction(
    tokenizer: Tokenizer, instruction: Instruction, chat: bool
) -> list[list[int]]:
    """The ids of the prompt, then of each answer with what ends it."""
    _, prompt, answers = instruction
    if chat or isinstance(prompt, list):
        turns = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
        start = encode_chat(tokenizer, turns)
        said = ([*turns, {"role": "assistant", "content": answer}] for answer in answers)
        wholes = [encode_chat(tokenizer, messages, False) for messages in said]
        size = min([len(os.path.commonprefix([start, whole])) for whole in wholes] or [len(start)])
        return [start[:size], *(whole[size:] for whole in wholes)]
    start, ids = prompt_ids(tokenizer, prompt), []
    end = [tokenizer.specials["eos"]] if "eos" in tokenizer.specials else []
    for answer in answers:
        whole, size = prompt_ids(tokenizer, prompt + answer), len(start)
        # Where a token would reach from the prompt into the answer, which no one who asks writes.
        rest = whole[size:] if whole[:size] == start else tokenizer.encode(answer, special=False)
        ids.append(rest + end)
    return [start, *ids]


def instruction_store(
    path: Path, files: Sequence[str], tokenizer: Tokenizer, kind: str, length: int, tell: Any
) -> Store:
    """A store with a side for the prompt and one for each answer; missing answers are empty.

    A prompt and answer of more than `length` tokens lose the beginning of the prompt, then the end
    of the answer. Empty answers, and pairs of one and the same, teach nothing and are left out.
    """
    chat = find_template(tokenizer) is not None
    sources = find_files(files)
    sides = 1 + max((len(row.answers) for row in read_instructions(files, kind, chat)), default=1)
    left: dict[str, list[str]] = {}

    def read() -> Iterator[Documents]:
        for row in read_instructions(files, kind, chat):
            blank = not all(answer.strip() for answer in row.answers)
            same = len(row.answers) > 1 and len(set(row.answers)) == 1
            if blank or same:
                why = "left out, an empty answer" if blank else "left out, answers that are alike"
                left.setdefault(why, []).append(row.place)
                continue
            prompt, *answers = encode_instruction(tokenizer, row, chat)
            longest = max(map(len, answers), default=1)
            if len(prompt) + longest > length + 1:
                left.setdefault(f"cut to {length} tokens", []).append(row.place)
                prompt = prompt[-max(length + 1 - longest, 1) :]
                answers = [answer[: length + 1 - len(prompt)] for answer in answers]
            yield [prompt, *answers, *[[]] * (sides - 1 - len(answers))], False

    settings = {"sides": sides, "kind": kind, "length": length}
    store = prepare(path, sources, tokenizer, settings, read(), tell)
    for why, places in left.items():
        more = f" and {len(places) - NAMED:,} more" if len(places) > NAMED else ""
        tell[0](f"warning: {why}: {', '.join(places[:NAMED])}{more}")
    return store


class Comparisons:
    """Prompts with answers to compare, a row each: prompt and answer, as often as there are any.

    The answers of a row are its documents, so none sees another, and rows can be spread over
    processes. Labels are the tokens of the answers; or, with `ends`, 0 at the last token of each.
    """

    def __init__(self, store: Store, rows: int, seed: int | None, ends: bool = False) -> None:
        self.store, self.rows, self.seed, self.ends = store, max(rows, 1), seed, ends
        self.reference: Tensor | None = None
        """Log-probabilities (examples, answers) that a frozen model gives the answers."""

    def count(self, epoch: int) -> int:
        """Batches of an epoch."""
        return -(-len(self.store) // self.rows)

    def batch(self, epoch: int, index: int) -> Examples:
        """Inputs, labels, documents and mask (B, T); the loss is a mean over rows."""
        sides = self.store.sides
        numbers = batch_rows(index, self.rows, len(self.store), self.seed, epoch)
        lines = []
        for number in numbers.tolist():
            prompt, *answers = (self.store[number * sides + n] for n in range(sides))
            line = []
            for document, answer in enumerate(answer for answer in answers if len(answer)):
                # A score is given when all is read; the last token is only foretold.
                ids = np.concatenate([prompt, answer if self.ends else answer[:-1]])
                right = np.full(len(ids), IGNORED)
                right[-1 if self.ends else -len(answer) :] = 0 if self.ends else answer
                line.append(np.stack([ids, right, np.full(len(ids), document)]))
            lines.append(np.concatenate(line, 1).tolist())
        padded = zip(zip(*lines, strict=True), (0, IGNORED, -1), strict=True)
        (inputs, mask), (labels, _), (documents, _) = (pad_rows(*side) for side in padded)
        extra = {} if self.reference is None else {"reference": self.reference[numbers]}
        return Examples(inputs, labels, len(lines), mask=mask, documents=documents, extra=extra)
