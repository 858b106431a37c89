"""The executable specification against worked values, torch.nn and transformers, in float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

from tests.reference import formal_algorithms as ref

D, HEADS, VOCAB = 12, 3, 19


def randn(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def randomise(module, seed=0):
    """Every parameter, norms and biases too, so that a swapped name cannot pass."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0.0, 0.4, generator=generator)
    return module.double().eval()


def pair(module):
    """The (weight, bias) of a torch linear or norm."""
    return module.weight, module.bias


def heads_of(module):
    """The q, k, v, o of torch.nn.MultiheadAttention, which keeps the first three in one tensor."""
    names = zip("qkv", module.in_proj_weight.chunk(3), module.in_proj_bias.chunk(3), strict=True)
    return {name: (weight, bias) for name, weight, bias in names} | {"o": pair(module.out_proj)}


def torch_block(layer):
    """A torch.nn encoder or decoder layer as the dict of the reference."""
    norms = [pair(layer.norm1), pair(layer.norm2)]
    block = {"attn": heads_of(layer.self_attn) | {"norm": norms[0]}}
    if hasattr(layer, "multihead_attn"):
        block["cross"] = heads_of(layer.multihead_attn) | {"norm": norms[1]}
        norms.append(pair(layer.norm3))
    block["mlp"] = {"norm": norms[-1], "up": pair(layer.linear1), "down": pair(layer.linear2)}
    return block


def random_weights(seed, width=D, head=5, biases=True):
    shapes = {"q": (head, width), "k": (head, width), "v": (head, width)}
    return {
        name: (randn(*shape, seed=seed + i), randn(shape[0], seed=seed + 9 + i) if biases else None)
        for i, (name, shape) in enumerate(shapes.items())
    }


def random_model(cross=False, seed=0):
    """The parameters of a small encoder-decoder (cross) or decoder, from torch.nn layers."""
    kind = nn.TransformerDecoderLayer if cross else nn.TransformerEncoderLayer
    blocks = [torch_block(randomise(kind(D, HEADS, 20, 0.0), seed + i)) for i in range(2)]
    P = {
        "tokens": randn(VOCAB, D, seed=seed + 3),
        "positions": randn(16, D, seed=seed + 4),
        "norm": (randn(D, seed=seed + 5), randn(D, seed=seed + 6)),
        "head": (randn(VOCAB, D, seed=seed + 7), None),
        "blocks": blocks,
    }
    if cross:
        encoder = nn.TransformerEncoderLayer(D, HEADS, 20, 0.0)
        P |= {"encoder": [torch_block(randomise(encoder, seed + 8))], "decoder": blocks}
    return P


def identity_weights(width):
    eye = torch.eye(width, dtype=torch.float64)
    return {name: (eye, None) for name in "qkv"}


# Attention


def test_worked_example_weights_times_values():
    weights = torch.tensor([[0.6, 0.1, 0.3], [0.3, 0.5, 0.2], [0.2, 0.1, 0.7]]).double()
    values = torch.tensor([[2.0, 1.0], [-0.5, 2.0], [-1.0, -0.5]]).double()
    # Keys are one-hot and queries log-weights, so that softmax gives back the weights.
    Z = torch.cat([torch.eye(3).double(), values], dim=1)
    X = torch.cat([weights.log() * 3**0.5, torch.zeros(3, 2).double()], dim=1)
    keep = torch.eye(5).double()
    W = {"q": (keep[:3], None), "k": (keep[:3], None), "v": (keep[3:], None)}
    expected = torch.tensor([[0.85, 0.65], [0.15, 1.2], [-0.35, 0.05]]).double()
    torch.testing.assert_close(ref.attention(X, Z, W), expected, rtol=0, atol=1e-7)


@settings(max_examples=25, deadline=None)
@given(rows=st.integers(1, 6), columns=st.integers(1, 6), seed=st.integers(0, 999))
def test_weights_are_a_distribution_over_the_allowed(rows, columns, seed):
    mask = randn(rows, columns, seed=seed) > 0
    weights = ref.softmax(randn(rows, columns, seed=seed + 1) * 9, mask)
    assert (weights >= 0).all() and (weights[~mask] == 0).all()
    torch.testing.assert_close(weights.sum(-1), mask.any(-1).double(), rtol=0, atol=1e-14)


def test_outputs_stay_in_the_convex_hull_of_the_values():
    X, Z, W = randn(7, D), randn(5, D, seed=1), random_weights(2)
    values = ref.linear(Z, W["v"])
    for direction in randn(50, 5, seed=3):  # a hull is what no direction can leave
        reach = values @ direction
        along = ref.attention(X, Z, W) @ direction
        assert (along <= reach.max() + 1e-12).all() and (along >= reach.min() - 1e-12).all()


def test_attention_is_its_single_query_form_row_by_row():
    X, Z, W = randn(4, D), randn(6, D, seed=1), random_weights(2)
    rows = torch.stack([ref.basic_attention(x, Z, W) for x in X])
    torch.testing.assert_close(ref.attention(X, Z, W), rows, rtol=0, atol=1e-14)


def test_permutation_of_queries_and_of_the_attended():
    X, Z, W = randn(6, D), randn(6, D, seed=1), random_weights(2)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(0))
    out = ref.attention(X, Z, W)
    torch.testing.assert_close(ref.attention(X[order], Z, W), out[order], rtol=0, atol=1e-14)
    torch.testing.assert_close(ref.attention(X, Z[order], W), out, rtol=0, atol=1e-14)


def test_zero_query_gives_the_mean_and_one_key_its_value():
    Z, W = randn(6, D, seed=1), identity_weights(D)
    mean = ref.attention(torch.zeros(2, D).double(), Z, W)
    torch.testing.assert_close(mean, Z.mean(0).expand(2, D), rtol=0, atol=1e-14)
    assert torch.equal(ref.attention(randn(2, D), Z[:1], W), Z[:1].expand(2, D))


def test_key_bias_changes_nothing():
    X, Z, W = randn(4, D), randn(6, D, seed=1), random_weights(2)
    moved = W | {"k": (W["k"][0], W["k"][1] + randn(5, seed=8))}
    torch.testing.assert_close(
        ref.attention(X, Z, W), ref.attention(X, Z, moved), rtol=0, atol=1e-13
    )


def test_fully_masked_row_is_zero_with_finite_gradients():
    X = randn(3, D).requires_grad_()
    mask = torch.tensor([[True, True, False], [False, False, False], [True, True, True]])
    out = ref.attention(X, X, random_weights(2), mask)
    assert (out[1] == 0).all() and (out[0] != 0).any()
    out.sum().backward()
    assert X.grad.isfinite().all()


def test_nothing_to_attend_to_gives_zeros():
    out = ref.attention(randn(3, D), randn(0, D), random_weights(2))
    assert torch.equal(out, torch.zeros(3, 5).double())


def test_attention_gradients():
    W = random_weights(2, width=3, head=2)

    def call(x, z, *weights):
        named = dict(zip("qkv", zip(weights[::2], weights[1::2], strict=True), strict=True))
        return ref.attention(x, z, named, ref.causal(3))

    inputs = [randn(3, 3), randn(3, 3, seed=1), *(w for name in "qkv" for w in W[name])]
    assert torch.autograd.gradcheck(call, [x.clone().requires_grad_() for x in inputs])


@pytest.mark.parametrize("heads", [1, 3, 6])
def test_multi_head_against_torch(heads):
    module = randomise(nn.MultiheadAttention(D, heads, batch_first=True))
    X, Z = randn(5, D), randn(5, D, seed=1)
    mask = ref.causal(5)
    expected, _ = module(X[None], Z[None], Z[None], attn_mask=~mask)
    found = ref.mh_attention(X, Z, heads_of(module), heads, mask)
    torch.testing.assert_close(found, expected[0], rtol=0, atol=1e-12)


# The other parts


def test_embeddings_are_rows():
    W = randn(VOCAB, D)
    ids = torch.tensor([3, 0, 3])
    assert torch.equal(ref.token_embedding(ids, W), W[[3, 0, 3]])
    assert torch.equal(ref.positional_embedding(torch.arange(2), W), W[:2])


def test_float32_is_lifted_to_float64():
    W = {name: (w.float(), b.float()) for name, (w, b) in random_weights(0).items()}
    assert ref.attention(randn(2, D).float(), randn(3, D).float(), W).dtype == torch.float64
    assert ref.token_embedding(torch.tensor([0]), randn(2, 2).float()).dtype == torch.float64


@pytest.mark.parametrize("eps", [1e-12, 1e-5, 0.1])
def test_layer_norm_against_torch(eps):
    x, gamma, beta = randn(5, D) * 3 + 1, randn(D, seed=1), randn(D, seed=2)
    expected = F.layer_norm(x, (D,), gamma, beta, eps)
    torch.testing.assert_close(ref.layer_norm(x, (gamma, beta), eps), expected, rtol=0, atol=1e-13)


def test_unembedding_is_softmax_of_the_logits():
    x, W, bias = randn(5, D), randn(VOCAB, D, seed=1), randn(VOCAB, seed=2)
    expected = F.linear(x, W, bias).softmax(-1)
    torch.testing.assert_close(ref.unembedding(x, (W, bias)), expected, rtol=0, atol=1e-14)


def test_gelu_against_torch():
    x = randn(100) * 4
    torch.testing.assert_close(ref.gelu(x), F.gelu(x), rtol=0, atol=1e-14)


def test_post_norm_encoder_block_against_torch():
    layer = randomise(nn.TransformerEncoderLayer(D, HEADS, 20, 0.0, batch_first=True))
    x = randn(6, D)
    found = ref.post_norm_block(x, torch_block(layer), HEADS, torch.relu, 1e-5)
    torch.testing.assert_close(found, layer(x[None])[0], rtol=0, atol=1e-12)


def test_pre_norm_block_against_torch():
    options = {"norm_first": True, "activation": "gelu", "batch_first": True}
    layer = randomise(nn.TransformerEncoderLayer(D, HEADS, 20, 0.0, **options))
    x, mask = randn(6, D), ref.causal(6)
    found = ref.pre_norm_block(x, torch_block(layer), HEADS, ref.gelu, 1e-5, mask)
    torch.testing.assert_close(found, layer(x[None], src_mask=~mask)[0], rtol=0, atol=1e-12)


def test_post_norm_decoder_block_against_torch():
    layer = randomise(nn.TransformerDecoderLayer(D, HEADS, 20, 0.0, batch_first=True))
    x, memory, mask = randn(6, D), randn(4, D, seed=1), ref.causal(6)
    found = ref.post_norm_block(x, torch_block(layer), HEADS, torch.relu, 1e-5, mask, memory)
    expected = layer(x[None], memory[None], tgt_mask=~mask)[0]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


# The three architectures


def test_ed_transformer_against_torch():
    encoder = randomise(nn.TransformerEncoderLayer(D, HEADS, 20, 0.0, batch_first=True), 1)
    decoder = randomise(nn.TransformerDecoderLayer(D, HEADS, 20, 0.0, batch_first=True), 2)
    P = random_model() | {"encoder": [torch_block(encoder)], "decoder": [torch_block(decoder)]}
    source, target = torch.tensor([1, 2, 3, 4]), torch.tensor([0, 5, 6])
    memory = encoder((P["tokens"][source] + P["positions"][:4])[None])
    x = (P["tokens"][target] + P["positions"][:3])[None]
    out = decoder(x, memory, tgt_mask=~ref.causal(3))[0]
    expected = (out @ P["head"][0].T).softmax(-1)
    found = ref.ed_transformer(source, target, P, HEADS)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def gpt2(act):
    config = GPT2Config(
        vocab_size=VOCAB,
        n_positions=16,
        n_embd=D,
        n_layer=2,
        n_head=HEADS,
        activation_function=act,
        attn_implementation="eager",
    )
    model = randomise(GPT2LMHeadModel(config))
    body = model.transformer

    def turned(module):  # GPT-2 stores its linear maps as (in, out)
        return module.weight.T, module.bias

    blocks = []
    for block in body.h:
        weight, bias = turned(block.attn.c_attn)
        attn = dict(zip("qkv", zip(weight.chunk(3), bias.chunk(3), strict=True), strict=True))
        attn |= {"o": turned(block.attn.c_proj), "norm": pair(block.ln_1)}
        mlp = {"up": turned(block.mlp.c_fc), "down": turned(block.mlp.c_proj)}
        blocks.append({"attn": attn, "mlp": mlp | {"norm": pair(block.ln_2)}})
    P = {"tokens": body.wte.weight, "positions": body.wpe.weight, "blocks": blocks}
    return model, P | {"norm": pair(body.ln_f), "head": (model.lm_head.weight, None)}


@pytest.mark.parametrize("act", ["gelu", "gelu_new"])
def test_d_transformer_against_gpt2(act):
    model, P = gpt2(act)
    activation = ref.gelu if act == "gelu" else lambda x: F.gelu(x, approximate="tanh")
    ids = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6])
    with torch.no_grad():
        expected = model(ids[None]).logits[0]
        found = ref.d_transformer(ids, P, HEADS, activation).log()
    torch.testing.assert_close(found, expected.log_softmax(-1), rtol=0, atol=1e-11)


def test_swapped_norms_would_show():
    model, P = gpt2("gelu")
    first = P["blocks"][0]
    first["attn"]["norm"], first["mlp"]["norm"] = first["mlp"]["norm"], first["attn"]["norm"]
    ids = torch.tensor([3, 1, 4])
    with torch.no_grad():
        expected = model(ids[None]).logits[0].log_softmax(-1)
        assert (ref.d_transformer(ids, P, HEADS).log() - expected).abs().max() > 1e-2


def bert():
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=D,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        intermediate_size=20,
        max_position_embeddings=16,
        attn_implementation="eager",
    )
    model = randomise(BertForMaskedLM(config))
    embeddings, head = model.bert.embeddings, model.cls.predictions
    blocks = []
    for layer in model.bert.encoder.layer:
        own, out = layer.attention.self, layer.attention.output
        attn = {"q": pair(own.query), "k": pair(own.key), "v": pair(own.value)}
        attn |= {"o": pair(out.dense), "norm": pair(out.LayerNorm)}
        mlp = {"up": pair(layer.intermediate.dense), "down": pair(layer.output.dense)}
        blocks.append({"attn": attn, "mlp": mlp | {"norm": pair(layer.output.LayerNorm)}})
    P = {
        "tokens": embeddings.word_embeddings.weight,
        # One segment: its vector is the same for every token and can be part of the position.
        "positions": embeddings.position_embeddings.weight
        + embeddings.token_type_embeddings.weight[0],
        "embed_norm": pair(embeddings.LayerNorm),
        "blocks": blocks,
        "final": {"linear": pair(head.transform.dense), "norm": pair(head.transform.LayerNorm)},
        "head": pair(head.decoder),
    }
    return model, P


def test_e_transformer_against_bert():
    model, P = bert()
    ids = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6])
    with torch.no_grad():
        expected = model(ids[None]).logits[0]
        found = ref.e_transformer(ids, P, HEADS).log()
    torch.testing.assert_close(found, expected.log_softmax(-1), rtol=0, atol=1e-11)


def test_d_transformer_is_causal_to_the_bit():
    P = random_model()
    ids = torch.tensor([3, 1, 4, 1, 5, 9])
    before = ref.d_transformer(ids, P, HEADS)
    for t in range(len(ids)):
        changed = ids.clone()
        changed[t] = 17
        after = ref.d_transformer(changed, P, HEADS)
        assert torch.equal(before[:t], after[:t])
        assert not torch.equal(before[t], after[t])


def test_e_transformer_without_positions_is_equivariant():
    _, P = bert()
    P["positions"] = torch.zeros_like(P["positions"])
    ids, order = torch.tensor([3, 1, 4, 5, 9]), torch.tensor([4, 2, 0, 1, 3])
    out = ref.e_transformer(ids, P, HEADS)
    moved = ref.e_transformer(ids[order], P, HEADS)
    torch.testing.assert_close(moved, out[order], rtol=0, atol=1e-12)


# Training and inference


def test_d_training_is_cross_entropy():
    model, P = gpt2("gelu")
    ids = torch.tensor([3, 1, 4, 1, 5])
    expected = F.cross_entropy(model(ids[None]).logits[0, :-1], ids[1:], reduction="sum")
    found = ref.d_training(ids, P, heads=HEADS)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    (ours,) = torch.autograd.grad(found, [model.transformer.wte.weight])
    (theirs,) = torch.autograd.grad(expected, [model.transformer.wte.weight])
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


def test_e_training_counts_hidden_tokens_only():
    model, P = bert()
    ids, hidden = torch.tensor([3, 1, 4, 1, 5]), torch.tensor([False, True, False, False, True])
    logits = model(torch.tensor([3, 18, 4, 1, 18])[None]).logits[0]
    expected = F.cross_entropy(logits[[1, 4]], ids[[1, 4]], reduction="sum")
    found = ref.e_training(ids, hidden, 18, P, heads=HEADS)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


def test_ed_training_is_cross_entropy_of_the_next_token():
    P = random_model(cross=True)
    source, target = torch.tensor([1, 2, 3]), torch.tensor([0, 5, 6, 7])
    logits = ref.ed_transformer(source, target, P, HEADS).log()
    expected = F.cross_entropy(logits[:-1], target[1:], reduction="sum")
    found = ref.ed_training(source, target, P, heads=HEADS)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("temperature", [0.0, 1e-6])
def test_d_inference_when_cold_is_the_argmax_loop(temperature):
    model, P = gpt2("gelu")
    ids = [3, 1, 4]
    with torch.no_grad():
        for _ in range(6):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
        generator = torch.Generator().manual_seed(0)
        prompt = torch.tensor([3, 1, 4])
        found = ref.d_inference(prompt, P, 6, temperature, generator, heads=HEADS)
    assert found.tolist() == ids[3:]


def test_sampling_follows_the_tempered_distribution():
    p = torch.tensor([0.1, 0.2, 0.7]).double()
    generator = torch.Generator().manual_seed(0)
    drawn = torch.tensor([ref.sample(p, 2.0, generator) for _ in range(4000)])
    expected = p.sqrt() / p.sqrt().sum()
    assert (drawn.bincount(minlength=3) / 4000 - expected).abs().max() < 0.03


def test_ed_inference_stops_at_eos_or_when_positions_run_out():
    P = random_model(cross=True)
    source = torch.tensor([1, 2, 3])
    free = ref.ed_inference(source, P, 0, VOCAB, 0.0, heads=HEADS)  # no such token: never ends
    assert len(free) == len(P["positions"]) and free[0] == 0
    for t in range(1, len(free)):  # the argmax loop, by definition
        p = ref.ed_transformer(source, free[:t], P, HEADS)
        assert int(p[-1].argmax()) == int(free[t])
    eos = int(free[3])
    ended = ref.ed_inference(source, P, 0, eos, 0.0, heads=HEADS)
    assert ended.tolist() == free[: free.tolist().index(eos) + 1].tolist()
