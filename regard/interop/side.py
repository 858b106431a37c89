"""Side files of a folder: what travels with the weights, and the settings regard reads in them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from regard.errors import DataError
from regard.files import parse_json

KEPT = (
    "generation_config.json",
    "preprocessor_config.json",
    "codebook.safetensors",  # codes of pictures (vision/codebook.py)
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "1_Pooling/config.json",
    "shortlist.safetensors",  # words that translations need (decode/shortlist.py)
    "written.txt",  # words that training wrote (data/word_frequencies.py)
    "memory.tsv",  # pairs that show what rare words became (translation/memory.py)
    "dictionary.tsv",  # words and idioms with their translations (translation/dictionary.py)
    "forms.tsv",  # inflected forms and their lemmas (translation/dictionary.py)
    "inflections.json",  # endings that take each other's place (translation/memory.py)
    "numbers.json",  # how two languages write numbers (translation/repair.py)
    "glossary.json",  # how terms of two languages inflect (translation/glossary.py)
    "words.tsv",  # how often training saw each word (data/word_frequencies.py)
)


def read_side_files(folder: Path) -> dict[str, bytes]:
    """Small files that belong to a folder beside its weights and tokenizer."""
    return {name: (folder / name).read_bytes() for name in KEPT if (folder / name).is_file()}


def parse(files: dict[str, bytes], name: str, kind: type = dict) -> Any:
    """A side file's JSON of a kind; an empty one when there is no file."""
    return parse_json(files[name], name, kind) if name in files else kind()


def whole_number(value: Any, where: str) -> int:
    """An id or a length from a file."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise DataError(f"reading {where}", f"{value!r}", "a whole number from 0 up")
    return value


@dataclass(frozen=True)
class Pooling:
    """How the vectors of a text become one (sentence-transformers' files)."""

    mode: Literal["mean", "first", "max"] = "mean"
    normalise: bool = False
    length: int | None = None
    """Texts are cut to this many tokens."""


def read_pooling(files: dict[str, bytes]) -> Pooling:
    """What modules.json and its companions ask for; the plain mean when they are not there."""
    listed = parse(files, "modules.json", list)
    modules = [str(m.get("type", "")).rpartition(".")[2] for m in listed if isinstance(m, dict)]
    settings = parse(files, "1_Pooling/config.json")
    modes: dict[str, Literal["mean", "first", "max"]] = {
        "pooling_mode_cls_token": "first",
        "pooling_mode_max_tokens": "max",
        "pooling_mode_mean_tokens": "mean",
    }
    asked = [mode for key, mode in modes.items() if settings.get(key)]
    others = [k for k, on in settings.items() if k.startswith("pooling_mode_") and on is True]
    if len(others) != len(asked) or len(asked) > 1:
        raise DataError("reading 1_Pooling/config.json", f"{others}", f"one of {list(modes)}")
    length = parse(files, "sentence_bert_config.json").get("max_seq_length")
    length = None if length is None else whole_number(length, "sentence_bert_config.json")
    return Pooling(asked[0] if asked else "mean", "Normalize" in modules, length)


def stop_ids(files: dict[str, bytes], config: dict[str, Any], specials: dict[str, int]) -> set[int]:
    """Ids that end a text: generation_config.json, else config.json, else the tokenizer's eos."""
    asked = parse(files, "generation_config.json").get("eos_token_id")
    asked = config.get("eos_token_id", specials.get("eos")) if asked is None else asked
    if asked is None:
        return set()
    listed = asked if isinstance(asked, list) else [asked]
    return {whole_number(value, "eos_token_id") for value in listed}


def start_id(files: dict[str, bytes], config: dict[str, Any]) -> int:
    """The id an encoder-decoder's target begins with."""
    asked = parse(files, "generation_config.json").get("decoder_start_token_id")
    asked = config.get("decoder_start_token_id") if asked is None else asked
    asked = config.get("pad_token_id", 0) if asked is None else asked  # T5 and Marian: padding
    return whole_number(asked or 0, "decoder_start_token_id")
