"""The command table: the public functions that are commands, in the panels of `regard --help`.

`regard A B` is `regard.A.B`: its signature gives the flags, its docstring the help, the lines of
its `Example:` that begin with $ the examples.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple, cast

import regard

PANELS = {
    "Use": tuple("generate chat translate score fill embed predict draw transcribe".split()),
    "Make": ("train", "tune", "tokens", "ladder", "export", "verify", "replay"),
    "Judge": ("evaluate", "check"),
    "Look inside": ("look", "nvib"),
    "Before attention": ("history",),
    "Structure": ("discover", "formal"),
    "House": ("info", "models", "plan", "data", "doctor", "demo"),
}
"""Commands and groups, as the help shows them."""

GROUPS = {
    "train": "lm mlm seq2seq nvae rnn lstm gru mlp image pixels sound graph ngram bow classes w2v "
    "bayes logreg ibm1 shortlist memory",
    "tune": "classify tag regress sft reward dpo ppo grpo merge",
    "history": "neighbours analogy cluster entropy guess sample lookup",
    "data": "check",
    "evaluate": "lm translate classify tag regress nvae image pixels sound graph winograd blimp "
    "fewshot ioi analogies similarity",
    "formal": "make test draw list learn",
    "look": "attention heads lens explain patch circuit probe extract gradients",
    "nvib": "reconstruct sample interpolate",
    "tokens": "encode decode train info merges explain vocab",
}
"""The commands of each group; the group's help is the docstring of the room of that name."""

ALONE = [word for words in PANELS.values() for word in words if word not in GROUPS]
"""Commands without a group."""


class Command(NamedTuple):
    """One command, by its words."""

    name: str

    def load(self) -> Callable[..., Any]:
        """The function; its room's face loads no torch."""
        function: Any = reduce(getattr, self.name.split(), regard)
        return cast(Callable[..., Any], function)

    def summary(self) -> str:
        """What it does: the first line of its docstring."""
        return (self.load().__doc__ or "").strip().splitlines()[0].removesuffix(".")

    def examples(self) -> list[str]:
        """How it is called."""
        lines = (line.strip() for line in (self.load().__doc__ or "").splitlines())
        return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


COMMANDS = [Command(f"{group} {name}") for group in GROUPS for name in GROUPS[group].split()]
COMMANDS += [Command(name) for name in ALONE]
TABLE = {command.name: command for command in COMMANDS}
