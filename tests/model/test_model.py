"""Model: encoder, decoder and encoder-decoder from one core (MISSION #51)."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from regard.core.attention import Attention
from regard.core.block import Block
from regard.core.tap import taps
from regard.errors import DataError, UsageError
from regard.model import presets
from regard.model.batch import Batch
from regard.model.config import HeadConfig, ModelConfig
from regard.model.model import Head, Model, empty_model
from tests.properties.small_models import (
    CONFIGS,
    EVERY,
    PAIRS,
    VOCAB,
    assert_near,
    example,
    random_ids,
    randomise,
    run_alone,
    small_kit,
)

IDS = torch.arange(6).view(2, 3)


@pytest.mark.parametrize("name", EVERY)
def test_one_layer_for_all(name):
    model = Model(CONFIGS[name])
    blocks = [part for part in model.modules() if type(part) is Block]
    stacks = [s for s in (model.config.encoder, model.config.decoder) if s is not None]
    assert len(blocks) == sum(stack.depth for stack in stacks)
    crosses = sum(stack.depth for stack in stacks if stack.block.cross)
    assert sum(type(part) is Attention for part in model.modules()) == len(blocks) + crosses


def test_tied_and_shared_weights_are_one_parameter():
    model = Model(CONFIGS["transformer"])
    assert model.head.out.weight is model.front.tokens.weight is model.target.tokens.weight
    assert len([n for n, p in model.named_parameters() if p.shape == (VOCAB, 32)]) == 1
    free = Model(replace(CONFIGS["gpt2"], head=HeadConfig(VOCAB)))
    assert free.head.out.weight is not free.front.tokens.weight


def test_forward_is_hidden_then_score():
    kit = small_kit("bert")
    batch = kit.batch(IDS)
    with torch.no_grad():
        assert torch.equal(kit.model(batch), kit.model.score(kit.model.hidden(batch)))


def test_encode_then_decode_is_forward():
    kit = small_kit("transformer-pre")
    model, target = kit.model, IDS + 7
    mask = torch.tensor([[True, True, False], [True, True, True]])
    with torch.no_grad():
        memory = model.encode(Batch(IDS, mask=mask))
        found = model.score(model.decode(Batch(target), memory))
        assert torch.equal(found, model(Batch(IDS, target, source_mask=mask)))


@pytest.mark.parametrize("name", PAIRS)
def test_the_source_matters_and_its_padding_does_not(name):
    kit = small_kit(name)
    one = example(kit, 5, 1, 8)
    before = run_alone(kit, one)
    inputs = one.inputs.clone()
    inputs[6] = (inputs[6] + 1) % VOCAB
    real = torch.arange(8)[None] < 6
    assert not torch.equal(run_alone(kit, replace(one, inputs=inputs)), before)
    found = [
        kit.logits(ids[None], one.target[None], source_mask=real) for ids in (one.inputs, inputs)
    ]
    assert torch.equal(*found)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("strict", [False, True])
def test_an_empty_source_is_the_same_alone_and_in_a_batch(name, strict):
    """No source token at all: cross-attention answers with its bias, and nothing is NaN."""
    kit = small_kit(name)
    one = example(kit, 4, 1, 6)
    source, target = one.inputs.expand(2, 6), one.target.expand(2, 4)
    real = torch.tensor([[True] * 6, [False] * 6])
    found = kit.logits(source, target, source_mask=real, strict=strict)
    assert found.isfinite().all()
    assert_near(found[0], run_alone(kit, one))
    alone = kit.logits(source[:1, :0], target[:1], strict=strict)[0]
    assert_near(found[1], alone)
    assert not torch.equal(found[0], found[1])


def test_targets_without_a_source_document_see_nothing_in_both_modes():
    kit = small_kit("transformer")
    one = example(kit, 6, 1, 5)
    documents = torch.tensor([[0, 0, 0, 1, 1, 1]])  # the source has document 0 only
    given = {"documents": documents, "source_documents": torch.zeros(1, 5, dtype=torch.long)}
    both = [
        kit.logits(one.inputs[None], one.target[None], strict=strict, **given)
        for strict in (False, True)
    ]
    assert_near(*both)
    alone = kit.logits(one.inputs[None, :0], one.target[None, 3:])
    assert_near(both[0][:, 3:], alone)


@pytest.mark.parametrize("name", ["gpt2", "window", "alibi", "bert", "transformer"])
@pytest.mark.parametrize("explicit", [False, True])
def test_padding_is_never_nan_and_its_gradients_are_finite(name, explicit):
    """Padding on the left sees no key at all in a causal stack, whoever computes the softmax."""
    kit = small_kit(name)
    ids = torch.arange(12).view(2, 6)
    mask = torch.tensor([[False, False, True, True, True, True], [True] * 6])
    target = None if kit.model.config.target is None else ids
    more = {} if target is None else {"source_mask": torch.tensor([[False] * 6, [True] * 6])}
    if explicit:
        for tap in (tap for path, tap in taps(kit.model).items() if path.endswith(".pattern")):
            tap.fn = lambda x: x
    logits = kit.model(kit.batch(ids, target, mask=mask, **more))
    assert logits.isfinite().all()
    logits[mask].square().sum().backward()
    assert all(p.grad.isfinite().all() for p in kit.model.parameters() if p.grad is not None)
    if kit.model.decoder is not None and target is None:
        documents = torch.zeros_like(ids)
        with torch.no_grad():
            cache = kit.cache(2, 6)
            found = kit.model(kit.batch(ids, mask=mask, documents=documents), cache)
        assert found.isfinite().all()


def test_one_token_and_one_head():
    config = CONFIGS["gpt2"]
    block = replace(config.decoder.block, heads=1)
    kit = small_kit("gpt2", decoder=replace(config.decoder, block=block))
    logits = kit.logits(torch.tensor([[4]]))
    assert logits.shape == (1, 1, VOCAB) and logits.isfinite().all()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 3e-2), (torch.float16, 2e-2)])
@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "t5", "vit", "whisper"])
def test_narrow_dtypes(name, dtype, tolerance):
    """Fresh weights, as the tolerance of the specification is about models of usual scale."""
    kit = small_kit(name)
    kit.model = Model.fresh(CONFIGS[name])
    one = example(kit, 9, 1, 12)
    expected = run_alone(kit, one)
    kit.model.to(dtype)
    inputs = one.inputs.to(dtype) if one.inputs.is_floating_point() else one.inputs
    found = run_alone(kit, replace(one, inputs=inputs))
    assert found.dtype == dtype and found.isfinite().all()
    assert (found.float() - expected).abs().max() <= tolerance * expected.abs().max()


def test_refusals():
    with pytest.raises(UsageError, match="no target ids"):
        Model(CONFIGS["t5"])(Batch(IDS))
    with pytest.raises(UsageError, match="a target"):
        Model(CONFIGS["gpt2"])(Batch(IDS, IDS))
    with pytest.raises(UsageError, match="a mask or documents"):
        Model(CONFIGS["vit"])(Batch(torch.zeros(1, 3, 16, 16), mask=torch.ones(1, 1).bool()))
    with pytest.raises(DataError, match="neither encoder nor decoder"):
        Model(ModelConfig(CONFIGS["gpt2"].front))


# Configs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
def test_configs_survive_the_way_through_a_dict(name):
    import json

    config = CONFIGS[name]
    assert ModelConfig.from_dict(config.to_dict()) == config
    assert ModelConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


@pytest.mark.parametrize(
    ("path", "wrong", "close"),
    [
        ((), "decodr", "decoder"),
        (("front",), "vocb", "vocab"),
        (("decoder",), "dept", "depth"),
        (("decoder", "block"), "kvheads", "kv_heads"),
        (("head",), "tide", "tied"),
    ],
)
def test_an_unknown_key_is_named_by_its_path_with_the_nearest(path, wrong, close):
    plain = CONFIGS["gpt2"].to_dict()
    inside = plain
    for key in path:
        inside = inside[key]
    inside[wrong] = 1
    place = r"\.".join(["model", *path, wrong])
    with pytest.raises(DataError, match=rf"unknown key {place}\n[\s\S]*did you mean {close}"):
        ModelConfig.from_dict(plain)


def test_a_missing_key_is_named_by_its_path():
    plain = CONFIGS["gpt2"].to_dict()
    del plain["decoder"]["block"]["heads"]
    with pytest.raises(DataError, match=r"model\.decoder\.block[\s\S]*heads"):
        ModelConfig.from_dict(plain)


def test_a_wrong_name_in_a_dict_is_refused():
    plain = CONFIGS["gpt2"].to_dict()
    plain["front"]["position"] = "lerned"
    with pytest.raises(DataError, match="did you mean learned"):
        ModelConfig.from_dict(plain)


X = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))


def build(**options):
    head = Head(HeadConfig(**options), 8).eval()
    randomise(head)
    return head


def test_without_a_size_vectors_stay():
    assert torch.equal(build()(X), X)


@pytest.mark.parametrize("bias", [False, True])
def test_scores(bias):
    head = build(size=3, bias=bias)
    expected = X @ head.out.weight.T + (head.out.bias if bias else 0)
    torch.testing.assert_close(head(X), expected)
    assert (head.out.bias is not None) == bias


def test_transform_norm_and_scale_in_that_order():
    head = build(size=3, transform="gelu", norm=True, scale=0.5)
    dense = F.gelu(F.linear(X, head.dense.weight, head.dense.bias))
    normed = F.layer_norm(dense, (8,), head.norm.weight, head.norm.bias, 1e-5)
    torch.testing.assert_close(head(X), F.linear(normed * 0.5, head.out.weight))


def test_the_first_token_is_taken_wherever_padding_put_it():
    head = build(size=3, take="first")
    assert torch.equal(head(X), head.out(X[:, 0]))
    real = torch.tensor([[False, False, True, True, True], [True, True, False, False, False]])
    assert torch.equal(head(X, real), head.out(torch.stack([X[0, 2], X[1, 0]])))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("strict", [False, True])
def test_a_class_is_the_same_alone_and_padded(side, strict):
    kit = small_kit("bert", head=HeadConfig(4, take="first", transform="tanh", bias=True))
    rows = [random_ids(n, n) for n in (3, 9)]
    ids, mask = torch.zeros(2, 10, dtype=torch.long), torch.zeros(2, 10, dtype=torch.bool)
    for row, given in enumerate(rows):
        at = slice(0, len(given)) if side == "right" else slice(10 - len(given), 10)
        ids[row, at], mask[row, at] = given, True
    found = kit.logits(ids, mask=mask, strict=strict)
    for scores, given in zip(found, rows, strict=True):
        alone = kit.logits(given[None], strict=strict)[0]
        assert torch.equal(scores, alone) if strict else assert_near(scores, alone) is None


def test_wrong_names_get_the_nearest():
    with pytest.raises(UsageError, match="did you mean tanh"):
        build(transform="tanhh")
    with pytest.raises(UsageError, match="did you mean first"):
        replace(CONFIGS["vit"].head, take="frist")


ROOT = Path(__file__).resolve().parents[2]
SHAPES = [
    presets.transformer(8, 1, 2, 11),
    presets.gpt2(8, 2, 2, 11, 9),
    presets.vit(8, 1, 2, patch=4, side=8, classes=3),
    presets.whisper(8, 1, 2, 11),
]


@pytest.mark.parametrize("config", SHAPES, ids=lambda c: c.front.kind)
def test_names_and_shapes_are_those_of_a_real_model(config: ModelConfig) -> None:
    made = {name: p.shape for name, p in Model(config).named_parameters()}
    empty = dict(empty_model(config).named_parameters())
    assert {name: p.shape for name, p in empty.items()} == made
    assert all(p.is_meta for p in empty.values())


def test_opening_a_folder_loads_no_compiler(tmp_path: Path) -> None:
    from regard.kit import Kit

    Kit(Model.fresh(SHAPES[0])).save(tmp_path, stored="int8")
    code = (
        "import sys, regard; regard.load(sys.argv[1]);"
        "print('torch._dynamo' in sys.modules, 'torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout == "False True\n", done.stderr[-2000:]
