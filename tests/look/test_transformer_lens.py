"""Captured values and patched scores against TransformerLens, on the same folder.

TransformerLens is not among the test tools: it brings wandb, pandas and datasets, 350 MB in all.
`pip install transformer_lens`, 3 or newer, and this file runs.
"""

from __future__ import annotations

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

import regard
from regard.look.attention_patterns import patterns
from tests.parity.compare import Case, make_pair

bridges = pytest.importorskip("transformer_lens.model_bridge", reason="needs TransformerLens")

BAR = 1e-4
VOCAB, LENGTH, DEPTH = 40, 9, 3
GPT2 = dict(n_positions=32, n_embd=24, n_head=4, n_layer=DEPTH)
LLAMA = dict(
    hidden_size=24,
    intermediate_size=20,
    num_attention_heads=6,
    num_hidden_layers=DEPTH,
    max_position_embeddings=64,
)
CASES = {
    "gpt2": Case("GPT2LMHeadModel", GPT2),
    "llama": Case("LlamaForCausalLM", LLAMA | dict(num_key_value_heads=6)),
    "llama grouped": Case(
        "LlamaForCausalLM", LLAMA | dict(num_key_value_heads=3, attention_bias=True)
    ),
}
PLACES = {  # ours → theirs, in each block; q and k below
    "resid_pre": ("hook_resid_pre", "hook_in"),
    "resid_mid": ("hook_resid_mid",),
    "resid_post": ("hook_resid_post", "hook_out"),
    "attn.v": ("attn.hook_v",),
    "attn.z": ("attn.hook_z",),
    "attn.pattern": ("attn.hook_pattern",),
    "attn.out": ("hook_attn_out", "attn.hook_out"),
    "mlp.pre": ("mlp.hook_pre",),
    "mlp.post": ("mlp.hook_post",),
    "mlp.out": ("hook_mlp_out", "mlp.hook_out"),
}


@pytest.fixture(scope="module", params=CASES)
def both(request, tmp_path_factory):
    """One folder, opened by regard and by TransformerLens; its weights as they are in the file."""
    special = dict(vocab_size=VOCAB, bos_token_id=0, eos_token_id=0)
    case = CASES[request.param]
    case = Case(case.architecture, case.config | special)
    pair = make_pair(case, tmp_path_factory.mktemp("model"))
    words = Tokenizer(models.WordLevel({"end": 0}, unk_token="end"))  # asked for, never used
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="end")
    bridge = bridges.TransformerBridge.boot_transformers(
        str(pair.folder), device="cpu", tokenizer=tokenizer
    )
    return pair.ours, bridge.eval()


@pytest.fixture
def ids():
    return torch.randint(VOCAB, (3, LENGTH), generator=torch.Generator().manual_seed(1))


def assert_near(ours, theirs):
    assert theirs.abs().max() > 0.01
    torch.testing.assert_close(ours, theirs, atol=BAR, rtol=0)


def names(kit):
    """(ours, theirs) of every place that both have."""
    turned = "rot_" if kit.model.decoder.rotary is not None else ""
    asked = {f"attn.{x}": (f"attn.hook_{turned}{x}",) for x in "qk"}
    for layer in range(DEPTH):
        for place, theirs in (PLACES | asked).items():
            yield from ((f"decoder.blocks.{layer}.{place}", f"blocks.{layer}.{t}") for t in theirs)
    yield "decoder.final", "ln_final.hook_out"
    yield "logits", "unembed.hook_out"


@torch.no_grad()
def test_captured_values_are_theirs(both, ids):
    kit, bridge = both
    logits, cache = bridge.run_with_cache(ids)
    out, every = kit.run(ids, taps="*")
    quick, fused = kit.run(ids, taps=["*.resid_*", "*.z", "*.v", "*.mlp.*", "*.out", "final"])
    assert not any(name.endswith(".pattern") for name in fused)
    assert_near(out.logits, logits)
    assert_near(quick.logits, logits)
    for ours, theirs in names(kit):
        assert_near(every[ours], cache[theirs])
        if ours in fused:
            assert_near(fused[ours], cache[theirs])


@torch.no_grad()
def test_their_names_give_their_values(both, ids):
    kit, bridge = both
    pairs = list(names(kit))
    _, cache = bridge.run_with_cache(ids)
    for ours, theirs in pairs:
        _, seen = kit.run(ids, taps=theirs)
        assert list(seen) == [ours]
        assert_near(seen[ours], cache[theirs])


@torch.no_grad()
def test_rebuilt_patterns_are_theirs(both, ids):
    kit, bridge = both
    _, cache = bridge.run_with_cache(ids)
    found = patterns(kit.hooked, kit.batch(ids))
    for layer in range(DEPTH):
        assert_near(
            found[f"decoder.blocks.{layer}.attn"], cache[f"blocks.{layer}.attn.hook_pattern"]
        )


@torch.no_grad()
def test_scores_are_theirs_where_a_query_may_look(both, ids):
    kit, bridge = both
    name = "blocks.1.attn.hook_attn_scores"
    _, cache = bridge.run_with_cache(ids, names_filter=name)
    _, seen = kit.run(ids, taps=name)
    may = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    (scores,) = seen.values()
    assert_near(scores[..., may], cache[name][..., may])


# Not hook_resid_mid: what is put there in TransformerLens 4 reaches the MLP, but not the stream.
HEAD, POSITION, ALL = dict(head=2), dict(position=[3]), {}
PATCHES = {
    "a head's z": [("blocks.1.attn.hook_z", HEAD)],
    "a residual at a position": [("blocks.1.hook_resid_pre", POSITION)],
    "a residual after a block": [("blocks.0.hook_resid_post", POSITION)],
    "an MLP": [("blocks.0.hook_mlp_out", ALL)],
    "neurons": [("blocks.1.mlp.hook_post", dict(neuron=[0, 7, 11]))],
    "attention": [("blocks.1.hook_attn_out", ALL)],
    "a head's values": [("blocks.0.attn.hook_v", HEAD)],
    "a head's pattern": [("blocks.1.attn.hook_pattern", HEAD)],
    "a head at a position": [("blocks.1.attn.hook_z", HEAD | POSITION)],
    "several": [
        ("blocks.0.attn.hook_z", HEAD),
        ("blocks.1.hook_resid_pre", POSITION),
        ("blocks.2.hook_mlp_out", ALL),
    ],
}


def index(name, choice):
    """The same choice as indices into their tensor."""
    at = [slice(None)] * 4
    if "head" in choice:
        at[1 if name.endswith("pattern") else 2] = choice["head"]
    if "position" in choice:
        at[1] = choice["position"][0]
    if "neuron" in choice:
        at[2] = choice["neuron"]
    return tuple(at[:3])


@pytest.mark.parametrize("kind", PATCHES)
@torch.no_grad()
def test_patched_scores_are_theirs(both, ids, kind):
    kit, bridge = both
    other = ids.flip(0, 1)
    _, cache = bridge.run_with_cache(other)
    edits, hooks = {}, []
    for name, choice in PATCHES[kind]:
        _, seen = kit.run(other, taps=name)  # each patches what it captured itself
        edits[name] = regard.patch(*seen.values(), **choice)

        def put(x, hook, name=name, choice=choice):
            x = x.clone()
            x[index(name, choice)] = cache[name][index(name, choice)]
            return x

        hooks.append((name, put))
    plain = kit.logits(ids)
    with kit.edit(edits):
        ours = kit.logits(ids)
    assert (ours - plain).abs().max() > 100 * BAR
    assert_near(ours, bridge.run_with_hooks(ids, fwd_hooks=hooks))
    assert torch.equal(kit.logits(ids), plain)
