"""Autoencoders of texts: an encoder-decoder whose memory passes a bottleneck.

An NVAE (Henderson and Fehr 2023) says a text again from a draw of a mixture of Gaussians, one for
each vector of the text, which it pays for by their divergence from a prior. The usual VAEs beside
it draw one Gaussian for each vector, or a single one for their mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.core.attention import Attention, View
from regard.errors import DataError, UsageError
from regard.model import fronts
from regard.model.batch import Batch
from regard.model.model import Memory, Model
from regard.nvib import denoising
from regard.nvib.bottleneck import Bottleneck, Mixture, Reading, draw, read_mean
from regard.nvib.config import Latent
from regard.nvib.denoising import Denoising, bottlenecks
from regard.verbs import Count, Share, check_fields

NOTED = "latent"  # the key of config.json
HOLDER = "decoder.blocks.0.cross"  # the attention that has the bottleneck, which all of them read


@dataclass(frozen=True)
class LatentConfig:
    """What stands between encoder and decoder."""

    latent: Latent = "nvib"
    noise: Share = 0.0
    """Share of the tokens that training hides from the encoder."""
    lengths: list[Count] = field(default_factory=lambda: [8])
    """How many tokens texts have: quantiles, for texts that are drawn from the prior."""

    def __post_init__(self) -> None:
        check_fields(type(self).__name__, self)


class Reader(Denoising):
    """Cross-attention over a memory that is a packed mixture."""

    def read(self, source: Tensor, ctx: View) -> Reading:
        """The inverse of `pack`."""
        dim = self.k.in_features
        vectors, *share, bias = source.split([dim] * ((source.shape[-1] - 1) // dim) + [1], -1)
        return Reading(vectors, bias[..., 0], share[0] if share else None)


def pack(reading: Reading) -> Memory:
    """A mixture as one tensor (B, N, D + 1 or 2 D + 1); its bias says what is padding."""
    parts = [reading.vectors, *([] if reading.share is None else [reading.share])]
    return Memory(torch.cat([*parts, reading.bias[..., None]], -1))


class Autoencoder(Model):
    """An encoder-decoder whose memory is drawn in training, and its mean outside of it."""

    latent: LatentConfig

    @property
    def bottleneck(self) -> Bottleneck | None:
        """What every cross-attention reads through."""
        return bottlenecks(self).get(HOLDER)

    @property
    def variance(self) -> float:
        """That of the noise which cross-attention believes its queries to have."""
        return 1 / float(self.get_submodule(HOLDER).scale)  # type: ignore[arg-type]

    def encode(self, batch: Batch) -> Memory:
        """Texts → memory; in training some tokens are deleted first."""
        source = batch.source
        if self.training and self.latent.noise:
            kept = torch.rand(source.inputs.shape, device=source.inputs.device) >= self.latent.noise
            kept[:, 0] = True
            source = replace(source, mask=kept if source.mask is None else source.mask & kept)
        return super().encode(source)

    def read(self, source: fronts.Sequence) -> Memory:
        """Run the encoder on what its front made, and the bottleneck on what that made."""
        memory, held = super().read(source), self.bottleneck
        x, real = memory.x, memory.real
        real = x.new_ones(x.shape[:2], dtype=torch.bool) if real is None else real
        if held is None:  # the bottleneck of the last layer, if any, says what is left
            parts = list(bottlenecks(self).values())
            if parts and parts[-1].last is not None:
                real = parts[-1].last.kept(parts[-1].config.threshold)[:, 1:]
            return Memory(x, real)
        if self.latent.latent == "pooled":
            x = x.masked_fill(~real[..., None], 0.0).sum(1, True) / real.sum(1)[:, None, None]
            real = real[:, :1]
        mixture = held(x, real)
        if self.latent.latent == "nvib":
            return pack(held.read(mixture, self.variance))
        z = draw(mixture)[0] if self.training else mixture.mean
        return Memory(z[:, 1:], mixture.real[:, 1:])

    def counts(self, memory: Memory) -> list[int]:
        """How many vectors each text keeps, without that of the prior."""
        kept = memory.x[:, 1:, -1].isfinite() if memory.real is None else memory.real
        return [int(count) for count in kept.sum(-1)]

    def draw_memory(self, count: int) -> Memory:
        """Latents from the prior, for texts of usual lengths."""
        held, kind = self.bottleneck, self.latent.latent
        if held is None:
            doing, fix = "drawing from the prior", "train one with another --latent"
            raise UsageError(doing, "a model without latents", "an NVAE or VAE", fix)
        lengths = torch.tensor([1] if kind == "pooled" else self.latent.lengths, device=self.device)
        lengths = lengths[torch.randint(len(lengths), (count,), device=self.device)]
        mixture = draw_prior(lengths, held.mean.in_features, held.config.delta)
        if kind == "nvib":
            return pack(read_mean(mixture, self.variance))
        return Memory(mixture.mean[:, 1:], mixture.real[:, 1:])

    def mix(self, first: Memory, second: Memory, share: float) -> Memory:
        """Latents of two texts (1, N, D) in one; of mixtures all components, by `share`."""
        if self.latent.latent == "nvib":
            parts = [memory.x.clone() for memory in (first, second)]
            for part, weight in zip(parts, (1 - share, share), strict=True):
                part[..., -1] += torch.tensor(weight).log()
            return Memory(torch.cat(parts, 1))
        sizes = first.x.shape[1], second.x.shape[1]
        a, b = (F.pad(part.x, (0, 0, 0, max(sizes) - part.x.shape[1])) for part in (first, second))
        count = round((1 - share) * sizes[0] + share * sizes[1])
        return Memory(torch.lerp(a, b, share)[:, :count])


def draw_prior(lengths: Tensor, dim: int, delta: float) -> Mixture:
    """Mixtures of points from the prior for texts of these lengths (B,): their α are weights."""
    rows, count = len(lengths), int(lengths.max()) + 1
    real = torch.arange(count, device=lengths.device) <= lengths[:, None]
    z = torch.randn(rows, count, dim, device=lengths.device)
    alpha = ((1 + delta * lengths) / (lengths + 1)).log()[:, None].expand(rows, count)
    none = torch.full_like(z, -torch.inf)
    z, weights = draw(Mixture(z, none, alpha, real))
    return Mixture(z, none, weights, real)


def as_autoencoder(model: Model, latent: LatentConfig) -> Autoencoder:
    """An encoder-decoder, which has its bottleneck already, in place."""
    if not (model.encoder and model.decoder and model.config.target):
        raise UsageError("making an autoencoder", "a model of another kind", "an encoder-decoder")
    own: Any = model
    own.__class__, own.latent = Autoencoder, latent
    for block in own.decoder.blocks:
        block.cross.__class__ = Reader if latent.latent == "nvib" else Attention
    return model  # type: ignore[return-value]


def restore(model: Model, described: Mapping[str, Any]) -> None:
    """Make of a model what the config.json beside it says of bottlenecks and latents."""
    denoising.restore(model, described)
    if (noted := described.get(NOTED)) is not None:
        try:
            as_autoencoder(model, LatentConfig(**noted))
        except (TypeError, UsageError) as error:
            fault = f"{NOTED} = {noted!r}: {error}"
            raise DataError("reading config.json", fault, "what regard wrote") from None
