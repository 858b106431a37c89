"""Past one device: the processes of a run, as torchrun started them, and what they do together.

All of it is PyTorch's: DistributedDataParallel keeps the model on each process, FSDP2 spreads it
over them. Each process trains on its rows of every batch, so that the batch of a step, and with it
the run, is the one of a single process. `torch.distributed` is loaded where it is needed only.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from regard.core.block import Block
from regard.errors import UsageError
from regard.model.model import Model
from regard.train.objectives import Objective

Value = TypeVar("Value")
# One process prepares the data of all. A dead one is found by torchrun, not by waiting.
LONGEST = timedelta(days=1)


@dataclass(frozen=True)
class World:
    """This process among those of the run; each method is called by all of them together."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process writes and speaks for all."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over the processes, in place."""
        if self.size > 1:
            torch.distributed.all_reduce(tensor)
        return tensor

    def same(self, value: Value) -> Value:
        """The first process's value."""
        held: list[Any] = [value]
        if self.size > 1:
            torch.distributed.broadcast_object_list(held)
        return held[0]  # type: ignore[no-any-return]

    def all(self, value: Value) -> list[Value]:
        """The values of all processes, by rank."""
        held: list[Any] = [value] * self.size
        if self.size > 1:
            torch.distributed.all_gather_object(held, value)
        return held

    def lead(self, work: Callable[[], Value]) -> Value:
        """Work on the first process, then on the others, which find its files; all fail with it."""
        done: list[Value] = []
        wrong: BaseException | None = None
        if self.leads:
            try:
                done.append(work())
            except BaseException as error:
                wrong = error
        interrupted = 130 if isinstance(wrong, KeyboardInterrupt) else 1
        code = self.same(None if wrong is None else getattr(wrong, "exit_code", interrupted))
        if wrong is not None:
            raise wrong
        if code is not None:
            raise SystemExit(code)  # the first process says why
        return done[0] if done else work()


@contextmanager
def joined(device: str) -> Iterator[World]:
    """The world that torchrun's environment names: gloo on the CPU, NCCL on GPUs; else one."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield World()
        return
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if device == "mps" or (device == "cuda" and local >= torch.cuda.device_count()):
        count = torch.cuda.device_count() if device == "cuda" else 1
        problem = f"process {local + 1} of this machine and {count} {device} devices"
        raise UsageError("joining the processes", problem, "a device each", "--nproc-per-node")
    if device == "cuda":
        torch.cuda.set_device(local)
    kinds = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
    torch.distributed.init_process_group(kinds, timeout=LONGEST)
    try:
        yield World(torch.distributed.get_rank(), size)
        torch.distributed.barrier()  # the first one holds the store that the others still need
    finally:
        gc.collect()  # models in cycles hold on to the group, whose threads must end before we do
        torch.distributed.destroy_process_group()


def spread(objective: Objective, world: World, shard: bool) -> nn.Module:
    """A copy on each process whose gradients are averaged, or a part of it on each."""
    if world.size == 1:
        return objective
    if not shard:
        return nn.parallel.DistributedDataParallel(objective, gradient_as_bucket_view=True)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(objective.model.device.type, (world.size,))
    for block in (module for module in objective.modules() if isinstance(module, Block)):
        fully_shard(block, mesh=mesh)
    # Resharded always: after a validation no backward pass would do it.
    fully_shard(objective, mesh=mesh, reshard_after_forward=True)
    return objective


def exchanging(loss: nn.Module, now: bool) -> AbstractContextManager[Any]:
    """Inside, a backward pass exchanges gradients, or only adds them up (accumulation)."""
    switch = getattr(loss, "set_requires_gradient_sync", None)  # FSDP2 has it
    if switch is not None:
        switch(now)
    elif isinstance(loss, nn.parallel.DistributedDataParallel) and not now:
        return loss.no_sync()
    return nullcontext()


def whole(tensor: Tensor) -> Tensor:
    """A tensor, put together again where each process holds a part of it."""
    full: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return full


def part_of(tensor: Tensor, place: Tensor) -> Tensor:
    """The inverse of `whole`: on the device of `place`, and as much of it as `place` holds."""
    tensor = tensor.to(place.device)
    if not hasattr(place, "full_tensor"):
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(place, DTensor)
    return distribute_tensor(tensor, place.device_mesh, place.placements, src_data_rank=None)


def gather(named: Iterable[tuple[str, Tensor]], world: World) -> dict[str, Tensor]:
    """Whole tensors in the memory of the first process, one at a time; the others hold nothing."""
    held: dict[str, Tensor] = {}
    for name, tensor in named:
        full = whole(tensor.detach())
        if world.leads:
            held[name] = full.cpu().contiguous()
    return held


def whole_model(model: Model, world: World) -> Model:
    """For the first process: the model itself, or a copy on the CPU where it is sharded."""
    if not hasattr(next(model.parameters()), "full_tensor"):
        return model
    held = gather(model.named_parameters(), world)
    if not world.leads:
        return model
    with torch.device("meta"):
        copy = type(model)(model.config)
    copy.load_state_dict(held, strict=False, assign=True)
    copy.tie()
    return copy.eval()
