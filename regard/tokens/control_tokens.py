"""Roles of control tokens (bos, eos, pad, …) and where a model folder says who plays them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from regard.errors import DataError

WELL_KNOWN = {
    "bos": ("<s>", "<bos>", "<|begin_of_text|>", "<|endoftext|>"),
    "eos": ("</s>", "<eos>", "<|end_of_text|>", "<|endoftext|>"),
    "pad": ("<pad>", "[PAD]"),
    "unk": ("<unk>", "[UNK]"),
    "cls": ("[CLS]",),
    "sep": ("[SEP]",),
    "mask": ("[MASK]", "<mask>"),
}
"""Each role with the spellings that published tokenizers use for it, most usual first."""


@dataclass(frozen=True)
class TokenizerSettings:
    """The parsed JSON files that lie beside a vocabulary."""

    tokenizer: dict[str, Any] = field(default_factory=dict)
    """tokenizer_config.json"""
    special: dict[str, Any] = field(default_factory=dict)
    """special_tokens_map.json"""
    model: dict[str, Any] = field(default_factory=dict)
    """config.json"""
    added: dict[str, int] = field(default_factory=dict)
    """added_tokens.json: spelling to id"""

    @property
    def model_type(self) -> str:
        """The model family that config.json names, or ''."""
        return str(self.model.get("model_type", ""))

    @property
    def outside(self) -> dict[int, dict[str, Any]]:
        """Id to token of what is added to the vocabulary file, with {"content", "special", …}."""
        decoder = self.tokenizer.get("added_tokens_decoder", {})
        controls = {self.token(role) for role in WELL_KNOWN} | set().union(*WELL_KNOWN.values())
        tokens = {id: {"content": t, "special": t in controls} for t, id in self.added.items()}
        return dict(sorted((tokens | {int(id): value for id, value in decoder.items()}).items()))

    def token(self, role: str, default: str = "") -> str:
        """The spelling that the files give to a role, or the default."""
        for source in (self.tokenizer, self.special):
            value = source.get(f"{role}_token")
            spelling = value.get("content") if isinstance(value, dict) else value
            if spelling:
                return str(spelling)
        return default

    def roles(self, find: Callable[[str], int | None]) -> dict[str, int]:
        """Role to id: as declared, else as in config.json, else by a well-known spelling."""
        ids = {role: self._id(role, find) for role in WELL_KNOWN}
        return {role: id for role, id in ids.items() if id is not None}

    def _id(self, role: str, find: Callable[[str], int | None]) -> int | None:
        if f"{role}_token" in self.tokenizer | self.special:  # if only as null: nobody plays it
            spelling = self.token(role)
            id = find(spelling) if spelling else None
            if spelling and id is None:
                fault = f"{role}_token {spelling!r}, which the vocabulary lacks"
                fix = "name another, or null, in tokenizer_config.json"
                raise DataError("opening a tokenizer", fault, "a token of the vocabulary", fix)
            return id
        stated = self.model.get(f"{role}_token_id")
        first = stated[0] if isinstance(stated, list) and stated else stated
        if isinstance(first, int):
            return first
        ids = (find(spelling) for spelling in WELL_KNOWN[role])
        return next((id for id in ids if id is not None), None)
