"""The one Tokenizer class: text to ids and back, whatever engine does the work."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

from tokenizers import Tokenizer as Rust

from regard.errors import DataError, UsageError
from regard.files import cannot_write, write_whole

Side = Literal["source", "target"]
"""Translation models may cut the two languages differently; all others ignore the side."""

Span = tuple[int, int]
"""Where a piece stands in the text, in characters: text[start:end]."""


class Engine(Protocol):
    """What a tokenizer library must do for us, as in `RustEngine` and spm.py."""

    size: int

    def encode(self, text: str, special: bool, allow_special: bool, side: Side) -> list[int]:
        """The ids of one text."""

    def encode_batch(
        self, texts: Sequence[str], special: bool, allow_special: bool, side: Side
    ) -> list[list[int]]:
        """The ids of each text."""

    def offsets(self, text: str, special: bool, allow_special: bool, side: Side) -> list[Span]:
        """One span per id that `encode` gives; added tokens have (0, 0)."""

    def decode(self, ids: list[int], special: bool, side: Side) -> str:
        """The text of the ids, with or without the control tokens."""

    def piece(self, id: int, side: Side) -> str | None:
        """The spelling of one id."""

    def id(self, piece: str) -> int | None:
        """The id of one spelling."""


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


class Tokenizer:
    """Text to ids and back; `specials` maps roles (bos, eos, pad, …) to ids."""

    def __init__(self, engine: Engine, specials: dict[str, int], files: dict[str, bytes]) -> None:
        self.engine, self.specials, self.files = engine, specials, files

    @classmethod
    def from_rust(
        cls, rust: Rust, specials: dict[str, int], settings: dict[str, Any] | None = None
    ) -> Tokenizer:
        """A tokenizer that came from no folder; its files are made here, for transformers too."""
        tokens = {f"{role}_token": rust.id_to_token(id) for role, id in specials.items()}
        config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
            **tokens,
            **(settings or {}),
        }
        files = {
            "tokenizer.json": rust.to_str(pretty=True).encode(),
            "tokenizer_config.json": json.dumps(config, ensure_ascii=False, indent=2).encode(),
        }
        return cls(RustEngine(rust), specials, files)

    @property
    def size(self) -> int:
        """How many ids there are, added tokens included."""
        return self.engine.size

    @property
    def kind(self) -> str:
        """What the library calls it: BPE, WordPiece, Unigram, …"""
        if isinstance(self.engine, RustEngine):
            return type(self.engine.rust.model).__name__
        return "SentencePiece"

    @property
    def first(self) -> int | None:
        """The id that it puts before every text, if it is the one that begins texts."""
        begin = self.specials.get("bos")
        return begin if begin is not None and self.encode("")[:1] == [begin] else None

    def encode(
        self, text: str, special: bool = True, side: Side = "source", allow_special: bool = False
    ) -> list[int]:
        """The ids of a text; `special` adds what the model expects around it, such as [CLS].

        Text that spells a control token stays text unless `allow_special` says otherwise.
        """
        (text,) = checked([text])
        return self.engine.encode(text, special, allow_special, check_side(side))

    def encode_batch(
        self,
        texts: Sequence[str],
        special: bool = True,
        side: Side = "source",
        allow_special: bool = False,
    ) -> list[list[int]]:
        """The ids of each text, as `encode` gives them, computed together."""
        return self.engine.encode_batch([*checked(texts)], special, allow_special, check_side(side))

    def offsets(
        self, text: str, special: bool = True, side: Side = "source", allow_special: bool = False
    ) -> list[Span]:
        """Where each id of `encode` stands in the text; added control tokens have (0, 0)."""
        (text,) = checked([text])
        return self.engine.offsets(text, special, allow_special, check_side(side))

    def decode(self, ids: Sequence[int], special: bool = False, side: Side = "target") -> str:
        """The text of the ids; control tokens are left out unless `special` is true."""
        self.pieces(ids, side)  # an unknown id is an error, not a silent gap in the text
        return self.engine.decode(list(ids), special, check_side(side))

    def pieces(self, ids: Sequence[int], side: Side = "target") -> list[str]:
        """The spelling of each id as the vocabulary has it, such as 'Ġthe' or '##ing'."""
        check_side(side)
        return [self._piece(id, side) for id in ids]

    def _piece(self, id: int, side: Side) -> str:
        piece = self.engine.piece(id, side) if 0 <= id < 2**31 else None
        if piece is None:
            raise DataError(
                "reading token ids",
                f"id {id}",
                f"ids of this vocabulary, 0 to {self.size - 1}",
                "use the tokenizer that the ids were made with",
            )
        return piece

    def save(self, folder: Path | str) -> None:
        """Write the tokenizer's files to a folder, byte for byte as they were read."""
        target = Path(folder)
        try:
            target.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(target, error, "a folder") from error
        for name, data in self.files.items():
            write_whole(target / name, data)


def check_side(side: Side) -> Side:
    """The side itself, or an error when it is neither source nor target."""
    if side not in ("source", "target"):
        raise UsageError("choosing a side of the tokenizer", repr(side), "'source' or 'target'")
    return side


def checked(texts: Iterable[str], doing: str = "encoding text") -> Iterator[str]:
    """The texts, up to one that is no text or has a lone surrogate, which UTF-8 cannot write."""
    if isinstance(texts, str):
        raise UsageError(doing, "a single str", "several texts, such as a list of str")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise UsageError(doing, f"{type(text).__name__} at index {number}", "str")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            problem = f"half of a surrogate pair at character {error.start} of text {number}"
            fix = "read the file with the right encoding, or drop it: "
            fix += "text.encode(errors='ignore').decode()"
            raise DataError(doing, problem, "text that UTF-8 can write", fix) from None
        yield text
