"""Attention maps and patterns of models with bottlenecks."""

from __future__ import annotations

import torch

from regard.look.attention_maps import collect_maps
from regard.look.attention_patterns import patterns
from regard.look.hooks import HookedModel
from regard.model import presets
from regard.model.batch import Batch
from regard.model.model import Model
from regard.nvib.denoising import attach


def test_maps_leave_out_the_prior():
    """Of each query what it gives to the tokens; the rest of 1 is the prior's."""
    model = Model.fresh(presets.transformer(32, 2, 4, 50), seed=1)
    attach(model, "*.cross")
    attach(model, "encoder.blocks.1.attn")
    source, target = torch.randint(0, 50, (1, 6)), torch.randint(0, 50, (1, 4))
    hooked, batch = HookedModel(model), Batch(source, target)
    whole = patterns(hooked, batch)
    assert whole["decoder.blocks.0.cross"].shape == (1, 4, 4, 7)
    assert whole["encoder.blocks.1.attn"].shape == (1, 4, 6, 7)
    assert whole["encoder.blocks.0.attn"].shape == (1, 4, 6, 6)
    maps = collect_maps(hooked, batch, {"source": [*"abcdef"], "target": [*"abcd"]})
    (cross,) = (part for part in maps.maps if part.stack == "cross")
    expected = whole["decoder.blocks.1.cross"][0, 2, :, 1:].detach().numpy()
    assert cross.heads[1][2].width == 6 and expected.sum(-1).max() < 0.999
    assert abs(cross.heads[1][2].dense() - expected).max() < 1 / 255
