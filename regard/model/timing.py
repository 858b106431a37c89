"""Predict the time of a run by timing some blocks and the ends of the model at its shape.

Each block's weights come fresh from memory, so a few copies of the block take turns, as many as do
not fit into a processor's cache. What would take long is timed on fewer copies, rows or tokens, and
scaled by its FLOPs.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.ambient import progress
from regard.core.attention import View
from regard.core.block import Block, Context
from regard.core.stack import Stack
from regard.model import cost
from regard.model.config import ImageConfig, ModelConfig, TextConfig
from regard.model.cost import Pass, RunShape, count_flops, head_rows
from regard.model.fronts import build_front
from regard.model.model import Head

CACHE = 96e6  # bytes; more than processors keep between two uses of a weight
LONG = 0.5  # seconds that one timed piece may take
FEW = 64  # tokens that are not made fewer
OPTIMISER = "optimiser"
ENOUGH = 0.8  # seconds after which a piece is not timed again
SAMPLES = 2, 9  # at least and at most


class Stopwatch:
    """Adds up the time spent in wrapped functions; waits for a GPU before reading the clock."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.spent: dict[str, float] = defaultdict(float)

    def now(self) -> float:
        """The clock, once all queued work is done."""
        if self.device != "cpu":
            getattr(torch, self.device).synchronize()
        return time.perf_counter()

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function whose time is added to `name`."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = self.now()
            out = function(*args, **kwargs)
            self.spent[name] += self.now() - start
            return out

        return timed

    def sample(self, work: Callable[[], Any]) -> dict[str, float]:
        """Seconds of `work` ("all") and of what is wrapped in it: the quickest of several.

        A neighbour on the machine only ever makes a sample slower.
        """
        samples: list[dict[str, float]] = []
        least, most = SAMPLES
        work()  # the first touches new memory and loads libraries
        end = self.now() + ENOUGH
        while len(samples) < least or (len(samples) < most and self.now() < end):
            self.spent.clear()
            start = self.now()
            work()
            samples.append({**self.spent, "all": self.now() - start})
        return min(samples, key=lambda sample: sample["all"])

    def best(self, work: Callable[[], Any]) -> float:
        """Seconds of `work` alone."""
        return self.sample(work)["all"]


class Timer:
    """Times the parts of one model on one device."""

    def __init__(
        self, config: ModelConfig, run: RunShape, device: str, train: bool, dtype: str = "float32"
    ) -> None:
        self.config, self.run, self.train = config, run, train
        self.dtype: torch.dtype = getattr(torch, dtype)
        self.place: dict[str, Any] = {"device": device, "dtype": self.dtype}
        self.watch = Stopwatch(device)

    def times(self) -> dict[str, float]:
        """Seconds by part."""
        spent = dict.fromkeys(cost.PARTS, 0.0)
        with progress("timing") as say, torch.set_grad_enabled(self.train):
            for one in cost.passes(self.config, self.run):
                say(f"a block of the {one.name}")
                for part, seconds in self.time_stack(one).items():
                    spent[part] += seconds
                say(f"the front of the {one.name}")
                spent[cost.EMBED] += self.time_front(one)
            say("the output head")
            spent[cost.HEAD] += self.time_head()
            if self.train:
                say("the optimiser")
                count = cost.count_params(self.config)
                weight = nn.Parameter(torch.rand(min(count, 8_000_000), **self.place))
                weight.grad = torch.rand_like(weight)
                step = torch.optim.AdamW([weight]).step
                spent[OPTIMISER] = self.watch.best(step) * count / weight.numel()
        return spent

    def build(self, kind: Callable[..., Any], *arguments: Any) -> Any:
        """A module with plain numbers for weights."""
        with torch.device("meta"):  # nothing is drawn
            module = kind(*arguments)
        module.to_empty(device=self.place["device"]).to(self.dtype)
        for parameter in module.parameters():
            parameter.data.fill_(0.01)
        return module.train(self.train)

    def both_ways(self, module: nn.Module, forward: Callable[[], Tensor]) -> Callable[[], None]:
        """A forward pass and, in training, the way back."""

        def work() -> None:
            out = forward()
            if self.train:
                torch.autograd.backward(out, out.detach())
                module.zero_grad()

        return work

    @cached_property
    def budget(self) -> float:
        """FLOPs of a forward pass that can be timed in LONG seconds, by a matrix product."""
        a = torch.rand(768, 768, **self.place)
        with torch.no_grad():
            speed = 2 * 768**3 / self.watch.best(lambda: a @ a)
        return LONG * speed / (3 if self.train else 1)

    def time_stack(self, one: Pass) -> dict[str, float]:
        """Seconds of all blocks by part, from copies, rows and tokens that can be timed."""
        with torch.device("meta"):
            size = sum(p.numel() for p in Block(one.stack.block, 0).parameters()) * self.run.item
        copies, batch, tokens = math.ceil(CACHE / size), self.run.batch, one.tokens
        copies = min(copies, one.stack.depth)
        while True:
            timed = replace(one, stack=replace(one.stack, depth=copies), tokens=tokens)
            flops = cost.pass_flops(timed, batch)
            if sum(flops.values()) <= self.budget:
                break
            if copies > 1:  # many rows use a weight so often that fetching it does not count
                copies -= 1
            elif batch > 1:
                batch = (batch + 1) // 2
            elif tokens > FEW:
                tokens = max(tokens // 2, FEW)
            else:
                break
        spent = self.time_blocks(timed, batch)
        whole = cost.pass_flops(one, self.run.batch)
        return {part: spent[part] * whole[part] / max(flops[part], 1) for part in spent}

    def time_blocks(self, one: Pass, batch: int) -> dict[str, float]:
        """Seconds of one pass through a stack, by part: the quickest of several."""
        watch, stack = Stopwatch(self.watch.device), self.build(Stack, one.stack)
        for block in cast(list[Block], stack.blocks):
            for attn in (block.attn, *([block.cross] if block.cross else [])):
                attn.look = watch.wrap("look", attn.look)  # type: ignore[method-assign]
                attn.forward = watch.wrap("attn", attn.forward)  # type: ignore[method-assign]
            block.mlp.forward = watch.wrap("mlp", block.mlp.forward)  # type: ignore[method-assign]
        dim = one.stack.block.dim
        x = torch.rand(batch, one.tokens, dim, **self.place).requires_grad_(self.train)
        memory = torch.rand(batch, one.seen, dim, **self.place) if one.seen else None
        positions = torch.arange(one.tokens, device=self.place["device"])[None]

        def forward() -> Tensor:
            out: Tensor = stack(x, Context(stack.view(x, positions), View()), memory)
            return out

        ahead = watch.sample(forward)
        both = watch.best(self.both_ways(stack, forward)) if self.train else ahead["all"]
        times = {
            cost.PROJECT: ahead["attn"] - ahead["look"],
            cost.LOOK: ahead["look"],
            cost.MLP: ahead["mlp"],
            cost.NORM: ahead["all"] - ahead["attn"] - ahead["mlp"],
        }
        # The backward pass is spread over the parts as they were on the way forward.
        return {part: seconds * both / ahead["all"] for part, seconds in times.items()}

    def time_front(self, one: Pass) -> float:
        """Seconds of a front, which is run as it is."""
        config = one.front
        if isinstance(config, TextConfig) and not self.train:  # looking rows up needs few of them
            config = replace(config, vocab=min(config.vocab, 5000))
        front, batch = self.build(build_front, config), self.run.batch
        if isinstance(config, TextConfig):
            size, most = (batch, one.tokens), min(config.vocab, 5000)
            inputs = torch.randint(most, size, device=self.place["device"])
        elif isinstance(config, ImageConfig):
            inputs = torch.rand(batch, config.channels, config.height, config.width, **self.place)
        else:
            inputs = torch.rand(batch, config.mels, 2 * one.tokens, **self.place)
        return self.watch.best(self.both_ways(front, lambda: front(inputs).x))

    def time_head(self) -> float:
        """Seconds of the output head, and of the loss when training."""
        _, every, dim, _ = head_rows(self.config, self.run)
        head = self.build(Head, self.config.head, dim)
        each = count_flops(self.config, self.run)[cost.HEAD] / every
        rows = max(min(every, int(self.budget / max(each, 1))), 1)
        x = torch.rand(rows, 1, dim, **self.place).requires_grad_(self.train)
        target = torch.zeros(rows, dtype=torch.long, device=self.place["device"])

        def forward() -> Tensor:
            scores: Tensor = head(x)
            return F.cross_entropy(scores.flatten(0, -2), target) if self.train else scores

        return self.watch.best(self.both_ways(head, forward)) * every / rows
