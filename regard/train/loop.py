"""The one training loop: batches → steps → checkpoints, the same bits however often stopped."""

from __future__ import annotations

import hashlib
import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.batch import Examples, Source
from regard.data.loader import Loaded, Loader
from regard.errors import RegardError, UsageError
from regard.model.batch import Batch
from regard.model.model import Model
from regard.train.checkpoint import (
    clear_leftovers,
    fault_of,
    find_checkpoint,
    generator_states,
    optimizer_tensors,
    prune,
    read_checkpoint,
    restore_generators,
    restore_optimizer,
    write_checkpoint,
)
from regard.train.config import FREE, TrainConfig
from regard.train.objectives import Loss, token_loss
from regard.train.optim import Mean, build_optimizer, clip, first_bad, first_bad_output
from regard.train.schedule import build_schedule

LOW = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Job:
    """A run: what to train, on what, where to, and whom to tell."""

    config: TrainConfig
    model: Model
    train: Source
    folder: Path
    """The run's folder; checkpoints go to `checkpoints/` in it."""
    save: Callable[[Path], None]
    """Writes the model as a folder that `regard.load` opens."""
    valid: Source | None = None
    identity: dict[str, Any] = field(default_factory=dict)
    """What a resumed run must share: shapes, data, tokenizer."""
    report: Callable[[dict[str, Any]], None] = lambda line: None
    """Called with each line of metrics."""
    say: Callable[[str], None] = lambda text: None
    """Called with messages a person should read."""
    sample: Callable[[int], None] | None = None
    """Called at each validation, to write what the model says by now."""


@dataclass
class State:
    """Where a run is; with weights, optimizer and generators it is all of it."""

    step: int = 0
    epoch: int = 0
    index: int = 0
    """Next batch of the epoch."""
    tokens: int = 0
    best: float | None = None
    best_step: int | None = None
    waited: int = 0
    """Validations since the best one."""
    stopped: bool = False
    """Early stopping ended the run."""


class Interrupted(KeyboardInterrupt):
    """SIGTERM or Ctrl-C arrived; the checkpoint is written."""


class Trainer:
    """Runs a job. `run` goes from where `restore` left it to the last step."""

    def __init__(self, job: Job) -> None:
        config = job.config
        self.job, self.config, self.model = job, config, job.model
        self.device = job.model.device
        self.optimizer = build_optimizer(job.model, config)
        self.rate = build_schedule(config.schedule, config.warm_up, config.steps, config.floor)
        self.mean = Mean(job.model, config.ema) if config.ema else None
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=config.precision == "fp16")
        self.state = State()
        self.checkpoints = job.folder / "checkpoints"
        self.loss: Callable[..., Loss] = token_loss
        if config.compile:
            self.loss = torch.compile(token_loss)
        self.wanted_stop = False

    # One step -----------------------------------------------------------------------------------

    def autocast(self) -> AbstractContextManager[Any]:
        """Matrix products in the precision of the run."""
        low = LOW.get(self.config.precision)
        return nullcontext() if low is None else torch.autocast(self.device.type, low)

    def on_device(self, examples: Examples) -> tuple[Batch, Tensor]:
        """A batch and its labels where the model is."""
        batch = Batch(**examples.parts()).to(self.device)
        return batch, examples.labels.to(self.device, non_blocking=True)

    def step(self, micro: list[Examples]) -> dict[str, float]:
        """One optimizer step over micro-batches; the loss weighs every token alike (#50)."""
        config, state = self.config, self.state
        total = max(1, sum(examples.tokens for examples in micro))
        rate = config.lr * self.rate(state.step + 1)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        summed = torch.zeros((), device=self.device)
        plain = torch.zeros((), device=self.device)
        for examples in micro:
            batch, labels = self.on_device(examples)
            with self.autocast():
                loss = self.loss(self.model, batch, labels, config.smoothing, config.compile)
            self.scaler.scale(loss.sum / total).backward()
            summed, plain = summed + loss.sum.detach(), plain + loss.plain
        self.scaler.unscale_(self.optimizer)
        norm = float(clip(self.model, config.clip))
        value = float(summed) / total
        if config.precision != "fp16" and not (norm < float("inf") and value < float("inf")):
            self.fail(micro, value, norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        if self.mean is not None:
            self.mean.update(self.model)
        state.step += 1
        state.tokens += total
        return {
            "loss": value,
            "nll": float(plain) / total,
            "lr": rate,
            "norm": norm,
            "count": total,
        }

    def fail(self, micro: list[Examples], loss: float, norm: float) -> None:
        """Stop at a loss or gradient that is not finite, before it reaches the weights."""

        def again() -> None:
            for examples in micro:
                with self.autocast():
                    token_loss(self.model, *self.on_device(examples))

        bad = first_bad_output(self.model, again) or first_bad(self.model) or "loss itself"
        self.optimizer.zero_grad(set_to_none=True)
        kept = self.checkpoints / f"step-{self.state.step:06d}"
        if fault_of(kept) is not None:
            kept = self.checkpoint()
        raise RegardError(
            f"training step {self.state.step + 1}",
            f"loss {loss}, gradient norm {norm}; the first bad tensor is the {bad}",
            "finite numbers",
            f"lower --lr or raise --warm-up; the weights before this step are in {kept}",
        )

    # The run ------------------------------------------------------------------------------------

    def run(self) -> State:
        """Train to the last step, or until told to stop; returns where it ended."""
        config, state = self.config, self.state
        if state.step >= config.steps or state.stopped:
            return state
        self.model.train()
        if state.step == 0:
            torch.manual_seed(config.seed)  # whatever was drawn before in this process
        with self.listening():
            stream = self.micro_batches()
            clock, seen = time.perf_counter(), state.tokens
            while state.step < config.steps and not state.stopped:
                group = list(islice(stream, config.accumulate))
                made = self.step([loaded.examples for loaded in group])
                state.epoch, state.index = group[-1].epoch, group[-1].index + 1
                last = state.step == config.steps
                if state.step % config.log_every == 0 or last:
                    now = time.perf_counter()
                    speed = (state.tokens - seen) / max(now - clock, 1e-9)
                    self.tell(made | {"tokens_per_s": round(speed, 1)})
                    clock, seen = now, state.tokens
                if config.eval_every and (state.step % config.eval_every == 0 or last):
                    self.validate()
                    clock, seen = time.perf_counter(), state.tokens
                better = state.best_step == state.step  # what `final` may be made of
                due = state.step % config.save_every == 0 or last or better
                if due or self.wanted_stop or state.stopped:
                    self.checkpoint()
                if self.wanted_stop and not last:
                    raise Interrupted
        return state

    def micro_batches(self) -> Iterator[Loaded]:
        """Batches from where the run is, without end."""
        loader = Loader(self.job.train, self.config.workers, pin=self.device.type == "cuda")
        return loader.iterate(self.state.epoch, self.state.index)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """SIGTERM and Ctrl-C end the run after its present step, with a checkpoint."""

        def stop(number: int, frame: object) -> None:
            self.wanted_stop = True
            self.job.say("stopping after this step; a checkpoint is written first")

        before = {}
        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                before[number] = signal.signal(number, stop)
            except ValueError:  # not the main thread: whoever runs us handles signals
                break
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def tell(self, line: dict[str, Any]) -> None:
        """One line of metrics.jsonl, and the same to whoever watches."""
        line = {"step": self.state.step, "epoch": self.state.epoch, **line}
        if self.device.type == "cuda":
            line["memory"] = torch.cuda.max_memory_allocated()
        with (self.job.folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        self.job.report(line)

    def validate(self) -> None:
        """Mean negative log-likelihood over the validation batches; remember the best."""
        source, state = self.job.valid, self.state
        if source is None:
            return
        with self.averaged():
            self.model.eval()
            value, count = self.measure(source)
            if self.job.sample is not None:
                self.job.sample(state.step)
            self.model.train()
        if state.best is None or value < state.best:
            state.best, state.best_step, state.waited = value, state.step, 0
        else:
            state.waited += 1
        state.stopped = bool(self.config.patience) and state.waited >= self.config.patience
        self.tell({"valid_nll": value, "valid_tokens": count, "best": state.best})
        if state.stopped:
            self.job.say(f"no better validation {state.waited} times: stopping early")

    @torch.no_grad()
    def measure(self, source: Source) -> tuple[float, int]:
        """(mean negative log-likelihood in nats, tokens)."""
        total, count = 0.0, 0
        for index in range(source.count(0)):
            examples = source.batch(0, index)
            with self.autocast():
                loss = self.loss(self.model, *self.on_device(examples))
            total, count = total + float(loss.plain), count + examples.tokens
        return total / max(count, 1), count

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Inside, the model has the running mean of its weights, when that is on."""
        if self.mean is not None:
            self.mean.swap(self.model)
        try:
            yield
        finally:
            if self.mean is not None:
                self.mean.swap(self.model)

    # Checkpoints --------------------------------------------------------------------------------

    def checkpoint(self) -> Path:
        """Write everything the run is."""
        tensors, plain = generator_states()
        held = {"optimizer": optimizer_tensors(self.model, self.optimizer), "generators": tensors}
        if self.mean is not None:
            held["mean"] = {str(n): w.cpu() for n, w in enumerate(self.mean.weights)}
        state = {
            **asdict(self.state),
            "config": asdict(self.config),
            "identity": self.job.identity,
            "generators": plain,
            "scaler": self.scaler.state_dict(),
            "mean_step": 0 if self.mean is None else self.mean.step,
        }
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        path = write_checkpoint(self.checkpoints, self.state.step, self.job.save, held, state)
        keep = max(self.config.keep, self.config.average)
        prune(self.checkpoints, keep, self.state.best_step, self.config.save_every)
        return path

    def restore(self, load: Callable[[Path], Model]) -> Path | None:
        """Take up the newest whole checkpoint; None when there is none and step 0 begins."""
        clear_leftovers(self.checkpoints)
        path, wrong = find_checkpoint(self.checkpoints)
        for fault in wrong:
            self.job.say(f"left aside: {fault}")
        if path is None:
            cut_metrics(self.job.folder / "metrics.jsonl", 0)
            return None
        tensors, state = read_checkpoint(path)
        self.check_same(state)
        weights = dict(load(path).named_parameters())
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(weights[name])
        restore_optimizer(self.model, self.optimizer, tensors["optimizer"])
        if self.mean is not None:
            for n, weight in enumerate(self.mean.weights):
                weight.copy_(tensors["mean"][str(n)])
            self.mean.step = state["mean_step"]
        if state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])
        restore_generators(tensors["generators"], state["generators"])
        self.state = State(**{name: state[name] for name in asdict(self.state)})
        cut_metrics(self.job.folder / "metrics.jsonl", self.state.step)
        return path

    def check_same(self, state: dict[str, Any]) -> None:
        """A run goes on only as the run it was; how often it reports or saves may change."""
        now = {**asdict(self.config), **self.job.identity}
        then = {**state["config"], **state["identity"]}
        now = json.loads(json.dumps(now))  # as a file would hold it
        differing = [key for key in now if key not in FREE and now[key] != then.get(key)]
        if differing:
            raise UsageError(
                f"resuming {self.job.folder}",
                ", ".join(f"{k} = {now[k]!r}, was {then.get(k)!r}" for k in differing),
                "the values the run began with",
                "give them again, or begin another run with another --out",
            )


def cut_metrics(path: Path, step: int) -> None:
    """Forget lines past a step: they will be written again."""
    if path.exists():
        lines = path.read_text().splitlines()
        kept = [line for line in lines if whole_line(line) and json.loads(line)["step"] <= step]
        draft = path.with_suffix(".part")
        draft.write_text("".join(line + "\n" for line in kept))
        draft.replace(path)


def whole_line(line: str) -> bool:
    """Whether a line was written to its end."""
    return line.startswith("{") and line.endswith("}")


def weight_hash(model: nn.Module) -> str:
    """SHA-256 over all parameters, by name: equal hashes, equal bits."""
    digest = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        digest.update(name.encode())
        digest.update(parameter.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def with_dropout(model: Model, share: float) -> Model:
    """Set the dropout of every part of a model."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = share
    return model
