"""The one training loop: batches → steps → checkpoints, the same bits however often stopped."""

from __future__ import annotations

import json
import math
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.loader import Loaded, Loader
from regard.data.windows import Examples, Source
from regard.errors import RegardError, UsageError
from regard.files import write_whole
from regard.heap import keep_memory
from regard.model.batch import Batch
from regard.model.model import Model
from regard.native.gpu import expect_many_shapes
from regard.train import checkpoint, objectives, optim
from regard.train.config import FREE, TrainConfig
from regard.train.cpu import train_on_cpu
from regard.train.cross_entropy import IGNORE, check_labels
from regard.train.distributed import World, exchanging, gather, part_of, spread, whole_model
from regard.train.fp8 import use_fp8
from regard.train.results import METRICS, read_metrics

DIVERGED = 20
"""How many times the loss of guessing is past all hope: no spike comes back from there."""
LOW = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.bfloat16}


@dataclass(frozen=True)
class TrainJob:
    """A run: what to train, on what, where to, and the callbacks that are told of it.

    Only the first of several processes writes: `save`, `report` and `say` are its own.
    Whoever calls `Trainer.step` alone gives a config and a model: a step reads no files.
    """

    config: TrainConfig
    model: Model
    train: Source | None = None
    folder: Path = Path()
    """The run's folder; checkpoints go to `checkpoints/` in it."""
    save: Callable[[Path, Model], None] | None = None
    """Writes a model as a folder that `regard.load` opens."""
    valid: Source | None = None
    loss: Callable[..., objectives.Loss] = objectives.token_loss
    """The objective: `loss(model, batch, labels, smoothing, compiled, fp8, past, r_drop)`, and
    `extra=` where the examples have any. The sum is divided by the examples' `tokens`."""
    rates: Mapping[str, float] = field(default_factory=dict)
    """Factors on the learning rate, by name of a parameter; AdamW's only."""
    identity: dict[str, Any] = field(default_factory=dict)
    """What a resumed run must share: shapes, data, tokenizer."""
    report: Callable[[dict[str, Any]], None] = lambda line: None
    """Called with each line of metrics."""
    say: Callable[[str], None] = lambda text: None
    """Called with messages a person should read."""
    score: Callable[[Model], dict[str, float]] | None = None
    """Figures of the model at a validation; by that of the config's metric, higher is better, the
    best is chosen instead of by the loss."""
    world: World = World()
    """The processes that train together."""
    seed: int = 0
    """Of what is drawn while it trains: dropout. The model and the sources have theirs already."""


@dataclass
class RunState:
    """Where a run is; with weights, optimizer and generators it is all of it."""

    step: int = 0
    epoch: int = 0
    index: int = 0
    """Next batch of the epoch."""
    tokens: int = 0
    seconds: float = 0.0
    """Time it has taken so far."""
    best: float | None = None
    """The best validation: its loss, or the figure that the config's metric names."""
    best_step: int | None = None
    waited: int = 0
    """Validations since the best one."""
    stopped: bool = False
    """Early stopping ended the run."""


def cast_products(device: str, precision: str) -> AbstractContextManager[Any]:
    """Inside, matrix products run in a precision; in float32 nothing is cast."""
    low = LOW.get(precision)
    return nullcontext() if low is None else torch.autocast(device, low)


class Interrupted(KeyboardInterrupt):
    """SIGTERM or Ctrl-C arrived; the checkpoint is written."""


class Carry:
    """The state that a recurrent model takes from batch to batch (truncated BPTT).

    Values go on, gradients stop: backpropagation reaches as far back as a window (Williams and
    Peng 1990). Where rows do not follow those of the batch before, the state begins anew; a
    Transformer has none. Checkpoints hold it, so that a resumed run goes on with the same bits.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.past: Any = None  # a `Past` of history/recurrent.py

    def take(self, examples: Examples) -> Any:
        """The state before this batch; the model leaves in it the state after."""
        past, rows = self.past, len(examples.labels)
        if past is not None and examples.follows and past.batch == rows:
            past.detach()
        else:
            self.past = self.model.carry(rows)
        return self.past

    def tensors(self) -> dict[str, Tensor]:
        """For a checkpoint; nothing where none is carried."""
        return {
            f"{layer}-{part}": tensor.detach().cpu().contiguous()
            for layer, state in enumerate(() if self.past is None else self.past.states)
            for part, tensor in enumerate(state)
        }

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take it from a checkpoint, if there is any."""
        if "0-0" in tensors:
            self.past = self.model.carry(len(tensors["0-0"]))
            self.past.states = [
                tuple(tensors[f"{layer}-{part}"].to(old) for part, old in enumerate(state))
                for layer, state in enumerate(self.past.states)
            ]


class Trainer:
    """Runs a job. `run` goes from where `restore` left it to the last step."""

    def __init__(self, job: TrainJob) -> None:
        config = job.config
        self.job, self.config, self.model, self.world = job, config, job.model, job.world
        self.device = job.model.device
        if self.device.type == "cpu":
            keep_memory()
        if config.precision == "fp32" and not config.compile:
            train_on_cpu(job.model)
        self.varying = getattr(job.train, "varying", False)
        if self.varying and self.device.type == "cuda":
            expect_many_shapes(config.length)
        self.compiled: objectives.Compiling = "no"  # as one graph, which batches of one shape allow
        if config.compile and self.varying:
            objectives.compile_blocks(job.model)
        elif config.compile:
            alone = config.accumulate == 1 and self.world.size == 1
            self.compiled = "recorded" if alone and self.device.type == "cuda" else "yes"
        self.autocast = partial(cast_products, self.device.type, config.precision)
        self.fp8 = config.precision == "fp8"
        if self.fp8:
            use_fp8(job.model)
        self.objective = objectives.Objective(job.model, job.loss)
        # Sharding replaces the parameters, so it comes before what holds them.
        self.loss = spread(self.objective, self.world, config.shard)
        self.optimizer = optim.build_optimizer(job.model, config, job.rates)
        self.mean = optim.Mean(job.model, config.ema) if config.ema else None
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=config.precision == "fp16")
        self.state, self.carry = RunState(), Carry(job.model)
        self.checkpoints = job.folder / "checkpoints"
        self.began = time.perf_counter()
        self.met = self.asked = self.stopping = False
        """A first step has come to its result: from then on no process leaves alone. A signal asked
        this process to stop. One of the processes was asked to: all stop after this step."""

    # One step -----------------------------------------------------------------------------------

    def as_written(self) -> AbstractContextManager[Any]:
        """Inside, nothing is compiled: every part can be watched, and no mode is compiled twice."""
        return torch.compiler.set_stance("force_eager") if self.config.compile else nullcontext()

    def on_device(self, examples: Examples) -> tuple[Batch, Tensor, dict[str, Any]]:
        """Batch, labels and `extra=` where the model is; a wrong label stops here, on the host."""
        labels = examples.labels
        if not labels.is_floating_point() and (size := self.model.config.head.size) is not None:
            check_labels(labels, size)
        batch = Batch(**examples.parts()).to(self.device)
        extra = {n: x.to(self.device, non_blocking=True) for n, x in examples.extra.items()}
        labels = labels.to(self.device, non_blocking=True)
        return batch, labels, {"extra": extra} if extra else {}

    def step(self, micro: list[Examples]) -> dict[str, float]:
        """One optimizer step over micro-batches; the loss weighs every token alike (#50)."""
        config, state = self.config, self.state
        total = max(1, sum(examples.tokens for examples in micro))
        coming, last, warm_up = state.step + 1, config.steps, config.warm_up
        if config.minutes is not None and state.seconds:  # the time that is left says how many
            last = round(coming * 60 * config.minutes / state.seconds)  # steps there will be
            last = min(config.steps, max(coming, last))
            warm_up = min(config.warm_up, last // 5)
        rate = config.lr * optim.rate_at(config.schedule, coming, warm_up, last, config.floor)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group.get("rate", 1.0)
        sums = {name: torch.zeros((), device=self.device) for name in ("loss", "nll")}
        for number, examples in enumerate(micro, 1):
            batch, labels, extra = self.on_device(examples)
            # A compiler makes cases of their own of one row and of little work.
            small = self.compiled == "no" and 4 * batch.ids.numel() < config.batch_tokens
            mode = self.as_written() if small else nullcontext()
            with exchanging(self.loss, number == len(micro)):
                with self.autocast(), mode:
                    how = config.smoothing, self.compiled, self.fp8, self.carry.take(examples)
                    loss = self.loss(batch, labels, *how, config.r_drop, **extra)
                # Processes average their gradients; the sum over all of them is wanted.
                self.scaler.scale(loss.sum * self.world.size / total).backward()
            for name, part in {"loss": loss.sum, "nll": loss.plain, **loss.figures}.items():
                sums[name] = sums.get(name, 0) + part.detach()
        self.scaler.unscale_(self.optimizer)
        means, norm = self.read(sums, optim.clip(self.model, config.clip), total)
        value = means["loss"]
        if not (math.isfinite(norm) and math.isfinite(value)):
            # A smaller scale may help fp16, whose scaler leaves this step out; below 1 it will not.
            if config.precision != "fp16" or self.scaler.get_scale() < 1:
                self.fail(micro, value, norm)
        choices = self.model.config.head.size or 1 if self.job.loss is objectives.token_loss else 1
        guessing = math.log(choices) if choices > 1 else math.inf
        if value > DIVERGED * guessing:
            problem = f"loss {value:.3g}, by guessing {guessing:.3g}: the run has diverged"
            fix = f"lower --lr or raise --warm-up; what was saved is in {self.checkpoints}"
            raise RegardError(f"training step {coming}", problem, "a loss that falls", fix)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        if self.mean is not None:
            self.mean.update(self.model)
        state.step += 1
        state.tokens += total
        return means | {"lr": rate, "norm": norm, "count": total}

    @property
    def over(self) -> bool:
        """Whether the steps or the time are used up, or validations stopped the run."""
        minutes, state = self.config.minutes, self.state
        late = minutes is not None and state.seconds >= 60 * minutes
        return state.step >= self.config.steps or late or state.stopped

    def read(
        self, sums: dict[str, Tensor], norm: Tensor, total: int
    ) -> tuple[dict[str, float], float]:
        """(means of all sums over all processes, norm): a step waits here only."""
        self.met = True
        own = float(self.asked), time.perf_counter() - self.began  # one clock for all
        figures = [torch.full_like(sums["loss"], value) for value in own]
        summed = self.world.sum(torch.stack([*figures, *sums.values()]))
        stop, seconds, *rest, length = torch.cat([summed, norm[None]]).tolist()
        self.stopping = stop > 0
        self.state.seconds = seconds / self.world.size
        return {name: part / total for name, part in zip(sums, rest, strict=True)}, length

    def fail(self, micro: list[Examples], loss: float, norm: float) -> None:
        """Stop at a loss or gradient that is not finite, before it reaches the weights."""

        def again() -> None:
            for examples in micro:
                with self.autocast(), self.as_written():
                    batch, labels, extra = self.on_device(examples)
                    self.loss(batch, labels, **extra)

        seen = [bad for bad in self.world.all(optim.first_bad_output(self.model, again)) if bad]
        bad = seen[0] if seen else optim.first_bad(self.model) or "loss itself"
        self.optimizer.zero_grad(set_to_none=True)
        kept = self.checkpoints / f"step-{self.state.step:06d}"
        if self.world.same(self.world.leads and checkpoint.fault_of(kept) is not None):
            kept = self.checkpoint()
        problem = f"loss {loss}, gradient norm {norm}; the first bad tensor is the {bad}"
        fix = f"lower --lr or raise --warm-up; the weights before this step are in {kept}"
        raise RegardError(f"training step {self.state.step + 1}", problem, "finite numbers", fix)

    # The run ------------------------------------------------------------------------------------

    def run(self) -> RunState:
        """Train to the last step, or until told to stop; returns where it ended."""
        for _ in self.validations():
            pass
        return self.state

    def validations(self) -> Iterator[Model]:
        """Train; at each validation the model is handed out as it is measured, for samples."""
        config, state = self.config, self.state
        if self.over:
            return
        begin_training(self.model)
        self.began = time.perf_counter() - state.seconds
        if state.step == 0:
            torch.manual_seed(self.job.seed + self.world.rank)  # whatever was drawn before
        self.settle()
        with self.listening():
            stream = self.loader(self.job.train).iterate(state.epoch, state.index)
            clock, seen = time.perf_counter(), state.tokens
            while not self.over:
                group = self.group(stream)
                measured = self.step([loaded.examples for loaded in group])
                state.epoch, state.index = group[-1].epoch, group[-1].index + 1
                last = self.over
                if state.step % config.log_every == 0 or last:
                    now = time.perf_counter()
                    speed = (state.tokens - seen) / max(now - clock, 1e-9)
                    self.tell(measured | {"tokens_per_s": round(speed, 1)})
                    clock, seen = now, state.tokens
                if config.eval_every and (state.step % config.eval_every == 0 or last):
                    yield from self.validate()
                    clock, seen = time.perf_counter(), state.tokens
                better = state.best_step == state.step  # what `final` may be made of
                due = state.step % config.save_every == 0 or last or better
                if due or self.stopping or state.stopped:
                    self.checkpoint()
                if self.stopping and not last:
                    raise Interrupted

    def group(self, stream: Iterator[Loaded]) -> list[Loaded]:
        """The batches of one step: `accumulate` of them, and more where they are short.

        Buckets leave small batches over. A step on 60 tokens among steps on 40,000 is mostly noise,
        and Adam makes it as large as the others; with the next batch they are one step.
        """
        group = list(islice(stream, self.config.accumulate))
        usual = self.state.tokens / max(1, self.state.step)
        while self.varying and 4 * sum(loaded.examples.tokens for loaded in group) < usual:
            group.append(next(stream))
        return group

    def settle(self) -> None:
        """A pass without labels: DDP puts its buckets into their final order after the first one.

        The sum over three or more processes is rounded by that order, so every step must have it.
        """
        if self.world.size < 3:
            return
        examples = self.loader(self.job.train).read(self.state.epoch, 0).examples
        batch, labels, extra = self.on_device(examples)
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices), self.autocast():
            self.loss(batch, torch.full_like(labels, IGNORE), **extra).sum.backward()
        self.optimizer.zero_grad(set_to_none=True)

    def loader(self, source: Source | None) -> Loader:
        """This process's rows of the batches of a source."""
        assert source is not None
        pin, world = self.device.type == "cuda", self.world
        return Loader(source, self.config.workers, pin=pin, rank=world.rank, size=world.size)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """SIGTERM and Ctrl-C end the run after its present step, with a checkpoint."""

        def stop(number: int, frame: object) -> None:
            if not self.met:
                raise KeyboardInterrupt  # a first step may be long, and nothing would be lost
            self.asked = True
            self.job.say("stopping after a step; a checkpoint is written first")

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
        if self.world.leads:
            with (self.job.folder / METRICS).open("a") as file:
                file.write(json.dumps(line) + "\n")
            self.job.report(line)

    def validate(self) -> Iterator[Model]:
        """Mean negative log-likelihood over the validation batches; remember the best."""
        source, state = self.job.valid, self.state
        if source is None:
            return
        with self.averaged(), self.as_written():
            self.model.eval()
            value, count, scores = self.measure(source)
            model = whole_model(self.model, self.world)
            if self.job.score is not None:
                scores = self.world.same(self.job.score(model) if self.world.leads else {})
            yield model
            begin_training(self.model)
        if not count:
            self.job.say("validation: no token to predict in its data: nothing is measured")
            return
        score = scores.get(self.config.metric)
        judged = value if score is None else score
        if state.best is None or (judged < state.best if score is None else judged > state.best):
            state.best, state.best_step, state.waited = judged, state.step, 0
        else:
            state.waited += 1
        state.stopped = bool(self.config.patience) and state.waited >= self.config.patience
        figures = {f"valid_{name}": figure for name, figure in scores.items()}
        self.tell({"valid_nll": value, "valid_tokens": count, **figures, "best": state.best})
        if state.stopped:
            self.job.say(f"no better validation {state.waited} times: stopping early")

    @torch.no_grad()
    def measure(self, source: Source) -> tuple[float, int, dict[str, float]]:
        """(mean negative log-likelihood in nats, tokens, means of the objective's figures)."""
        parts, count, carry = list[dict[str, Tensor]](), 0, Carry(self.model)
        for loaded in self.loader(source).iterate(epochs=1):
            batch, labels, extra = self.on_device(loaded.examples)
            with self.autocast():
                past = carry.take(loaded.examples)
                loss = self.loss(batch, labels, 0.0, "no", self.fp8, past, **extra)
            parts.append({"nll": loss.plain, **loss.figures})
            count += loaded.examples.tokens
        sums = {key: self.world.sum(torch.stack([part[key] for part in parts])) for key in parts[0]}
        means = {name: sum(values.tolist()) / max(count, 1) for name, values in sums.items()}
        return means.pop("nll"), count, means

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
        """Write everything the run is; all processes gather, the first one writes."""
        world, mean = self.world, self.mean
        held = {
            "optimizer": gather(checkpoint.optimizer_tensors(self.model, self.optimizer), world)
        }
        own = world.all(checkpoint.generator_states() | self.carry.tensors())
        held |= {f"process-{rank}": state for rank, state in enumerate(own)}
        if (tensors := getattr(self.job.train, "tensors", None)) is not None:
            held["source"] = tensors()
        if mean is not None:
            held["mean"] = gather(((str(n), w) for n, w in mean.weights.items()), world)
        model = whole_model(self.model, world)
        state = {
            **asdict(self.state),
            "config": asdict(self.config),
            "identity": self.job.identity | {"seed": self.job.seed},
            "scaler": self.scaler.state_dict(),
            "mean_step": 0 if mean is None else mean.step,
            "processes": world.size,
        }
        step, keep = self.state.step, max(self.config.keep, self.config.average)
        runs, save = self.checkpoints, self.job.save
        assert save is not None

        def write() -> None:
            if world.leads:
                runs.mkdir(parents=True, exist_ok=True)
                checkpoint.write_checkpoint(runs, step, lambda part: save(part, model), held, state)
                checkpoint.prune(runs, step, keep, self.state.best_step, self.config.save_every)

        world.lead(write)  # the others wait: torchrun ends all soon after one has ended
        return runs / f"step-{step:06d}"

    def restore(self, load: Callable[[Path], Model]) -> Path | None:
        """Take up the newest whole checkpoint; None when there is none and step 0 begins."""
        path = None
        if self.world.leads:
            path = checkpoint.find_checkpoint(self.checkpoints, self.job.say)
            step, metrics = checkpoint.step_of(path) if path else 0, self.job.folder / METRICS
            if metrics.exists():  # lines past the step will be written again
                kept = [line for line in read_metrics(self.job.folder) if line["step"] <= step]
                write_whole(metrics, "".join(json.dumps(line) + "\n" for line in kept).encode())
        path = self.world.same(path)
        if path is None:
            return None
        tensors, state = checkpoint.read_checkpoint(path)
        now = {**asdict(self.config), **self.job.identity, "seed": self.job.seed}
        then = {**state["config"], **state["identity"]}
        check_same(self.job.folder, json.loads(json.dumps(now)), then, FREE)  # as a file holds it
        weights = dict(load(path).named_parameters())
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(part_of(weights[name], parameter))
            checkpoint.restore_optimizer(self.model, self.optimizer, tensors["optimizer"])
            if self.mean is not None:
                for n, weight in self.mean.weights.items():
                    weight.copy_(part_of(tensors["mean"][str(n)], weight))
                self.mean.step = state["mean_step"]
        if (take_up := getattr(self.job.train, "restore", None)) is not None:
            take_up(tensors["source"])
        if state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])
        self.state = RunState(**{name: state[name] for name in asdict(self.state)})
        if (own := tensors.get(f"process-{self.world.rank}")) is not None:
            checkpoint.restore_generators(own)
            self.carry.restore(own)
        else:  # the run had fewer processes before
            torch.manual_seed(self.job.seed + self.state.step + self.world.rank)
        before = state.get("processes", 1)
        if before != self.world.size:
            changed = f"{self.world.size} processes, {before} before"
            self.job.say(f"{changed}: the same batches, but not the same bits")
        return path


def check_same(run: Path, now: dict[str, Any], then: dict[str, Any], free: Collection[str]) -> None:
    """A run goes on only as the run it was; how often it reports or saves may change."""
    differing = [key for key in now if key not in free and now[key] != then.get(key)]
    if differing:
        problem = ", ".join(f"{k} = {now[k]!r}, was {then.get(k)!r}" for k in differing)
        fix = "give them again, or begin another run with another --out"
        raise UsageError(f"resuming {run}", problem, "the values the run began with", fix)


def with_dropout(model: Model, share: float) -> Model:
    """Set the dropout of every part of a model."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = share
    return model


def begin_training(model: Model) -> None:
    """Training mode; frozen parts stay as they will be used: no dropout, the same bits."""
    model.train()
    for module in model.modules():
        drops = any(isinstance(child, nn.Dropout) for child in module.children())
        if drops and not any(p.requires_grad for p in module.parameters()):
            module.eval()
