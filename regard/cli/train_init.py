"""`regard train … --init FOLDER`: a run that begins with the weights of another model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from regard.data.word_frequencies import WORDS_FILE, WRITTEN_FILE
from regard.decode.shortlist import SHORTLIST_FILE
from regard.errors import DataError
from regard.files import file_hash
from regard.kit import Kit
from regard.loading import load_kit
from regard.model.config import ModelConfig, RecurrentConfig

WANTED = {
    "lm": "a decoder that predicts the next token",
    "mlm": "an encoder that predicts masked tokens",
    "seq2seq": "an encoder-decoder",
}


def open_init(path: str, kind: str, length: int) -> Kit:
    """The model of a folder, to be trained further; lists of its old training words stay behind."""
    kit, doing = load_kit(path, precision=None), f"beginning `train {kind}` with {path}"
    config = kit.model.config
    if kind_of(config) != kind:
        found = "a recurrent model" if isinstance(config, RecurrentConfig) else kind_words(config)
        raise DataError(doing, found, WANTED[kind])
    if kit.room is not None and length > kit.room:
        found, fix = f"length = {length}", f"--length {kit.room}"
        raise DataError(doing, found, f"at most {kit.room}, its table of positions", fix)
    old = (SHORTLIST_FILE, WORDS_FILE, WRITTEN_FILE)
    return replace(kit, files={k: v for k, v in kit.files.items() if k not in old})


def kind_of(config: ModelConfig) -> str | None:
    """Which kind of training a Transformer is made for."""
    if config.head.size is None or config.head.take != "all":
        return None
    if config.target is not None:
        return "seq2seq" if config.encoder is not None and config.decoder is not None else None
    stacks = config.encoder is not None, config.decoder is not None
    return {(False, True): "lm", (True, False): "mlm"}.get(stacks)


def kind_words(config: ModelConfig) -> str:
    """What a model is, in words."""
    return WANTED.get(kind_of(config) or "", "a model without scores for each token")


def init_hashes(path: str | None) -> dict[str, str]:
    """SHA-256 of each file of weights that a run began with."""
    if path is None:
        return {}
    place = Path(path)
    files = sorted(place.glob("*.safetensors")) if place.is_dir() else [place]
    return {str(file): file_hash(file) for file in files if file.name != SHORTLIST_FILE}
