"""The command table: which public function each command is, under which panel, with examples.

`regard A B` is `regard.A.B`: the docstring is the help, the signature the flags.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple


class Command(NamedTuple):
    """One command: its words, the function it is, three examples."""

    name: str
    function: str
    examples: tuple[str, ...]

    def load(self) -> Callable[..., Any]:
        """The function; its room's face loads no torch."""
        module, _, name = self.function.partition(":")
        function: Callable[..., Any] = getattr(import_module(module), name)
        return function

    def summary(self) -> str:
        """What it does: the first line of its docstring."""
        return (self.load().__doc__ or "").strip().splitlines()[0].removesuffix(".")


PANELS = {
    "Use": "generate translate score fill embed",
    "Make": "train tokens ladder export verify replay",
    "Judge": "evaluate check",
    "Look inside": "look",
    "Before attention": "history",
    "Structure": "discover formal",
    "House": "info models plan data doctor",
}
"""The panels of `regard --help`, and the commands and groups in each."""

GROUPS = {
    "formal": "formal languages: words drawn and tested, automata, length generalisation",
    "tokens": "texts to tokens and back: train, inspect and explain tokenizers",
}
"""What the commands of a group do."""

COMMANDS = [
    Command(
        "tokens encode",
        "regard.tokens:encode",
        (
            'regard tokens encode "Je suis un chat."',
            'regard tokens encode "Je suis un chat." --tokenizer folder --json',
            "regard tokens encode --tokenizer folder --file corpus.txt > ids.txt",
        ),
    ),
    Command(
        "tokens decode",
        "regard.tokens:decode",
        (
            "regard tokens decode 15 7 22 --tokenizer folder",
            "regard tokens decode --tokenizer folder < ids.txt",
            "regard tokens decode 15 7 22 --tokenizer folder --special --json",
        ),
    ),
    Command(
        "tokens train",
        "regard.tokens:train",
        (
            "regard tokens train corpus.txt --out folder --size 8000",
            "regard tokens train texts/ --out folder --kind wordpiece --size 30000 --wrap cls-sep",
            "zcat corpus.gz | regard tokens train - --out folder --kind chars --lossless",
        ),
    ),
    Command(
        "tokens info",
        "regard.tokens:info",
        (
            "regard tokens info folder",
            "regard tokens info folder --json",
            "regard tokens info model.gguf",
        ),
    ),
    Command(
        "tokens merges",
        "regard.tokens:merges",
        (
            'regard tokens merges "Peter Piper picked a peck of pickled peppers"',
            'regard tokens merges "low lower lowest" --top 3 --json',
            "regard tokens merges --file page.txt",
        ),
    ),
    Command(
        "tokens explain",
        "regard.tokens:explain",
        (
            'regard tokens explain "pickled peppers" --tokenizer folder',
            "regard tokens explain --tokenizer folder < words.txt",
            'regard tokens explain "pickled peppers" --tokenizer folder --json',
        ),
    ),
    Command(
        "tokens vocab",
        "regard.tokens:vocab",
        (
            "regard tokens vocab corpus.txt --min-count 2",
            "regard tokens vocab corpus.txt --kind chars --top 100",
            "regard tokens vocab texts/ --out vocab.json",
        ),
    ),
    Command(
        "discover",
        "regard.rules:discover",
        (
            "regard discover pos.txt neg.txt --checker rule.py",
            "regard discover --animals --label 'leeuw olifant leeuw olifant : no'",
            "regard discover table.csv --column text --label-column ok --chars --json",
        ),
    ),
    Command(
        "formal make",
        "regard.formal:make",
        (
            "regard formal make anbn --length 20 --count 5",
            "regard formal make dyck-2 --length 2-40 --count 1000 --negatives 1000 --out dyck.txt",
            "regard formal make grammar.txt --length 1-12 --seed 7 --json",
        ),
    ),
    Command(
        "formal test",
        "regard.formal:test",
        (
            "regard formal test anbncn lines.txt",
            "regard formal test grammar.txt lines.txt --json",
            'regard formal test ".* leeuw .* olifant .*" lines.txt',
        ),
    ),
    Command(
        "formal draw",
        "regard.formal:draw",
        (
            'regard formal draw "(a|b)*abb"',
            "regard formal draw parity --save parity.png",
            'regard formal draw "~(.* leeuw .*)" --words --save no-lion.dot',
        ),
    ),
    Command(
        "formal list",
        "regard.formal:list",
        (
            "regard formal list",
            "regard formal list --json",
            "regard formal list | grep context-sensitive",
        ),
    ),
    Command(
        "formal learn",
        "regard.formal:learn",
        (
            "regard formal learn parity even-pairs --models sinusoidal --models rnn --steps 2000",
            "regard formal learn bucket-sort --models relative --seeds 3 --out runs.jsonl",
            "regard formal learn reverse --models lstm --test-length 100 --json",
        ),
    ),
]
TABLE = {command.name: command for command in COMMANDS}
