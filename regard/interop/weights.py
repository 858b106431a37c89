"""Fill a model from a checkpoint and write it back, one tensor at a time."""

from __future__ import annotations

import typing
from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import DataError
from regard.interop.families import recognise
from regard.interop.folder import PEAK, WHOLE, to_whole
from regard.interop.source import CheckpointSource
from regard.interop.table import TENSORS, Binding, Move, fit, moves, read_config, write_config
from regard.model.config import ModelConfig, RecurrentConfig, from_plain
from regard.model.model import Model, empty_model
from regard.model.recurrent import model_class
from regard.nvib.autoencoder import restore

OWN = "regard"  # `model_type` of a folder whose shape no other family holds


def load_model(
    source: CheckpointSource, dtype: torch.dtype | None = None, device: torch.device | str = "cpu"
) -> tuple[Model, Binding | None]:
    """A model filled from `source` and the table it came by; nothing is read before all fits.

    The model is built without memory and each tensor is copied straight into place, so the peak is
    the model itself plus one tensor. `dtype` None keeps what the file holds.
    """
    model, binding, filling = outline(source)
    for move in filling:
        tensors = move.load([source.tensor(name) for name in move.theirs])
        for name, tensor in zip(move.ours, tensors, strict=True):
            if not tensor.is_floating_point():
                fault = f"{', '.join(move.theirs)} of {tensor.dtype}"
                raise DataError("loading a checkpoint", fault, "floating-point tensors")
            kept = tensor.dtype if dtype is None else dtype
            path, _, leaf = name.rpartition(".")
            held = nn.Parameter(settle(tensor, kept, torch.device(device)))
            setattr(model.get_submodule(path), leaf, held)
    model.tie()
    if binding is not None:
        check_copies(source, binding, model)
    return model.eval(), binding


def settle(tensor: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor to keep: a copy, unless its memory is new and all its own, as a restored one's is.

    What is mapped from a file, or made by numpy, has a storage that cannot be resized.
    """
    storage = tensor.untyped_storage()
    own = storage.resizable() and storage.nbytes() == tensor.nbytes and tensor.is_contiguous()
    if own and tensor.dtype == dtype and tensor.device == device:
        return tensor
    return torch.empty(tensor.shape, dtype=dtype, device=device).copy_(tensor)


def read_shape(
    described: dict[str, Any], names: Collection[str]
) -> tuple[ModelConfig, Binding | None]:
    """The shape that a config.json tells of and its table, given the names of the tensors."""
    if described.get("model_type") == OWN:
        values = described.get(OWN) or {}
        recurrent = isinstance(values, dict) and values.get("kind") == RecurrentConfig.kind
        kind = RecurrentConfig if recurrent else ModelConfig
        return typing.cast(ModelConfig, from_plain(kind, values, "model")), None
    binding = recognise(described, names)
    return read_config(binding, described | {TENSORS: frozenset(names)}), binding


def outline(source: CheckpointSource) -> tuple[Model, Binding | None, list[Move]]:
    """The model of a checkpoint without memory, its table, and the moves that will fill it."""
    config, binding = read_shape(source.config, source.shapes)
    shapes = source.shapes
    depth = sum(stack.depth for stack in (config.encoder, config.decoder) if stack is not None)
    depth += config.depth if isinstance(config, RecurrentConfig) else 0
    if depth > len(shapes):  # said before so many blocks are built
        fault = f"{depth} blocks in the config, {len(shapes)} tensors in the file"
        raise DataError("opening a checkpoint", fault, "several tensors for each block")
    model = empty_model(config, model_class(config))
    restore(model, source.config)
    return model, binding, fit(binding, model, shapes)


def check_copies(source: CheckpointSource, binding: Binding, model: Model) -> None:
    """A file may hold a tied weight twice; when the two differ, config.json must not tie them."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for move in moves(binding, model)[1]:
        if any(name not in source.shapes for name in move.theirs):
            continue
        held = move.load([source.tensor(n) for n in move.theirs])
        for name, tensor in zip(move.ours, held, strict=True):
            if not torch.equal(tensor.to(parameters[name]), parameters[name]):
                fault = f"{', '.join(move.theirs)} differs from the weight that it is tied to"
                expected = "equal values where config.json ties two weights"
                fix = 'set "tie_word_embeddings": false in config.json'
                raise DataError(f"loading a {binding.architecture}", fault, expected, fix)


def export_config(model: Model, binding: Binding | None) -> dict[str, Any]:
    """config.json of a model: its family's, or regard's own."""
    if binding is None:
        return {"model_type": OWN, OWN: model.config.to_dict()}
    return write_config(binding, model.config)


def export_tensors(
    model: Model, binding: Binding | None, stored: str | None = None
) -> Iterator[tuple[str, Tensor]]:
    """(name, tensor) in the family's names and layout, or regard's own; tied weights once.

    stored "int8" gives linear maps and embeddings as whole numbers with their peaks.
    """
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    kinds = () if stored is None else (nn.Linear, nn.Embedding)
    matrices = {f"{name}.weight" for name, m in model.named_modules() if isinstance(m, kinds)}
    for move in moves(binding, model)[0]:
        ours = [parameters[name] for name in move.ours]
        if not matrices.issuperset(move.ours):
            yield from named(move, ours)
            continue
        pairs = [to_whole(weight) for weight in ours]
        yield from named(move, [whole for whole, _ in pairs], WHOLE)
        yield from named(move, [peak for _, peak in pairs], PEAK)


def named(move: Move, ours: list[Tensor], end: str = "") -> Iterator[tuple[str, Tensor]]:
    """Tensors of ours in the family's layout, with its names."""
    for name, tensor in zip(move.theirs, move.save(ours), strict=True):
        yield name + end, tensor.contiguous()
