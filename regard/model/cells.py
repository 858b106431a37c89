"""Recurrent cells: tanh, LSTM and GRU, each with torch's weights, kernel and, written out, steps.

A cell is torch's module with taps: `weight_ih_l0` (gates · n, D) and the others have torch's names
and order, so weights move both ways. It runs in torch's fused kernel unless somebody listens to a
tap; then it runs step by step as written here. State: (h,), or (h, c) in an LSTM, each (B, n); of
the MLP that came before them the last words.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.core.tap import Tap, Taps
from regard.model.config import CELLS

State = tuple[Tensor, ...]
ONE_STEP = {"RNN_TANH": torch.rnn_tanh_cell, "LSTM": torch.lstm_cell, "GRU": torch.gru_cell}
WINDOW = 5  # words that an MLP looks at


class Cell(nn.Module):
    """What the cells share: one layer, read in one direction."""

    at: Taps
    mode: str
    hidden_size: int
    weight_ih_l0: Tensor
    weight_hh_l0: Tensor
    bias_ih_l0: Tensor
    bias_hh_l0: Tensor
    parts = 1  # tensors of a state

    def start(self, rows: int) -> State:
        """Zeros, for rows that have read nothing."""
        return (self.weight_hh_l0.new_zeros(rows, self.hidden_size),) * self.parts

    @property
    def heard(self) -> bool:
        """Whether somebody listens to a tap."""
        return any(tap.fn is not None for tap in vars(self.at).values())

    def read(self, x: Tensor, state: State, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        """x (B, T, D) after `state` → states h (B, T, n) and the last; lengths (B,) leave out ends.

        A row of length 0 keeps its state.
        """
        if self.heard:  # step by step, with taps
            heard, written = StepTaps(x.shape[1]), []
            for t in range(x.shape[1]):
                new = self.step(x[:, t], state, heard)
                state = new if lengths is None else chosen(lengths > t, new, state)
                written.append(new[0])
            none = x.new_zeros(len(x), 0, self.hidden_size)
            return torch.stack(written, 1) if written else none, state
        packed: Any = x
        if lengths is not None:
            short = lengths.clamp(min=1).cpu()
            packed = pack_padded_sequence(x, short, batch_first=True, enforce_sorted=False)
        before = tuple(part[None] for part in state)
        out, after = self(packed, before if self.parts > 1 else before[0])
        new = tuple(part[0] for part in (after if self.parts > 1 else (after,)))
        if lengths is not None:
            out, _ = pad_packed_sequence(out, batch_first=True, total_length=x.shape[1])
            new = chosen(lengths > 0, new, state)
        return out, new

    def one(self, x: Tensor, state: State, heard: StepTaps) -> State:
        """One step, in torch's kernel unless somebody listens."""
        if self.heard:
            return self.step(x, state, heard)
        kernel: Any = ONE_STEP[self.mode]
        before: Any = state if self.parts > 1 else state[0]
        weights = self.weight_ih_l0, self.weight_hh_l0, self.bias_ih_l0, self.bias_hh_l0
        after: Any = kernel(x, before, *weights)
        return tuple(after) if self.parts > 1 else (after,)

    def maps(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """W x + b and U h + b' of all gates, each (B, gates · n)."""
        own = F.linear(x, self.weight_ih_l0, self.bias_ih_l0)
        return own, F.linear(h, self.weight_hh_l0, self.bias_hh_l0)

    def step(self, x: Tensor, state: State, heard: StepTaps) -> State:
        """One step: x (B, D) and the state before it → the state after it."""
        raise NotImplementedError


class StepTaps:
    """Shows taps what a recurrence has computed so far.

    A tap is given (B, T, n) at every step, zeros at steps to come, and its answer at this step is
    used. So an edit acts inside the recurrence, and who reads has all steps after the last one.
    """

    def __init__(self, steps: int) -> None:
        self.seen: dict[Tap, list[Tensor]] = {}
        self.steps = steps

    def __call__(self, tap: Tap, now: Tensor, head: bool = False) -> Tensor:
        """What the tap makes of (B, n); of a pattern it is shown (B, H = 1, T, S)."""
        if tap.fn is None:
            return now
        past = self.seen.setdefault(tap, [])
        past.append(now)
        to_come = [torch.zeros_like(now)] * (self.steps - len(past))
        whole = torch.stack([*past, *to_come], 1)
        shown = tap(whole[:, None])[:, 0] if head else tap(whole)
        return shown[:, len(past) - 1]


def compact(x: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Rows with their tokens first and padding last, their lengths, and the way back."""
    if real is None:
        return x, None, None
    order = (~real).long().argsort(dim=1, stable=True)  # (B, T)
    return take(x, order), real.sum(1), order.argsort(1)


def take(x: Tensor, order: Tensor) -> Tensor:
    """Columns of each row of (B, T, D) in another order."""
    return x.gather(1, order[:, :, None].expand(-1, -1, x.shape[2]))


def chosen(which: Tensor, new: State, old: State) -> State:
    """The new state where `which` (B,), else the old one."""
    return tuple(torch.where(which[:, None], a, b) for a, b in zip(new, old, strict=True))


class TanhCell(nn.RNN, Cell):
    """h' = tanh(W x + U h + b) (Elman 1990)."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__(dim, hidden, batch_first=True)
        self.at = Taps("state")

    def step(self, x: Tensor, state: State, heard: StepTaps) -> State:
        """One step."""
        own, other = self.maps(x, state[0])
        return (heard(self.at.state, (own + other).tanh()),)


class LSTMCell(nn.LSTM, Cell):
    """c' = f c + i g, h' = o tanh(c') (Hochreiter and Schmidhuber 1997; Gers 2000)."""

    parts = 2

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__(dim, hidden, batch_first=True)
        self.at = Taps("input", "forget", "candidate", "output", "cell", "state")

    def step(self, x: Tensor, state: State, heard: StepTaps) -> State:
        """One step."""
        own, other = self.maps(x, state[0])
        i, f, g, o = (own + other).chunk(4, -1)
        i, f = heard(self.at.input, i.sigmoid()), heard(self.at.forget, f.sigmoid())
        g, o = heard(self.at.candidate, g.tanh()), heard(self.at.output, o.sigmoid())
        c = heard(self.at.cell, f * state[1] + i * g)
        return heard(self.at.state, o * c.tanh()), c


class GRUCell(nn.GRU, Cell):
    """h' = (1 − z) n + z h, n = tanh(W x + r · U h) (Cho et al. 2014, as cuDNN computes it)."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__(dim, hidden, batch_first=True)
        self.at = Taps("reset", "update", "candidate", "state")

    def step(self, x: Tensor, state: State, heard: StepTaps) -> State:
        """One step."""
        (h,) = state
        own, other = (part.chunk(3, -1) for part in self.maps(x, h))
        r = heard(self.at.reset, (own[0] + other[0]).sigmoid())
        z = heard(self.at.update, (own[1] + other[1]).sigmoid())
        n = heard(self.at.candidate, (own[2] + r * other[2]).tanh())
        return (heard(self.at.state, (1 - z) * n + z * h),)


class WindowCell(Cell):
    """h = tanh(W [x of the last 5 words] + b): an MLP; zeros stand before a text (Bengio 2003)."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.dim, self.hidden_size = dim, hidden
        self.hide, self.at = nn.Linear(WINDOW * dim, hidden), Taps("state")

    def start(self, rows: int) -> State:
        """The words before the next one, each (D,), side by side."""
        return (self.hide.weight.new_zeros(rows, (WINDOW - 1) * self.dim),)

    def read(self, x: Tensor, state: State, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        """All steps at once: none waits for another."""
        whole = torch.cat([state[0].unflatten(1, (WINDOW - 1, self.dim)), x], 1)
        wide = whole.unfold(1, WINDOW, 1).transpose(2, 3).flatten(2)  # (B, T, WINDOW · D)
        sizes = x.new_full((len(x),), x.shape[1], dtype=torch.long) if lengths is None else lengths
        last = sizes[:, None] + torch.arange(WINDOW - 1, device=x.device)
        kept = whole.gather(1, last[:, :, None].expand(-1, -1, self.dim))
        return self.at.state(self.hide(wide).tanh()), (kept.flatten(1),)


CELL_TYPES = dict(zip(CELLS, (TanhCell, LSTMCell, GRUCell, WindowCell), strict=True))
