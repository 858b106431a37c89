"""CUDA graphs: steps whose shapes do not change, recorded once and replayed.

On CUDA a step is a graph of kernels at fixed addresses (`torch.cuda.CUDAGraph`); it is kept with
its buffers for as long as the model lives and is what it was. There is a look at the host every
few steps; sources leave when half of them are over, so that the shapes left are few. The answers
are those of the plain loop.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from regard.core.attention import Attention, View
from regard.core.cache import FixedCache
from regard.decode.loop import Loop, Search, has_listener
from regard.model.batch import Batch
from regard.model.model import Model

SOURCE = 8  # lengths of sources are a multiple of this
PLAIN = frozenset((bool, int, float, str))  # asked by type: a search asks of each setting
KEPT = 16  # records of a model: shapes of batch, beam, room and source


class GraphLoop(Loop):
    """The rows of a batch, as many for each as the search has, with room for `room` new tokens."""

    every = 8

    def __init__(
        self,
        model: Model,
        graphs: Graphs,
        batch: Batch,
        search: Search,
        room: int,
        compiled: bool = False,
    ) -> None:
        self.model, self.batch, self.graphs = model, batch, graphs
        self.prefixes, self.compiled = search.width, compiled
        self.room = rounded(room, 32)
        self.size = rounded(batch.ids.shape[1] + self.room * search.width)
        source: tuple[Hashable, ...] = ()  # an encoder's output, and whether it has padding
        if batch.target is not None:
            source = tuple(batch.inputs.shape[1:])
            if len(source) == 1:
                length = rounded(batch.inputs.shape[1], SOURCE)
                source = (length, batch.source_mask is None and source == (length,))
        self.key: Hashable
        self.key = (search.key, search.width, self.room, self.size, compiled, *source)
        self.record = self.record_of(len(batch.ids))

    def record_of(self, sources: int) -> Record:
        """The buffers for so many sources."""
        return self.graphs.record((sources, self.key), lambda: self.cache(sources))

    def cache(self, sources: int) -> FixedCache:
        """A cache for so many sources."""
        decoder = self.model.decoder
        assert decoder is not None
        weight = next(decoder.parameters())
        sizes = (sources, self.prefixes, self.size)
        return FixedCache(decoder.config, *sizes, weight.dtype, weight.device)

    @torch.no_grad()
    def begin(self, start: Tensor) -> Tensor:
        """Read all but the last token of each row; that one is the first column, (A · W, 1)."""
        cache, model, batch = self.record.cache, self.model, self.batch
        cache.reset()
        memory = None
        if batch.target is not None:
            read = model.encode(batch)
            missing = rounded(read.x.shape[1], SOURCE) - read.x.shape[1]
            real = read.real
            if missing and real is None:
                real = torch.ones(read.x.shape[:2], dtype=torch.bool, device=read.x.device)
            real = None if real is None else F.pad(real, (0, missing))
            memory = read._replace(x=F.pad(read.x, (0, 0, 0, missing)), real=real)
            assert model.decoder is not None
            cache.remember(
                {
                    part.layer: part.keys_values([part.k(memory.x), part.v(memory.x)], View())
                    for part in model.decoder.modules()
                    if isinstance(part, Attention) and part.cross
                },
                real,
            )
        before, real, last = batch.ids[:, :-1], batch.mask, batch.ids[:, -1:]
        if real is not None:
            place = real.shape[1] - 1 - real.flip(1).int().argmax(-1, keepdim=True)
            before, last = batch.ids, batch.ids.gather(1, place)
            real = real.scatter(1, place, False)
        if before.shape[1]:
            model.decode(Batch(before, mask=real), memory, cache)
        cache.start(real)
        return last.repeat_interleave(self.prefixes, 0)

    @torch.no_grad()
    def turn(self, state: Any, search: Search) -> Any:
        """One step, replayed where it has been recorded."""
        if len(state.over) != self.record.cache.batch:
            state = self.shrink(state)
        record, cache = self.record, self.record.cache
        record.load(state)
        span = self.span(cache.filled + cache.width)
        cache.grow(span)
        if span not in record.steps:
            body = self.body(record, search)
            with self.graphs.joined():
                if not cache.held.is_cuda:
                    body()
                    return record.state
                record.steps[span] = self.recorded(body, record)
        record.steps[span]()
        return record.state

    def span(self, slots: int) -> int:
        """How many slots attention runs over; few sizes when each of them is compiled."""
        return min(rounded(slots, rounded(self.size // 2) if self.compiled else 64), self.size)

    def body(self, record: Record, search: Search) -> Callable[[], None]:
        """A step on the record's buffers alone."""
        cache, model, paired = record.cache, self.model, self.batch.target is not None

        def body() -> None:
            state = record.state
            if cache.width > 1:
                cache.select(state.parent.flatten())
            ids = state.column
            logits = model(Batch(ids, ids) if paired else Batch(ids), cache)[:, 0]
            copy_tensors(state, search.advance(state, logits))

        return body

    def recorded(self, body: Callable[[], None], record: Record) -> Callable[[], None]:
        """The step as a graph, compiled first if so wished."""
        cache = record.cache
        changing = [*tensors(record.state), cache.bias, cache.lengths, cache.index]
        before = [held.clone() for held in changing]
        if self.compiled:
            body = compiled(body, single=len(record.state.column) == 1)
        with torch.cuda.device(cache.held.device):
            undo = partial(copy_pairs, list(zip(changing, before, strict=True)))
            return record_graph(body, undo, self.graphs.pool)

    def shrink(self, state: Any) -> Any:
        """Go on in smaller buffers with the sources that are left: they are the model's rows."""
        old, parent = self.record.cache, state.parent
        self.record = self.record_of(len(state.over))
        self.record.cache.take(old, parent.flatten())
        rows = torch.arange(parent.numel(), device=parent.device).view_as(parent)
        return state._replace(parent=rows if parent.dim() > 1 else None)

    def keep(self, over: Sequence[bool]) -> list[int] | None:
        """All that are not over, and as many others as make it a half, a quarter, …, or all."""
        going, size = len(over) - sum(over), len(over)
        while size > 1 and going <= -(-size // 2):
            size = -(-size // 2)
        if size == len(over):
            return None
        return sorted(sorted(range(len(over)), key=lambda n: over[n])[:size])


def compiled(body: Callable[[], None], single: bool) -> Callable[[], None]:
    """A step compiled for its shapes alone; what a single row is multiplied with can be fused."""
    tuned = torch.compile(body, dynamic=False, options={"coordinate_descent_tuning": single})

    def run() -> None:
        with torch._dynamo.config.patch(recompile_limit=1000):  # each shape is compiled anew
            tuned()

    return run


def rounded(count: int, least: int = 64) -> int:
    """Up to a multiple of `least`, or of about a sixth of the count: few shapes, little waste."""
    step = max(least, 1 << max(count.bit_length() - 3, 0))
    return -(-count // step) * step


# What is kept between searches -----------------------------------------------------------------


@dataclass
class Record:
    """Buffers of one shape, and the steps recorded on them by the number of slots they look at."""

    cache: FixedCache
    state: Any = None
    steps: dict[int, Callable[[], None]] = field(default_factory=dict)

    def load(self, state: Any) -> None:
        """Take a state into the buffers; the first one brings them."""
        if self.state is None:
            self.state = tree_map_only(Tensor, torch.clone, state)
        elif state is not self.state:
            copy_tensors(self.state, state)


class Graphs:
    """The records of one model, and maps that are quicker as one product or of an even size."""

    def __init__(self, model: Model, fingerprint: Hashable) -> None:
        self.fingerprint = fingerprint
        self.records: OrderedDict[Hashable, Record] = OrderedDict()
        self.joints = dict[Attention, Callable[[Tensor], list[Tensor]]]()
        self.copies: list[tuple[Tensor, Tensor]] = []
        """Weights of our own, and what they are copies of."""
        for part in model.modules():
            if isinstance(part, Attention) and not part.cross and part.joint is None:
                maps = (part.q, part.k, part.v)
                biased = {linear.bias is not None for linear in maps}
                if all(type(linear) is nn.Linear for linear in maps) and len(biased) == 1:
                    sizes = [linear.out_features for linear in maps]
                    self.joints[part] = partial(map_jointly, self.copy_maps(maps), sizes)
        out, cuda = model.head.out, model.device.type == "cuda"
        self.padded: tuple[nn.Linear, Callable[[Tensor], Tensor]] | None = None
        if cuda and out is not None and type(out) is nn.Linear and out.out_features % 64:
            # Products of odd sizes, such as many vocabularies have, take slow kernels.
            copy, size = self.copy_maps([out], -out.out_features % 64), out.out_features
            self.padded = out, lambda x: F.linear(x, *copy)[..., :size]
        self.pool = torch.cuda.graph_pool_handle() if cuda else None
        self.lock = Lock()

    @torch.no_grad()
    def copy_maps(self, maps: Sequence[nn.Linear], missing: int = 0) -> list[Tensor]:
        """The weights and, if there are any, the biases of maps side by side, then noughts."""
        joined = []
        for name in ("weight", "bias") if maps[0].bias is not None else ("weight",):
            parts = [getattr(linear, name) for linear in maps]
            whole = torch.cat([*parts, parts[0].new_zeros(missing, *parts[0].shape[1:])])
            sizes = [len(part) for part in parts] + [missing]
            self.copies += zip(whole.split(sizes), parts, strict=False)
            joined.append(whole)
        return joined

    def record(self, key: Hashable, make: Callable[[], FixedCache]) -> Record:
        """The record of a shape; the one not used for longest makes room."""
        if key not in self.records:
            self.records[key] = Record(make())
        self.records.move_to_end(key)
        while len(self.records) > KEPT:
            self.records.popitem(last=False)
        return self.records[key]

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Inside, queries, keys and values of self-attention are one product."""
        for attention, joint in self.joints.items():
            attention.joint = joint
        if self.padded is not None:
            vars(self.padded[0])["forward"] = self.padded[1]
        try:
            yield
        finally:
            for attention in self.joints:
                attention.joint = None
            if self.padded is not None:
                del vars(self.padded[0])["forward"]


def map_jointly(maps: list[Tensor], sizes: list[int], x: Tensor) -> list[Tensor]:
    """x (B, T, D) → queries, keys, values."""
    return list(F.linear(x, *maps).split(sizes, -1))


GRAPHS: WeakKeyDictionary[Model, Graphs] = WeakKeyDictionary()


@contextmanager
def borrow_graphs(model: Model) -> Iterator[Graphs | None]:
    """The model's records, new ones if it has changed.

    None if its steps cannot be recorded, or a search that is watched uses them now.
    """
    now = fingerprint(model)
    if now is None:
        yield None
        return
    if model not in GRAPHS or GRAPHS[model].fingerprint != now:
        GRAPHS[model] = Graphs(model, now)
    graphs = GRAPHS[model]
    with torch.no_grad():  # weights may have been trained in place
        copy_pairs(graphs.copies)
    if not graphs.lock.acquire(blocking=False):
        yield None
        return
    try:
        yield graphs
    finally:
        graphs.lock.release()


def fingerprint(model: Model) -> Hashable | None:
    """What a recorded step depends on: weights by address, and the plain settings of each module.

    None where a step must run as Python: somebody listens, or dropout is on.
    """
    if model.training or torch.is_autocast_enabled(model.device.type):
        return None
    parts: list[Any] = [torch.get_float32_matmul_precision()]
    for part in model.modules():
        held = vars(part)
        if has_listener(part) or not held.get("recordable", True):
            return None
        parts.append(type(part))
        parts += [value for value in held.values() if type(value) in PLAIN]
        for tensor in (*part._parameters.values(), *part._buffers.values()):
            parts.append(None if tensor is None else (tensor.data_ptr(), tensor.dtype))
    return tuple(parts)


def tensors(state: Any) -> list[Tensor]:
    """The tensors of a state, in order."""
    return [part for part in tree_leaves(state) if isinstance(part, Tensor)]


def copy_tensors(into: Any, given: Any) -> None:
    """Copy one state's tensors into another's."""
    copy_pairs(list(zip(tensors(into), tensors(given), strict=True)))


def copy_pairs(pairs: list[tuple[Tensor, Tensor]]) -> None:
    """Copy the second of each pair into the first, all of a dtype at once."""
    for dtype in dict.fromkeys(old.dtype for old, _ in pairs):
        chosen = [(old, new) for old, new in pairs if old.dtype == dtype and old is not new]
        if chosen:
            torch._foreach_copy_([old for old, _ in chosen], [new for _, new in chosen])


def record_graph(
    body: Callable[[], None], undo: Callable[[], None], pool: Any
) -> Callable[[], None]:
    """Record a step on CUDA: run it once aside, `undo` that, then record; returns the replay."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        body()
        undo()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
        body()
    return graph.replay
