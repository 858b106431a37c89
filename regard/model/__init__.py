"""Models: their shape, their parts, their cost; what a model is and what a run of it takes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from regard.errors import UsageError
from regard.model.results import Catalogue, CountedInfo, ModelInfo, Plan, ShippedModel
from regard.verbs import Alias, Amount, Count, ModelLike, verb

if TYPE_CHECKING:
    from regard.interop.source import CheckpointSource
    from regard.interop.table import Binding
    from regard.model.model import Model


@verb
def info(model: ModelLike, *, taps: bool = False) -> ModelInfo | CountedInfo:
    """Sizes, tokenizer, taps and parity of a model.

    Args:
        model: a folder, .gguf, ARPA, vectors of words, a model in the box, a preset, or a Kit.
        taps: list every tap with its shape.

    Example:
        >>> regard.info("gpt2").parameters
        124439808
        $ regard info folder
        $ regard info gpt2 --taps
        $ regard info model.gguf --json
    """
    from regard.interop.description import describe_model
    from regard.kit import Kit
    from regard.loading import find_source
    from regard.model_kinds import NETWORK, describe_counted, find_kind

    if isinstance(model, Kit):
        source = None if model.path is None else find_source(str(model.path))
        return describe_model(repr(model), model.model, model.binding, source, taps)
    path = str(getattr(model, "path", model))
    known = find_kind(path)
    if known is not None and known.kind is not NETWORK:
        if taps:
            title = f"{known.kind.title}: there are none"
            raise UsageError(f"listing the taps of {path}", title, "a network")
        return CountedInfo(path, known.kind.title, describe_counted(Path(path), known.kind))
    return describe_model(path, *_outline(path), taps)


@verb
def models() -> Catalogue:
    """Models in the box, presets by four axes, architectures that open.

    Example:
        >>> regard.models().presets[0].name
        'gpt2'
        $ regard models
        $ regard models --json
        $ regard models --save models.html
    """
    from regard.interop.families import FAMILIES
    from regard.model.presets import PRESETS, classify
    from regard.zoo import KNOWN, shipped

    models = [ShippedModel(name, KNOWN.get(name, ""), str(at)) for name, at in shipped().items()]
    families = {table.family: list(table.variants) for table in FAMILIES}
    return Catalogue(models, [classify(name) for name in PRESETS], families)


@verb
def plan(
    model: ModelLike | None = None,
    *,
    batch: Count = 1,
    length: Annotated[Count | None, Alias("--n")] = None,
    source: Count | None = None,
    dim: Annotated[Count | None, Alias("--d")] = None,
    depth: Count | None = None,
    heads: Count | None = None,
    hidden: Count | None = None,
    vocab: Count | None = None,
    dtype: Literal["float32", "bfloat16", "float16", "float64"] = "float32",
    train: bool = False,
    steps: Count = 1,
    keep: Count = 3,
    memory: Amount | None = None,
    watts: Amount | None = None,
    require_fit: bool = False,
) -> Plan:
    """FLOPs, memory, time, disk and energy of a run before it is run.

    Args:
        model: a preset, a checkpoint or a Kit; else give dim and the rest of a decoder.
        batch: sequences at once.
        length: tokens of each sequence (512, or the model's limit).
        source: tokens of an encoder-decoder's source (as length).
        dim: width of a decoder to be planned.
        depth: its blocks (12).
        heads: its heads (dim / 64).
        hidden: width of its MLP (4 dim).
        vocab: its vocabulary (50257).
        dtype: of the weights.
        train: a training step with AdamW instead of a forward pass.
        steps: training steps, or forward passes, of the whole run.
        keep: checkpoints that a run keeps, beside the best.
        memory: GiB that there are, instead of this machine's.
        watts: power of the device, for the energy (what the system says is its limit).
        require_fit: fail where memory or disk do not suffice.

    Example:
        >>> regard.plan("gpt2", batch=4, length=512).total.peak_bytes
        $ regard plan gpt2 --batch 4 --length 512
        $ regard plan --dim 1024 --depth 12 --heads 16 --length 8192
        $ regard plan folder --train --batch 8 --steps 10000 --require-fit
    """
    from regard.kit import Kit
    from regard.model import planning
    from regard.model.presets import gpt2
    from regard.model_kinds import NETWORK, check_kind

    sizes = {"dim": dim, "depth": depth, "heads": heads, "hidden": hidden, "vocab": vocab}
    stated = [name for name, size in sizes.items() if size is not None]
    if model is not None and stated:
        raise UsageError("planning a run", f"{model} and {stated[0]}", "one of the two")
    if isinstance(model, Kit):
        name, config = str(model), model.model.config
    elif model is not None:
        name = str(model)
        check_kind(name, NETWORK)
        config = _outline(name)[0].config
    elif dim is not None:
        name = f"decoder of dim {dim}"
        heads = heads or max(dim // 64, 1)
        config = gpt2(dim, depth or 12, heads, vocab or 50257, length or 512, hidden)
    else:
        fix = "regard plan gpt2, or regard plan --dim 1024 --length 8192"
        raise UsageError("planning a run", "no model", "a preset, a checkpoint, or --dim", fix)
    limit = None if memory is None else int(memory * 2**30)
    settings = (batch, length, source, dtype, train, steps, keep, limit, watts)
    result = planning.plan_run(name, config, *settings)
    if require_fit:
        planning.require_fit(result)
    return result


def _outline(path: str) -> tuple[Model, Binding | None, CheckpointSource | None]:
    """The model of a preset or a checkpoint without memory, its table, and where it lies."""
    from regard.interop.families import bind
    from regard.interop.weights import outline
    from regard.loading import find_source
    from regard.model.model import empty_model
    from regard.model.presets import architecture, preset

    source = find_source(path)
    if source is None:
        shape, name = empty_model(preset(path)), architecture(path)
        return shape, bind(name) if name else None, None
    return *outline(source)[:2], source
