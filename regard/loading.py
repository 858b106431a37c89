"""Open a checkpoint or make a model: `regard.load` and `regard.build`."""

from __future__ import annotations

import os

import torch

from regard.errors import UsageError
from regard.interop.families import bind
from regard.interop.gguf_llama import GGUFSource
from regard.interop.llama2c import Llama2cSource
from regard.interop.side import read_side_files
from regard.interop.source import Source, open_source
from regard.interop.stored import INT8, STORED
from regard.interop.weights import load_model
from regard.kinds import check_model
from regard.kit import Kit
from regard.model.model import Model
from regard.model.precision import same_in_any_company, set_precision
from regard.model.presets import architecture, preset
from regard.native.gpu import expect_many_shapes
from regard.tokens.folder import open_tokenizer
from regard.tokens.gguf import from_gguf
from regard.tokens.scored import from_llama2c
from regard.tokens.tokenizer import Tokenizer
from regard.zoo import locate


def load(
    path: str | os.PathLike[str],
    dtype: str | torch.dtype = "float32",
    device: str | torch.device = "cpu",
    strict: bool = False,
    precision: str | None = "auto",
) -> Kit:
    """Open a Hugging Face folder, a .gguf file, or a llama2.c .bin with tokenizer.bin beside it.

    Or a model that came with the package, by its name, such as "fr-en"; a folder of that name in
    the working directory comes first.

    dtype, of the weights, is a torch dtype, its name, or "auto" for what the file holds. precision,
    of the matrix products, is fp32, bf16 or int8 (`model/precision.py`), "auto" for int8 on a CPU
    where the file holds such weights, or None for plain maps, which can be trained; elsewhere than
    on a CPU, fp32 and bf16 are the dtype of the weights.
    """
    if not isinstance(path, str | os.PathLike):
        raise UsageError("loading a model", f"{path!r}", "the path of a folder or file")
    check_model(str(path), "load")
    source = open_source(locate(path))
    place = read_device(device)
    if place.type != "cpu" and precision in ("fp32", "bf16"):
        dtype, precision = "float32" if precision == "fp32" else "bfloat16", None
    if place.type == "cuda":
        expect_many_shapes()
    model, binding = load_model(source, read_dtype(dtype), place)
    if precision == "auto":
        whole = place.type == "cpu" and source.config.get(STORED) == INT8
        precision = INT8 if whole else None
    if precision is not None:
        set_precision(model, precision)
        if strict and not same_in_any_company(model):
            set_precision(model, None)  # quicker where each sentence runs alone
    folder = source.path if source.path.is_dir() else None
    files = read_side_files(folder) if folder else {}
    return Kit(model, read_tokenizer(source), binding, source.config, files, strict)


def build(name: str, seed: int = 0) -> Kit:
    """A new model of a preset's shape with freshly drawn weights."""
    family = architecture(name)
    binding = bind(family) if family else None
    return Kit(Model.fresh(preset(name), seed), None, binding)


def read_dtype(dtype: str | torch.dtype) -> torch.dtype | None:
    """A floating torch dtype by name; None for "auto"."""
    if dtype == "auto":
        return None
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if found not in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        known = "float32, bfloat16, float16, float64 or auto"
        raise UsageError("loading a model", f"dtype = {dtype!r}", known)
    return found


def read_device(device: str | torch.device) -> torch.device:
    """A device that is there; "auto" is a GPU if there is one."""
    try:
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError, TypeError, ValueError) as error:
        found_text = f"device = {device!r}: {str(error).splitlines()[0]}"
        raise UsageError("loading a model", found_text, "cpu, cuda or auto") from None
    return found


def read_tokenizer(source: Source) -> Tokenizer | None:
    """The tokenizer that came with a checkpoint, None when there is none."""
    if isinstance(source, GGUFSource):
        return from_gguf(source.metadata) if "tokenizer.ggml.model" in source.metadata else None
    if isinstance(source, Llama2cSource):
        beside = source.path.parent / "tokenizer.bin"
        return from_llama2c(beside, source.config["vocab_size"]) if beside.exists() else None
    return open_tokenizer(source.path)
