"""The one Tokenizer class: text to ids and back, whatever engine does the work."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from tokenizers import Tokenizer as Rust

from regard.errors import DataError, UsageError
from regard.files import cannot_write, write_whole

if TYPE_CHECKING:
    from regard.tokens.spm import SentencePieceEngine

Side = Literal["source", "target"]
"""Translation models may cut the two languages differently; all others ignore the side."""

SOURCE = "source_tokenizer"
"""The folder, beside a tokenizer's files, of another that reads the sources."""

Span = tuple[int, int]
"""Where a piece stands in the text, in characters: text[start:end]."""


VISIBLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
HIDDEN = [byte for byte in range(256) if byte not in VISIBLE]
BYTES = {byte: chr(byte) for byte in VISIBLE} | {b: chr(256 + n) for n, b in enumerate(HIDDEN)}
"""The visible character that stands for each byte (Radford et al. 2019), as ByteLevel has it."""

HALF = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair: Python's texts may hold one alone, UTF-8 has no bytes for it."""
HALF_BYTES = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
"""What UTF-8 would write for one; no valid text has these bytes."""


class Encoded(NamedTuple):
    """The ids of a text, and where each stands in it; added tokens have (0, 0)."""

    ids: list[int]
    offsets: list[Span]


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
        leaks = any(
            id in rust.encode(spelling, add_special_tokens=False).ids
            for spelling, id in control_tokens(rust).items()
        )
        self.literal = respelt(rust) if leaks else rust

    @cached_property
    def marked(self) -> Rust:
        """A second copy that turns spelled control tokens into their ids.

        A copy, because switching one pipeline to and fro is not safe between threads.
        """
        return Rust.from_str(self.rust.to_str())

    def choose(self, allow_special: bool) -> Rust:
        """The pipeline that reads spelled control tokens as such, or as text."""
        return self.marked if allow_special else self.literal

    def encode(self, text: str, special: bool, allow_special: bool, side: str) -> Any:
        """The library's own encoding, which makes a list when it is asked for one."""
        return self.choose(allow_special).encode(text, add_special_tokens=special)

    def encode_batch(
        self, texts: Sequence[str], special: bool, allow_special: bool, side: str
    ) -> list[list[int]]:
        """The ids of each text."""
        rust = self.choose(allow_special)
        return [e.ids for e in rust.encode_batch_fast(list(texts), add_special_tokens=special)]

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


Engine: TypeAlias = "RustEngine | SentencePieceEngine"
"""The library that does the work."""


class Tokenizer:
    """Text to ids and back; `specials` maps roles (bos, eos, pad, …) to ids.

    Where the source of an encoder-decoder has a tokenizer of its own, `of` gives it, and methods
    with a side go by it; size, control tokens and kind are those of the target.
    """

    def __init__(self, engine: Engine, specials: dict[str, int], files: dict[str, bytes]) -> None:
        self.engine, self.specials, self.files = engine, specials, files
        self.source: Tokenizer | None = None

    def with_source(self, source: Tokenizer) -> Tokenizer:
        """This one for targets, and another for sources; its files lie in a folder of their own."""
        own = {name: data for name, data in self.files.items() if not name.startswith(SOURCE)}
        others = {f"{SOURCE}/{name}": data for name, data in source.files.items()}
        both = Tokenizer(self.engine, self.specials, own | others)
        both.source = source
        return both

    def of(self, side: Side) -> Tokenizer:
        """The tokenizer of a side: itself, unless sources have another."""
        other = self.source if check_side(side) == "source" else None
        return self if other is None else other

    @classmethod
    def from_rust(
        cls, rust: Rust, specials: dict[str, int], settings: dict[str, Any] | None = None
    ) -> Tokenizer:
        """A tokenizer that came from no folder; its files are made here, for transformers too."""
        config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
            **{f"{role}_token": rust.id_to_token(id) for role, id in specials.items()},
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
        """What it was trained as, or what the library calls it: BPE, WordPiece, Unigram, …"""
        name = "SentencePiece"
        if isinstance(self.engine, RustEngine):
            name = type(self.engine.rust.model).__name__
        return str(json.loads(self.files.get("tokenizer_config.json", b"{}")).get("kind", name))

    @cached_property
    def byte_level(self) -> bool:
        """Whether its pieces are bytes, spelt in visible characters."""
        return isinstance(self.engine, RustEngine) and "ByteLevel" in repr(self.engine.rust.decoder)

    @cached_property
    def byte_ids(self) -> dict[int, int]:
        """Byte → id; empty where it cannot write every byte."""
        spelt = BYTES if self.byte_level else {byte: f"<0x{byte:02X}>" for byte in range(256)}
        ids = {byte: self.engine.id(piece) for byte, piece in spelt.items()}
        known = {byte: id for byte, id in ids.items() if id is not None}
        return known if len(known) == 256 else {}

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
        return self.of(side)._encode(text, special, allow_special, side).ids

    def encode_batch(
        self,
        texts: Sequence[str],
        special: bool = True,
        side: Side = "source",
        allow_special: bool = False,
    ) -> list[list[int]]:
        """The ids of each text, as `encode` gives them, computed together."""
        own = self.of(side)
        whole = [*checked(texts, halves=bool(own.byte_ids))]
        if any(map(has_half, whole)):
            return [self.encode(text, special, side, allow_special) for text in whole]
        return own.engine.encode_batch(whole, special, allow_special, side)

    def offsets(
        self, text: str, special: bool = True, side: Side = "source", allow_special: bool = False
    ) -> list[Span]:
        """Where each id of `encode` stands in the text; added control tokens have (0, 0)."""
        return self.of(side)._encode(text, special, allow_special, side).offsets

    def _encode(self, text: str, special: bool, allow_special: bool, side: Side) -> Encoded:
        """A text as the engine cuts it; halves of surrogate pairs are written in three bytes."""
        (text,) = checked([text], halves=bool(self.byte_ids))
        if not has_half(text):
            return self.engine.encode(text, special, allow_special, side)
        ids: list[int] = []
        spans: list[Span] = []
        start = 0
        for half in [*HALF.finditer(text), None]:
            end = half.start() if half else len(text)
            part = self.engine.encode(text[start:end], False, allow_special, side)
            ids += part.ids
            spans += [(start + first, start + last) for first, last in part.offsets]
            if half:
                ids += [self.byte_ids[byte] for byte in half[0].encode(errors="surrogatepass")]
                spans += [(end, end + 1)] * 3
            start = end + 1
        if special:
            inside = self.engine.encode("a", False, False, side).ids
            whole = self.engine.encode("a", True, False, side).ids
            at = next(n for n in range(len(whole)) if whole[n : n + len(inside)] == inside)
            before, after = whole[:at], whole[at + len(inside) :]
            ids = before + ids + after
            spans = [(0, 0)] * len(before) + spans + [(0, 0)] * len(after)
        return Encoded(ids, spans)

    def decode(
        self, ids: Sequence[int], special: bool = False, side: Side = "target", halves: bool = True
    ) -> str:
        """The text of the ids; control tokens are left out unless `special` is true.

        halves: whether the bytes of half a surrogate pair become it, which no file can hold.
        """
        if (own := self.of(side)) is not self:
            return own.decode(ids, special, side, halves)
        self.pieces(ids, side)  # an unknown id is an error, not a silent gap in the text
        text, start = "", 0
        if halves and self.byte_ids and self.byte_ids[0xED] in ids:
            bytes_of = {id: byte for byte, id in self.byte_ids.items()}
            for half in HALF_BYTES.finditer(bytes(bytes_of.get(id, 0) for id in ids)):
                text += self.engine.decode(list(ids[start : half.start()]), special, side)
                text += half[0].decode(errors="surrogatepass")
                start = half.end()
        return text + self.engine.decode(list(ids[start:]), special, side)

    def readable(self, piece: str) -> str:
        """A piece as people read it: bytes that make whole characters as text, a blank as ␣."""
        if not self.byte_level:
            return piece
        letters = {letter: byte for byte, letter in BYTES.items()}
        try:
            return bytes(letters[letter] for letter in piece).decode().replace(" ", "␣")
        except (KeyError, UnicodeDecodeError):
            return piece

    def pieces(self, ids: Sequence[int], side: Side = "target") -> list[str]:
        """The spelling of each id as the vocabulary has it, such as 'Ġthe' or '##ing'."""
        own = self.of(side)
        return [own._piece(id, side) for id in ids]

    def _piece(self, id: int, side: Side) -> str:
        piece = self.engine.piece(id, side) if 0 <= id < 2**31 else None
        if piece is None:
            doing, fix = "reading token ids", "use the tokenizer that the ids were made with"
            raise DataError(doing, f"id {id}", f"ids of this vocabulary, 0 to {self.size - 1}", fix)
        return piece

    def save(self, folder: Path | str) -> None:
        """Write the tokenizer's files to a folder, byte for byte as they were read."""
        target = Path(folder)
        try:
            target.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(target, error, "a folder") from error
        for name, data in self.files.items():
            (target / name).parent.mkdir(exist_ok=True)
            write_whole(target / name, data)


def check_side(side: Side) -> Side:
    """The side itself, or an error when it is neither source nor target."""
    if side not in ("source", "target"):
        raise UsageError("choosing a side of the tokenizer", repr(side), "'source' or 'target'")
    return side


def has_half(text: str) -> bool:
    """Whether a text holds half of a surrogate pair; to write it is the quickest way to know."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def checked(
    texts: Iterable[str], doing: str = "encoding text", halves: bool = False
) -> Iterator[str]:
    """The texts, up to one that is no text or, unless allowed, has half of a surrogate pair."""
    if isinstance(texts, str):
        raise UsageError(doing, "a single str", "several texts, such as a list of str")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise UsageError(doing, f"{type(text).__name__} at index {number}", "str")
        if not halves and has_half(text):
            problem = f"half of a surrogate pair at character {len(HALF.split(text)[0])}"
            problem += f" of text {number}"
            fix = "read the file with the right encoding, or drop it: "
            fix += "text.encode(errors='ignore').decode()"
            raise DataError(doing, problem, "text that UTF-8 can write", fix)
        yield text
