"""`regard train lm|mlm|seq2seq|rnn|lstm|gru|mlp`: from files to what `regard.load` opens."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from regard.ambient import choose_device
from regard.cli.flags import Settings, read_toml
from regard.cli.show import Show, human_count
from regard.cli.train_data import Data, prepare
from regard.cli.train_dry import dry_run
from regard.cli.train_final import finish
from regard.cli.train_flags import CONFIG, KNOWN, RunConfig, resolve_run
from regard.cli.train_init import open_init
from regard.cli.train_samples import make_sampler
from regard.cli.train_show import Watcher
from regard.errors import ResourceError, UsageError
from regard.files import FULL, LOCK, hold, is_taken
from regard.interop.families import bind
from regard.kit import Kit
from regard.loading import load_kit
from regard.model.config import CELLS
from regard.model.recurrent import model_class
from regard.model_kinds import check_model
from regard.train.config import FREE, TrainConfig
from regard.train.distributed import World, joined
from regard.train.loop import Job, Trainer, check_same, with_dropout
from regard.train.shape import ShapeConfig

FREE_KEYS = (*FREE, "device", "prompts", "tensorboard")


@dataclass(frozen=True)
class Plan:
    """A resolved run."""

    settings: Settings
    run: RunConfig
    shape: ShapeConfig
    train: TrainConfig
    folder: Path
    device: str
    command: tuple[str, ...]
    world: World


def run(args: argparse.Namespace, show: Show) -> int:
    """Train, and write the run's folder; several processes when torchrun started them."""
    settings = resolve_run(args)
    if args.print_config:
        if show.as_json:
            show.result({"values": settings.values, "origins": settings.origins})
        else:
            show.line(settings.toml().rstrip())
        return 0
    device = choose_device(settings.values["device"])
    check_precision(settings.values["precision"], device)
    with joined(device) as world:
        plan = make_plan(args, settings, device, world)
        show = show if world.leads else Show(quiet=True, progress=False)
        if args.dry_run:
            if world.leads:
                check_folder(plan, args.resume)
                dry_run(plan, show)
            return 0
        results = guarded(plan, args.resume, Watcher(show, plan.folder, plan.train, world.leads))
    if not world.leads:
        return 0
    if show.as_json:
        show.result(results)
    else:
        show.line(f"{plan.folder / 'final'}: {results['final']}, weights {results['weights'][:12]}")
    return 0


def guarded(plan: Plan, resume: bool, watcher: Watcher) -> dict[str, Any]:
    """Train; signals and a full disk end it in order."""
    handler = signal.getsignal(signal.SIGTERM)
    set_terminate(interrupt)
    try:
        with ExitStack() as held:
            return train(plan, resume, watcher, held)
    except KeyboardInterrupt:
        if (plan.folder / CONFIG).is_file():
            watcher.say(f"stopped; the same command with --resume goes on from {plan.folder}")
        raise
    except OSError as error:
        if error.errno not in FULL:
            raise
        found, fix = error.strerror or str(error), "free some space and run again with --resume"
        raise ResourceError(f"writing into {plan.folder}", found, "room on disk", fix) from error
    finally:
        watcher.stop()
        set_terminate(handler)


def interrupt(number: int, frame: object) -> None:
    """SIGTERM outside the loop ends like Ctrl-C."""
    raise KeyboardInterrupt


def set_terminate(handler: Any) -> None:
    """Handle SIGTERM, where this is the main thread."""
    try:
        signal.signal(signal.SIGTERM, handler)
    except ValueError:
        pass


def make_plan(args: argparse.Namespace, settings: Settings, device: str, world: World) -> Plan:
    """The dataclasses of a run, its folder, its device and its processes."""
    config, train = settings.make(RunConfig), settings.make(TrainConfig)
    shape, command = settings.make(ShapeConfig), ("regard", *args.arguments)
    if config.init is not None:
        check_model(config.init, "train --init")
    name = shape.family if shape.family in CELLS and config.kind == "lm" else config.kind
    folder = Path(args.out) if args.out else world.same(usual_folder(name, args.resume))
    return Plan(settings, config, shape, train, folder, device, command, world)


def usual_folder(kind: str, resume: bool) -> Path:
    """The first of runs/KIND-1, runs/KIND-2, … that is not there; to go on, the one before it."""
    number = 1
    while (folder := Path("runs") / f"{kind}-{number}").exists():
        number += 1
    return folder.with_name(f"{kind}-{number - 1}") if resume and number > 1 else folder


def check_precision(precision: str, device: str) -> None:
    """Refuse numbers that the device does not compute with."""
    lacking = precision == "fp16" and device == "cpu"
    if precision == "bf16" and device == "cuda":
        lacking = not torch.cuda.is_bf16_supported(including_emulation=False)
    if lacking:
        found = f"precision = {precision} on {device}"
        expected = "fp32" if precision == "bf16" else "bf16 or fp32"
        raise UsageError("configuring a run", found, expected, "change --precision or --device")


def check_folder(plan: Plan, resume: bool) -> dict[str, Any]:
    """See that a run's folder is new, or one to go on with; the settings it had before."""
    folder = plan.folder
    if folder.exists() and not folder.is_dir():
        raise UsageError("opening the run's folder", f"{folder} is a file", "a folder")
    there = folder.is_dir() and any(folder.iterdir())
    if there and not resume:
        fix = "add --resume to go on with it, or give another --out"
        found = f"{folder} is not empty"
        raise UsageError("opening the run's folder", found, "a new or empty folder", fix)
    written = folder / CONFIG
    before = read_toml(written) if there and written.is_file() else {}
    if before:
        was = {name: KNOWN[name].read(before[name], CONFIG) for name in KNOWN if name in before}
        check_same(folder, plan.settings.values, was, FREE_KEYS)
    return before


def open_folder(plan: Plan, resume: bool, watcher: Watcher, held: ExitStack) -> None:
    """Make the run's folder, or go on with it, and hold it."""
    before = check_folder(plan, resume)
    plan.folder.mkdir(parents=True, exist_ok=True)
    held.enter_context(hold(plan.folder, "opening the run's folder"))
    draft = plan.folder / ".config.part"
    draft.write_text(plan.settings.toml(), encoding="utf-8")
    os.replace(draft, plan.folder / CONFIG)
    changed = before.get("steps", plan.train.steps) != plan.train.steps
    if changed and plan.train.schedule in ("cosine", "wsd"):
        told = f"the {plan.train.schedule} schedule now ends there; a replay in one go will differ"
        watcher.say(f"steps = {plan.train.steps}, was {before['steps']}: {told}")
    if plan.world.size > 1:
        how = "a part of the model on each" if plan.train.shard else "the model on each"
        watcher.say(f"{plan.world.size} processes, {how}")
    elif plan.train.shard:
        watcher.say("one process: --shard has nothing to share; start several with torchrun")
    if plan.run.tensorboard:
        watcher.open_board()


def train(plan: Plan, resume: bool, watcher: Watcher, held: ExitStack) -> dict[str, Any]:
    """Prepare, train, and write `final` and the receipt; returns the results."""
    world, opened = plan.world, list[bool]()
    fresh = not is_taken(plan.folder)

    def begin() -> Data:
        if world.leads:
            open_folder(plan, resume, watcher, held)
            opened.append(True)
        return prepare(plan.run, plan.train, plan.folder, watcher.say, watcher.phase)

    try:
        data = world.lead(begin)
        kit = make_kit(plan, data, watcher.say)
        trainer = Trainer(make_job(plan, data, kit, watcher))
    except Exception:
        if world.leads and fresh and opened:  # so that the command can be given again, put right
            clear_folder(plan.folder, watcher)
        raise
    if resume:
        take_up(trainer, plan, watcher.say)
    if trainer.state.step >= plan.train.steps:
        watcher.say(f"nothing to train: the run is at step {trainer.state.step} already")
    elif trainer.state.stopped:
        watcher.say(f"nothing to train: the run stopped early at step {trainer.state.step}")
    else:
        watcher.begin(trainer.state.step)
        trainer.run()
    return finish(plan, data, kit, trainer, watcher.say) if world.leads else {}


def clear_folder(folder: Path, watcher: Watcher) -> None:
    """Take back what a run wrote that could not begin: its settings, messages and stores."""
    watcher.stop()
    for path in (folder / CONFIG, folder / "log.txt", folder / LOCK):
        path.unlink(missing_ok=True)
    for path in (folder / "data", folder / "tokenizer"):
        shutil.rmtree(path, ignore_errors=True)
    if not any(folder.iterdir()):
        folder.rmdir()


def take_up(trainer: Trainer, plan: Plan, say: Callable[[str], None]) -> None:
    """Restore the newest whole checkpoint and say which it is."""
    path = trainer.restore(lambda folder: load_kit(folder).model)
    if path is None:
        say(f"no whole checkpoint in {trainer.checkpoints}: starting at step 0")
        return
    say(f"resuming from {path}, at step {trainer.state.step} of {plan.train.steps}")


def make_kit(plan: Plan, data: Data, say: Callable[[str], None]) -> Kit:
    """The model to be trained with its tokenizer, on the device of the run."""
    if plan.run.init is not None:
        kit = open_init(plan.run.init, plan.run.kind, plan.train.length)
        say(f"beginning with the weights of {plan.run.init}")
    else:
        kit = fresh_kit(plan, data)
    with_dropout(kit.model, plan.train.dropout).to(plan.device)
    count = human_count(sum(p.numel() for p in kit.model.parameters()))
    own = "regard's own: no family of transformers holds "
    own += plan.shape.family if plan.shape.family in CELLS else "pre-norm encoder-decoders"
    family = own if kit.binding is None else kit.binding.architecture
    say(f"model: {family}, {count} parameters, on {plan.device}")
    return kit


def fresh_kit(plan: Plan, data: Data) -> Kit:
    """A model of the run's shape with freshly drawn weights."""
    config, family = plan.shape.build(data.tokenizer.size, plan.train.length)
    model = model_class(config).fresh(config, plan.train.seed)
    kit = Kit(model, data.tokenizer, bind(family) if family else None)
    specials = data.tokenizer.specials
    kit.config = kit.fresh_config()
    if plan.run.kind == "seq2seq":
        kit.config["decoder_start_token_id"] = specials.get("pad", specials["eos"])
    return kit


def make_job(plan: Plan, data: Data, kit: Kit, watcher: Watcher) -> Job:
    """The job of the loop."""
    shape = {name: plan.settings.values[name] for name in ShapeConfig.__dataclass_fields__}
    kinds = {"kind": plan.run.kind, "mask": plan.run.mask, "carry": plan.run.carry}
    say, samples = watcher.log, plan.folder / "samples"
    return Job(
        plan.train,
        kit.model,
        data.train,
        plan.folder,
        lambda folder, model: replace(kit, model=model).save(folder),
        valid=data.valid,
        identity={**kinds, **shape, **data.identity},
        report=watcher.report,
        say=watcher.say,
        sample=make_sampler(kit, plan.run, data, plan.train.length, samples, say),
        world=plan.world,
    )
