"""Adapters on disk, as PEFT writes them: adapter_config.json and adapter_model.safetensors.

Names are those of transformers' modules, by the table of the family. Maps of ours that are one of
theirs (GPT-2's c_attn) are written as one of the summed rank, whose B has a block for each.
The metadata of the safetensors file remember the base: its path, and the hash of its weights.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save
from torch import Tensor, nn

from regard.ambient import current, note
from regard.errors import DataError, UsageError
from regard.files import BROKEN, parse_json, read_json, read_shapes, write_whole
from regard.interop.parity import batches
from regard.interop.source import Adapters, Pathlike, is_adapter, open_source
from regard.interop.table import TRANSPOSE, Binding, Move, moves
from regard.interop.weights import named, read_shape
from regard.model.model import Model, empty_model
from regard.model.recurrent import model_class
from regard.tune import lora
from regard.tune.lora import LowRank, Parts
from regard.tune.results import Merged
from regard.zoo import locate

if TYPE_CHECKING:
    from regard.kit import Kit

CONFIG, WEIGHTS, SHAPE = "adapter_config.json", "adapter_model.safetensors", "config.json"
PREFIX = "base_model.model."
A, B, MAGNITUDE = ".lora_A.weight", ".lora_B.weight", ".lora_magnitude_vector"
NOTE = "regard"  # the key of the metadata
TASKS = {
    "CausalLM|LMHead": "CAUSAL_LM",
    "SequenceClassification": "SEQ_CLS",
    "TokenClassification": "TOKEN_CLS",
    "ConditionalGeneration|MTModel": "SEQ_2_SEQ_LM",
}
"""Parts of the names of architectures → what PEFT calls their tasks."""
UNKNOWN = (
    *("lora_bias", "use_qalora", "use_bdlora", "velora_config", "monteclora_config"),
    *("arrow_config", "kasa_config", "layer_replication", "target_parameters"),
    *("trainable_token_indices", "alora_invocation_tokens", "megatron_config"),
)
"""Settings of PEFT's that change what an adapter computes, and that are not known here."""


class Base(NamedTuple):
    """The model that an adapter belongs to."""

    path: str
    weights: str
    """SHA-256 of its tensors as they are stored."""


def identify_base(path: Pathlike) -> Base:
    """A checkpoint by its place and the hash of its weights."""
    place = Path(os.fsdecode(locate(path))).resolve()
    files = sorted(place.glob("*.safetensors")) if place.is_dir() else [place]
    stats = ((file.name, file.stat()) for file in files)
    return Base(str(place), _hash(place, tuple((n, s.st_mtime_ns, s.st_size) for n, s in stats)))


@lru_cache
def _hash(place: Path, versions: tuple[tuple[str, int, int], ...]) -> str:
    source, digest = open_source(place), sha256()
    for name in sorted(source.shapes):
        tensor = source.tensor(name).contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


class Place(NamedTuple):
    """Maps of ours, and the one of theirs that they are."""

    ours: list[str]
    theirs: str
    move: Move


def places_of(model: Model, binding: Binding | None) -> list[Place]:
    """Where each linear map lies in transformers' model."""
    linears = {name for name, m in model.named_modules() if isinstance(m, nn.Linear)}
    places = []
    for move in all_moves(model, binding):
        ours = [name.removesuffix(".weight") for name in move.ours]
        if linears.issuperset(ours) and ours != move.ours:
            places.append(Place(ours, move.theirs[0].removesuffix(".weight"), move))
    return places


def all_moves(model: Model, binding: Binding | None) -> list[Move]:
    """Those of the table, with the prefix that transformers' modules have, whatever the file's."""
    filling, copies = moves(binding and replace(binding, prefix=binding.variant.prefix), model)
    return filling + copies


# Out ----------------------------------------------------------------------------------------------


def write_adapter(
    folder: Path, model: Model, binding: Binding | None, base: Base, described: dict[str, Any]
) -> None:
    """Write the adapter that is on, other weights trained beside it, and the model's config.json.

    The last is that of the base, but where the model has another output head.
    """
    on = {name: share for name, share in lora.shares(model).items() if share}
    if list(on.values()) != [1.0]:
        expected, fix = "one, with a share of 1", "kit.switch(name); or merge a mixture"
        raise UsageError("saving an adapter", f"adapters that are on: {on}", expected, fix)
    places, tensors, name = places_of(model, binding), dict[str, Tensor](), next(iter(on))
    held = {p: low for p, m in lora.adapted(model).items() if (low := lora.lows_of(m).get(name))}
    ranks: dict[str, tuple[int, float]] = {}  # rank and alpha
    for place in places:
        lows = [held.get(path) for path in place.ours]
        if some := next(filter(None, lows), None):
            parts = join_parts([model.get_submodule(path) for path in place.ours], lows)
            ends = zip((A, B, MAGNITUDE), parts, strict=True)
            tensors |= {PREFIX + place.theirs + end: x for end, x in ends if x is not None}
            r = len(parts[0])
            alpha = some.scale * (r**0.5 if some.rslora else r)
            ranks[place.theirs] = r, float(f"{alpha:.12g}")
    parameters = dict(model.named_parameters())
    trained = {n for n, p in parameters.items() if p.requires_grad and ".adapters." not in n}
    saved: dict[str, Tensor] = {}
    for move in all_moves(model, binding):
        if trained.intersection(move.ours):
            saved |= named(move, [parameters[n].detach() for n in move.ours])
    tensors |= {PREFIX + theirs: tensor for theirs, tensor in saved.items()}
    (r, alpha), _ = Counter(ranks.values()).most_common(1)[0]
    other = {theirs: pair for theirs, pair in ranks.items() if pair != (r, alpha)}
    architecture = "" if binding is None else binding.architecture
    first = next(iter(held.values()))
    config = {
        "peft_type": "LORA",
        "task_type": next((t for p, t in TASKS.items() if re.search(p, architecture)), None),
        "base_model_name_or_path": base.path,
        "inference_mode": True,
        "r": r,
        "lora_alpha": alpha,
        "lora_dropout": first.dropout,
        "use_rslora": first.rslora,
        "use_dora": first.magnitude is not None,
        "bias": "none",
        "fan_in_fan_out": any(TRANSPOSE in p.move.ops for p in places if p.theirs in ranks),
        "target_modules": shorten(ranks, [p.theirs for p in places if p.theirs not in ranks]),
        "rank_pattern": {theirs: r for theirs, (r, _) in other.items()},
        "alpha_pattern": {theirs: alpha for theirs, (_, alpha) in other.items()},
        "modules_to_save": sorted({theirs.rpartition(".")[0] for theirs in saved}) or None,
    }
    origin = json.dumps({**base._asdict(), "linears": list(held)})
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / WEIGHTS, save(whole, {NOTE: origin}))
    for name, content in ((SHAPE, described), (CONFIG, config)):
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        write_whole(folder / name, text.encode())


def join_parts(maps: list[Any], lows: list[Any]) -> Parts:
    """The adapters of a place as one: A under each other, B as blocks, maps without one as zero."""
    blocks, lengths = list[Tensor](), list[Tensor | None]()
    for linear, low in zip(maps, lows, strict=True):
        blocks.append(linear.weight.new_zeros(linear.out_features, 0) if low is None else low.b)
        lengths.append(torch.linalg.norm(linear.weight, dim=1) if low is None else low.magnitude)
    dora = [length for length in lengths if length is not None]
    a = torch.cat([low.a for low in lows if low is not None])
    return a, torch.block_diag(*blocks), torch.cat(dora) if len(dora) == len(maps) else None


def shorten(chosen: dict[str, Any], others: list[str]) -> list[str]:
    """Modules by the last part of their names, where no other module has it too."""
    taken = {name.rpartition(".")[2] for name in others}
    lasts = {name: name.rpartition(".")[2] for name in chosen}
    return sorted({name if last in taken else last for name, last in lasts.items()})


# In -----------------------------------------------------------------------------------------------


class AdapterFolder(NamedTuple):
    """An adapter that was read, its base not yet."""

    path: Path
    config: dict[str, Any]
    tensors: dict[str, Tensor]
    described: dict[str, Any] | None
    """config.json of the model with the adapter on, where regard wrote it."""
    origin: dict[str, Any] | None
    """What regard wrote of its base and its maps."""


def read_adapter(folder: Path) -> AdapterFolder:
    """Read an adapter; one that computes what is not known here is refused."""
    doing = f"opening the adapter {folder}"
    if missing := [name for name in (CONFIG, WEIGHTS) if not (folder / name).is_file()]:
        expected = f"{CONFIG} and {WEIGHTS}, as PEFT and `--lora` write them"
        fix = "save it as safetensors where it came from"
        raise DataError(doing, f"no {missing[0]}", expected, fix)
    config = read_json(folder / CONFIG)
    known = {"peft_type": "LORA", "bias": "none", **dict.fromkeys(UNKNOWN)}
    wrong = [key for key, value in known.items() if (config.get(key) or value) != value]
    if re.match("pissa|olora|corda|loftq", str(config.get("init_lora_weights"))):
        wrong.append("init_lora_weights")  # these change the weights of the base
    if wrong:
        fault = ", ".join(f"{key} = {config.get(key)!r}" for key in wrong)
        raise DataError(doing, fault, "LoRA, rsLoRA or DoRA", "merge it into its base with PEFT")
    read_shapes(folder / WEIGHTS)  # which says that a file was cut
    with safe_open(folder / WEIGHTS, framework="pt") as file:
        text = (file.metadata() or {}).get(NOTE)
    origin = None if text is None else parse_json(text.encode(), folder / WEIGHTS)
    described = read_json(folder / SHAPE) if origin and (folder / SHAPE).is_file() else None
    return AdapterFolder(folder, config, load_file(folder / WEIGHTS), described, origin)


def base_of(folder: Path) -> str:
    """The path of an adapter's base, which is on this machine."""
    path = read_json(folder / CONFIG).get("base_model_name_or_path")
    place = locate(path) if isinstance(path, str) and path else ""
    if not os.path.exists(place):
        fault = f"its base, {path}, is not on this machine"
        fix = f"regard.load(BASE, adapter={str(folder)!r})"
        raise DataError(f"opening the adapter {folder}", fault, "the model it was trained on", fix)
    return os.fsdecode(place)


def open_adapters(
    path: Pathlike, adapter: Adapters
) -> tuple[Pathlike, dict[str, AdapterFolder], Base | None]:
    """(where the base lies, the adapters to put on it by name, the base's identity if there are).

    An adapter that was trained on other weights is refused, where it remembers them.
    """
    place, folders = locate(path), {} if adapter is None else adapter
    folders = dict(folders if isinstance(folders, Mapping) else {"default": folders})
    if is_adapter(place):
        own = "own" if "default" in folders else "default"
        place, folders = base_of(Path(os.fsdecode(place))), {own: place, **folders}
    opened = {n: read_adapter(Path(os.fsdecode(locate(f)))) for n, f in folders.items()}
    if not opened:
        return place, {}, None
    base = identify_base(place)
    for folder, config, *_, origin in opened.values():
        if origin is not None and origin["weights"] != base.weights:
            own = config["base_model_name_or_path"]
            doing = f"putting the adapter {folder} on {base.path}"
            fault = f"an adapter of {own}, weights {origin['weights'][:12]}"
            expected = f"weights {base.weights[:12]}, of {base.path}"
            raise DataError(doing, fault, expected, f"give its own base, {own}")
    return place, opened, base


def reshape(
    opened: AdapterFolder, model: Model, binding: Binding | None, described: dict[str, Any]
) -> tuple[Model, Binding | None, dict[str, Any]]:
    """The model that an adapter was trained on: its base, but for an output head of its own.

    Weights that the base does not have are zero, until the adapter brings them.
    """
    if opened.described is None or opened.described == described:
        return model, binding, described
    names = [name.removeprefix(PREFIX) for name in opened.tensors]
    config, own = read_shape(opened.described, names)
    new, held = empty_model(config, model_class(config)), dict(model.named_parameters())
    some, fresh = next(iter(held.values())), set[str]()
    for name, parameter in list(new.named_parameters()):
        old, (path, _, leaf) = held.get(name), name.rpartition(".")
        if old is None or old.shape != parameter.shape:
            old = nn.Parameter(some.new_zeros(parameter.shape))
            fresh.add(name)
        setattr(new.get_submodule(path), leaf, old)
    new.tie()
    for move in all_moves(new, own):
        if fresh.intersection(move.ours) and not set(names).issuperset(move.theirs):
            fault = f"neither it nor its base has {', '.join(move.theirs)}"
            raise DataError(f"opening the adapter {opened.path}", fault, "all weights", BROKEN)
    return new.eval(), own, opened.described


def put_adapter(
    opened: AdapterFolder, model: Model, binding: Binding | None, base: str, name: str
) -> None:
    """Put an adapter that was read on the model of the folder `base`."""
    doing = f"putting the adapter {opened.path} on {base}"
    origin, config = opened.origin, opened.config
    own = config.get("base_model_name_or_path")
    fix = f"give its own base, {own}"
    dropout, rslora = float(config.get("lora_dropout") or 0), bool(config.get("use_rslora"))
    rest, lows = dict(opened.tensors), dict[str, LowRank]()
    for place in places_of(model, binding):
        key = PREFIX + place.theirs
        if key + A in rest and key + B in rest and place.ours != [lora.HEAD]:
            whole = rest.pop(key + A), rest.pop(key + B), rest.pop(key + MAGNITUDE, None)
            attached = [p for p in place.ours if origin is None or p in origin["linears"]]
            how = scale_of(config, place.theirs, len(whole[0])), dropout, rslora
            split = split_parts(place, attached, whole, origin is not None)
            lows |= {p: LowRank(parts, *how) for p, parts in zip(attached, split, strict=True)}
    parameters = dict(model.named_parameters(remove_duplicate=False))
    trained = dict[str, Tensor]()
    for move in all_moves(model, binding):
        if lows and all(PREFIX + theirs in rest for theirs in move.theirs):
            theirs = [rest.pop(PREFIX + theirs) for theirs in move.theirs]
            trained |= zip(move.ours, move.load(theirs), strict=True)
    if rest or not lows:
        fault = f"an adapter of {own} with {', '.join(sorted(rest)[:5]) or 'no tensors'}"
        raise DataError(doing, fault, f"maps that {base} has", fix)
    held = {p: (low.b[:, :1] @ low.a[:1], parameters[f"{p}.weight"]) for p, low in lows.items()}
    held |= {path: (tensor, parameters[path]) for path, tensor in trained.items()}
    for path, (tensor, parameter) in held.items():
        if tensor.shape != parameter.shape:
            fault = f"an adapter of {own} for {path} of shape {tuple(tensor.shape)}"
            raise DataError(doing, fault, f"{tuple(parameter.shape)}, as {base} has", fix)
    lora.put_on(model, {path: low.to(held[path][1]) for path, low in lows.items()}, name)
    for path, tensor in trained.items():
        with torch.no_grad():
            parameters[path].copy_(tensor)
        parameters[path].requires_grad_(next(iter(lows.values())).a.requires_grad)


def scale_of(config: dict[str, Any], theirs: str, r: int) -> float:
    """What the product of one module is multiplied by."""
    patterns = config.get("alpha_pattern") or {}
    own = (alpha for key, alpha in patterns.items() if re.fullmatch(rf"(.*\.)?({key})", theirs))
    alpha = next(own, config.get("lora_alpha", 8))
    return float(alpha / (r**0.5 if config.get("use_rslora") else r))


def split_parts(place: Place, attached: list[str], parts: Parts, blocks: bool) -> list[Parts]:
    """Those of each map of a place: its rows of B, or its block where we wrote them."""
    (a, b, magnitude), split = parts, []
    for number, path in enumerate(attached):
        row, many = place.ours.index(path), len(place.ours)
        own, block = a, b.chunk(many)[row]
        if blocks:
            own, block = a.chunk(len(attached))[number], block.chunk(len(attached), 1)[number]
        rows = None if magnitude is None else magnitude.chunk(many)[row].clone()
        split.append((own.clone(), block.clone(), rows))
    return split


# Into the weights ---------------------------------------------------------------------------------


def merge_adapter(kit: Kit, out: Path) -> Merged:
    """Measure how far merging moves the scores, say so, and write the whole model."""
    model, base = kit.model, kit.base
    if not lora.adapted(model):
        fault, expected = f"{kit.path or kit} has no adapter", "the folder of an adapter"
        raise UsageError("merging an adapter", fault, expected)
    size = sum(p.numel() for name, p in model.named_parameters() if ".adapters." in name)
    generator, pad = torch.Generator().manual_seed(current().seed), kit.config.get("pad_token_id")
    inputs = [b.to(model.device) for b in batches(model.config, generator, int(pad or 0))]
    with torch.no_grad():
        before = [model(batch) for batch in inputs]
        lora.merge(model)
        kit.base = None
        drift = max(float((model(b) - x).abs().max()) for b, x in zip(inputs, before, strict=True))
    note(f"merged − unmerged: at most {drift:.1e} in a score")
    kit.save(out)
    return Merged(
        drift=drift,
        largest_score=max(float(scores.abs().max()) for scores in before),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        adapter_parameters=size,
        base=base.path if base else "a model made here",
        out=str(out),
    )
