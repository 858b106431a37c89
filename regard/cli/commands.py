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
    "train": "files to a trained model",
    "history": "what came before attention: word vectors, clusters, entropy, n-grams",
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
        "train ngram",
        "regard.train:ngram",
        (
            "regard train ngram train.txt --out m --order 5 --valid valid.txt",
            "regard train ngram tale.txt --out m --tokens chars --order 8",
            "regard train ngram train.txt --out m --smoothing katz --prune 0 0 1",
        ),
    ),
    Command(
        "train bow",
        "regard.train:bow",
        (
            "regard train bow train.txt --out m",
            "regard train bow train.txt --out m --k 0.1 --valid valid.txt",
            "regard train bow train.txt --out m --no-smoothing",
        ),
    ),
    Command(
        "train classes",
        "regard.train:classes",
        (
            "regard train classes train.txt --out m --classes 200 --valid valid.txt",
            "regard train classes train.txt --out m --order 2 --min-count 2",
            "regard train classes train.txt --out m --smoothing witten-bell --json",
        ),
    ),
    Command(
        "train w2v",
        "regard.train:w2v",
        (
            "regard train w2v tale.txt --out vectors",
            "regard train w2v tale.txt --out vectors --mode cbow --window 5 --dim 300",
            "regard train w2v corpus.txt.xz more.txt --out vectors.bin --lower --seed 7",
        ),
    ),
    Command(
        "train bayes",
        "regard.train:bayes",
        (
            "regard train bayes pairs.tsv --out m",
            "regard train bayes train.fr train.en --out m --k 1",
            "regard train bayes pairs.tsv.xz --out m --json",
        ),
    ),
    Command(
        "train logreg",
        "regard.train:logreg",
        (
            "regard train logreg pairs.tsv --out m",
            "regard train logreg pairs.tsv --out m --l2 0.1 --best 50",
            "regard train logreg pairs.tsv.xz --out m --steps 200 --json",
        ),
    ),
    Command(
        "train ibm1",
        "regard.train:ibm1",
        (
            "regard train ibm1 pairs.tsv --out m",
            "regard train ibm1 train.fr train.en --out m --rounds 20",
            "regard train ibm1 pairs.tsv.xz --out m --json",
        ),
    ),
    Command(
        "history neighbours",
        "regard.history:neighbours",
        (
            "regard history neighbours vectors king",
            "regard history neighbours vectors.bin king --top 20",
            "regard history neighbours vectors king --matrix out --json",
        ),
    ),
    Command(
        "history analogy",
        "regard.history:analogy",
        (
            "regard history analogy vectors man woman king",
            "regard history analogy vectors.bin France Paris Italy --mul",
            "regard history analogy vectors man woman king --top 3 --json",
        ),
    ),
    Command(
        "history cluster",
        "regard.history:cluster",
        (
            "regard history cluster vectors --k 50",
            "regard history cluster tale.txt --k 50 --brown --out classes.tsv",
            "regard history cluster tale.txt --k 20 --min-count 2 --json",
        ),
    ),
    Command(
        "history entropy",
        "regard.history:entropy",
        (
            "regard history entropy tale.txt",
            "regard history entropy tale.txt --model m",
            "regard history entropy tale.txt --order 8 --alphabet 26 --json",
        ),
    ),
    Command(
        "history guess",
        "regard.history:guess",
        (
            "regard history guess tale.txt",
            "regard history guess tale.txt --auto --letters 2000",
            "regard history guess tale.txt --auto --model m --json",
        ),
    ),
    Command(
        "history sample",
        "regard.history:sample",
        (
            "regard history sample m",
            'regard history sample m "the king of" --orders 1 2 3 --words 20',
            "regard history sample m --seed 7 --json",
        ),
    ),
]
TABLE = {command.name: command for command in COMMANDS}
