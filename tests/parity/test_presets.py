"""Each preset at full size, without memory: transformers builds as many tensors of each shape."""

from collections import Counter

import pytest
import torch

from regard.interop.families import bind
from regard.interop.table import moves, write_config
from regard.model.model import Model
from regard.model.presets import PRESETS, architecture, preset
from tests.parity import compare


@pytest.mark.parametrize("name", [name for name in PRESETS if architecture(name)])
def test_full_size(name):
    binding = bind(architecture(name))
    cls = compare.their_class(binding.architecture)
    with compare.listening() as messages, torch.device("meta"):
        theirs = cls(cls.config_class.from_dict(write_config(binding, preset(name))))
        ours = Model(preset(name))
    assert not messages
    parameters = dict(ours.named_parameters())
    found: Counter[torch.Size] = Counter()
    for move in moves(binding, ours)[0]:
        found.update(t.shape for t in move.save([parameters[n] for n in move.ours]))
    marian = binding.table.family == "marian"  # fixed positions, and a bias that is a buffer
    fixed = "embed_positions" if marian else "none"
    expected = Counter(p.shape for n, p in theirs.named_parameters() if fixed not in n)
    expected.update([theirs.final_logits_bias.shape] if marian else [])
    assert found == expected and found.total() > 50
