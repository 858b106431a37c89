"""Precision: packed linear maps in place of plain ones, and back (ARCHITECTURE section 8)."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import regard
from regard.core.attention import Attention, View
from regard.core.tap import taps
from regard.errors import UsageError
from regard.kit import Kit
from regard.loading import load
from regard.model import presets
from regard.model.batch import Batch
from regard.model.fronts import TextFront
from regard.model.model import Model
from regard.model.precision import PackedLinear, bfloat16_map, set_precision
from tests.properties.small_models import (
    CONFIGS,
    EVERY,
    VOCAB,
    assert_near,
    example,
    random_ids,
    run_alone,
    small_kit,
)

SHARE = 0.12  # of the norm of random logits


def attention_of(kit: Kit, layer: int) -> Attention:
    found = kit.model.get_submodule(f"decoder.blocks.{layer}.attn")
    assert isinstance(found, Attention)
    return found


@pytest.mark.parametrize("name", EVERY)
def test_every_model_computes_nearly_the_same(name: str) -> None:
    kit = small_kit(name)
    one = example(kit, 9, source=12)
    plain = run_alone(kit, one)
    set_precision(kit.model, "int8")
    packed = run_alone(kit, one)
    assert (packed - plain).norm() <= SHARE * plain.norm()
    assert packed.dtype == plain.dtype
    assert not torch.equal(packed, plain)  # it was not left as it was


def test_none_gives_the_plain_maps_back() -> None:
    kit, ids = small_kit("gpt2"), random_ids(7, 1)[None]
    before, plain = dict(kit.model.named_parameters()), kit.logits(ids)
    names = list(kit.model.state_dict())
    set_precision(kit.model, "int8")
    assert list(kit.model.state_dict()) == names
    set_precision(kit.model, "int8")
    set_precision(kit.model, None)
    after = dict(kit.model.named_parameters())
    assert before.keys() == after.keys() and all(before[n] is after[n] for n in before)
    assert torch.equal(kit.logits(ids), plain)
    assert not any(isinstance(module, PackedLinear) for module in kit.model.modules())
    kit.model.train().double()


def test_one_product_for_queries_keys_and_values_has_the_bits_of_three() -> None:
    for name in ("gpt2", "whisper"):  # whisper's keys have no bias
        kit = small_kit(name)
        set_precision(kit.model, "int8")
        attention = attention_of(kit, 0)
        assert attention.joint is not None
        x = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(1))
        assert torch.equal(attention(x, View()), attention(x, View(), source=x))


def test_models_that_hear_are_finer_behind_their_peaks() -> None:
    kit = small_kit("whisper")
    set_precision(kit.model, "int8")
    linear = {name: m for name, m in kit.model.named_modules() if isinstance(m, nn.Linear)}
    packed = {name: m for name, m in linear.items() if isinstance(m, PackedLinear)}
    plain = {name for name in linear if name.endswith("mlp.down") and name.startswith("decoder")}
    assert set(linear) - set(packed) == plain != set()
    fine = {name for name, m in packed.items() if m.packed.pack is bfloat16_map}
    ends = ("mlp.down", "attn.o")
    assert fine == {n for n in packed if n.startswith("encoder") and n.endswith(ends)} != set()
    down = kit.model.encoder.blocks[0].mlp.down
    x = torch.randn(3, down.in_features, generator=torch.Generator().manual_seed(0))
    x[:, 5] = 1000.0  # which a byte for each row would not survive
    error = (down(x) - nn.functional.linear(x, down.weight, down.bias)).abs().amax()
    assert 1000 * float(down.weight[:, 5].abs().amax()) / 256 > float(error)
    set_precision(kit.model, None)
    assert not any(isinstance(m, PackedLinear) for m in kit.model.modules())


def test_a_map_that_does_more_is_left_alone() -> None:
    class Doubled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    kit = small_kit("gpt2")
    attention_of(kit, 0).q = Doubled(32, 32)
    set_precision(kit.model, "int8")
    attention = attention_of(kit, 0)
    assert type(attention.q) is Doubled and attention.joint is None
    assert isinstance(attention.k, PackedLinear)


def test_a_tied_embedding_stays_in_float() -> None:
    kit = small_kit("gpt2")
    front, head = kit.model.front, kit.model.head.out
    assert isinstance(front, TextFront) and front.positions is not None
    table = front.tokens.weight
    assert head is not None and head.weight is table
    set_precision(kit.model, "int8")
    assert isinstance(kit.model.head.out, PackedLinear)
    assert kit.model.get_parameter("head.out.weight") is table
    seen = kit.run([3, 5], taps="embed")[1]["decoder.embed"]
    place = front.positions(torch.tensor([[0, 1]]))
    assert torch.equal(seen, table[[3, 5]][None] + place)


def test_taps_are_read_and_changed() -> None:
    kit, ids = small_kit("gpt2"), random_ids(6, 1)[None]
    names = list(taps(kit.model))
    plain = kit.run(ids, taps="blocks.*.attn.*")[1]
    set_precision(kit.model, "int8")
    assert list(taps(kit.model)) == names
    seen = kit.run(ids, taps="blocks.*.attn.*")[1]
    assert seen.keys() == plain.keys()
    for name, value in plain.items():
        if not name.endswith("scores"):  # −inf at what is masked
            assert_near(seen[name], value, 0.1)
    with kit.edit({"blocks.1.attn.z": regard.zero()}):
        out = kit.run(ids, taps="blocks.1.attn.out")[1]["decoder.blocks.1.attn.out"]
    bias = attention_of(kit, 1).o.bias
    assert torch.equal(out, bias.expand_as(out))  # nothing but the bias is left


def test_saving_writes_the_float_weights(tmp_path: Path) -> None:
    model = Model.fresh(presets.gpt2(32, 2, 4, vocab=VOCAB, length=64), seed=1)
    kit = Kit(model)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    set_precision(model, "int8")
    kit.save(tmp_path)
    after = load(tmp_path).model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    packed = load(tmp_path, precision="int8")
    ids = random_ids(9, 1)[None]
    assert torch.equal(packed.logits(ids), kit.logits(ids))


def test_a_copy_is_packed_too() -> None:
    kit, ids = small_kit("gpt2"), random_ids(6, 1)[None]
    set_precision(kit.model, "int8")
    first = kit.logits(ids)
    copied = deepcopy(kit.model)
    with torch.no_grad():
        attention_of(kit, 0).q.weight.zero_()
    assert torch.equal(copied(Batch(ids)), first)


def test_refusals() -> None:
    model = small_kit("gpt2").model
    with pytest.raises(UsageError, match=r"'int4'[\s\S]*int8 or None"):
        set_precision(model, "int4")
    with pytest.raises(UsageError, match=r"a model in training[\s\S]*model\.eval"):
        set_precision(model.train(), "int8")
    with pytest.raises(UsageError, match=r"float64[\s\S]*float32 weights"):
        set_precision(small_kit("gpt2").model.double(), "int8")
    with torch.device("meta"):  # stands for a GPU
        far = Model(CONFIGS["gpt2"]).eval()
    with pytest.raises(UsageError, match=r"on meta[\s\S]*a model on the CPU"):
        set_precision(far, "int8")
    set_precision(model.eval(), "int8")
    for move in (model.train, model.double, model.half):
        with pytest.raises(UsageError, match=r"int8[\s\S]*set_precision\(model, None\)"):
            move()


# A trained model --------------------------------------------------------------------------------


def sentences(count: int, seed: int) -> Tensor:
    """Each token follows from the one before, but for one in four that is drawn: (count, 24)."""
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(VOCAB, (count, 24), generator=draw)
    kept = torch.rand(count, 24, generator=draw) < 0.75
    for t in range(1, 24):
        ids[:, t] = torch.where(kept[:, t], (5 * ids[:, t - 1] + 7) % VOCAB, ids[:, t])
    return ids


@pytest.fixture(scope="module")
def trained() -> Kit:
    model = Model.fresh(presets.gpt2(64, 2, 4, vocab=VOCAB, length=96)).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(150):
        ids = sentences(32, step)
        loss = F.cross_entropy(model(Batch(ids[:, :-1])).flatten(0, 1), ids[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return Kit(model.eval())


def loss_of(kit: Kit) -> float:
    ids = sentences(64, 999)
    logits = kit.logits(ids[:, :-1])
    return float(F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()))


def test_a_trained_model_is_nearly_as_good(trained: Kit) -> None:
    loss, prompts = loss_of(trained), sentences(16, 77)[:, :8]
    assert loss < 2.2  # of log 61 = 4.1: it has learnt, and there is something to lose
    words = trained.generate(prompts, 16)
    assert isinstance(words, Tensor)
    set_precision(trained.model, "int8")
    found, now = trained.generate(prompts, 16), loss_of(trained)
    assert isinstance(found, Tensor)
    set_precision(trained.model, None)
    assert abs(now - loss) < 0.01  # perplexity within 1 %
    assert words.eq(found).float().mean() > 0.95


def test_packed_maps_refuse_gradients_and_plain_ones_have_them_again():
    model = Model.fresh(presets.gpt2(64, 1, 4, 40, 16))
    ids = torch.arange(6)[None]
    set_precision(model, "int8")
    logits = model(Batch(ids))  # to run is no request for gradients
    assert not logits.requires_grad
    front = model.front.tokens.weight.requires_grad_()
    with pytest.raises(UsageError, match="precision=None"):
        model(Batch(ids))
    front.requires_grad_(False)
    set_precision(model, None)
    model(Batch(ids)).sum().backward()
    assert all(p.grad is not None for p in model.parameters())
