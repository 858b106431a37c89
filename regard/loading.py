"""Open or make a model: `regard.load`, `regard.build`, and `open_kit` behind every verb."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from regard.ambient import choose_device
from regard.errors import DataError, UsageError, nearest
from regard.heap import large_apart
from regard.interop.folder import INT8, STORED
from regard.interop.side import read_side_files
from regard.interop.source import (
    Adapters,
    CheckpointSource,
    is_adapter,
    open_source,
    read_tokenizer,
)
from regard.interop.weights import load_model
from regard.kit import Kit
from regard.model.config import ModelConfig
from regard.model.precision import same_in_any_company, set_precision
from regard.model.presets import PRESETS, architecture, preset
from regard.model_kinds import NETWORK, check_kind, find_kind, open_counted
from regard.native.gpu import expect_many_shapes
from regard.verbs import ModelLike
from regard.zoo import locate

if TYPE_CHECKING:
    from regard.tune.adapter_folder import AdapterFolder


def load(
    path: str | os.PathLike[str],
    dtype: str | torch.dtype = "float32",
    device: str | torch.device | None = None,
    strict: bool = False,
    precision: str | None = "auto",
    adapter: Adapters = None,
) -> Any:
    """Open a Hugging Face folder, a run's folder, a .gguf file, or a model in the box by name.

    A network opens as a `Kit`; n-grams, vectors of words and translators that count as what they
    are. A folder in the working directory comes before a model of that name in the box.

    Args:
        path: the folder, file or name, such as "fr-en".
        dtype: of the weights: a torch dtype, its name, or "auto" for what the file holds.
        device: where the model runs; None takes that of the settings.
        strict: the same bits alone and in any batch (`model/strict.py`).
        precision: of the matrix products: int8, on a CPU (`model/precision.py`), "auto" for that
            where the file holds such weights, or None for plain maps, which can be trained; fp32
            and bf16 are plain maps too, and the dtype of the weights.
        adapter: the folder of a LoRA adapter of this model, which is put on, or {name: folder} of
            several: the last one is on, `kit.switch` changes that. The folder of an adapter
            as `path` opens its base and puts it on.

    Example:
        >>> regard.load("fr-en").translate("Bonjour.")
    """
    if not isinstance(path, str | os.PathLike):
        raise UsageError("loading a model", f"{path!r}", "the path of a folder or file")
    known = find_kind(os.fsdecode(path))
    if known is None or known.kind is NETWORK:
        return load_kit(
            path, dtype, choose_device() if device is None else device, strict, precision, adapter
        )
    return open_counted(Path(os.fsdecode(path)), known.kind)


def load_kit(
    path: str | os.PathLike[str],
    dtype: str | torch.dtype = "float32",
    device: str | torch.device = "cpu",
    strict: bool = False,
    precision: str | None = "auto",
    adapter: Adapters = None,
) -> Kit:
    """Open a network, as `load` does."""
    place, base = locate(path), None
    adapters: dict[str, AdapterFolder] = {}
    if adapter is not None or is_adapter(place):
        from regard.tune import adapter_folder

        place, adapters, base = adapter_folder.open_adapters(path, adapter)
    source = open_source(place)
    where = read_device(device)
    if precision in ("fp32", "bf16"):
        dtype, precision = "float32" if precision == "fp32" else "bfloat16", None
    if where.type == "cuda":
        expect_many_shapes()
    with large_apart():
        model, binding = load_model(source, read_dtype(dtype), where)
        described = source.config
        for folder in adapters.values():
            model, binding, described = adapter_folder.reshape(folder, model, binding, described)
        if precision == "auto":
            whole = where.type == "cpu" and source.config.get(STORED) == INT8
            precision = INT8 if whole else None
        if precision is not None:
            set_precision(model, precision)
            if strict and not same_in_any_company(model):
                set_precision(model, None)  # quicker where each sentence runs alone
    files = read_side_files(source.path) if source.path.is_dir() else {}
    tokenizer = read_tokenizer(source)
    for name, folder in adapters.items():
        adapter_folder.put_adapter(folder, model, binding, os.fsdecode(place), name)
    return Kit(model, tokenizer, binding, described, files, strict, path=Path(path), base=base)


def build(shape: str | ModelConfig, seed: int = 0) -> Kit:
    """A new model with freshly drawn weights: of a preset's shape, or of a shape of one's own."""
    if isinstance(shape, ModelConfig):
        return Kit.fresh(shape, None, seed)
    if not isinstance(shape, str):
        wanted = "the name of a preset, or a ModelConfig"
        raise UsageError("building a model", f"a {type(shape).__name__}", wanted, "regard models")
    return Kit.fresh(preset(shape), architecture(shape), seed)


def open_kit(
    model: ModelLike, precision: str | None = "auto", strict: bool = False, text: bool = True
) -> Kit:
    """The network that a verb names, with its tokenizer where it reads text; a Kit is itself.

    precision is that of `load`: None is plain maps in float32, for gradients and for patching
    without rounding.
    """
    if isinstance(model, Kit):
        return model
    path = os.fspath(model)
    check_kind(path, NETWORK)
    if find_source(path) is None:
        fault = f"{path!r} is a preset, a shape without weights"
        fix = "give the folder of a checkpoint that is on this machine; `regard train` makes one"
        raise UsageError("opening a model", fault, "a folder with weights", fix)
    kit = load_kit(path, device=choose_device(), strict=strict, precision=precision)
    if kit.tokenizer is None and text:
        kind = (kit.model.config.target or kit.model.config.front).kind
        fix = f"put a tokenizer.json into {path}"
        fix = fix if kind == "text" else f"this model reads {kind}: take one that reads text"
        raise DataError(f"opening {path}", "no tokenizer", "one beside the weights", fix)
    return kit


def find_source(path: str) -> CheckpointSource | None:
    """The checkpoint at `path` or shipped under that name, or None for the name of a preset."""
    place = locate(path)
    if is_adapter(place):
        from regard.tune.adapter_folder import base_of

        place = base_of(Path(place))
    if place != path or os.path.exists(path) or os.sep in path:
        return open_source(place)
    if path in PRESETS:
        return None
    close = nearest(path, PRESETS)
    if not close:
        return open_source(path)  # which says that it is not there
    fault = f"{path!r} is neither a file nor a folder here nor a preset"
    expected = "a path, or a name that `regard models` shows"
    raise UsageError("opening a model", fault, expected, f"did you mean {close}?")


def wrong_network(doing: str, kit: Kit, expected: str) -> UsageError:
    """A network of another kind than is wanted: what it is, and which verbs take it."""
    model, masks = kit.model, kit.tokenizer is not None and "mask" in kit.tokenizer.specials
    what, verbs = "an encoder that predicts no words", ["info"]
    if model.config.front.kind == "audio" and model.decoder is not None:
        what, verbs = "Whisper, which writes what is said", ["transcribe"]
    elif model.encoder is not None and model.decoder is not None:
        what, verbs = "an encoder-decoder", ["translate", "evaluate translate", "score"]
    elif model.decoder is not None:
        what, verbs = "a decoder, which goes on with a text", ["generate", "score", "evaluate lm"]
    elif model.config.head.take == "all" and masks:
        what, verbs = "an encoder, which fills gaps", ["fill", "score"]
    fix = f"verbs that take it: {', '.join(verbs)}"
    return UsageError(f"{doing} with {kit.path or kit}", what, expected, fix)


def read_dtype(dtype: str | torch.dtype) -> torch.dtype | None:
    """A floating torch dtype by name; None for "auto"."""
    if dtype == "auto":
        return None
    kind = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if kind not in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        known = "float32, bfloat16, float16, float64 or auto"
        raise UsageError("loading a model", f"dtype = {dtype!r}", known)
    return kind


def read_device(device: str | torch.device) -> torch.device:
    """A device that is there; "auto" is a GPU if there is one."""
    try:
        place = torch.device(choose_device("auto") if device == "auto" else device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError, TypeError, ValueError) as error:
        fault = f"device = {device!r}: {str(error).splitlines()[0]}"
        raise UsageError("loading a model", fault, "cpu, cuda or auto") from None
    return place
