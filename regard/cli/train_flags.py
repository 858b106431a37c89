"""Settings of `regard train`: data, shape and training. No torch here: help is quick."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from regard.cli.flags import Settings, add_flags, read_toml, resolve, settings_of
from regard.errors import DataError, UsageError, nearest
from regard.model.config import CELLS
from regard.train.config import TrainConfig
from regard.train.shape import ShapeConfig, preset_values
from regard.zoo import locate

KINDS = ("lm", "mlm", "seq2seq")
WORDS = (*KINDS, *CELLS)  # `train lstm` is `train lm --family lstm`
OTHERS = ("ngram", "bow", "classes", "w2v", "bayes", "logreg", "ibm1")  # verbs of their own
DOING = "reading the command line"
CONFIG = "config.toml"


@dataclass(frozen=True)
class RunConfig:
    """What is trained on what."""

    kind: Literal["lm", "mlm", "seq2seq"] = "lm"
    """Next tokens, masked tokens, or the other side of sentence pairs."""
    files: tuple[str, ...] = ()
    """Text files or folders; pairs: TSV files, or a source and a target file."""
    valid: tuple[str, ...] = ()
    """Validation files of the same form; without them the end of the data is held out."""
    holdout: float | None = None
    """Share held out without --valid: 0.1, of pairs 0.01 to 0.05; 0 for no validation."""
    init: str | None = None
    """A model to begin with, folder or name: its weights, shape and tokenizer."""
    preset: str | None = None
    """A shape by name, such as gpt2, llama-15m, bert-base, transformer-base."""
    tokens: str | None = None
    """bpe (lm), wordpiece (mlm), pieces (seq2seq), words, chars, graphemes, bytes; or a folder."""
    vocab: int | None = None
    """Tokens at most (bpe, pieces and wordpiece 8000, else all)."""
    split: Literal["file", "line"] = "file"
    """lm: what a document is; the end token is put between documents."""
    carry: bool = False
    """lm: rows go on from batch to batch, and a recurrent model keeps its state (its usual way)."""
    mask: float = 0.15
    """mlm: share of the tokens to be predicted."""
    prompts: tuple[str, ...] = ()
    """Texts that samples go on from; without them beginnings from the validation data."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to run."""
    tensorboard: bool = False
    """Write curves for TensorBoard into the run folder too."""


KNOWN = settings_of(RunConfig, ShapeConfig, TrainConfig)
"""Every setting of a run, by name."""


def add_train(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard train`."""
    words = f"{', '.join(WORDS)}, then text files or folders; pairs: TSV, or SRC TGT"
    parser.add_argument("files", metavar="KIND FILE", nargs="*", help=words)
    run = parser.add_argument_group("the run")
    place = "the run's folder, new or empty (runs/KIND-1, -2, …)"
    run.add_argument("--out", metavar="RUN", help=place)
    run.add_argument("--resume", action="store_true", help="go on from RUN's last checkpoint")
    run.add_argument("--config", metavar="FILE", help="settings as TOML, such as RUN/config.toml")
    shown = "print all settings as TOML with the origin of each, and stop"
    run.add_argument("--print-config", action="store_true", help=shown)
    tried = "prepare the data in a temporary folder, print what would run, and stop"
    run.add_argument("--dry-run", action="store_true", help=tried)
    for title, config in (("data", RunConfig), ("shape", ShapeConfig), ("training", TrainConfig)):
        group = parser.add_argument_group(f"{title} (each also a key of the TOML file)")
        add_flags(group, settings_of(config), skip=("kind", "files"))  # type: ignore[arg-type]


def resolve_run(args: argparse.Namespace) -> Settings:
    """All settings of a run from defaults, preset, file and flags, checked."""
    flags: dict[str, Any] = {k: v for k, v in vars(args).items() if k in KNOWN and k != "files"}
    words = list(args.files)
    if words and words[0] in CELLS:
        flags |= {"kind": "lm", "family": words.pop(0)}
    elif words and words[0] in KINDS:
        flags["kind"] = words.pop(0)
    if words:
        flags["files"] = words
    path = args.config
    if path is None and args.resume and not words and args.out:
        own = Path(args.out) / CONFIG
        path = str(own) if own.is_file() else None
        if path is None and "kind" not in flags:
            fix = "to begin it, give the kind and the files too"
            raise UsageError(f"resuming {args.out}", f"no {own}", "the folder of a run", fix)
    given = read_toml(Path(path)) if path is not None else {}
    check_words(flags, given, str(path))
    kind = flags.get("kind", given.get("kind"))
    if kind not in KINDS:
        raise unknown_kind(words, kind)
    name = flags.get("preset", given.get("preset"))
    asked = {key: flags.get(key, given.get(key)) for key in ("family", "attention")}
    recurrent = asked["family"] in CELLS or asked["attention"] in ("additive", "none")
    preset = (name or f"for {kind}", preset_values(kind, name, recurrent))
    made = resolve(KNOWN, flags, (str(path), given) if path else None, preset)
    finish(made, kind)
    return made


def check_words(flags: dict[str, Any], given: Mapping[str, Any], path: str) -> None:
    """A file of another kind of training than the command's was not meant for it."""
    for name, asked in (("kind", flags.get("kind")), ("family", flags.get("family"))):
        other = given.get(name)
        if asked is None or other is None or (name == "family" and not {asked, other} <= {*CELLS}):
            continue
        if asked != other:
            found = f"{name} = {asked} on the command line, {name} = {other!r} in {path}"
            fix = f"leave the word out, or take {name} out of the file"
            raise UsageError(DOING, found, "one of the two", fix)


def unknown_kind(words: list[str], kind: Any) -> UsageError:
    """No kind, or one that is spelt otherwise."""
    asked = str(kind) if kind is not None else words[0] if words else None
    kinds = (*WORDS, *OTHERS)
    close = nearest(asked, kinds, 1) if asked else ""
    fix = f"did you mean {close}?" if close else "such as `regard train lm tale.txt --out run`"
    found = "no kind of training" if asked is None else f"{asked!r} as kind of training"
    return UsageError(DOING, found, f"one of {', '.join(kinds)}", fix)


def finish(made: Settings, kind: str) -> None:
    """Decide what was left open, make paths absolute, and check all of it together."""
    for name, depends in (("hidden", "dim"), ("kv_heads", "heads")):
        of_preset = made.origins[name].startswith("preset")
        if of_preset and not made.origins[depends].startswith("preset"):
            made.put(name, None, "default")  # the preset's would not fit
    if made.values["init"] is not None:
        begin_with(made)
    shape = made.make(ShapeConfig)
    decided = shape if made.values["init"] else shape.resolve(kind)
    if made.values["init"] is None:
        decided.build(8, made.values["length"])  # a shape that cannot be, before any work
    for name in ("family", "hidden", "attention"):
        if getattr(decided, name) != getattr(shape, name):
            made.put(name, getattr(decided, name), "default")
    for name in ("files", "valid"):
        made.values[name] = tuple(whole_path(file) for file in made.values[name])
    if made.values["tokens"] is None:
        usual = {"lm": "bpe", "mlm": "wordpiece", "seq2seq": "pieces"}
        made.put("tokens", usual[kind], "default")
    check(made.make(RunConfig), made.make(TrainConfig))
    check_recurrent(made)


def whole_path(file: str) -> str:
    """The absolute path of a file of data, which a pipe has not."""
    if Path(file).is_fifo():
        expected = "a file: it is read several times"
        raise DataError(f"reading {file}", "a pipe", expected, "write it to a file first")
    return str(Path(file).resolve())


def begin_with(made: Settings) -> None:
    """Find the model that a run begins with, and refuse settings that are its own."""
    init = str(locate(made.values["init"]))
    if not Path(init).exists():
        expected = "a folder that `regard.load` opens, or a name `regard list` shows"
        raise UsageError(DOING, f"init = {init}: no such file or folder", expected)
    made.values["init"] = init = str(Path(init).resolve())
    usual = {name: setting.default for name, setting in settings_of(ShapeConfig).items()}
    usual |= {"preset": None, "vocab": None}
    for name, value in usual.items():
        if made.values[name] != value:
            found = f"{name} = {made.values[name]} ({made.origins[name]}) with init"
            raise UsageError(DOING, found, f"the {name} of {init}", f"leave {name} out")
    if made.values["tokens"] not in (None, init):
        found = f"tokens = {made.values['tokens']} with init"
        raise UsageError(DOING, found, f"the tokenizer of {init}", "leave tokens out")
    made.put("tokens", init, "init")


def check_recurrent(made: Settings) -> None:
    """Refuse what recurrent models cannot do, and what only they can."""
    values, family = made.values, made.values["family"]
    if family not in CELLS:
        wrong = ["carry"] if values["carry"] else []
        expected = f"a recurrent family ({', '.join(CELLS)}): a Transformer keeps no state"
    else:
        wrong = [name for name in ("compile", "shard") if values[name]]
        wrong += [name for name in ("optimizer", "precision") if values[name] in ("muon", "fp8")]
        wrong += ["carry"] if values["carry"] and values["kind"] != "lm" else []
        expected = "plain AdamW on each process"
    if wrong:
        found = f"{wrong[0]} = {values[wrong[0]]} with {family}"
        raise UsageError(DOING, found, expected, f"leave --{wrong[0]} out")


def check(run: RunConfig, train: TrainConfig) -> None:
    """Refuse what no single field can know."""
    if not run.files:
        raise UsageError(DOING, "no files to train on", f"regard train {run.kind} FILE…")
    if not 0 < run.mask <= 1:
        raise UsageError(DOING, f"mask = {run.mask}", "above 0, at most 1")
    if run.vocab is not None and run.vocab < 1:
        raise UsageError(DOING, f"vocab = {run.vocab}", "1 or more")
    if run.holdout is not None and not 0 <= run.holdout < 1:
        raise UsageError(DOING, f"holdout = {run.holdout}", "0 to below 1")
    if run.kind != "seq2seq" and train.batch_tokens < train.length:
        found = f"batch_tokens = {train.batch_tokens}, fewer than length = {train.length}"
        raise UsageError(DOING, found, "room for one window", "raise one or lower the other")
