"""Recurrent encoders and decoders of sentence pairs (Cho 2014; Sutskever 2014; Bahdanau 2015).

Without attention the decoder sees one vector z* of the source, the same at every step; with it, at
each step a mean of all states of the source, weighed anew.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from regard.core.tap import Taps
from regard.model.cells import CELL_TYPES, Cell, State, StepTaps, chosen, compact, take
from regard.model.config import RecurrentConfig


class Additive(nn.Module):
    """e_ij = v · tanh(W s_{i−1} + U h_j), weights = softmax_j, context = Σ_j weights h_j."""

    heads = 1

    def __init__(self, asking: int, seen: int, dim: int) -> None:
        super().__init__()
        self.q = nn.Linear(asking, dim, bias=False)
        self.k = nn.Linear(seen, dim, bias=False)
        self.v = nn.Linear(dim, 1, bias=False)
        self.at = Taps("scores", "pattern")

    def forward(
        self, s: Tensor, keys: Tensor, states: Tensor, real: Tensor | None, heard: StepTaps
    ) -> Tensor:
        """s (A · g, n), keys U h (A, S, a), states h (A, S, m), real (A, S) → contexts (A · g, m).

        The g rows of a source, the beams of a sentence, stand side by side.
        """
        asking = self.q(s).unflatten(0, (len(keys), -1))  # (A, g, a)
        e = self.v((asking[:, :, None] + keys[:, None]).tanh())[..., 0]  # (A, g, S)
        if real is not None:
            e = e.masked_fill(~real[:, None], -torch.inf)
        e = heard(self.at.scores, e.flatten(0, 1), head=True)
        weights = heard(self.at.pattern, e.softmax(-1), head=True)  # (A · g, S)
        context: Tensor = weights.unflatten(0, (len(keys), -1)) @ states  # (A, g, m)
        return context.flatten(0, 1)


class Encoder(nn.Module):
    """Reads a source from left to right, and where attention looks at all of it, back as well."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        make, hidden = CELL_TYPES[config.cell], config.hidden
        self.both = config.attention == "additive"
        dims = [config.front.dim, *[config.source_width] * (config.depth - 1)]
        self.ahead: Any = nn.ModuleList(make(wide, hidden) for wide in dims)
        self.back: Any = nn.ModuleList(make(wide, hidden) for wide in dims if self.both)
        self.dropout, self.at = nn.Dropout(0.0), Taps("embed")

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """x (B, S, D) → all states (B, S, 2 n), or the last one z* (B, 1, n)."""
        x, lengths, order = compact(self.at.embed(x), real)
        last = x
        for layer, cell in enumerate(self.ahead):
            out, state = cell.read(x, cell.start(len(x)), lengths)
            last = state[0][:, None]
            if self.both:
                # The order (B, S) that turns each row round and leaves the padding behind it.
                steps = torch.arange(x.shape[1], device=x.device).expand(len(x), -1)
                ends = torch.full_like(steps[:, :1], x.shape[1])
                ends = ends if lengths is None else lengths[:, None]
                turn = torch.where(steps < ends, ends - 1 - steps, steps)
                other = self.back[layer]
                behind, _ = other.read(take(x, turn), other.start(len(x)), lengths)
                out = torch.cat([out, take(behind, turn)], -1)
            x = self.dropout(out)
        if not self.both:
            return last
        return x if order is None else take(x, order)


class Decoder(nn.Module):
    """s_i = f(s_{i−1}, [y_{i−1}; c_i]); what it says is tanh(W [s_i; c_i; y_{i−1}])."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        hidden, width, dim = config.hidden, config.source_width, config.width
        self.first = nn.Linear(hidden, hidden)  # s_0 = tanh(W h_1 read backwards), or of z*
        self.cross = Additive(hidden, width, hidden) if config.attention == "additive" else None
        self.cells: Any = nn.ModuleList([CELL_TYPES[config.cell](dim + width, hidden)])
        self.mix = nn.Linear(hidden + width + dim, dim)
        self.dropout, self.at = nn.Dropout(0.0), Taps("embed")

    @property
    def cell(self) -> Cell:
        """The one layer."""
        return self.cells[0]  # type: ignore[no-any-return]

    def start(self, source: Tensor, real: Tensor | None) -> list[State]:
        """The state before the first word, of a source (A, S, m)."""
        seen = source[:, 0]
        if real is not None and self.cross is not None:  # padding may stand on the left
            seen = source[torch.arange(len(source), device=source.device), real.int().argmax(-1)]
        h = self.first(seen[:, -self.cell.hidden_size :]).tanh()
        return [(h, *self.cell.start(len(h))[1:])]

    def forward(
        self,
        x: Tensor,
        states: list[State],
        real: Tensor | None,
        source: Tensor,
        source_real: Tensor | None = None,
        keys: Tensor | None = None,
    ) -> tuple[Tensor, list[State]]:
        """x (N, T, D) after `states` → (N, T, D) and the states after it.

        `source` is (A, S, m), with padding where `source_real` (A, S) is False; `keys` are U h
        (A, S, a), computed once per source.
        """
        x, (state,) = self.at.embed(x), states
        if self.cross is None:  # the same context at every step: all steps in one kernel
            context = source.repeat_interleave(len(x) // len(source), 0).expand(-1, x.shape[1], -1)
            both, lengths, order = compact(torch.cat([x, context], -1), real)
            out, state = self.cell.read(both, state, lengths)
            out = out if order is None else take(out, order)
        else:  # where to look follows from the state before: step by step
            assert keys is not None
            heard, states_seen, contexts = StepTaps(x.shape[1]), list[Tensor](), list[Tensor]()
            for t in range(x.shape[1]):
                now = self.cross(state[0], keys, source, source_real, heard)
                new = self.cell.one(torch.cat([x[:, t], now], -1), state, heard)
                state = new if real is None else chosen(real[:, t], new, state)
                states_seen.append(new[0])
                contexts.append(now)
            out, context = torch.stack(states_seen, 1), torch.stack(contexts, 1)
        return self.mix(self.dropout(torch.cat([out, context, x], -1))).tanh(), [state]
