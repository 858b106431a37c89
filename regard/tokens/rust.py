"""The engine around the Rust library `tokenizers`."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from functools import cached_property

from tokenizers import Tokenizer as Rust


class RustEngine:
    """A `tokenizers` pipeline that reads user text as text, even where it spells </s>."""

    def __init__(self, rust: Rust) -> None:
        # tokenizer.json may ask for padding or truncation, which are the caller's business.
        rust.no_padding()
        rust.no_truncation()
        rust.encode_special_tokens = True  # text that spells a control token stays text
        self.rust = rust
        self.size: int = rust.get_vocab_size(with_added_tokens=True)
        # Unigram and word models find control tokens in their own vocabulary all the same.
        self.literal = respelt(rust) if leaks(rust) else rust

    @cached_property
    def marked(self) -> Rust:
        """A second copy that turns spelled control tokens into their ids.

        A copy, because switching one pipeline to and fro is not safe between threads.
        """
        return Rust.from_str(self.rust.to_str())

    def choose(self, allow_special: bool) -> Rust:
        """The pipeline that reads spelled control tokens as such, or as text."""
        return self.marked if allow_special else self.literal

    def encode(self, text: str, special: bool, allow_special: bool, side: str) -> list[int]:
        """The ids of one text."""
        return self.choose(allow_special).encode(text, add_special_tokens=special).ids

    def encode_batch(
        self, texts: Sequence[str], special: bool, allow_special: bool, side: str
    ) -> list[list[int]]:
        """The ids of each text."""
        rust = self.choose(allow_special)
        return [e.ids for e in rust.encode_batch_fast(list(texts), add_special_tokens=special)]

    def offsets(
        self, text: str, special: bool, allow_special: bool, side: str
    ) -> list[tuple[int, int]]:
        """One span per id, in characters of the text as given."""
        return self.choose(allow_special).encode(text, add_special_tokens=special).offsets

    def decode(self, ids: list[int], special: bool, side: str) -> str:
        """The text of the ids."""
        return self.rust.decode(ids, skip_special_tokens=not special)

    def piece(self, id: int, side: str) -> str | None:
        """The spelling of one id."""
        return self.rust.id_to_token(id)

    def id(self, piece: str) -> int | None:
        """The id of one spelling."""
        return self.rust.token_to_id(piece)


def control_tokens(rust: Rust) -> dict[str, int]:
    """The spelling and id of each added token that is marked special."""
    return {t.content: id for id, t in rust.get_added_tokens_decoder().items() if t.special}


def leaks(rust: Rust) -> bool:
    """Whether text that spells a control token becomes that token."""
    return any(
        id in rust.encode(spelling, add_special_tokens=False).ids
        for spelling, id in control_tokens(rust).items()
    )


def respelt(rust: Rust) -> Rust:
    """A copy whose control tokens have spellings that nobody can guess; ids stay the same."""
    suffix = secrets.token_hex(16)
    spelling = {name: name + suffix for name in control_tokens(rust)}
    spec = json.loads(rust.to_str())
    for token in spec["added_tokens"]:
        token["content"] = spelling.get(token["content"], token["content"])
    model = spec["model"]
    if isinstance(model["vocab"], dict):
        model["vocab"] = {spelling.get(p, p): id for p, id in model["vocab"].items()}
    else:  # Unigram keeps a list of pieces and scores
        model["vocab"] = [[spelling.get(p, p), score] for p, score in model["vocab"]]
    if model.get("unk_token") is not None:
        model["unk_token"] = spelling.get(model["unk_token"], model["unk_token"])
    copy = Rust.from_str(json.dumps(spec))
    copy.encode_special_tokens = True
    return copy
