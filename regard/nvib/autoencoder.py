"""A variational autoencoder of texts: between encoder and decoder stands a bottleneck (NVAE).

An ordinary encoder-decoder, changed in place. Its latents are a mixture, which the decoder's
cross-attention denoises; or, to compare with, a Gaussian for each vector of the encoder, or one
Gaussian for their mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

import torch
from torch import Tensor

from regard.errors import DataError, UsageError
from regard.model.fronts import Sequence
from regard.model.model import Memory, Model
from regard.nvib.bottleneck import Bottleneck, Reading, draw_prior, read_mean
from regard.nvib.config import NVIBConfig
from regard.nvib.denoising import bottlenecks, describe, put_on

NOTED = "nvib"  # the key of config.json


@dataclass(frozen=True)
class LatentConfig:
    """What stands between encoder and decoder."""

    latent: Literal["nvib", "gaussian", "pooled", "none"] = "nvib"
    noise: float = 0.0
    """Share of the tokens that training hides from the encoder."""
    lengths: tuple[int, ...] = (8,)
    """How many tokens texts have: quantiles, for texts that are drawn from the prior."""


class Autoencoder(Model):
    """An encoder-decoder whose memory passes a bottleneck."""

    latent: LatentConfig
    bottleneck: Bottleneck | None

    def encode(self, inputs: Tensor, mask: Tensor | None = None, *rest: Any, **more: Any) -> Memory:
        """Ids (B, S) → memory; in training some tokens are deleted first."""
        if self.training and self.latent.noise:
            kept = torch.rand(inputs.shape, device=inputs.device) >= self.latent.noise
            kept[:, 0] = True
            mask = kept if mask is None else mask & kept
        return super().encode(inputs, mask, *rest, **more)

    def read(self, source: Sequence) -> Memory:
        """Run the encoder on what its front made, and the bottleneck on what that made."""
        memory = super().read(source)
        x, real = memory.x, memory.real
        real = x.new_ones(x.shape[:2], dtype=torch.bool) if real is None else real
        if self.bottleneck is None:  # that of the last layer, if any, says what is left
            parts = [part for name, part in bottlenecks(self).items() if "encoder" in name]
            if parts and not self.training and (mixture := parts[-1].last) is not None:
                real = mixture.kept(parts[-1].config.threshold)[:, 1:]
            return Memory(x, real)
        if self.latent.latent == "pooled":
            x = x.masked_fill(~real[..., None], 0.0).sum(1, True) / real.sum(1)[:, None, None]
            real = real[:, :1]
        mixture = self.bottleneck(x, real)
        if self.latent.latent == "nvib":
            return self.remember(self.bottleneck.read(mixture, self.noise))
        z, real = mixture.mean, mixture.real
        if self.training:
            z = z + (mixture.log_variance / 2).exp() * torch.randn_like(z)
        return Memory(z[:, 1:], real[:, 1:])

    @property
    def noise(self) -> float:
        """The variance that cross-attention believes its queries to have."""
        assert self.decoder is not None
        scale: Any = self.decoder.blocks[0].cross.scale  # type: ignore[union-attr]
        return 1 / cast(float, scale)

    def remember(self, reading: Reading) -> Memory:
        """A mixture as the decoder looks at it."""
        return Memory(reading.pack(), reading.bias.isfinite())

    def draw_memory(self, count: int) -> Memory:
        """Latents from the prior, for texts of usual lengths."""
        held, device = self.bottleneck, self.device
        if held is None:
            doing, fix = "drawing from the prior", "train one with --latent nvib"
            raise UsageError(doing, "a model without latents", "an NVAE", fix)
        chosen = torch.randint(len(self.latent.lengths), (count,), device=device)
        lengths = torch.tensor(self.latent.lengths, device=device)[chosen]
        lengths = torch.ones_like(lengths) if self.latent.latent == "pooled" else lengths
        mixture = draw_prior(lengths, held.mean.in_features, held.config.delta)
        if self.latent.latent != "nvib":
            return Memory(mixture.mean[:, 1:], mixture.real[:, 1:])
        return self.remember(read_mean(mixture, self.noise))

    def mix(self, first: Memory, second: Memory, share: float) -> Memory:
        """Latents of two texts (1, N, D) in one; of mixtures all components, by `share`."""
        if self.latent.latent == "nvib":
            weights = torch.tensor([1 - share, share], device=first.x.device).log()
            parts = [m.x.clone() for m in (first, second)]
            for part, weight in zip(parts, weights, strict=True):
                part[..., -1] += weight
            x = torch.cat(parts, 1)
            return Memory(x, x[..., -1].isfinite())
        sizes = first.x.shape[1], second.x.shape[1]
        size, common = round((1 - share) * sizes[0] + share * sizes[1]), min(sizes)
        x = torch.lerp(first.x[:, :common], second.x[:, :common], share)
        longer = first if sizes[0] > sizes[1] else second
        return Memory(torch.cat([x, longer.x[:, common:]], 1)[:, : max(size, 1)])


def make_autoencoder(
    model: Model, latent: LatentConfig, config: NVIBConfig | None = None
) -> Autoencoder:
    """Change an encoder-decoder in place."""
    if not all((model.encoder, model.decoder, model.config.target)):
        raise UsageError("making an autoencoder", "a model of another kind", "an encoder-decoder")
    model.__class__ = Autoencoder
    own = cast(Autoencoder, model)
    own.latent, own.bottleneck = latent, None
    if latent.latent == "none":
        return own
    assert model.decoder is not None and config is not None
    if latent.latent == "nvib":
        for number in range(len(model.decoder.blocks)):
            put_on(model, f"decoder.blocks.{number}.cross", None)
    held = Bottleneck(model.config.width, config).train(model.training)
    own.bottleneck = held.to(model.device)
    return own


def note(model: Model) -> dict[str, Any]:
    """What was put on a model, as config.json holds it; empty for an ordinary one."""
    noted: dict[str, Any] = {}
    if attached := describe(model):
        noted["attached"] = attached
    if isinstance(model, Autoencoder):
        held = model.bottleneck
        noted["autoencoder"] = asdict(model.latent)
        noted["bottleneck"] = None if held is None else asdict(held.config)
    return {NOTED: noted} if noted else {}


def restore(model: Model, described: Mapping[str, Any]) -> None:
    """Put on a model what the config.json beside it notes."""
    noted = described.get(NOTED)
    if noted is None:
        return
    try:
        for name, values in noted.get("attached", {}).items():
            put_on(model, name, NVIBConfig(**values))
        if "autoencoder" in noted:
            values, own = noted["autoencoder"], noted.get("bottleneck")
            latent = LatentConfig(**values | {"lengths": tuple(values["lengths"])})
            make_autoencoder(model, latent, None if own is None else NVIBConfig(**own))
    except (TypeError, KeyError, AttributeError, AssertionError, UsageError) as error:
        fault = f"{NOTED} = {noted!r}: {error}"
        raise DataError("reading config.json", fault, "what `regard train nvae` wrote") from None
