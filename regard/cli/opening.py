"""The model that a command names: its shape, without weights, or whole with its tokenizer."""

from __future__ import annotations

import os
from collections.abc import Sequence

from regard.ambient import choose_device
from regard.cli.show import Show
from regard.errors import DataError, UsageError, nearest
from regard.heap import large_apart
from regard.interop.source import Source, open_source
from regard.interop.weights import outline
from regard.kit import Kit
from regard.loading import load
from regard.look.edits import parse_edits
from regard.model.config import ModelConfig
from regard.model.presets import PRESETS, preset
from regard.zoo import locate


def find_source(path: str) -> Source | None:
    """The checkpoint at `path` or shipped under that name, or None for the name of a preset."""
    found = locate(path)
    if found != path or os.path.exists(path) or os.sep in path:
        return open_source(found)
    if path in PRESETS:
        return None
    close = nearest(path, PRESETS)
    if not close:
        return open_source(path)  # which says that it is not there
    raise UsageError(
        "opening a model",
        f"{path!r} is neither a file nor a folder here nor a preset",
        "a path, or a name that `regard list` shows",
        f"did you mean {close}?",
    )


def open_config(path: str) -> ModelConfig:
    """The shape of a checkpoint or of a preset."""
    source = find_source(path)
    return preset(path) if source is None else outline(source)[0].config


def open_kit(
    path: str, device: str, precision: str | None, strict: bool = False, edits: Sequence[str] = ()
) -> Kit:
    """The model and tokenizer in a folder, on the device and in the precision asked for.

    None is plain maps in float32, for gradients and for patching without rounding. Edits stay.
    """
    changes = parse_edits(edits)
    if find_source(path) is None:
        found = f"{path!r} is a preset, a shape without weights"
        raise UsageError("opening a model", found, "a folder with weights", "regard train")
    with large_apart():
        kit = load(path, device=choose_device(device), strict=strict, precision=precision)
    if kit.tokenizer is None:
        kind, fix = kit.model.config.front.kind, f"put a tokenizer.json into {path}"
        fix = fix if kind == "text" else f"this model reads {kind}: take one that reads text"
        raise DataError(f"opening {path}", "no tokenizer", "one beside the weights", fix)
    kit.board.attach(changes)
    return kit


def wrong_network(doing: str, path: str, kit: Kit, expected: str) -> UsageError:
    """A network of another kind than is wanted: what it is, and which verbs take it."""
    what, verbs = describe_network(kit)
    fix = f"`regard {verbs[0]}` takes it" if verbs else f"`regard info {path}` says more"
    if len(verbs) > 1:
        fix = f"verbs that take it: {', '.join(verbs)}"
    return UsageError(f"{doing} with {path}", what, expected, fix)


def describe_network(kit: Kit) -> tuple[str, tuple[str, ...]]:
    """What a network is in words, and the verbs that take it."""
    model, masks = kit.model, kit.tokenizer is not None and "mask" in kit.tokenizer.specials
    if model.encoder is not None and model.decoder is not None:
        return "an encoder-decoder", ("translate", "eval translate", "score")
    if model.decoder is not None:
        return "a decoder, which goes on with a text", ("generate", "score", "eval lm")
    if model.config.head.take == "all" and masks:
        return "an encoder, which fills gaps", ("fill", "score")
    return "an encoder that predicts no words", ()


def cap_beams(beams: int, kit: Kit, show: Show) -> int:
    """No more beams than the vocabulary has words; says so."""
    size = kit.model.config.head.size
    if size is not None and beams > size:
        show.note(f"{beams} beams, but {size} words in the vocabulary: {size} beams")
        return size
    return beams
