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
    "train": "files to a trained model, resumable with the same bits",
    "tokens": "texts to tokens and back: train, inspect and explain tokenizers",
}
"""What the commands of a group do."""

COMMANDS = [
    Command(
        "train lm",
        "regard.train:lm",
        (
            "regard train lm tale.txt --out run --steps 1000 --tokens chars",
            "regard train lm --out run --resume",
            "torchrun --nproc-per-node 2 -m regard train lm texts/ --out run --preset gpt2",
        ),
    ),
    Command(
        "train mlm",
        "regard.train:mlm",
        (
            "regard train mlm tale.txt --out run --steps 1000",
            "regard train mlm texts/ --valid dev.txt --out run --preset bert-base --dry-run",
            "regard train mlm tale.txt --out run --mask 0.3 --json",
        ),
    ),
    Command(
        "train seq2seq",
        "regard.train:seq2seq",
        (
            "regard train seq2seq pairs.tsv --valid dev.tsv --out run --lr 1e-3",
            "regard train seq2seq train.fr train.en --out run --preset transformer-base",
            "regard train seq2seq pairs.tsv --out run --family gru --attention additive",
        ),
    ),
    Command(
        "train rnn",
        "regard.train:rnn",
        (
            "regard train rnn tale.txt --out run --steps 1000 --tokens words",
            "regard train rnn tale.txt --out run --dim 128 --depth 1 --json",
            "regard train rnn --out run --resume --steps 2000",
        ),
    ),
    Command(
        "train lstm",
        "regard.train:lstm",
        (
            "regard train lstm tale.txt --out run --steps 1000 --tokens words",
            "regard train lstm tale.txt --out run --dim 128 --depth 1 --json",
            "regard train lstm --out run --resume --steps 2000",
        ),
    ),
    Command(
        "train gru",
        "regard.train:gru",
        (
            "regard train gru tale.txt --out run --steps 1000 --tokens words",
            "regard train gru tale.txt --out run --dim 128 --depth 1 --json",
            "regard train gru --out run --resume --steps 2000",
        ),
    ),
    Command(
        "train mlp",
        "regard.train:mlp",
        (
            "regard train mlp tale.txt --out run --steps 1000 --tokens words",
            "regard train mlp tale.txt --out run --dim 128 --depth 1 --json",
            "regard train mlp --out run --resume --steps 2000",
        ),
    ),
    Command(
        "verify",
        "regard.train:verify",
        (
            "regard verify resume",
            "regard verify resume --kind seq2seq --kills 20",
            "regard verify resume --kills 3 --json",
        ),
    ),
    Command(
        "replay",
        "regard.train:replay",
        (
            "regard replay run/receipt.json",
            "regard replay run --json",
            "regard replay run/receipt.json --keep folder",
        ),
    ),
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
]
TABLE = {command.name: command for command in COMMANDS}
