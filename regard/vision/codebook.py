"""Pictures as tokens: colours of a palette, or codes of a VQ-VAE, both ways.

A palette is the k-means of colours, one token for each pixel (ImageGPT, Chen 2020). A VQ-VAE (van
den Oord 2017) has one token for each patch: a convolutional encoder, the nearest vector of a
codebook, a decoder. Gradients pass the choice as if it were none (straight through).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.data.windows import Examples
from regard.errors import DataError
from regard.model.batch import Batch
from regard.model.config import ImageConfig
from regard.model.fronts import ChannelNorm, conv_stem
from regard.train.config import PixelConfig, TrainConfig
from regard.train.objectives import Loss
from regard.train.trainer import Trainer, TrainJob

SAMPLED = 1 << 17  # pixels that a palette is learnt from
ROWS = 1 << 16  # vectors whose distances to all codes are held at once
DECAY, SMOOTH, IDLE = 0.99, 1e-5, 100
"""Of the running means, of their counts, and batches after which an unused code is drawn anew."""
COMMITMENT = 0.25
"""Weight of the encoder's distance to its codes (β)."""
PICTURES, RATE = 256, 2e-3  # of a batch of a VQ-VAE; its peak learning rate


class Codebook(nn.Module):
    """Codes (K, D) that follow what chooses them, as running means (EMA)."""

    codes: Tensor
    sums: Tensor
    """(K, D + 1): of what chose each, and how often."""
    idle: Tensor

    def __init__(self, codes: Tensor) -> None:
        super().__init__()
        self.register_buffer("codes", codes.clone())
        self.register_buffer("sums", F.pad(codes, (0, 1), value=1.0))
        self.register_buffer("idle", torch.full((len(codes),), float(IDLE)))

    def nearest(self, x: Tensor) -> Tensor:
        """Vectors (…, D) → numbers (…) of the nearest codes; of equals the first."""
        square = (self.codes**2).sum(1) / 2
        flat = x.reshape(-1, x.shape[-1]).split(ROWS)
        chosen = [torch.addmm(square, part, self.codes.T, alpha=-1).argmin(1) for part in flat]
        return torch.cat(chosen).view(x.shape[:-1])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Vectors (…, D) → (their codes, with x's gradient; numbers (…); commitment loss)."""
        numbers = self.nearest(x.detach())
        chosen = self.codes[numbers]
        if self.training:
            self.follow(x.detach().flatten(0, -2), numbers.flatten())
        return x + (chosen - x).detach(), numbers, F.mse_loss(x, chosen)

    @torch.no_grad()
    def follow(self, x: Tensor, numbers: Tensor) -> None:
        """Move each code towards the mean of its vectors (N, D); unused ones begin anew."""
        new = torch.zeros_like(self.sums).index_add_(0, numbers, F.pad(x, (0, 1), value=1.0))
        self.sums.lerp_(new, 1 - DECAY)
        counts, count = self.sums[:, -1:], len(self.codes)
        total = counts.sum()  # Laplace: a count of nothing divides too
        smooth = (counts + SMOOTH) * total / (total + count * SMOOTH)
        self.idle.copy_(torch.where(new[:, -1] > 0, 0.0, self.idle + 1))
        dead = (self.idle >= IDLE)[:, None]
        drawn = x[torch.randint(len(x), (count,), device=x.device)]
        self.codes.copy_(torch.where(dead, drawn, self.sums[:, :-1] / smooth))
        self.sums.copy_(torch.where(dead, F.pad(drawn, (0, 1), value=1.0), self.sums))
        self.idle.masked_fill_(dead[:, 0], 0.0)


class Palette(nn.Module):
    """Pictures (B, C, H, W) in 0 to 255 ↔ colours of their pixels (B, H · W), in raster order."""

    patch = 1

    def __init__(self, colours: Tensor) -> None:
        super().__init__()
        self.book = Codebook(colours)

    def encode(self, pixels: Tensor) -> Tensor:
        """Numbers of the nearest colours."""
        return self.book.nearest(pixels.to(self.book.codes).flatten(2).mT)

    def decode(self, numbers: Tensor, height: int) -> Tensor:
        """Pictures of numbers (B, T)."""
        pixels: Tensor = self.book.codes[numbers].mT.unflatten(2, (height, -1))
        return pixels


class VQVAE(nn.Module):
    """Pictures (B, C, H, W) in 0 to 255 ↔ codes of their patches (B, T), in raster order."""

    stacks = ()
    """Of blocks: none; the training loop asks, as it asks for `carry` and `device`."""

    def __init__(self, channels: int, patch: int, codes: int, dim: int = 128) -> None:
        super().__init__()
        self.patch = patch
        config = ImageConfig(dim, patch, patch, patch, channels=channels, stem="conv")
        self.encoder, self.book = conv_stem(config), Codebook(torch.randn(codes, dim))
        widths = [max(dim >> n, 32) for n in range(patch.bit_length())]
        parts: list[nn.Module] = [nn.Conv2d(dim, dim, 3, padding=1), ChannelNorm(dim), nn.GELU()]
        for before, after in zip(widths, widths[1:], strict=False):
            parts += [nn.ConvTranspose2d(before, after, 4, 2, 1), ChannelNorm(after), nn.GELU()]
        self.decoder = nn.Sequential(*parts, nn.Conv2d(widths[-1], channels, 3, padding=1))

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.book.codes.device

    def carry(self, rows: int) -> None:
        """Nothing passes from batch to batch."""

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(pictures again, numbers (B, T), what is minimised)."""
        x = pixels.float() / 127.5 - 1
        vectors = self.encoder(x).flatten(2).mT  # (B, T, D)
        chosen, numbers, apart = self.book(F.layer_norm(vectors, vectors.shape[-1:]))
        again = self.decoder(chosen.mT.unflatten(2, (x.shape[2] // self.patch, -1)))
        return again, numbers, F.mse_loss(again, x) + COMMITMENT * apart

    def encode(self, pixels: Tensor) -> Tensor:
        """Numbers of the nearest codes."""
        return torch.cat([self(part)[1] for part in pixels.split(PICTURES)])

    def decode(self, numbers: Tensor, height: int) -> Tensor:
        """Pictures of numbers (B, T)."""
        chosen = self.book.codes[numbers].mT.unflatten(2, (height // self.patch, -1))
        pixels: Tensor = (self.decoder(chosen) * 127.5 + 127.5).clamp(0, 255)
        return pixels


def learn_palette(pixels: NDArray[np.uint8], own: PixelConfig, seed: int) -> Palette:
    """The k-means of colours of pictures (N, C, H, W)."""
    codes, dice, flat = own.codes, np.random.default_rng(seed), pixels.transpose(0, 2, 3, 1)
    places = dice.permutation(math.prod(flat.shape[:3]))[:SAMPLED]
    some = flat[np.unravel_index(places, flat.shape[:3])].astype(np.float32)
    if (there := len(np.unique(some, axis=0))) < codes:
        fix = f"--codes {there}"
        raise DataError("learning a palette", f"{there} colours", f"{codes} or more", fix)
    return Palette(k_means(torch.from_numpy(some), codes, dice))


def k_means(x: Tensor, k: int, dice: np.random.Generator, rounds: int = 50) -> Tensor:
    """Centres (k, D) of vectors (N, D): Lloyd's way (1982), begun far apart (Arthur 2007)."""
    rows = [int(dice.integers(len(x)))]
    far = (x - x[rows[0]]).square().sum(1).double()
    while len(rows) < k:
        rows.append(int(torch.searchsorted(far.cumsum(0), dice.random() * float(far.sum()))))
        far = far.minimum((x - x[rows[-1]]).square().sum(1))
    centres = x[rows]
    chosen = None
    for _ in range(rounds):
        before, chosen = chosen, Codebook(centres).nearest(x)
        for empty in (torch.bincount(chosen, minlength=k) == 0).nonzero():  # takes what fits worst
            chosen[(x - centres[chosen]).square().sum(1).argmax()] = empty
        if before is not None and torch.equal(before, chosen):
            break
        sums = torch.zeros(k, x.shape[1], dtype=torch.float64).index_add_(0, chosen, x.double())
        centres = (sums / torch.bincount(chosen, minlength=k)[:, None]).float()
    return centres


def learn_codes(
    pixels: NDArray[np.uint8], own: PixelConfig, seed: int, device: str, say: Callable[[str], None]
) -> VQVAE:
    """Train a VQ-VAE on pictures (N, C, H, W); the rate falls to nothing (cosine)."""
    dice, steps = np.random.default_rng(seed), own.code_steps
    how = dict(lr=RATE, warm_up=100, floor=0.0, beta2=0.99, weight_decay=1e-4, clip=0.0)
    config = TrainConfig(steps=steps, **how)  # type: ignore[arg-type]

    def loss(model: Any, batch: Batch, labels: Tensor, *unused: Any) -> Loss:
        total = model(batch.ids)[2] * len(labels)
        return Loss(total, total.detach(), torch.tensor(len(labels)), {})

    with torch.random.fork_rng([device] if device == "cuda" else []):
        torch.manual_seed(seed)
        model = VQVAE(pixels.shape[1], own.patch, own.codes).to(device).train()
        trainer = Trainer(TrainJob(config, model, loss=loss))  # type: ignore[arg-type]
        for step in range(steps):
            some = pixels[np.sort(dice.integers(len(pixels), size=PICTURES))]
            batch = Examples(torch.from_numpy(some), torch.zeros(PICTURES), PICTURES)
            measured = trainer.step([batch])
            if step % 100 == 0:
                say(f"learning codes, step {step:,} of {steps:,}: loss {measured['loss']:.4f}")
    return model.eval()
