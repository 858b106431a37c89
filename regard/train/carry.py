"""Carry: the state that a recurrent model takes from batch to batch (truncated BPTT).

Values go on, gradients stop: backpropagation reaches as far back as a window (Williams and Peng
1990). Where rows do not follow those of the batch before, the state begins anew; a Transformer has
none. Checkpoints hold it, so that a resumed run goes on with the same bits.
"""

from __future__ import annotations

from torch import Tensor

from regard.data.batch import Examples
from regard.model.model import Model
from regard.model.recurrent import Past
from regard.train.checkpoint import join_generators, own_generators
from regard.train.world import World

FILE = "carried"


class Carry:
    """The state of the rows of one source."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.past: Past | None = None

    def take(self, examples: Examples) -> Past | None:
        """The state before this batch; the model leaves in it the state after."""
        past, rows = self.past, len(examples.labels)
        if past is not None and examples.follows and past.batch == rows:
            past.detach()
        else:
            found = self.model.carry(rows)
            assert found is None or isinstance(found, Past)
            self.past = found
        return self.past

    def tensors(self, world: World) -> dict[str, dict[str, Tensor]]:
        """A file for a checkpoint, with the states of all processes; none where none is carried."""
        states = [] if self.past is None else self.past.states
        own = {
            f"{layer}-{part}": tensor.detach().cpu().contiguous()
            for layer, state in enumerate(states)
            for part, tensor in enumerate(state)
        }
        held, _ = join_generators([(named, {}) for named in world.all(own)])
        return {FILE: held} if held else {}

    def restore(self, files: dict[str, dict[str, Tensor]], world: World) -> None:
        """The inverse, for as many processes as there were."""
        own = own_generators(files.get(FILE, {}), world.rank)
        if not own:
            return
        rows = len(next(iter(own.values())))
        past = self.model.carry(rows)
        assert isinstance(past, Past)
        past.states = [
            tuple(own[f"{layer}-{part}"].to(old) for part, old in enumerate(state))
            for layer, state in enumerate(past.states)
        ]
        self.past = past
