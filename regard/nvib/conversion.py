"""Regularisation after training: attention of a trained model read as nonparametric Bayes (NVR).

An attention that was trained is the denoising attention of a mixture with one component for each
vector that it reads (Henderson and Fehr 2023). Said so, it can be told how far to trust those
vectors: beside them stands a prior, measured on some text, which is seen by every query, and
temperatures say how near to it they lie (Fehr and Henderson 2024). Nothing is trained.

The formulas, for a site with keys W_K x + b_K of width E, s = √E (or 1 over another scale of its
scores), the prior's mean μ₀ and variance σ₀² of each dimension, and a = |x|²/2s with mean ā and
standard deviation s_a over the calibration text:

    μᵢ = τ_μ xᵢ + (1 − τ_μ) μ₀,  t = τ_σ² σ₀² + s,  log αᵢ = |xᵢ|²/2s + τ_α s_a
    score of i     = u · μᵢ/t + log αᵢ − ½ Σ μᵢ²/t − ½ Σ log t,     u = W_Kᵀ q
    score of prior = u · μ₀/t₀ + ā − ½ Σ μ₀²/t₀ − ½ Σ log t₀,       t₀ = σ₀² + s
    answer = W_V [Σ w (σ²/t · u + s/t · μ)] + b_V

u is as wide as the model, but all of it is linear: keys and values are the model's own maps of
s/t · μᵢ, and what the prior says, score and value, is one small linear map of each head's query.
With τ_μ = 1 and τ_σ = 0 keys and values stay as they are and nothing is added to the score of a
key, so that the whole is one more key and value. It is merged with the rest by the denominators of
the softmax, which the kernels give beside their answers: a cache holds no more than before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.ambient import note, track
from regard.core import mask as masks
from regard.core.attention import Attention, View, fold, unfold
from regard.core.position import rotate
from regard.data.pairs import MEMORY_FILE, all_pairs
from regard.data.text_files import evenly, read_lines
from regard.errors import DataError, UsageError, check_known
from regard.model.batch import Batch, like_lengths, pad_rows
from regard.model.model import Model
from regard.nvib.config import DOING, Strength, Temperatures
from regard.nvib.denoising import not_bilinear
from regard.verbs import Bound, Files, list_files
from regard.zoo import shipped

if TYPE_CHECKING:
    from regard.kit import Kit

KINDS = ("encoder", "cross", "decoder")
"""Sites of attention: of an encoder, of a decoder to its source, and to itself."""
TEXTS = 128  # texts or pairs that a prior is measured on
TOGETHER = 16  # lines that a decoder reads as one text
TOKENS = 512  # of a text at most
SHARE = Bound(0, 1, "a number from 0 to 1")
FAR = 40.0  # nats: a prior so much less likely than what is read is never seen


# The layer --------------------------------------------------------------------------------------


class RegularisedAttention(Attention):
    """Attention of denoising with a prior: scores and pattern have it as their column 0.

    The prior has no position: it is compared with a query before that is rotated, and has no bias
    by distance. Every query sees it, so that one without any key answers the prior.
    """

    prior: Tensor
    """(H, K, 1 + K) or (H, K, 1 + 2 K): query → the prior's score, its value, and what τ_σ adds
    to the values of the others."""
    offset: Tensor
    """(H, 1, …) of the same."""
    reading: Tensor | None
    """(4, P): factor and term of the vectors that are read, linear and square part of what is added
    to the score of their keys; None where they are read as they are."""
    kernel_before: Any
    """What it had of the machine's kernels."""

    def forward(self, x: Tensor, ctx: View, source: Tensor | None = None) -> Tensor:
        """x (B, T, D), source (B, S, D) → (B, T, D)."""
        if self.reading is not None:
            read = x if source is None else source
            bias = read @ self.reading[2] + read.square() @ self.reading[3]  # (B, S)
            if ctx.cache is not None and not self.cross:
                bias = ctx.cache.append_bias(self.layer, bias)
            mask, bias = ctx.mask, bias[:, None, None]
            if ctx.causal:
                mask = masks.causal(x.shape[1], bias.shape[-1], x.device)
            if mask is not None:
                open_ = mask.dtype == torch.bool
                bias = bias.where(mask, -torch.inf) if open_ else bias + mask
            ctx = replace(ctx, mask=bias, causal=False)
        return super().forward(x, ctx, source)

    def project(self, x: Tensor, source: Tensor | None, ctx: View) -> list[Tensor]:
        """Queries of x, keys and values of the means of what is read."""
        known = self.cross and ctx.cache is not None and self.layer in ctx.cache.memory
        if self.reading is None or known:
            return super().project(x, source, ctx)
        read = torch.addcmul(self.reading[1], x if source is None else source, self.reading[0])
        return [self.q(x), self.k(read), self.v(read)]

    def look(self, q: Tensor, k: Tensor, v: Tensor, ctx: View) -> Tensor:
        """Average the values and that of the prior: (B, H, T, K)."""
        beams = len(q) // len(k) if len(k) else 1
        told = self.ask_prior(q, ctx)
        score, (value, *drift) = told[..., :1], told[..., 1:].split(self.width, -1)
        heard = self.at.scores.fn is not None or self.at.pattern.fn is not None
        found = None
        if not heard and not (torch.is_grad_enabled() and (q.requires_grad or k.requires_grad)):
            found = attend_with_norm(fold(q, beams), k, v, ctx, self.scale)
        if found is None:
            if beams > 1:
                k, v = k.repeat_interleave(beams, 0), v.repeat_interleave(beams, 0)
                ctx = ctx.repeat(beams)
            scores = self.masked_scores(q, k, ctx)
            if ctx.live is not None:
                scores = scores.masked_fill(~ctx.live, -torch.inf)
            scores = self.at.scores(torch.cat([score, scores], -1))
            weights = self.at.pattern(scores.softmax(-1))
            share, others = weights.split([1, k.shape[2]], -1)
            z: Tensor = others @ self.per_head(v) + share * value
            return z + others.sum(-1, keepdim=True) * drift[0] if drift else z
        z, norm = (unfold(part, beams) for part in found)
        if ctx.live is not None:
            norm = norm.masked_fill(~ctx.live.repeat_interleave(beams, 0), -torch.inf)
        z = z + drift[0] if drift else z
        return torch.lerp(z, value, torch.sigmoid(score - norm).to(z.dtype))

    def ask_prior(self, q: Tensor, ctx: View) -> Tensor:
        """Queries (B, H, T, K) → score, value and what is added to other values (B, H, T, …)."""
        if ctx.rotation is not None:
            cos, sin = (part.transpose(1, 2) for part in ctx.rotation)
            q = rotate(q, (cos, -sin))
        asked = q.transpose(0, 1).flatten(1, 2)  # (H, B · T, K)
        told: Tensor = torch.baddbmm(self.offset, asked, self.prior).unflatten(1, (len(q), -1))
        return told.transpose(0, 1)


def attend_with_norm(
    q: Tensor, k: Tensor, v: Tensor, ctx: View, scale: float
) -> tuple[Tensor, Tensor] | None:
    """Attention in one kernel: the answers (B, H, T, K) and log Σ exp of their scores (B, H, T, 1).

    None where there is no kernel that says both.
    """
    if q.device.type != "cpu" or not q.numel() or not k.numel():
        return None
    mask = None if ctx.mask is None else masks.as_bias(ctx.mask, q.dtype)
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    z, norm = kernel(q, k, v, is_causal=ctx.causal, attn_mask=mask, scale=scale)
    return z, norm[..., None]


# The prior --------------------------------------------------------------------------------------


class Prior(NamedTuple):
    """What an attention reads, over the tokens of a text."""

    mean: Tensor
    """(P,)"""
    variance: Tensor
    """(P,), unbiased."""
    energy: float
    """Mean of |x|²/2s: the prior's log α."""
    spread: float
    """Its standard deviation, unbiased."""


PRIORS: WeakKeyDictionary[Model, dict[object, dict[str, Prior]]] = WeakKeyDictionary()
"""Those of each model, by the text that they were measured on."""


def find_sites(model: nn.Module) -> tuple[dict[str, Attention], dict[str, str]]:
    """The attentions that can be converted, by name, and why others cannot."""
    sites, others = dict[str, Attention](), dict[str, str]()
    for name, part in model.named_modules():
        if isinstance(part, nn.RNNBase):
            others[name] = "recurrent"
        elif isinstance(part, Attention):
            known = type(part) in (Attention, RegularisedAttention)
            if why := not_bilinear(part) or ("" if known else f"it is a {type(part).__name__}"):
                others[name] = why
            else:
                sites[name] = part
    return sites, others


def kind_of(name: str, site: Attention) -> str:
    """One of KINDS."""
    return "cross" if site.cross else name.partition(".")[0]


@torch.no_grad()
def measure(model: Model, batches: Sequence[Batch]) -> dict[str, Prior]:
    """What each attention of a plain model reads, over all real tokens of batches."""
    sums, real = dict[str, Any](), dict[str, Tensor]()

    def listen(name: str, site: Attention) -> Any:
        side = "target" if kind_of(name, site) == "decoder" else "source"

        def add(part: nn.Module, args: tuple[Tensor, ...], named: dict[str, Any]) -> None:
            source = named.get("source")
            x = (args[0] if source is None else source)[real[side]].cpu().double()  # (N, P)
            energy = x.square().sum(-1) * (site.scale / 2)
            new = torch.cat([x, x.square(), energy[:, None], energy.square()[:, None]], -1)
            sums[name] = sums.get(name, 0) + F.pad(new, (0, 1), value=1.0).sum(0)  # and the count

        return site.register_forward_pre_hook(add, with_kwargs=True)

    hooks = [listen(*item) for item in find_sites(model)[0].items()]
    try:
        for batch in track(batches, "measuring the prior"):
            every = torch.ones_like(batch.ids, dtype=torch.bool)
            real["target"] = real["source"] = every if batch.mask is None else batch.mask
            if batch.target is not None:
                every = torch.ones_like(batch.inputs, dtype=torch.bool)
                real["source"] = every if batch.source_mask is None else batch.source_mask
            model.hidden(batch)
    finally:
        for hook in hooks:
            hook.remove()
    return {name: prior_of(total) for name, total in sums.items()}


def prior_of(total: Tensor) -> Prior:
    """The prior of a site from its sums of x, x², a, a² and 1."""
    count, width = float(total[-1]), (len(total) - 3) // 2
    if count < 2:
        raise DataError("measuring the prior", f"a text of {count:.0f} tokens", "two or more")
    mean, square = total[:-1] / count, count / (count - 1)
    variance = (mean[width : 2 * width] - mean[:width].square()).clamp(min=0) * square
    spread = max(0.0, float(mean[-1] - mean[-2].square())) * square
    return Prior(mean[:width], variance, float(mean[-2]), math.sqrt(spread))


def calibration_batches(kit: Kit, files: Files | None) -> Iterator[Batch]:
    """Texts, or pairs for an encoder-decoder, as the model reads them, of like length together."""
    config, tokenizer = kit.model.config, kit.text_tokenizer
    for front in (config.front, config.target):
        if front is not None and front.kind != "text":
            fault = f"a model that reads {front.kind}"
            raise UsageError("measuring the prior", fault, "one that reads text")
    paths = None if files is None else list_files(files)
    if config.target is not None:
        begin = kit.start
        pairs = evenly(shipped_pairs(kit) if paths is None else all_pairs(paths), TEXTS)
        sources = [tokenizer.encode(source) for source, _ in pairs]
        rows = [[begin, *tokenizer.encode(target, side="target")[:-1]] for _, target in pairs]
    else:
        lines = (text for _, text in shipped_pairs(kit)) if paths is None else read_lines(paths)
        texts = (line for line in lines if line.strip())
        if kit.model.decoder is not None:
            groups = iter(lambda: list(islice(texts, TOGETHER)), [])
            texts = ("\n".join(group) for group in evenly(groups, TEXTS // TOGETHER))
        rows = sources = [tokenizer.encode(text) for text in evenly(texts, TEXTS)]
    longest = min(TOKENS, kit.room or TOKENS)
    read = [(a[:longest], b[:longest]) for a, b in zip(sources, rows, strict=True) if a and b]
    if not read:
        raise DataError("measuring the prior", "no text", "a file with lines of text")
    for some in like_lengths([len(a) + len(b) for a, b in read], 4 * TOKENS):
        (source, source_mask), (ids, mask) = (
            pad_rows(side) for side in zip(*(read[n] for n in some), strict=True)
        )
        paired = Batch(source, ids, mask=mask, source_mask=source_mask)
        yield (Batch(ids, mask=mask) if config.target is None else paired).to(kit.device)


def shipped_pairs(kit: Kit) -> Iterator[tuple[str, str]]:
    """The sentence pairs in a translator's folder, else French and English ones of the box."""
    data = kit.files.get(MEMORY_FILE)
    if data is None:
        if "fr-en" not in shipped():
            fault, fix = "no text, and no translator in the box that has some", "--nv-text FILE"
            raise UsageError("measuring the prior", fault, "a text", fix)
        data = (shipped()["fr-en"] / MEMORY_FILE).read_bytes()
    for line in data.decode().splitlines():
        columns = line.split("\t")
        if len(columns) == 5:
            yield columns[3], columns[4]


# On and off -------------------------------------------------------------------------------------


def sites_and_strengths(model: nn.Module, strength: Strength) -> dict[str, float | Temperatures]:
    """The attentions that are to be converted, and how strongly."""
    several = strength if isinstance(strength, Mapping) else dict.fromkeys(KINDS, strength)
    for kind, how in several.items():
        check_known(str(kind), KINDS, DOING)
        if not isinstance(how, Temperatures) and not SHARE.holds(how):
            raise UsageError(DOING, f"strength {how!r}", f"{SHARE.says}, or Temperatures")
    sites, others = find_sites(model)
    if not sites and any(several.values()):
        reasons = "; ".join(f"{name}: {why}" for name, why in others.items()) or "none at all"
        fix = "a Transformer whose attention is by dot products"
        raise UsageError(DOING, f"no attention that can be converted ({reasons})", fix)
    each = {name: several.get(kind_of(name, site), 0.0) for name, site in sites.items()}
    chosen = {name: how for name, how in each.items() if how}
    if chosen and others:
        note(f"attention that stays as it is: {', '.join(others)}")
    return chosen


@torch.no_grad()
def attach(kit: Kit, strength: Strength, files: Files | None = None) -> None:
    """Convert the attentions of a model in place; of no strength, give it back as it was."""
    chosen = sites_and_strengths(kit.model, strength)
    held, key = PRIORS.setdefault(kit.model, {}), repr(files)
    batches = list(calibration_batches(kit, files)) if chosen and key not in held else []
    detach(kit.model)
    kit.nv = 0.0, None  # as it is, should measuring fail
    if batches:
        held[key] = measure(kit.model, batches)
    for name, how in chosen.items():
        prior = held[key][name]
        if not isinstance(how, Temperatures):
            how = Temperatures(sigma=how, alpha=FAR / max(prior.spread, 1e-6))
        convert(kit.model.get_submodule(name), prior, how)
    kit.nv = strength, files


def convert(site: Any, prior: Prior, how: Temperatures) -> None:
    """Make an attention one that denoises; the formulas stand above."""
    s, P = 1 / site.scale, len(prior.mean)
    mean, own = prior.mean, prior.variance * how.sigma**2
    t, t0 = own + s, prior.variance + s
    probes = torch.cat([torch.zeros(1, P), torch.eye(P)]).to(site.q.weight)

    def weights(linear: nn.Module) -> tuple[Tensor, Tensor]:
        """(H, P, K) and bias (H, 1, K), as the map computes them, in int8 or with adapters."""
        out = linear(probes).cpu().double().unflatten(-1, (site.groups, site.width)).transpose(0, 1)
        out = out.repeat_interleave(site.heads // site.groups, 0)
        return out[:, 1:] - out[:, :1], out[:, :1]

    (keys, key_bias), (values, value_bias) = weights(site.k), weights(site.v)
    base = s / t0 * mean
    constant = prior.energy - 0.5 * float((mean.square() / t0 + t0.log()).sum())
    shift = (1 - how.mu) * mean
    constant -= how.alpha * prior.spread - 0.5 * float((shift.square() / t + t.log()).sum())
    maps = [site.scale * (base[None] @ keys + key_bias).transpose(1, 2)]  # (H, K, 1)
    maps += [
        keys.transpose(1, 2) @ (part[:, None] * values) for part in (prior.variance / t0, own / t)
    ]
    offsets = [torch.full_like(value_bias[..., :1], constant), base[None] @ values + value_bias]
    offsets += [torch.zeros_like(value_bias)]
    count = 3 if how.sigma else 2
    site.__class__, site.kernel_before, site.kernel = RegularisedAttention, site.kernel, None
    site.recordable = not (site.cross and (how.sigma or how.mu != 1))
    held = dict(
        prior=torch.cat(maps[:count], -1), offset=torch.cat(offsets[:count], -1), reading=None
    )
    if how.sigma or how.mu != 1:
        linear, square = -how.mu * shift / t, 0.5 * (site.scale - how.mu**2 / t)
        held["reading"] = torch.stack([how.mu * s / t, s / t * shift, linear, square])
    for name, tensor in held.items():
        like = None if tensor is None else tensor.to(site.q.weight)
        site.register_buffer(name, like, persistent=False)


def detach(model: nn.Module) -> None:
    """Give back what attentions were."""
    for site in model.modules():
        if isinstance(site, RegularisedAttention):
            site.kernel, site.recordable = site.kernel_before, True
            del site.kernel_before, site.prior, site.offset, site.reading
            site.__class__ = Attention  # type: ignore[assignment]
