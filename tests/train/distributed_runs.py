"""Runs of several processes: `python -m tests.train.distributed_runs FOLDER KIND…`."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import torch

from regard.errors import RegardError
from regard.train.checkpoint import weight_hash
from regard.train.distributed import joined, whole_model
from regard.train.trainer import Interrupted
from tests.train.runs import Killed, kill_at, load_model, make_trainer

EVEN = dict(steps=9, accumulate=3, clip=0.5, ema=0.9, dropout=0.0, eval_every=4, save_every=4)
"""What a run of one process must agree with."""
CUT = 7  # the step in which runs are killed


class Runs:
    """Starts runs in a folder that all processes share; each has data files of its own."""

    def __init__(self, world, folder):
        self.world, self.folder = world, folder
        self.own = folder / f"data-{world.rank}"
        self.own.mkdir()

    def make(self, kind, name, job=None, **changes):
        run = str(self.folder / name)  # absolute, so not below the data
        given = {"world": self.world, **(job or {})}
        return make_trainer(kind, self.own, run, job=given, **(EVEN | changes))

    def cut(self, kind, name, **changes):
        """Die in the middle of a step."""
        trainer = kill_at(self.make(kind, name, **changes), CUT, micro=1)
        try:
            trainer.run()
        except Killed:
            pass

    def resume(self, kind, name, **changes):
        """Go on to the end; the hash of the weights."""
        trainer = self.make(kind, name, **changes)
        trainer.restore(load_model)
        began = trainer.state.step
        trainer.run()
        return began, self.hash(trainer)

    def hash(self, trainer):
        made = whole_model(trainer.model, self.world)
        return weight_hash(made) if self.world.leads else None


def train(runs, kind, shard):
    """Whole and cut runs of one kind, with dropout and without."""
    name = f"{kind}-{'shard' if shard else 'copy'}"
    whole = runs.make(kind, name, shard=shard)
    whole.run()
    runs.cut(kind, f"{name}-left", shard=shard)  # for one process to go on with
    dropped = runs.make(kind, f"{name}-drop", shard=shard, dropout=0.1)
    dropped.run()
    runs.cut(kind, f"{name}-again", shard=shard, dropout=0.1)
    began, ended = runs.resume(kind, f"{name}-again", shard=shard, dropout=0.1)
    taken = runs.resume(kind, f"one-{kind}-{shard}", shard=shard)
    return {"hash": runs.hash(dropped), "began": began, "resumed": ended, "taken": taken}


def stop(runs):
    """A signal to the second process alone."""

    def poke(*batch):
        if runs.world.rank == 1 and trainer.state.step == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return loss(*batch)

    trainer = runs.make("lm", "stopped", eval_every=0)
    loss, trainer.objective.loss = trainer.objective.loss, poke
    try:
        trainer.run()
    except Interrupted:
        return trainer.state.step
    return None


def spoil(runs, shard):
    """A number that is not finite, in the rows of the second process alone."""
    trainer = runs.make("lm", f"spoilt-{shard}", eval_every=0, shard=shard)
    trainer.model.decoder.blocks[1].mlp.down.register_forward_hook(
        lambda module, given, out: (
            out * torch.nan if runs.world.rank == 1 and trainer.state.step == 2 else out
        )
    )
    try:
        trainer.run()
    except RegardError as error:
        return str(error)
    return None


def lead(runs):
    """What fails on the first process ends the others too, and without a word."""

    def fail():
        assert runs.world.leads
        raise RegardError("preparing", "nothing")

    try:
        runs.world.lead(fail)
    except (RegardError, SystemExit) as error:
        return repr(error)
    return None


def main(folder, kinds):
    torch.set_num_threads(1)
    with joined("cpu") as world:
        runs = Runs(world, folder)
        found = {f"{k}-{shard}": train(runs, k, shard) for k in kinds for shard in (False, True)}
        found |= {"stop": stop(runs), "lead": lead(runs)}
        found |= {f"spoil-{shard}": spoil(runs, shard) for shard in (False, True)}
        found["files"] = world.lead(lambda: world.rank)
    (folder / f"found-{world.rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
