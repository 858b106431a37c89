"""The executable specification: the fifteen formal algorithms of Phuong and Hutter (2022).

Each algorithm is one short function on plain tensors in float64, without batch, cache or fused
kernel. It is the oracle of the fast code and therefore shares nothing with it. The paper writes
columns and counts from one; here tokens are rows and counting starts at zero.

Parameters are dicts named as in the package; a linear map is (weight (out, in), bias or None), a
norm is (weight, bias):

    block = dict(attn=dict(norm, q, k, v, o), cross=(as attn), mlp=dict(norm, up, down))

Shapes: T and S tokens, D width, H heads, K width of a head, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

Params = Mapping[str, Any]
Maybe = Tensor | None
Random = torch.Generator | None
Linear = tuple[Tensor, Maybe]
Norm = tuple[Tensor, Tensor]
Act = Callable[[Tensor], Tensor]


def linear(x: Tensor, parameters: Linear) -> Tensor:
    """x W^T + b, in float64 whatever is given."""
    weight, bias = parameters
    y = x.double() @ weight.double().T
    return y if bias is None else y + bias.double()


def softmax(scores: Tensor, mask: Maybe = None) -> Tensor:
    """exp(s) / sum exp(s) over the allowed entries of a row; zeros where none is allowed."""
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    total = torch.logsumexp(scores, dim=-1, keepdim=True)
    return torch.exp(scores - total.masked_fill(total == -math.inf, 0.0))


def gelu(x: Tensor) -> Tensor:
    """x Phi(x), with Phi the standard normal distribution function."""
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


def causal(length: int) -> Tensor:
    """mask[t, s] = (s <= t): a token sees itself and what came before."""
    position = torch.arange(length)
    return position[None, :] <= position[:, None]  # (T, T)


def mlp(x: Tensor, W: Params, act: Act) -> Tensor:
    """down(act(up(x))), each row alone."""
    return linear(act(linear(x, W["up"])), W["down"])


def token_embedding(ids: Tensor, W: Tensor) -> Tensor:
    """Algorithm 1: e = W[v], the row of each token."""
    return W.double()[ids]  # (T, D)


def positional_embedding(positions: Tensor, W: Tensor) -> Tensor:
    """Algorithm 2: e = W[t], the row of each position."""
    return W.double()[positions]  # (T, D)


def basic_attention(x: Tensor, Z: Tensor, W: Params) -> Tensor:
    """Algorithm 3: sum_t alpha_t v_t, with alpha = softmax(q . k_t / sqrt(K)), for one query x."""
    q, k, v = linear(x, W["q"]), linear(Z, W["k"]), linear(Z, W["v"])  # (K), (S, K), (S, K)
    alpha = softmax(k @ q / math.sqrt(len(q)))  # (S)
    return alpha @ v


def attention(X: Tensor, Z: Tensor, W: Params, mask: Maybe = None) -> Tensor:
    """Algorithm 4: softmax(Q K^T / sqrt(K)) V, where mask (T, S) is True if row t may see row s."""
    Q, K, V = linear(X, W["q"]), linear(Z, W["k"]), linear(Z, W["v"])  # (T, K), (S, K), (S, K)
    scores = Q @ K.T / math.sqrt(Q.shape[-1])  # (T, S)
    return softmax(scores, mask) @ V  # (T, K)


def mh_attention(X: Tensor, Z: Tensor, W: Params, heads: int, mask: Maybe = None) -> Tensor:
    """Algorithm 5: [head_1, ..., head_H] W_o^T + b_o, each head an attention with its own rows."""
    outputs = []
    for h in range(heads):
        head = {name: one_head(W[name], h, heads) for name in ("q", "k", "v")}
        outputs.append(attention(X, Z, head, mask))  # (T, K)
    return linear(torch.cat(outputs, dim=-1), W["o"])  # (T, D)


def one_head(parameters: Linear, h: int, heads: int) -> Linear:
    """Rows h K to (h + 1) K of a weight (H K, D) and of its bias."""
    weight, bias = parameters
    width = len(weight) // heads
    rows = slice(h * width, (h + 1) * width)
    return weight[rows], None if bias is None else bias[rows]


def layer_norm(x: Tensor, parameters: Norm, eps: float) -> Tensor:
    """Algorithm 6: gamma (x - m) / sqrt(v + eps) + beta, with the biased variance v of a row."""
    gamma, beta = parameters
    x = x.double()
    mean = x.mean(dim=-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(dim=-1, keepdim=True)
    return gamma.double() * (x - mean) / torch.sqrt(variance + eps) + beta.double()


def unembedding(x: Tensor, head: Linear) -> Tensor:
    """Algorithm 7: p = softmax(W_u e), a distribution over the vocabulary."""
    return softmax(linear(x, head))  # (T, V)


def embed(ids: Tensor, P: Params) -> Tensor:
    """Token plus position (algorithms 1 and 2)."""
    positions = torch.arange(len(ids))
    return token_embedding(ids, P["tokens"]) + positional_embedding(positions, P["positions"])


def post_norm_block(
    x: Tensor, W: Params, heads: int, act: Act, eps: float, mask: Maybe = None, memory: Maybe = None
) -> Tensor:
    """x <- LN(x + part(x)) for self-attention, for cross-attention if there is memory, for MLP."""
    x = layer_norm(x + mh_attention(x, x, W["attn"], heads, mask), W["attn"]["norm"], eps)
    if memory is not None:
        x = layer_norm(x + mh_attention(x, memory, W["cross"], heads), W["cross"]["norm"], eps)
    return layer_norm(x + mlp(x, W["mlp"], act), W["mlp"]["norm"], eps)


def pre_norm_block(x: Tensor, W: Params, heads: int, act: Act, eps: float, mask: Maybe) -> Tensor:
    """x <- x + part(LN(x)) for self-attention and for MLP."""
    normed = layer_norm(x, W["attn"]["norm"], eps)
    x = x + mh_attention(normed, normed, W["attn"], heads, mask)
    normed = layer_norm(x, W["mlp"]["norm"], eps)
    return x + mlp(normed, W["mlp"], act)


def ed_transformer(
    source: Tensor, target: Tensor, P: Params, heads: int, act: Act = torch.relu, eps: float = 1e-5
) -> Tensor:
    """Algorithm 8: P[t] = p(token t + 1 | source, target[: t + 1]) (Vaswani 2017; post-norm, ReLU).

    P = dict(tokens (V, D), positions (N, D), encoder=[block], decoder=[block], head).
    """
    memory = embed(source, P)  # (S, D)
    for W in P["encoder"]:
        memory = post_norm_block(memory, W, heads, act, eps)
    x = embed(target, P)  # (T, D)
    for W in P["decoder"]:
        x = post_norm_block(x, W, heads, act, eps, causal(len(target)), memory)
    return unembedding(x, P["head"])  # (T, V)


def e_transformer(
    ids: Tensor, P: Params, heads: int, act: Act = gelu, eps: float = 1e-12
) -> Tensor:
    """Algorithm 9: P[t] = p(token t | all tokens) (BERT; post-norm, GELU, linear + GELU + LN).

    P = dict(tokens, positions, blocks=[block], final=dict(linear, norm), head). BERT as released
    also normalises the embedding, which the paper leaves out: then P has embed_norm.
    """
    x = embed(ids, P)  # (T, D)
    if "embed_norm" in P:
        x = layer_norm(x, P["embed_norm"], eps)
    for W in P["blocks"]:
        x = post_norm_block(x, W, heads, act, eps)
    x = layer_norm(act(linear(x, P["final"]["linear"])), P["final"]["norm"], eps)
    return unembedding(x, P["head"])  # (T, V)


def d_transformer(ids: Tensor, P: Params, heads: int, act: Act = gelu, eps: float = 1e-5) -> Tensor:
    """Algorithm 10: P[t] = p(token t + 1 | tokens up to t) (GPT; pre-norm, GELU, final LN).

    P = dict(tokens (V, D), positions (N, D), blocks=[block], norm, head).
    """
    x = embed(ids, P)  # (T, D)
    for W in P["blocks"]:
        x = pre_norm_block(x, W, heads, act, eps, causal(len(ids)))
    return unembedding(layer_norm(x, P["norm"], eps), P["head"])  # (T, V)


def negative_log_likelihood(p: Tensor, ids: Tensor) -> Tensor:
    """-sum_t log p[t, ids[t]]."""
    return -torch.log(p[torch.arange(len(ids)), ids]).sum()


def ed_training(source: Tensor, target: Tensor, P: Params, **hyper: Any) -> Tensor:
    """Algorithm 11: -sum_t log P[t, target[t + 1]], the decoder reading the true prefix."""
    p = ed_transformer(source, target, P, **hyper)
    return negative_log_likelihood(p[:-1], target[1:])


def e_training(ids: Tensor, hidden: Tensor, mask_id: int, P: Params, **hyper: Any) -> Tensor:
    """Algorithm 12: -sum over hidden t of log P[t, ids[t]]; the paper hides t by chance p_mask."""
    p = e_transformer(ids.masked_fill(hidden, mask_id), P, **hyper)
    return negative_log_likelihood(p[hidden], ids[hidden])


def d_training(ids: Tensor, P: Params, **hyper: Any) -> Tensor:
    """Algorithm 13: -sum_t log P[t, ids[t + 1]]."""
    p = d_transformer(ids, P, **hyper)
    return negative_log_likelihood(p[:-1], ids[1:])


def sample(p: Tensor, temperature: float, generator: Random) -> int:
    """A token drawn from q proportional to p^(1 / temperature); at zero, the most likely one."""
    if temperature == 0.0:
        return int(p.argmax())
    q = softmax(torch.log(p) / temperature)
    return int(torch.multinomial(q, 1, generator=generator))


def d_inference(
    prompt: Tensor,
    P: Params,
    length: int,
    temperature: float = 1.0,
    generator: Random = None,
    **hyper: Any,
) -> Tensor:
    """Algorithm 14: continue the prompt by `length` tokens, and return these."""
    ids: list[int] = prompt.tolist()
    for _ in range(length):
        p = d_transformer(torch.tensor(ids), P, **hyper)
        ids.append(sample(p[-1], temperature, generator))
    return torch.tensor(ids[len(prompt) :])


def ed_inference(
    source: Tensor,
    P: Params,
    bos: int,
    eos: int,
    temperature: float = 1.0,
    generator: Random = None,
    **hyper: Any,
) -> Tensor:
    """Algorithm 15: write from bos until eos, or until positions run out, and return all of it."""
    ids = [bos]
    while ids[-1] != eos and len(ids) < len(P["positions"]):
        p = ed_transformer(source, torch.tensor(ids), P, **hyper)
        ids.append(sample(p[-1], temperature, generator))
    return torch.tensor(ids)
