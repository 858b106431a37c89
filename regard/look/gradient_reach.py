"""How far back a loss reaches: its gradient by the state so many steps before it.

Each step of a tanh RNN multiplies the gradient by diag(1 − h²) U, so that it vanishes or explodes
with the lag (Hochreiter 1991; Bengio et al. 1994); an LSTM's cell multiplies it by the forget gate,
which may stay near 1; a Transformer looks back in one step, whatever the distance.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.ambient import current, track
from regard.look.hooks import HookedModel
from regard.look.results import GradientCurve, GradientReach
from regard.model.batch import Batch
from regard.model.model import Model
from regard.model.recurrent import Past, Recurrent, model_class
from regard.train.config import ShapeConfig

FIRST = "decoder.blocks.0.resid_pre"
KINDS = ("mlp", "rnn", "lstm", "gru", "transformer")
VOCAB = 64  # tokens of fresh models
DOING = "following gradients"


def compare_fresh(
    kinds: Sequence[str], length: int, rows: int, dim: int, depth: int
) -> GradientReach:
    """New models of one size, the same random tokens for each."""
    seed = current().seed
    ids = torch.randint(VOCAB, (rows, length + 1), generator=torch.Generator().manual_seed(seed))
    curves = []
    for kind in track(kinds, DOING):
        family: Any = "llama" if kind == "transformer" else kind
        heads = next(n for n in (4, 2, 1) if dim % n == 0)
        config, _ = ShapeConfig(family, dim, depth, heads=heads).resolve("lm").build(VOCAB, length)
        model = model_class(config).fresh(config, seed)
        curves.append(GradientCurve(kind, gradient_by_lag(model, ids)))
    return GradientReach(length, list(range(1, length)), curves)


def gradient_by_lag(model: Model, ids: Tensor) -> list[float]:
    """Mean over rows of |∂loss_T / ∂state_t| at lags T − t = 1, 2, …, for ids (B, T + 1).

    The loss is that of the last id. The state is all that a recurrent model takes from step t to
    the next, of an LSTM h and c, of all layers; of a Transformer it is the vector of token t that
    the first block reads. In float64, where the gradient of many steps does not underflow.
    """
    model = deepcopy(model).double().eval().requires_grad_()
    states: Sequence[Tensor]
    with torch.enable_grad():
        if isinstance(model, Recurrent):
            scores, states = follow_states(model, ids[:, :-1])
        else:
            logits, seen = HookedModel(model).run(Batch(ids[:, :-1]), FIRST)
            scores, states = logits[:, -1], list(seen.values())
        loss = F.cross_entropy(scores, ids[:, -1], reduction="sum")  # rows do not meet
        slopes = torch.autograd.grad(loss, states)
    if not isinstance(model, Recurrent):
        slopes = slopes[0].unbind(1)[:-1]  # of each token but the last
    norms = [part.flatten(1).norm(dim=-1).mean() for part in slopes]  # of each t
    return torch.stack(norms).flip(0).tolist()


def follow_states(model: Model, ids: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Scores (B, V) after ids (B, T), and the state (B, all parts) after each but the last.

    All parts of a state are one tensor, through which everything that comes later passes.
    """
    past = model.cache(len(ids), 0)
    assert isinstance(past, Past)
    states = list[Tensor]()
    for t in range(ids.shape[1] - 1):
        model.hidden(Batch(ids[:, t : t + 1]), past)
        held = [part for state in past.states for part in state]
        states.append(torch.cat(held, 1))
        parts = iter(states[-1].split([part.shape[1] for part in held], 1))
        past.states = [tuple(next(parts) for _ in state) for state in past.states]
    return model.score(model.hidden(Batch(ids[:, -1:]), past))[:, -1], states
