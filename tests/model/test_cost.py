"""Parameters, FLOPs and memory by formula, against the model itself."""

from __future__ import annotations

import weakref
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from regard.errors import UsageError
from regard.model import presets
from regard.model.batch import Batch
from regard.model.config import HeadConfig, ImageConfig
from regard.model.cost import (
    EMBED,
    HEAD,
    LOOK,
    NORM,
    RunShape,
    count_flops,
    count_memory,
    count_params,
    fit_batch,
    passes,
)
from regard.model.model import Model
from regard.model.presets import PRESETS, preset

SMALL = {
    "gpt2": presets.gpt2(32, 3, 4, vocab=300, length=64),
    "llama": presets.llama(32, 3, 4, 2, 96, 300),
    "bert": presets.bert(32, 3, 4, vocab=300, length=64),
    "t5": presets.t5(32, 3, 4, 96, head_dim=8, vocab=300),
    "transformer": presets.transformer(32, 3, 4, vocab=300),
    "vit": presets.vit(32, 3, 4, patch=4, side=16, classes=7),
}


def on_meta(config):
    with torch.device("meta"):
        return Model(config)


@pytest.mark.parametrize("name", PRESETS)
def test_parameters_are_those_of_the_model(name):
    made = sum(parameter.numel() for parameter in on_meta(preset(name)).parameters())
    assert count_params(preset(name)) == made


def test_published_sizes():
    """The anchors of the specification."""
    count = lambda config: count_params(config)  # noqa: E731
    assert count(preset("gpt2")) == 124_439_808
    pooled = HeadConfig(take="first", transform="tanh")
    assert count(replace(preset("bert-base"), head=pooled)) == 109_482_240
    assert count(preset("vit-b16")) == 86_567_656
    bare = HeadConfig(37000, tied=True)  # without Marian's bias on the scores
    assert count(replace(preset("transformer-base"), head=bare)) == pytest.approx(63.08e6, rel=1e-4)
    assert count(replace(preset("transformer-big"), head=bare)) == pytest.approx(214.2e6, rel=1e-3)


def test_a_convolutional_stem():
    config = preset("vit-b16")
    config = replace(config, front=replace(config.front, stem="conv", position="2d", cls=False))
    made = sum(parameter.numel() for parameter in on_meta(config).parameters())
    assert isinstance(config.front, ImageConfig) and count_params(config) == made


def batch_of(config, run):
    if config.front.kind == "image":
        return Batch(torch.rand(run.batch, 3, config.front.height, config.front.width))
    ids = torch.randint(300, (run.batch, run.length))
    return Batch(ids, torch.randint(300, (run.batch, run.length)) if config.target else None)


@pytest.mark.parametrize("name", SMALL)
def test_flops_are_those_that_torch_counts(name):
    config, run = SMALL[name], RunShape(3, 20, 20)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        Model.fresh(config)(batch_of(config, run))
    found = count_flops(config, run)
    uncounted = found[NORM] + found[LOOK]  # torch leaves the fused kernel of the CPU out
    uncounted += found[EMBED] if config.front.kind == "text" else 0
    assert sum(found.values()) - uncounted == counter.get_total_flops()


def test_flops_of_a_token_as_the_rule_of_thumb_has_them():
    """2 · parameters + 4 · depth · N · D for each token (specification, section 9)."""
    config, run = preset("gpt2"), RunShape(1, 1024)
    rule = 2 * 124_439_808 + 4 * 12 * 1024 * 768
    assert sum(count_flops(config, run).values()) / 1024 == pytest.approx(rule, rel=0.01)
    assert sum(count_flops(config, run, train=True).values()) / 1024 == pytest.approx(
        3 * rule, rel=0.01
    )
    assert count_flops(config, run)[LOOK] == 12 * 4 * 1024**2 * 768
    assert count_flops(config, run)[HEAD] == 2 * 1024 * 768 * 50257


class Live(TorchDispatchMode):
    """Counts the bytes of all tensors that exist at once while it is on."""

    def __init__(self):
        super().__init__()
        self.now = self.peak = 0
        self.known = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                self.meet(tensor.untyped_storage())
        return out

    def meet(self, storage):
        key = storage._cdata
        if key in self.known:
            return
        self.known.add(key)
        self.now += storage.nbytes()
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self.leave, key, storage.nbytes())

    def leave(self, key, size):
        self.known.discard(key)
        self.now -= size


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("run", [RunShape(8, 48, 48), RunShape(2, 20, 20)])
def test_peak_of_a_forward_pass(name, run):
    config = SMALL[name]
    model, batch = Model.fresh(config), batch_of(config, run)
    with torch.no_grad(), Live() as live:
        for parameter in model.parameters():  # they are there before
            live.known.add(parameter.untyped_storage()._cdata)
        model(batch)
    found = count_memory(config, run)
    assert found.peak - found.weights == pytest.approx(live.peak, rel=0.15)


@pytest.mark.parametrize("name", SMALL)
def test_peak_of_a_training_step(name):
    config, run = SMALL[name], RunShape(8, 48, 48)
    model, batch = Model.fresh(config).train(), batch_of(config, run)
    optimiser = torch.optim.AdamW(model.parameters())
    live = Live()

    def step():
        scores = model(batch)
        labels = torch.zeros(scores.shape[:-1], dtype=torch.long).flatten()
        loss = F.cross_entropy(scores.flatten(0, -2), labels)
        del scores
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()

    with live:
        for parameter in model.parameters():
            live.known.add(parameter.untyped_storage()._cdata)
        step()
        step()
    found = count_memory(config, run, train=True)
    assert found.peak - found.weights == pytest.approx(live.peak, rel=0.15)


def test_the_largest_that_fits():
    config, run = preset("gpt2"), RunShape(64, 1024)
    for limit in (4 * 2**30, 2**30):
        fit = fit_batch(config, run, limit)
        assert fit is not None and count_memory(config, fit).peak <= limit
        assert count_memory(config, replace(fit, batch=fit.batch + 1)).peak > limit
        assert fit.length == 1024
    short = fit_batch(config, run, 540 * 2**20)
    assert short is not None and (short.batch, 1 <= short.length < 1024) == (1, True)
    assert fit_batch(config, run, 400 * 2**20) is None


def test_a_length_past_a_learned_table_is_refused():
    with pytest.raises(UsageError, match="at most 1,024"):
        passes(preset("gpt2"), RunShape(1, 1025))
    assert passes(preset("t5-base"), RunShape(1, 100_000, 7))[0].tokens == 7
