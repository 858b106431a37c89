"""Fronts: text, pictures or sound → vectors, positions, mask, as a stack reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from regard.core import mask as masks
from regard.core.cache import Cache
from regard.core.norm import build_norm
from regard.core.position import Learned, Sinusoidal, sinusoidal_2d
from regard.errors import DataError, UsageError
from regard.model.config import AudioConfig, FrontConfig, ImageConfig, TextConfig, WaveConfig


class Sequence(NamedTuple):
    """What a front hands to a stack."""

    x: Tensor
    """(B, T, D)"""
    positions: Tensor
    """(B or 1, T); of a graph (B, T, T, 1 + kinds): the shortest paths between its nodes."""
    real: Tensor | None = None
    """(B, T): True = token, False = padding; None when all are real."""
    document: Tensor | None = None
    """(B, T): number of the document in a packed row; None when a row is one document."""


def build_front(config: FrontConfig) -> nn.Module:
    """The front of a config."""
    if isinstance(config, TextConfig):
        return GraphFront(config) if config.kind == "graph" else TextFront(config)
    if isinstance(config, ImageConfig):
        return ImageFront(config)
    return WaveFront(config) if isinstance(config, WaveConfig) else AudioFront(config)


class TextFront(nn.Module):
    """Token ids (B, T) → vectors; positions follow the mask, so padding needs nothing else."""

    def __init__(self, config: TextConfig) -> None:
        super().__init__()
        self.config, self.tokens = config, nn.Embedding(config.vocab, config.dim)
        self.positions: Learned | Sinusoidal | None = None
        if config.position == "learned":
            self.positions = Learned(config.length or 512, config.dim, config.offset)
        elif config.position != "none":
            self.positions = Sinusoidal(config.dim, halves=config.position == "halves")
        self.segments = nn.Embedding(config.segments, config.dim) if config.segments else None
        self.norm = build_norm(config.norm, config.dim, config.eps)
        self.dropout = nn.Dropout(config.dropout)
        self.listener: Callable[[Tensor, Tensor | None, bool], None] | None = None
        """Told of positions, of what is real, and whether they go on, for `look/edits.py`."""

    def forward(
        self,
        ids: Tensor,
        real: Tensor | None = None,
        document: Tensor | None = None,
        segment: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Sequence:
        """ids, real, document, segment (B, T) → vectors (B, T, D) with their positions."""
        positions = self.place(ids, real, document, cache)
        x = self.tokens(ids)
        x = x * self.config.dim**0.5 if self.config.scale else x
        if self.segments is not None:
            x = x + self.segments(torch.zeros_like(ids) if segment is None else segment)
        if self.positions is not None:
            x = x + self.positions(positions).to(x.dtype)
        return Sequence(self.dropout(self.norm(x)), positions, real, document)

    def place(
        self, ids: Tensor, real: Tensor | None, document: Tensor | None, cache: Cache | None
    ) -> Tensor:
        """Position of each token in its own sequence, (B or 1, T)."""
        if cache is not None:
            if self.config.spread:  # how far apart they are depends on the length
                raise UsageError("decoding", "positions that are spread", "an encoder for them")
            self.check_length(ids, real, cache)
            positions = cache.place(real, document, ids.shape[1])
        elif real is None and document is None:
            positions = torch.arange(ids.shape[1], device=ids.device)[None]
        else:
            real_or_all = torch.ones_like(ids, dtype=torch.bool) if real is None else real
            positions = masks.positions(real_or_all, document)
        if self.listener is not None:
            self.listener(positions, real, cache is not None)
        if cache is not None:
            return positions
        if self.config.spread:
            return self.spread(positions)
        size = None if self.positions is None else self.positions.size
        if size is not None and ids.shape[1] > size and int(positions.max()) >= size:
            raise too_long(int(positions.max()) + 1, size)
        return positions

    def spread(self, positions: Tensor) -> Tensor:
        """Positions (B or 1, T) in the same order among `spread`: drawn in training, else even.

        So a model has seen all positions that longer sequences have (Ruoss et al. 2023).
        """
        count, width = self.config.spread, positions.shape[1]
        if width > count:
            raise too_long(width, count)
        if not self.training:
            return positions * count // (positions.amax(1, keepdim=True) + 1)
        drawn = torch.rand(len(positions), count, device=positions.device)
        ordered = drawn.topk(width, dim=1).indices.sort(1).values  # (B, T)
        return ordered.gather(1, positions)

    def check_length(self, ids: Tensor, real: Tensor | None, cache: Cache) -> None:
        """Fail before the cache is touched when a row would grow past a learned table."""
        size = None if self.positions is None else self.positions.size
        if size is None or cache.packed or cache.used + ids.shape[1] <= size:
            return
        longest = cache.lengths + (ids.shape[1] if real is None else real.sum(-1))
        if int(longest.max()) > size:
            raise too_long(int(longest.max()), size)


def too_long(count: int, size: int) -> DataError:
    """The error for a sequence past a learned position table."""
    expected = f"at most {size}, the rows of this model's learned position table"
    fix = "shorten or split the input, or use a model with rotary, relative, ALiBi or "
    fix += "sinusoidal positions, which have no table"
    return DataError("embedding positions", f"a sequence of {count} tokens", expected, fix)


class ImageFront(nn.Module):
    """Pixels (B, C, height, width) → one vector per patch, the class token first.

    Equal patches (Dosovitskiy 2021), or a small convolutional stem (Xiao 2021).
    """

    def __init__(self, config: ImageConfig) -> None:
        super().__init__()
        whole = config.height % config.patch == 0 == config.width % config.patch
        if min(config.grid) < 1 or not (whole or config.stride):
            doing = "building an image front"
            fault = f"{config.height} × {config.width} pixels, patches of {config.patch}"
            expected = "height and width that are multiples of the patch"
            raise UsageError(doing, fault, expected, "resize the pictures or change the patch")
        self.config, self.grid = config, config.grid
        self.patches: nn.Module
        if config.stem == "conv":
            self.patches = conv_stem(config)
        else:  # one linear map per patch is a convolution whose stride is the patch
            sizes = config.channels, config.dim, config.patch
            self.patches = nn.Conv2d(*sizes, stride=config.stride or config.patch)
        zeros = torch.zeros(1, 1, config.dim)
        self.cls = nn.Parameter(zeros) if config.cls else None
        self.distillation = nn.Parameter(zeros.clone()) if config.distilled else None
        self.positions: Learned | None = None
        if config.position == "learned":
            tokens = self.grid[0] * self.grid[1] + config.cls + config.distilled
            self.positions = Learned(tokens, config.dim)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, pixels: Tensor) -> Sequence:
        """(B, C, height, width) → (B, class and distillation token + patches, D)."""
        config = self.config
        if pixels.shape[1:] != (config.channels, config.height, config.width):
            expected = f"(batch, {config.channels}, {config.height}, {config.width})"
            fix = "resize the pictures to the model's size"
            raise DataError("reading pixels", f"shape {tuple(pixels.shape)}", expected, fix)
        x = self.patches(pixels).flatten(2).transpose(1, 2)  # (B, N, D)
        if config.position == "2d":
            x = x + sinusoidal_2d(*self.grid, config.dim, x.device).to(x)
        for token in (self.distillation, self.cls):
            if token is not None:
                x = torch.cat((token.expand(len(x), -1, -1), x), 1)
        positions = torch.arange(x.shape[1], device=x.device)[None]
        if self.positions is not None:
            x = x + self.positions(positions)
        return Sequence(self.dropout(x), positions)


def resize_positions(table: Tensor, old: tuple[int, int], new: tuple[int, int]) -> Tensor:
    """A position table (tokens + patches, D) for another grid, bicubic; tokens keep their rows."""
    lead = len(table) - old[0] * old[1]
    grid = table[lead:].T.reshape(1, -1, *old)  # (1, D, rows, columns)
    grid = F.interpolate(grid, new, mode="bicubic", align_corners=False, antialias=False)
    return torch.cat((table[:lead], grid[0].flatten(1).T))


class ChannelNorm(nn.LayerNorm):
    """Layer norm over the channels of each place of (B, C, H, W)."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) → (B, C, H, W)."""
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


def conv_stem(config: ImageConfig) -> nn.Module:
    """3 × 3 convolutions with norms, two for each halving, then a 1 × 1 map to dim.

    The first keeps the size and sees edges as they are, the second has stride 2, down to one
    value per patch.
    """
    halvings = config.patch.bit_length() - 1
    if config.patch != 2**halvings or halvings < 1:
        raise UsageError("building a conv stem", f"patch = {config.patch}", "a power of two")
    parts: list[nn.Module] = []
    before = config.channels
    for step in range(halvings):
        after = max(config.dim >> (halvings - step), 8)
        for size, stride in ((before, 1), (after, 2)):
            parts += [nn.Conv2d(size, after, 3, stride, 1), ChannelNorm(after), nn.GELU()]
        before = after
    return nn.Sequential(*parts, nn.Conv2d(before, config.dim, 1))


class AudioFront(nn.Module):
    """Log-mel (B, mels, frames) → one vector per two frames, by convolutions (Radford 2022)."""

    def __init__(self, config: AudioConfig) -> None:
        super().__init__()
        self.config = config
        self.conv1 = nn.Conv1d(config.mels, config.dim, 3, padding=1)
        self.conv2 = nn.Conv1d(config.dim, config.dim, 3, stride=2, padding=1)
        self.positions = Learned(config.length, config.dim)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, mel: Tensor) -> Sequence:
        """(B, mels, frames), or (B, 1, mels, frames) → (B, frames / 2, D)."""
        config, mel = self.config, mel[:, 0] if mel.dim() == 4 else mel
        if mel.dim() != 3 or mel.shape[1] != config.mels or mel.shape[2] > 2 * config.length:
            doing = "reading a log-mel spectrogram"
            expected = f"(batch, {config.mels}, at most {2 * config.length})"
            fix = "cut the sound into pieces; regard.data.sound.log_mel gives the right shape"
            raise DataError(doing, f"shape {tuple(mel.shape)}", expected, fix)
        x = F.gelu(self.conv2(F.gelu(self.conv1(mel)))).transpose(1, 2)  # (B, T, D)
        positions = torch.arange(x.shape[1], device=x.device)[None]
        return Sequence(self.dropout(x + self.positions(positions)), positions)


class WaveFront(nn.Module):
    """Samples (B, 1, S) → vectors, positions told by a convolution over them (Baevski 2020)."""

    def __init__(self, config: WaveConfig) -> None:
        super().__init__()
        self.config, sizes, dim = config, config.channels, config.dim
        parts = zip((1, *sizes[:-1]), sizes, config.kernels, config.strides, strict=True)
        self.convs = nn.ModuleList(nn.Conv1d(*part, bias=config.bias) for part in parts)
        group = config.norm == "group"
        layers = [nn.GroupNorm(sizes[0], sizes[0])] if group else map(nn.LayerNorm, sizes)
        self.norms = nn.ModuleList(layers)
        self.norm, self.project = nn.LayerNorm(sizes[-1], config.eps), nn.Linear(sizes[-1], dim)
        self.mask = nn.Parameter(torch.zeros(dim)) if config.masked else None
        whole = nn.Conv1d(dim, dim, config.reach, padding=config.reach // 2, groups=config.groups)
        self.positions = weight_norm(whole, dim=2)
        self.last = build_norm("layer" if config.post else "none", dim, config.eps)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, wave: Tensor) -> Sequence:
        """(B, S), or (B, 1, S) → (B, T, D)."""
        x = wave.reshape(len(wave), -1, wave.shape[-1])
        for n, conv in enumerate(self.convs):
            if x.shape[1] != conv.in_channels or x.shape[2] < self.config.kernels[n]:
                expected = "(batch, 1, samples), a twentieth of a second or more"
                raise DataError("reading samples", f"shape {tuple(wave.shape)}", expected)
            x = conv(x)  # (B, C, T)
            if n < len(self.norms):
                x = self.norms[n](x) if self.config.norm == "group" else self.norms[n](x.mT).mT
            x = F.gelu(x)
        x = self.project(self.norm(x.mT))  # (B, T, D)
        x = x + F.gelu(self.positions(x.mT)[..., : x.shape[1]]).mT
        return Sequence(self.dropout(self.last(x)), torch.arange(x.shape[1], device=x.device)[None])


class GraphFront(nn.Module):
    """Features of each node (B, N, F) → vectors, with those of its degree (Ying 2021, 3.1.1).

    Nodes have no order: all that is known of where one lies are its paths to the others. Without
    paths they are a set.
    """

    def __init__(self, config: TextConfig) -> None:
        super().__init__()
        self.nodes = nn.Linear(config.vocab, config.dim)
        self.degrees = nn.Embedding(config.segments, config.dim) if config.segments else None
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, nodes: Tensor, real: Tensor | None, paths: Tensor | None) -> Sequence:
        """Nodes (B, N, F), real (B, N), paths (B, N, N, 1 + kinds) → (B, N, D)."""
        if nodes.dim() != 3 or nodes.shape[2] != self.nodes.in_features:
            expected = f"(batch, nodes, {self.nodes.in_features})"
            raise DataError("reading the nodes of a graph", f"shape {tuple(nodes.shape)}", expected)
        x = self.nodes(self.dropout(nodes))
        if self.degrees is not None and paths is not None:
            degree = (paths[..., 0] == 1).sum(-1)  # (B, N)
            x = x + self.degrees(degree.clamp(max=self.degrees.num_embeddings - 1))
        places = torch.arange(x.shape[1], device=x.device)[None] if paths is None else paths
        return Sequence(self.dropout(x), places, real)
