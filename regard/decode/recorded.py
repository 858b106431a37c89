"""Recorded steps: what is kept of a model between searches, so that a step is recorded once.

On CUDA a step is a graph of kernels at fixed addresses (`torch.cuda.CUDAGraph`). It is kept with
its buffers for as long as the model lives and is what it was.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.core.attention import Attention
from regard.core.cache import FixedCache
from regard.core.tap import Taps
from regard.model.model import Model

PLAIN = frozenset((bool, int, float, str))  # asked by type: a search asks of each setting
KEPT = 16  # records of a model: shapes of batch, beam, room and source


@dataclass
class Record:
    """Buffers of one shape, and the steps recorded on them by the number of slots they look at."""

    cache: FixedCache
    state: Any = None
    steps: dict[int, Callable[[], None]] = field(default_factory=dict)

    def load(self, state: Any) -> None:
        """Take a state into the buffers; the first one brings them."""
        if self.state is None:
            self.state = cloned(state)
        elif state is not self.state:
            copy_tensors(self.state, state)


class Shelf:
    """The records of one model."""

    def __init__(self, model: Model, print_: Hashable) -> None:
        self.print = print_
        self.records: OrderedDict[Hashable, Record] = OrderedDict()
        parts = [part for part in model.modules() if isinstance(part, Attention)]
        self.joints = [Joint(part) for part in parts if Joint.possible(part)]
        self.padded = Padded.of(model.head.out) if model.device.type == "cuda" else None
        self.pool = torch.cuda.graph_pool_handle() if model.device.type == "cuda" else None
        self.lock = Lock()

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
        for joint in self.joints:
            joint.attention.joint = joint
        if self.padded is not None:
            vars(self.padded.linear)["forward"] = self.padded
        try:
            yield
        finally:
            for joint in self.joints:
                joint.attention.joint = None
            if self.padded is not None:
                del vars(self.padded.linear)["forward"]


class Joint:
    """The maps of one attention as one product, with weights of its own, side by side."""

    def __init__(self, attention: Attention) -> None:
        self.attention = attention
        maps = self.maps = (attention.q, attention.k, attention.v)
        self.sizes = [linear.out_features for linear in maps]
        with torch.no_grad():
            self.weight = torch.cat([linear.weight for linear in maps])
            biased = maps[0].bias is not None
            self.bias = torch.cat([linear.bias for linear in maps]) if biased else None

    @staticmethod
    def possible(part: Attention) -> bool:
        """Whether it is a self-attention of three plain maps."""
        if part.cross or part.joint is not None:
            return False
        maps = (part.q, part.k, part.v)
        plain = all(type(linear) is nn.Linear for linear in maps)
        return plain and len({linear.bias is None for linear in maps}) == 1

    def pairs(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Each part with the weight it is a copy of."""
        yield from zip(self.weight.split(self.sizes), (m.weight for m in self.maps), strict=True)
        if self.bias is not None:
            yield from zip(self.bias.split(self.sizes), (m.bias for m in self.maps), strict=True)

    def __call__(self, x: Tensor) -> list[Tensor]:
        """x (B, T, D) → queries, keys, values."""
        return list(F.linear(x, self.weight, self.bias).split(self.sizes, -1))


class Padded:
    """A map to a vocabulary of odd size, rounded up: products of odd sizes take slow kernels."""

    def __init__(self, linear: nn.Linear) -> None:
        self.linear, self.size = linear, linear.out_features
        missing = -self.size % 64
        with torch.no_grad():
            self.weight = F.pad(linear.weight, (0, 0, 0, missing))
            self.bias = None if linear.bias is None else F.pad(linear.bias, (0, missing))

    @classmethod
    def of(cls, linear: nn.Linear | None) -> Padded | None:
        """The padded map where there is one to pad."""
        fits = type(linear) is nn.Linear and linear.out_features % 64
        return cls(linear) if fits else None  # type: ignore[arg-type]

    def pairs(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Each part with the weight it is a copy of."""
        yield self.weight[: self.size], self.linear.weight
        if self.bias is not None:
            yield self.bias[: self.size], self.linear.bias

    def __call__(self, x: Tensor) -> Tensor:
        """x (B, T, D) → scores (B, T, V)."""
        return F.linear(x, self.weight, self.bias)[..., : self.size]


SHELVES: WeakKeyDictionary[Model, Shelf] = WeakKeyDictionary()


def shelf_of(model: Model) -> Shelf | None:
    """The model's shelf, a new one if it has changed; None if its steps cannot be recorded."""
    now = fingerprint(model)
    if now is None:
        return None
    if model not in SHELVES or SHELVES[model].print != now:
        SHELVES[model] = Shelf(model, now)
    shelf = SHELVES[model]
    with torch.no_grad():  # weights may have been trained in place
        copies: list[Joint | Padded] = [*shelf.joints]
        copies += [] if shelf.padded is None else [shelf.padded]
        copy_pairs([pair for held in copies for pair in held.pairs()])
    return shelf


def fingerprint(model: Model) -> Hashable | None:
    """What a recorded step depends on: weights by address, and the plain settings of each module.

    None where a step must run as Python: somebody listens, or dropout is on.
    """
    device = model.device.type
    if model.training or torch.is_autocast_enabled(device):
        return None
    found: list[Any] = [torch.get_float32_matmul_precision()]
    for part in model.modules():
        held = vars(part)
        if heard(part):
            return None
        found.append(type(part))
        found += [value for value in held.values() if type(value) in PLAIN]
        for tensor in (*part._parameters.values(), *part._buffers.values()):
            found.append(None if tensor is None else (tensor.data_ptr(), tensor.dtype))
    return tuple(found)


def watched(model: Model) -> bool:
    """Whether somebody listens anywhere, who may keep tensors and compute gradients with them."""
    return any(heard(part) for part in model.modules())


def heard(part: nn.Module) -> bool:
    """Whether a hook or a tap of a module is in use."""
    hooks = part._forward_hooks or part._forward_pre_hooks
    return bool(hooks) or listening(vars(part).get("at"))


def listening(at: Any) -> bool:
    """Whether a function is attached to one of a module's taps."""
    return isinstance(at, Taps) and any(tap.fn is not None for tap in vars(at).values())


def tensors(state: Any) -> list[Tensor]:
    """The tensors of a dataclass, those of dataclasses in it too, in order."""
    found: list[Tensor] = []
    for name in (part.name for part in fields(state)):
        value = getattr(state, name)
        if isinstance(value, Tensor):
            found.append(value)
        elif is_dataclass(value):
            found += tensors(value)
    return found


def cloned(state: Any) -> Any:
    """A dataclass with tensors of its own."""
    values = {part.name: getattr(state, part.name) for part in fields(state)}
    changed = {name: t.clone() for name, t in values.items() if isinstance(t, Tensor)}
    changed |= {name: cloned(value) for name, value in values.items() if is_dataclass(value)}
    return replace(state, **changed)


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
