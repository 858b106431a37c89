"""Find and open the tokenizer of a model folder, whatever files it comes in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Rust

from regard.errors import DataError, bad_byte
from regard.files import parse_json, read_json
from regard.tokens.control_tokens import WELL_KNOWN, TokenizerSettings
from regard.tokens.spm import marian, single_model
from regard.tokens.tokenizer import SOURCE, Engine, RustEngine, Tokenizer, control_tokens
from regard.tokens.vocabulary_files import byte_level, word_piece

SENTENCEPIECE = ("spiece.model", "tokenizer.model", "sentencepiece.bpe.model")

SETTINGS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
MARIAN = ("source.spm", "target.spm", "vocab.json", "target_vocab.json")
KEPT: tuple[str, ...] = ("tokenizer.json", *SETTINGS, "chat_template.jinja", *MARIAN)
KEPT += ("merges.txt", "vocab.txt", *SENTENCEPIECE)
"""The files that make a tokenizer; `Tokenizer.save` writes those that were there."""


class Folder:
    """A model folder: the bytes of its tokenizer files, and the JSON among them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # The model's own file lies with its weights; what reads sources has lost those.
        names = (*KEPT, "config.json") if path.name == SOURCE else KEPT
        self.files = {name: (path / name).read_bytes() for name in names if (path / name).is_file()}

    def has(self, *names: str) -> bool:
        """Whether all these files are there."""
        return all(name in self.files for name in names)

    def json(self, name: str) -> dict[str, Any]:
        """The object in a JSON file, {} where the file is missing."""
        return parse_json(self.files[name], self.path / name) if name in self.files else {}

    def settings(self) -> TokenizerSettings:
        """What the files beside the vocabulary say about it."""
        config = self.path / "config.json"  # the model's file: read here, never written
        return TokenizerSettings(
            tokenizer=self.json("tokenizer_config.json"),
            special=self.json("special_tokens_map.json"),
            model=read_json(config) if config.is_file() else {},
            added=self.json("added_tokens.json"),
        )


def open_tokenizer(folder: Path | str) -> Tokenizer | None:
    """The tokenizer of a model folder, or None where the folder has none."""
    place = Folder(Path(folder))
    settings = place.settings()
    engine = find_engine(place, settings)
    if engine is None:
        return None
    tokenizer = Tokenizer(engine, settings.roles(engine.id), place.files)
    source = open_tokenizer(place.path / SOURCE)
    return tokenizer if source is None else tokenizer.with_source(source)


def find_engine(place: Folder, settings: TokenizerSettings) -> Engine | None:
    """The engine for the most complete description that the folder has."""
    if place.has("tokenizer.json"):
        return RustEngine(read_tokenizer_json(place, settings))
    if place.has("source.spm", "target.spm", "vocab.json"):
        shared = place.json("vocab.json")  # the two languages may have a vocabulary each
        separate = settings.tokenizer.get("separate_vocabs", False)
        target = place.json("target_vocab.json") if separate else shared
        models = {side: place.files[f"{side}.spm"] for side in ("source", "target")}
        return marian(models, {"source": shared, "target": target}, settings)
    for name in SENTENCEPIECE:
        if place.has(name):
            return single_model(name, place.files[name], settings)
    if place.has("vocab.json", "merges.txt"):
        return RustEngine(byte_level(place.json("vocab.json"), read_merges(place), settings))
    if place.has("vocab.txt"):
        return RustEngine(word_piece(read_lines(place, "vocab.txt"), settings))
    return None


def read_tokenizer_json(place: Folder, settings: TokenizerSettings) -> Rust:
    """The pipeline that tokenizer.json describes, with the folder's roles as control tokens."""
    place.json("tokenizer.json")  # a broken file is told with its position
    try:
        rust = Rust.from_str(read_text(place, "tokenizer.json"))
    except Exception as error:  # the library raises no narrower class
        fault, expected = str(error), "a tokenizer that the installed `tokenizers` library knows"
        fix = "pip install -U tokenizers, or fetch the file anew"
        raise DataError(f"reading {place.path / 'tokenizer.json'}", fault, expected, fix) from None
    # Some files leave it to their neighbours to say which tokens no text may spell.
    declared = {settings.token(role) for role in WELL_KNOWN} - control_tokens(rust).keys()
    known = [token for token in declared if token and rust.token_to_id(token) is not None]
    rust.add_special_tokens([AddedToken(token, normalized=False) for token in known])
    return rust


def read_merges(place: Folder) -> list[tuple[str, str]]:
    """The pairs of merges.txt, first merge first."""
    merges = []
    for number, line in enumerate(read_lines(place, "merges.txt"), 1):
        if not line or (number == 1 and line.startswith("#version")):
            continue
        pair = line.split(" ")
        if len(pair) != 2:
            doing, fault = f"reading {place.path / 'merges.txt'}", f"line {number}: {line!r}"
            raise DataError(doing, fault, "two pieces with a space between them")
        merges.append((pair[0], pair[1]))
    return merges


def read_lines(place: Folder, name: str) -> list[str]:
    """The lines of a file; only a newline ends one, for pieces hold other line separators."""
    lines = read_text(place, name).split("\n")
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]


def read_text(place: Folder, name: str) -> str:
    """The text of a file, which must be UTF-8."""
    try:
        return place.files[name].decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise DataError(f"reading {place.path / name}", bad_byte(error), "UTF-8 text") from None
