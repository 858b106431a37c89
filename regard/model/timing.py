"""Predict the time of a run by timing one block and the ends of the model at its shape.

Each block's weights come fresh from memory, so a few copies of the block take turns, as many as do
not fit into a processor's cache. What would take long is timed on fewer rows, and scaled.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.ambient import progress
from regard.core.attention import View
from regard.core.block import Block, Context
from regard.core.stack import Stack
from regard.model.config import ImageConfig, ModelConfig, TextConfig
from regard.model.cost import (
    EMBED,
    HEAD,
    LOOK,
    MLP,
    NORM,
    PARTS,
    PROJECT,
    Pass,
    RunShape,
    count_flops,
    count_params,
    passes,
)
from regard.model.fronts import build_front
from regard.model.model import Head

CACHE = 96e6  # bytes; more than processors keep between two uses of a weight
LONG = 0.3  # seconds that one timed piece may take
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
        if self.device == "cuda":
            torch.cuda.synchronize()
        elif self.device == "mps":
            torch.mps.synchronize()
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
        spent = dict.fromkeys(PARTS, 0.0)
        with progress("timing") as say, torch.set_grad_enabled(self.train):
            for one in passes(self.config, self.run):
                say(f"a block of the {one.name}")
                for part, seconds in self.time_stack(one).items():
                    spent[part] += seconds
                say(f"the front of the {one.name}")
                spent[EMBED] += self.time_front(one)
            say("the output head")
            spent[HEAD] += self.time_head()
            if self.train:
                say("the optimiser")
                with torch.no_grad():
                    spent[OPTIMISER] = self.time_optimiser()
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

    def rows_in_time(self, flops: float, rows: int) -> int:
        """How many of `rows` rows can be timed in LONG seconds."""
        per_row = flops / max(rows, 1)
        return max(min(rows, int(LONG * self.speed() / max(per_row, 1))), 1)

    def speed(self) -> float:
        """FLOP/s of a matrix product in this dtype, measured once."""
        if not hasattr(self, "_speed"):
            a = torch.rand(768, 768, **self.place)
            with torch.no_grad():
                self._speed = 2 * 768**3 / self.watch.best(lambda: a @ a)
        return self._speed / (3 if self.train else 1)

    # Blocks -----------------------------------------------------------------------------------

    def time_stack(self, one: Pass) -> dict[str, float]:
        """Seconds of all blocks by part, from a few copies of one block."""
        single = replace(one.stack, depth=1)
        stacks: dict[str, Any] = {one.name: single}
        alone = ModelConfig(one.front, **stacks)
        size = sum(count_params(alone).values()) * self.run.item
        size -= sum(count_params(alone)[part] for part in (EMBED, HEAD)) * self.run.item
        flops = sum(count_flops(alone, replace(self.run, length=one.tokens)).values())
        batch = self.rows_in_time(flops, self.run.batch)
        if batch == 1 and self.rows_in_time(flops / self.run.batch, 10) < 10:
            return self.time_long(one, single, flops / self.run.batch)
        # Many rows use a weight so often that fetching it does not count.
        turns = self.rows_in_time(100 * flops * batch / self.run.batch, 100)
        copies = min(one.stack.depth, turns, math.ceil(CACHE / size))
        stack = self.build(Stack, replace(single, depth=copies))
        spent = self.time_blocks(stack, one, batch, one.tokens)
        scale = one.stack.depth / copies * self.run.batch / batch
        return {part: seconds * scale for part, seconds in spent.items()}

    def time_long(self, one: Pass, single: Any, flops: float) -> dict[str, float]:
        """Seconds of one long sequence: linear parts on some of its tokens, looking on its own.

        Looking takes some heads and some queries over all keys, half of that where it is causal.
        """
        stack = self.build(Stack, single)
        tokens = max(self.rows_in_time(flops, one.tokens), min(one.tokens, 64))
        spent = self.time_blocks(stack, one, 1, tokens)
        scale = one.stack.depth * self.run.batch * one.tokens / tokens
        times = {part: seconds * scale for part, seconds in spent.items()}
        attn, block = stack.blocks[0].attn, one.stack.block
        heads = block.heads // block.groups  # of one group
        each = 4 * one.tokens * block.width * heads
        queries = self.rows_in_time(each * one.tokens, one.tokens)
        q = torch.rand(1, queries, heads, block.width, **self.place).transpose(1, 2)
        k = torch.rand(1, one.tokens, 1, block.width, **self.place).transpose(1, 2)
        attn.groups, attn.heads = 1, heads
        look = self.watch.best(lambda: attn.look(q, k, k, View()))
        share = 0.5 if block.causal and one.stack.position != "relative" else 1.0
        both_ways = 3.0 if self.train else 1.0
        whole = look * one.tokens / queries * block.groups * self.run.batch * one.stack.depth
        times[LOOK] = whole * share * both_ways
        return times

    def time_blocks(self, stack: Stack, one: Pass, batch: int, tokens: int) -> dict[str, float]:
        """Seconds of one pass through the copies, by part: median of several passes."""
        watch = Stopwatch(self.watch.device)
        for block in cast(list[Block], stack.blocks):
            for attn in (block.attn, *([block.cross] if block.cross else [])):
                attn.look = watch.wrap("look", attn.look)  # type: ignore[method-assign]
                attn.forward = watch.wrap("attn", attn.forward)  # type: ignore[method-assign]
            block.mlp.forward = watch.wrap("mlp", block.mlp.forward)  # type: ignore[method-assign]
        dim = one.stack.block.dim
        x = torch.rand(batch, tokens, dim, **self.place).requires_grad_(self.train)
        memory = torch.rand(batch, one.seen, dim, **self.place) if one.seen else None
        positions = torch.arange(tokens, device=self.place["device"])[None]

        def forward() -> Tensor:
            out: Tensor = stack(x, Context(stack.view(x, positions), View()), memory)
            return out

        quickest = watch.sample(self.both_ways(stack, forward))
        rest = quickest["all"] - quickest["attn"] - quickest["mlp"]
        times = {
            PROJECT: quickest["attn"] - quickest["look"],
            LOOK: quickest["look"],
            MLP: quickest["mlp"],
            NORM: rest,
        }
        if self.train:  # the backward pass, spread over the parts as they were on the way forward
            ahead = watch.best(forward)
            times[NORM] = max(times[NORM] - quickest["all"] + ahead, 0.0)
            share = quickest["all"] / sum(times.values())
            times = {part: seconds * share for part, seconds in times.items()}
        return times

    # The ends ---------------------------------------------------------------------------------

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
        config, dim = self.config.head, self.config.last.block.dim
        head = self.build(Head, config, dim)
        one = passes(self.config, self.run)[-1]
        tokens = 1 if config.take == "first" else one.tokens
        every = self.run.batch * tokens
        rows = self.rows_in_time(count_flops(self.config, self.run)[HEAD], every)
        x = torch.rand(rows, 1, dim, **self.place).requires_grad_(self.train)
        target = torch.zeros(rows, dtype=torch.long, device=self.place["device"])

        def forward() -> Tensor:
            scores: Tensor = head(x)
            return F.cross_entropy(scores.flatten(0, -2), target) if self.train else scores

        return self.watch.best(self.both_ways(head, forward)) * every / rows

    def time_optimiser(self) -> float:
        """Seconds of one AdamW step, from a part of the weights."""
        count = sum(count_params(self.config).values())
        some = min(count, 8_000_000)
        weight = nn.Parameter(torch.rand(some, **self.place))
        weight.grad = torch.rand_like(weight)
        step = torch.optim.AdamW([weight]).step
        return self.watch.best(step) * count / some
