"""The settings of a run, each with its origin: default < preset < TOML file < given.

A field of TrainConfig, ShapeConfig or DataConfig is a TOML key of the same name. A run's folder
keeps all of them in config.toml, so that it can be resumed or run again. No torch here.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from regard.ambient import DEFAULTS, Device, current
from regard.errors import DataError, UsageError, bad_byte, check_known, did_you_mean
from regard.model.config import CELLS
from regard.model.presets import architecture, preset
from regard.train.config import (
    ARCHITECTURES,
    FAMILIES,
    Config,
    DataConfig,
    LoRA,
    ShapeConfig,
    TrainConfig,
)
from regard.train.results import RunSettings
from regard.verbs import Bound, check_value
from regard.zoo import locate

if TYPE_CHECKING:
    from regard.train.data import RunKind

DOING = "reading the settings"
CONFIG = "config.toml"
AnyConfig = TypeVar("AnyConfig", bound=Config)
Seed = Annotated[int, Bound(0, (1 << 63) - 1, "0 to 2^63 - 1")]


def known_settings(own: type[Config]) -> dict[str, tuple[Any, Any]]:
    """Type and default of every setting of a run by name; `own` are those of its kind alone."""
    known: dict[str, tuple[Any, Any]] = {
        "kind": (str, "lm"),
        "files": (tuple[str, ...], ()),
        "seed": (Seed, DEFAULTS.seed),
        "device": (Device, DEFAULTS.device),
        "lora": (str | None, None),
    }
    for config in (DataConfig, own, TrainConfig):
        hints = typing.get_type_hints(config, include_extras=True)
        for field in dataclasses.fields(config):
            known[field.name] = hints[field.name], field.default
    return known


# Presets ------------------------------------------------------------------------------------------

USUAL: dict[str, dict[str, Any]] = {
    "lm": {},
    "mlm": {"beta2": 0.98, "weight_decay": 0.01, "dropout": 0.1},
    "seq2seq": {"beta2": 0.98, "weight_decay": 0.0, "dropout": 0.1}
    | {"length": 128, "schedule": "inverse_sqrt", "smoothing": 0.1},
}
"""Training settings of each kind that differ from the defaults."""

MUON = {"optimizer": "muon", "lr": 8e-3, "schedule": "cosine"}
"""Those of encoder-decoders that begin with nothing, unless another optimizer is asked for."""
MANY = 10**9  # steps where the clock says how many

RECURRENT: dict[str, dict[str, Any]] = {
    "lm": {"depth": 2, "length": 64, "carry": True, "lr": 2e-3, "weight_decay": 0.0},
    "seq2seq": {"depth": 1, "schedule": "cosine", "lr": 2e-3},
}
"""Those of recurrent families: a window is how far back gradients go."""

VASWANI: dict[str, Any] = {"beta2": 0.98, "eps": 1e-9, "warm_up": 4000}
VASWANI |= {"lr": 512**-0.5 * 4000**-0.5, "steps": 100_000, "average": 5}
BIG = {"lr": 1024**-0.5 * 4000**-0.5, "dropout": 0.3, "steps": 300_000, "average": 20}
RECIPES = dict.fromkeys(("transformer-base", "transformer-pre"), VASWANI)
RECIPES["transformer-big"] = VASWANI | BIG
"""Published training settings of presets (spec training.md, section 1)."""


def usual_values(kind: str, said: Mapping[str, Any]) -> dict[str, Any]:
    """The usual settings of lm, mlm or seq2seq, or of a preset, given what is said already."""
    recurrent = said.get("family") in CELLS or said.get("attention") in ("additive", "none")
    values = USUAL[kind] | (RECURRENT.get(kind, {}) if recurrent else {})
    if (name := said.get("preset")) is None:
        others = said.get("init") or said.get("shard") or said.get("optimizer") == "adamw"
        return values | ({} if kind != "seq2seq" or recurrent or others else MUON)
    config, family = preset(name), architecture(name)
    families = {full: short for short, full in ARCHITECTURES.items()} | {None: "marian"}
    if families.get(family) not in FAMILIES[kind]:
        problem = f"{name}, a {family or 'pre-norm encoder-decoder'}"
        expected = f"a preset of {' or '.join(FAMILIES[kind])}"
        raise UsageError(f"choosing a preset for `train {kind}`", problem, expected)
    block, stack = config.last.block, config.encoder or config.last
    values |= {"family": families[family], "dim": block.dim, "depth": stack.depth}
    values |= {"heads": block.heads, "hidden": block.hidden, "pre_norm": family is None}
    if values["family"] == "llama" and block.kv_heads is not None:
        values["kv_heads"] = block.kv_heads
    return values | RECIPES.get(name, {})


# Values and files ---------------------------------------------------------------------------------


def read_value(name: str, value: Any, origin: str, hint: Any) -> Any:
    """A value of the right type, or an error that names the key and where it stood."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        if value is None:
            return None
        hint = next(part for part in typing.get_args(hint) if part is not types.NoneType)
    if typing.get_origin(hint) is tuple:
        items = [value] if isinstance(value, str | os.PathLike) else value
        if not isinstance(items, list | tuple):
            raise UsageError(DOING, f"{name} = {value!r} ({origin})", "a list of text")
        return tuple(os.fspath(item) for item in items)
    if typing.get_origin(hint) is Annotated:
        hint = hint.__origin__
    choices = typing.get_args(hint) if typing.get_origin(hint) is Literal else ()
    kind = str if choices else hint
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    fits = isinstance(value, int | float if kind is float else kind)
    if not fits or (isinstance(value, bool) and kind is not bool):
        expected = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
        raise UsageError(DOING, f"{name} = {value!r} ({origin})", expected[kind])
    if choices:
        check_known(value, choices, DOING, f"{name} = {value!r} ({origin})")
    return kind(value)


def read_toml(path: Path) -> dict[str, Any]:
    """The keys of a TOML file; tables only group them."""
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8").removeprefix("\ufeff"))
    except OSError as error:
        raise DataError(f"reading {path}", error.strerror or str(error), "a TOML file") from None
    except ValueError as error:
        problem = bad_byte(error) if isinstance(error, UnicodeDecodeError) else str(error)
        raise DataError(f"reading {path}", problem, "valid TOML") from None
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= value if isinstance(value, dict) else {key: value}
    return flat


def read_before(path: Path, own: type[Config]) -> dict[str, Any]:
    """The settings that a run had before, from the file in its folder; none for a new one."""
    before, known = read_toml(path) if path.is_file() else {}, known_settings(own)
    there = {name: hint for name, (hint, _) in known.items() if name in before}
    return {name: read_value(name, before[name], CONFIG, hint) for name, hint in there.items()}


def to_toml(value: Any) -> str:
    """One value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(to_toml, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
    return repr(value)


def write_toml(settings: RunSettings) -> str:
    """All values as TOML, each with its origin as a comment."""
    lines = []
    for name, value in settings.values.items():
        line = f"# {name} is not set" if value is None else f"{name} = {to_toml(value)}"
        lines.append(f"{line}  # {settings.origins[name]}")
    return "\n".join(lines) + "\n"


# From all of them to a run ------------------------------------------------------------------------


def make_config(settings: RunSettings, config: type[AnyConfig]) -> AnyConfig:
    """One of the dataclasses, filled and checked."""
    values = settings.values
    return config(**{field.name: values[field.name] for field in dataclasses.fields(config)})


def resolve_run(
    kind: RunKind,
    files: Any,
    configs: Sequence[Config],
    path: Path | None = None,
    lora: LoRA | str | None = None,
) -> RunSettings:
    """All settings of a run of a kind, checked."""
    asked = {name: getattr(config, name) for config in configs for name in config.given}
    asked |= {"kind": kind.name, **kind.fixed} | ({"files": files} if files else {})
    asked |= {"lora": str(lora)} if lora is not None else {}
    around = {name: getattr(current(), name) for name in ("seed", "device")}
    asked |= {name: value for name, value in around.items() if value != getattr(DEFAULTS, name)}
    file, known = read_toml(path) if path is not None else {}, known_settings(kind.config)
    if file.get("kind", kind.name) != kind.name:
        problem = f"kind = {kind.name} was asked for, kind = {file['kind']!r} in {path}"
        fix = "call the function of that kind, or take kind out of the file"
        raise UsageError(DOING, problem, "one of the two", fix)
    said = file | asked
    layers = [
        ("default", {name: default for name, (_, default) in known.items()}),
        (f"preset {said.get('preset') or f'for {kind.name}'}", kind.usual(said)),
        (str(path), file),
        ("flag", asked),
    ]
    settings = RunSettings({}, {})
    for origin, values in layers:
        for key, value in values.items():
            if key not in known:
                fix = did_you_mean(key, known, 1)
                raise UsageError(DOING, f"unknown key {key!r} in {origin}", fix=fix)
            put(settings, key, read_value(key, value, origin, known[key][0]), origin)
    if settings.values["minutes"] and "steps" not in said:
        put(settings, "steps", MANY, "minutes")
    make_config(settings, DataConfig)
    make_config(settings, TrainConfig)
    check_value("train", "seed", settings.values["seed"], Seed)
    check_lora(settings.values)
    find_data(settings, f"{kind.room} {kind.name}")
    kind.decide(settings)
    return settings


def check_lora(values: dict[str, Any]) -> None:
    """Write LoRA's settings in one way, and see that there is a model to adapt."""
    if values["lora"] is None:
        return
    values["lora"] = str(LoRA.parse(values["lora"]))
    if values["init"] is None:
        expected = "a model to adapt: the folder of one"
        raise UsageError(DOING, f"lora = {values['lora']} without init", expected, "--init FOLDER")
    if values["shard"]:
        fix = "leave --shard out: an adapter has few weights to share"
        raise UsageError(DOING, "lora with shard", "the model on each process", fix)


def put(settings: RunSettings, name: str, value: Any, origin: str) -> None:
    """Set one value."""
    settings.values[name], settings.origins[name] = value, origin


def decide_steps(settings: RunSettings, steps: int, each: int) -> None:
    """Steps, and a validation and a checkpoint after `each`, as far as nothing else was said."""
    for name, value in (("steps", steps), ("eval_every", each), ("save_every", each)):
        if settings.origins[name] == "default":
            put(settings, name, value, "epochs")
    if settings.origins["warm_up"] == "default" and settings.values["minutes"] is None:
        put(settings, "warm_up", round(0.1 * settings.values["steps"]), "a tenth of the steps")


def find_data(settings: RunSettings, command: str) -> None:
    """Make the paths of the files whole; there must be some."""
    values = settings.values
    for name in ("files", "valid"):
        for file in values[name]:
            if Path(file).is_fifo():
                expected, fix = "a file: it is read several times", "write it to a file first"
                raise DataError(f"reading {file}", "a pipe", expected, fix)
        values[name] = tuple(str(Path(file).resolve()) for file in values[name])
    if not values["files"]:
        raise UsageError(DOING, "no files to train on", f"regard {command} FILE…")


def decide_text(settings: RunSettings, kind: str) -> None:
    """Decide what was left open of lm, mlm or seq2seq, and check all of it together."""
    values, origins = settings.values, settings.origins
    for name, depends in (("hidden", "dim"), ("kv_heads", "heads")):
        of_preset = origins[name].startswith("preset")
        if of_preset and not origins[depends].startswith("preset"):
            put(settings, name, None, "default")  # the preset's would not fit
    shape = make_config(settings, ShapeConfig)
    if values["init"] is not None:
        begin_with(settings, [field.name for field in dataclasses.fields(ShapeConfig)])
    else:
        decided = shape.resolve(kind)
        decided.build(8, values["length"])  # a shape that cannot be, before any work
        for name in ("family", "hidden", "attention"):
            if getattr(decided, name) != getattr(shape, name):
                put(settings, name, getattr(decided, name), "default")
    if values["tokens"] is None:
        usual = {"lm": "bpe", "mlm": "wordpiece", "seq2seq": "pieces"}
        put(settings, "tokens", usual[kind], "default")
    train = make_config(settings, TrainConfig)
    if train.metric != "loss" and (train.metric, kind) != ("bleu", "seq2seq"):
        problem = f"metric = {train.metric} for `train {kind}`"
        raise UsageError(DOING, problem, "loss; seq2seq translates")
    if kind != "seq2seq":
        check_window(values)
    check_recurrent(values)


def find_model(values: dict[str, Any], name: str) -> str:
    """Make the path of a model whole; it must be there."""
    path = os.fspath(locate(values[name]))
    if not Path(path).exists():
        expected = "a folder that `regard.load` opens, or a name `regard models` shows"
        raise UsageError(DOING, f"{name} = {path}: no such file or folder", expected)
    values[name] = str(Path(path).resolve())
    return str(values[name])


def begin_with(
    settings: RunSettings, own: Sequence[str] = (), config: type[Config] = ShapeConfig
) -> None:
    """Make the path of the model that a run begins with whole, and refuse what is its `own`."""
    values = settings.values
    if values["init"] is None:
        raise UsageError(DOING, "no model to begin with", "one to adapt", "--model FOLDER")
    init, known = find_model(values, "init"), known_settings(config)
    for name in (*own, "preset", "vocab", "tokens"):
        if values[name] not in (known[name][1], init if name == "tokens" else None):
            problem = f"{name} = {values[name]} ({settings.origins[name]}) with init"
            raise UsageError(DOING, problem, f"the {name} of {init}", f"leave {name} out")
    put(settings, "tokens", init, "init")


def check_window(values: Mapping[str, Any]) -> None:
    """A batch must hold a window at least."""
    if values["batch_tokens"] < values["length"]:
        problem = f"batch_tokens = {values['batch_tokens']}, fewer than length = {values['length']}"
        raise UsageError(DOING, problem, "room for one window", "raise one or lower the other")


def check_recurrent(values: Mapping[str, Any]) -> None:
    """Refuse what recurrent models cannot do, and what only they can."""
    family = values["family"]
    if family not in CELLS:
        wrong = ["carry"] if values["carry"] else []
        expected = f"a recurrent family ({', '.join(CELLS)}): a Transformer keeps no state"
    else:
        wrong = [name for name in ("compile", "shard") if values[name]]
        wrong += [name for name in ("optimizer", "precision") if values[name] in ("muon", "fp8")]
        wrong += ["carry"] if values["carry"] and values["kind"] != "lm" else []
        wrong += ["split"] if values["split"] == "row" else []
        expected = "plain AdamW on each process, over texts in a stream"
    if wrong:
        problem = f"{wrong[0]} = {values[wrong[0]]} with {family}"
        raise UsageError(DOING, problem, expected, f"leave --{wrong[0]} out")
