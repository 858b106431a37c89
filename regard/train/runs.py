"""From files to a run's folder: prepare the data, build or open the model, train, write `final`.

A folder holds config.toml (all settings with their origins), metrics.jsonl, log.txt, samples/,
checkpoints/, final/ and receipt.json. Killed at any moment, a run goes on from its last whole
checkpoint and ends with the same bits.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from regard.ambient import choose_device, current, note, progress
from regard.ambient import settings as ambient
from regard.decode.shortlist import SHORTLIST_FILE
from regard.errors import ResourceError, UsageError
from regard.files import FULL, LOCK, file_hash, hold, is_taken, write_whole
from regard.heap import free_memory
from regard.kit import Kit
from regard.loading import load_kit
from regard.model.config import CELLS, ModelConfig, TextConfig
from regard.model.cost import RunShape, count_memory, disk_of, largest_tensor, table_size
from regard.model.model import empty_model
from regard.model.recurrent import model_class
from regard.model_kinds import NETWORK, check_kind
from regard.receipt import NAME, make_receipt, write_receipt
from regard.result import human_count
from regard.train import checkpoint
from regard.train.config import FREE, Config, DataConfig, LoRA, TrainConfig
from regard.train.cross_entropy import chunk_rows
from regard.train.data import RunData, RunKind, RunPlan
from regard.train.distributed import World, joined
from regard.train.monitor import Monitor
from regard.train.optim import group_parameters
from regard.train.results import DryRun, Run, RunSettings, read_metrics
from regard.train.settings import CONFIG, make_config, read_before, resolve_run, write_toml
from regard.train.trainer import Interrupted, Trainer, TrainJob, check_same, with_dropout
from regard.tune.adapter_folder import identify_base
from regard.tune.lora import attach, train_beside

OPENING = "opening the run's folder"
FREE_KEYS = (*FREE, "device", "prompts")
ITEM = 4  # bytes: weights, gradients and optimizer are float32


def train_files(
    kind: RunKind,
    files: Any,
    *,
    configs: Sequence[Config],
    lora: LoRA | str | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    toml: str | Path | None = None,
    print_config: bool = False,
    dry_run: bool = False,
) -> Run | DryRun | RunSettings:
    """Train, and write the run's folder; several processes when torchrun started them."""
    if resume is not None:
        doing, written = f"resuming {resume}", Path(resume, CONFIG)
        if out is not None and Path(out) != Path(resume):
            raise UsageError(doing, f"out = {out} too", "the folder of the run alone")
        if written.is_file():
            toml = toml or written
        elif not files and toml is None:
            fix = "to begin it, give the files too"
            raise UsageError(doing, f"no {written}", "the folder of a run", fix)
    settings = resolve_run(kind, files, configs, None if toml is None else Path(toml), lora)
    if print_config:
        return settings
    device, going_on = choose_device(settings.values["device"]), resume is not None
    check_precision(settings.values["precision"], device)
    with joined(device) as world, ambient(quiet=current().quiet or not world.leads):
        plan = make_plan(kind, settings, resume or out, device, world)
        if dry_run:
            result: DryRun | Run | None = world.lead(lambda: estimate(plan, going_on))
        else:
            monitor = Monitor(plan.folder, plan.train, world.leads, kind.unit)
            plan = replace(plan, say=monitor.say, progress=monitor.progress)
            result = train_guarded(plan, going_on, monitor)
        result = world.same(result)
    assert result is not None
    return result


def make_plan(
    kind: RunKind, settings: RunSettings, out: str | Path | None, device: str, world: World
) -> RunPlan:
    """The dataclasses of a run, its folder, its device and its processes."""
    values, data = settings.values, make_config(settings, DataConfig)
    if data.init is not None:
        check_kind(data.init, NETWORK)
    if out is None:
        cell = values.get("family") if kind.name == "lm" else None
        name, number = cell if cell in CELLS else kind.name, 1
        while Path("runs", f"{name}-{number}").exists():
            number += 1
        out = world.same(Path("runs", f"{name}-{number}"))
    train = make_config(settings, TrainConfig)
    rest = (values["files"], values["seed"], data, make_config(settings, kind.config), train)
    return RunPlan(settings, kind, *rest, Path(out), device, world)


def check_precision(precision: str, device: str) -> None:
    """Refuse numbers that the device does not compute with."""
    lacking = precision == "fp16" and device == "cpu"
    if precision == "bf16" and device == "cuda":
        lacking = not torch.cuda.is_bf16_supported(including_emulation=False)
    if lacking:
        problem = f"precision = {precision} on {device}"
        expected = "fp32" if precision == "bf16" else "bf16 or fp32"
        raise UsageError("configuring a run", problem, expected, "change --precision or --device")


# From beginning to end ----------------------------------------------------------------------------


def train_guarded(plan: RunPlan, resume: bool, monitor: Monitor) -> Run | None:
    """Train; Ctrl-C and a full disk end it in order."""
    try:
        with ExitStack() as held:
            return train(plan, resume, monitor, held)
    except KeyboardInterrupt:
        if (plan.folder / CONFIG).is_file():
            plan.say(f"stopped; --resume {plan.folder} goes on")
        raise
    except OSError as error:
        if error.errno not in FULL:
            raise
        problem = error.strerror or str(error)
        fix = f"free some space and go on with --resume {plan.folder}"
        raise ResourceError(f"writing into {plan.folder}", problem, "room on disk", fix) from error
    finally:
        monitor.stop()


def train(plan: RunPlan, resume: bool, monitor: Monitor, held: ExitStack) -> Run | None:
    """Prepare, train, and write `final` and the receipt; the first process has the result."""
    world, fresh = plan.world, not is_taken(plan.folder)

    def begin() -> RunData:
        if world.leads:
            open_folder(plan, resume, held)
        return plan.kind.prepare(plan)

    try:
        data = world.lead(begin)
        plan.say(f"training on {data.about}")
        kit = make_kit(plan, data)
        trainer = Trainer(make_job(plan, data, kit, monitor))
    except Exception:
        # So that the command can be given again, put right.
        if world.leads and fresh and plan.folder.is_dir():
            clear_folder(plan.folder)
        raise
    if resume:
        path = trainer.restore(
            lambda folder: plan.kind.restore(load_kit(folder, precision=None).model, folder)
        )
        where = f"resuming from {path}, at step {trainer.state.step} of {plan.train.steps}"
        nowhere = f"no whole checkpoint in {trainer.checkpoints}: starting at step 0"
        plan.say(where if path is not None else nowhere)
    state = trainer.state
    if state.stopped:
        plan.say(f"nothing to train: the run stopped early at step {state.step}")
    elif trainer.over:
        plan.say(f"nothing to train: the run is at step {state.step} already")
    else:
        monitor.begin(state.step)
        try:
            for model in trainer.validations():
                if world.leads and (lines := plan.kind.samples(plan, data, kit, model)):
                    write_samples(plan.folder, trainer.state.step, lines, monitor)
        except Interrupted:
            if not hasattr(sys, "ps1"):  # a notebook or a prompt gets what there is
                raise
            step = trainer.state.step
            plan.say(f"stopped at step {step}; resume={str(plan.folder)!r} goes on")
            path = trainer.checkpoints / f"step-{step:06d}"
            return make_result(plan, trainer, path, f"step {step}, stopped")
    return finish(plan, data, kit, trainer) if world.leads else None


# The folder ---------------------------------------------------------------------------------------


def check_folder(plan: RunPlan, resume: bool) -> dict[str, Any]:
    """See that a run's folder is new, or one to go on with; the settings it had before."""
    folder = plan.folder
    if folder.exists() and not folder.is_dir():
        raise UsageError(OPENING, f"{folder} is a file", "a folder")
    there = folder.is_dir() and any(folder.iterdir())
    if there and not resume:
        problem, fix = "is not empty", f"--resume {folder} goes on with it; or give another --out"
        raise UsageError(OPENING, f"{folder} {problem}", "a new or empty folder", fix)
    if before := read_before(folder / CONFIG, plan.kind.config):
        check_same(folder, plan.settings.values, before, FREE_KEYS)
    return before


def open_folder(plan: RunPlan, resume: bool, held: ExitStack) -> None:
    """Make the run's folder, or go on with it, and hold it."""
    before = check_folder(plan, resume)
    plan.folder.mkdir(parents=True, exist_ok=True)
    held.enter_context(hold(plan.folder, OPENING))
    write_whole(plan.folder / CONFIG, write_toml(plan.settings).encode())
    changed = before.get("steps", plan.train.steps) != plan.train.steps
    if changed and plan.train.schedule == "cosine":
        ends = "the cosine schedule now ends there; a replay in one go will differ"
        plan.say(f"steps = {plan.train.steps}, was {before['steps']}: {ends}")
    if plan.world.size > 1:
        how = "a part of the model on each" if plan.train.shard else "the model on each"
        plan.say(f"{plan.world.size} processes, {how}")
    elif plan.train.shard:
        plan.say("one process: --shard has nothing to share; start several with torchrun")


def clear_folder(folder: Path) -> None:
    """Take back what a run wrote that could not begin: its settings, messages and stores."""
    for path in (folder / CONFIG, folder / "log.txt", folder / LOCK):
        path.unlink(missing_ok=True)
    for path in (folder / "data", folder / "tokenizer"):
        shutil.rmtree(path, ignore_errors=True)
    if not any(folder.iterdir()):
        folder.rmdir()


# The model ----------------------------------------------------------------------------------------


def make_kit(plan: RunPlan, data: RunData) -> Kit:
    """The model to be trained with its tokenizer, on the device of the run."""
    text, init = plan.settings.values["lora"], plan.data.init
    if init is not None:
        plan.say(f"beginning with the weights of {init}")
    kit = plan.kind.make_kit(plan, data)
    if text is not None and init is not None:
        if kit.adapters:
            problem, fix = f"{init}, which is an adapter", "leave --lora out: it is trained further"
            raise UsageError("attaching LoRA", problem, "a model without one", fix)
        attach(kit.model, LoRA.parse(text), seed=plan.seed)
        train_beside(kit.model, plan.kind.beside)
        kit.base = identify_base(init)
    with_dropout(kit.model, plan.train.dropout).to(plan.device)
    count = sum(p.numel() for p in kit.model.parameters())
    trained = sum(p.numel() for p in kit.model.parameters() if p.requires_grad)
    share = f", {human_count(trained)} of them trained ({100 * trained / count:.3g} %)"
    named = "regard's own" if kit.binding is None else kit.binding.architecture
    whole = f"model: {named}, {human_count(count)} parameters"
    plan.say(f"{whole}{share if trained < count else ''}, on {plan.device}")
    return kit


def make_job(plan: RunPlan, data: RunData, kit: Kit, monitor: Monitor) -> TrainJob:
    """The job of the loop."""
    own = {field.name: plan.settings.values[field.name] for field in fields(plan.own)}
    kinds = {"kind": plan.kind.name, "mask": plan.data.mask, "carry": plan.data.carry}
    tags = [digest[:12] for digest in data.hashes.values()]
    return TrainJob(
        plan.train,
        kit.model,
        data.train,
        plan.folder,
        lambda folder, model: plan.kind.save(kit, model, folder),
        seed=plan.seed,
        valid=data.valid,
        identity={**kinds, **own, "data": tags, **data.identity},
        report=monitor.report,
        say=plan.say,
        world=plan.world,
        **plan.kind.job(plan, data, kit),
    )


def write_samples(folder: Path, step: int, lines: Sequence[str], monitor: Monitor) -> None:
    """What the model says by now, into samples/step-….txt and the log."""
    path = folder / "samples" / f"step-{step:06d}.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    for line in lines:
        monitor.log(f"sample at step {step}: {line}")


# The end ------------------------------------------------------------------------------------------


def finish(plan: RunPlan, data: RunData, kit: Kit, trainer: Trainer) -> Run:
    """Write `final` and the receipt from the run's checkpoints."""
    final, draft = plan.folder / "final", plan.folder / ".final.part"
    shutil.rmtree(draft, ignore_errors=True)
    taken = write_final(plan, kit, trainer, draft)
    shutil.rmtree(final, ignore_errors=True)
    os.replace(draft, final)
    result = plan.kind.conclude(plan, data, kit, make_result(plan, trainer, final, taken))
    config = {k: v for k, v in plan.settings.values.items() if v is not None}
    place = {"device": plan.device, "threads": torch.get_num_threads()}
    if plan.device == "cuda":
        place["device_name"] = torch.cuda.get_device_name()
    if plan.world.size > 1:
        place["processes"] = plan.world.size
    results = {name: value for name, value in result.to_dict().items() if name != "out"}
    inputs = dict(data.hashes)
    for path in filter(None, (plan.data.init, config.get("encoder"))):
        begun = Path(path)
        files = sorted(begun.glob("*.safetensors")) if begun.is_dir() else [begun]
        inputs |= {str(file): file_hash(file) for file in files if file.name != SHORTLIST_FILE}
    command = ["regard", plan.kind.room, plan.kind.name, "--config", str(plan.folder / CONFIG)]
    origin = {"command": command, "seed": config.get("seed"), "torch": torch.__version__, **place}
    receipt = make_receipt(config, inputs, results, **origin)
    write_receipt(plan.folder / NAME, receipt)
    plan.say(f"final: {taken}")
    if result.exit_code:
        plan.say("warning: the loss is higher than at the start: lower --lr or raise --warm-up")
    return result


def make_result(plan: RunPlan, trainer: Trainer, path: Path, taken: str) -> Run:
    """The result of a run whose weights are in a folder."""
    state = trainer.state
    losses = [line["loss"] for line in read_metrics(plan.folder) if "loss" in line]
    last = trainer.checkpoints / f"step-{state.step:06d}"
    return Run(
        steps=state.step,
        tokens=state.tokens,
        loss=losses[-1] if losses else None,
        best_valid=state.best,
        best_step=state.best_step,
        final=taken,
        weights=checkpoint.weight_hash(load_kit(path).model),
        last_weights=checkpoint.weight_hash(load_kit(last).model),
        out=str(plan.folder),
        path=path,
    )


def write_final(plan: RunPlan, kit: Kit, trainer: Trainer, draft: Path) -> str:
    """Write the folder and say which weights it has: averaged, best, or last."""
    config, state, runs = trainer.config, trainer.state, trainer.checkpoints
    if config.average > 1:
        folders = checkpoint.last_checkpoints(runs, config.average, config.save_every, state.step)
        mean = checkpoint.average_checkpoints(folders, lambda folder: load_kit(folder).model)
        plan.kind.save(kit, mean, draft)
        steps = ", ".join(str(checkpoint.step_of(folder)) for folder in folders)
        return f"average of the checkpoints of steps {steps}"
    chosen, taken = runs / f"step-{state.step:06d}", f"step {state.step}, the last"
    best = None if state.best_step is None else runs / f"step-{state.best_step:06d}"
    if best == chosen:
        taken += f" and the best on validation ({state.best:.4f})"
    elif best is not None and best.is_dir():
        if checkpoint.fault_of(best) is None:
            chosen = best
            taken = f"step {state.best_step}, the best on validation ({state.best:.4f})"
        else:
            taken += f"; the best, {best.name}, is damaged"
    model = load_kit(chosen).model
    if config.ema:
        means = checkpoint.read_checkpoint(chosen)[0]["mean"]
        with torch.no_grad():
            for number, parameter in enumerate(model.parameters()):
                parameter.copy_(means.get(str(number), parameter))  # frozen ones have no mean
        taken += f", running mean of the weights ({config.ema})"
    plan.kind.save(kit, model, draft)
    return taken


# Without running ----------------------------------------------------------------------------------


def estimate(plan: RunPlan, resume: bool) -> DryRun | None:
    """Read and check the data in a temporary folder, and count what a run would take."""
    if not plan.world.leads:
        return None
    check_folder(plan, resume)

    def warn(text: str) -> None:
        """Of what a run says, only what there is to be done about."""
        if text.startswith("warning:"):
            note(text)

    with TemporaryDirectory(prefix="regard-dry-") as name, progress("reading") as say:
        data = plan.kind.prepare(replace(plan, folder=Path(name), say=warn, progress=say))
        batches, train = data.train.count(0), plan.train
    config, family = plan.kind.shape(plan, data)
    words = {} if data.tokenizer is None else {"vocabulary": data.tokenizer.size}
    model = empty_model(config, model_class(config))
    params = sum(p.numel() for p in model.parameters())
    if (text := plan.settings.values["lora"]) is not None:
        attach(model, LoRA.parse(text))
        train_beside(model, plan.kind.beside)
    matrices, *others = group_parameters(model, train)
    trained = sum(p.numel() for group in (matrices, *others) for p in group)
    means = ITEM * (2 * trained - sum(p.numel() for p in matrices))
    keep, saved = max(train.keep, train.average), params if text is None else trained
    one, most = disk_of(ITEM * saved, means, keep)
    attends = config.decoder or config.encoder
    epochs = train.steps * train.accumulate / max(batches, 1)
    there = next(p for p in (plan.folder, *plan.folder.absolute().parents) if p.exists())
    return DryRun(
        config=plan.settings.values,
        data=data.sizes | words | {"batches_per_epoch": batches},
        model={"family": family, "parameters": params}
        | ({} if text is None else {"trained": trained, "share": trained / params}),
        run={"out": str(plan.folder), "device": plan.device, "processes": plan.world.size}
        | {"steps": train.steps, "epochs": round(epochs, 2)},
        memory_bytes=peak_memory(plan, config, means, matrices, trained) if attends else None,
        memory_free=free_memory(plan.device),
        disk_bytes=most + (ITEM * trained * (keep + 2) if train.ema else 0),
        disk_free=shutil.disk_usage(there).free,
        settings=plan.settings,
    )


def peak_memory(
    plan: RunPlan, config: ModelConfig, means: int, matrices: Sequence[torch.Tensor], trained: int
) -> int:
    """Bytes of a step on one process, by formula, in float32; lower precisions keep less.

    The optimizer's `means` are there all the time; the `matrices` of one shape Muon moves together.
    """
    train, size = plan.train, plan.world.size
    rows = getattr(plan.own, "rows", None) or max(train.batch_tokens // train.length, 1)
    rows, length = -(-rows // size), train.length
    if isinstance(config.front, TextConfig) and config.front.position == "learned":
        length = min(length, table_size(config.front))
    memory = count_memory(config, RunShape(rows, length, length, ITEM), train=True)
    # The loop scores in chunks: of the logits only one chunk is ever there.
    labels, vocab = rows * length, config.head.size or 0
    spared = 3 * (labels - chunk_rows(labels, max(vocab, 1), plan.device)) * vocab * ITEM
    share = size if train.shard else 1
    begins = (memory.weights + means) // share + sum(memory.parts.values()) - spared
    alike = Counter[torch.Size]()
    for matrix in matrices:
        alike[matrix.shape] += matrix.numel()
    # Of what it works on AdamW makes two more tensors, Muon at most five.
    worked = max(2 * largest_tensor(config), 5 * max(alike.values(), default=0))
    steps = (memory.weights + ITEM * trained + means) // share + worked * ITEM
    return max(begins, steps) + (ITEM * trained // share if train.ema else 0)
