"""Positions. Each kind adds to the input, rotates queries and keys, or biases the scores."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from regard.core.config import RotaryScaling

# Adds -----------------------------------------------------------------------------------------


def sinusoidal(positions: Tensor, dim: int, halves: bool = False, base: float = 1e4) -> Tensor:
    """sin and cos of n / base^(2i/D) (Vaswani 2017, 3.5): (…) → (…, D), computed in float64.

    Sines and cosines alternate, or fill the two halves (Marian). An odd dim ends with a sine.
    """
    pairs = (dim + 1) // 2
    rates = base ** (-torch.arange(pairs, device=positions.device, dtype=torch.float64) * 2 / dim)
    angles = positions[..., None].double() * rates
    both = angles.sin(), angles.cos()
    return (torch.cat(both, -1) if halves else torch.stack(both, -1).flatten(-2))[..., :dim]


class Sinusoidal(nn.Module):
    """Fixed waves, without parameters and without a limit on the length.

    For a decoder that reads one token they cost as much as a block, so a CPU looks them up.
    """

    size = None  # no limit
    held = 1024  # positions in the table

    def __init__(self, dim: int, halves: bool = False) -> None:
        super().__init__()
        self.dim, self.halves = dim, halves
        self.table: Tensor | None = None  # (held, D), made when it is first needed

    def forward(self, positions: Tensor) -> Tensor:
        """(B, T) → (B, T, D) in float64; the caller casts it to the stream's dtype."""
        known = positions.device.type == "cpu" and positions.shape[-1:] == (1,)
        known = known and positions.numel() > 0 and not torch.compiler.is_compiling()
        if not known or int(positions.max()) >= self.held:
            return sinusoidal(positions, self.dim, self.halves)
        if self.table is None:
            with torch.inference_mode(False):  # training may want it later
                self.table = sinusoidal(torch.arange(self.held), self.dim, self.halves)
        return nn.functional.embedding(positions, self.table)


class Learned(nn.Module):
    """One trained vector per position; `offset` rows in front are unused (RoBERTa)."""

    def __init__(self, size: int, dim: int, offset: int = 0) -> None:
        super().__init__()
        self.weight, self.offset = nn.Parameter(torch.zeros(size, dim)), offset

    @property
    def size(self) -> int:
        """Number of positions."""
        return self.weight.shape[0] - self.offset

    def forward(self, positions: Tensor) -> Tensor:
        """(B, T) → (B, T, D)."""
        return nn.functional.embedding(positions + self.offset, self.weight)


def sinusoidal_2d(rows: int, columns: int, dim: int, device: torch.device | None = None) -> Tensor:
    """Waves of the row in the first half of the width, of the column in the second: (N, D)."""
    half, steps = dim // 2, (torch.arange(n, device=device) for n in (rows, columns))
    row, column = torch.meshgrid(*steps, indexing="ij")
    parts = sinusoidal(row.flatten(), half), sinusoidal(column.flatten(), dim - half)
    return torch.cat(parts, -1)


# Rotates --------------------------------------------------------------------------------------


class Rotary(nn.Module):
    """Rotary positions (Su 2021): score of query m and key n depends on m − n only.

    Pairs are split in halves (i, i + K/2), as Hugging Face stores them.
    """

    def __init__(self, width: int, base: float, scaling: RotaryScaling | None = None) -> None:
        super().__init__()
        self.width, self.base, self.scaling = width, base, scaling

    def rates(self, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Angle per position of each pair, stretched as in Llama 3 when scaling is set."""
        steps = torch.arange(0, self.width, 2, device=device).to(dtype) / self.width
        rates = 1.0 / (self.base**steps)
        if self.scaling is None:
            return rates
        s = self.scaling
        turns = s.length * rates / (2 * math.pi)  # wavelengths that fit in the old context
        keep = ((turns - s.low) / (s.high - s.low)).clamp(0, 1)
        return (1 - keep) * rates / s.factor + keep * rates

    def forward(self, positions: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        """(B, T) → cos and sin, each (B, T, 1, K), in the dtype of `like`."""
        dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
        angles = positions[..., None].to(dtype) * self.rates(dtype, positions.device)
        angles = torch.cat((angles, angles), -1)[:, :, None]
        return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Turn each pair (i, i + K/2) of the last dimension by its angle: (B, T, H, K)."""
    cos, sin = rotation
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


# Biases ---------------------------------------------------------------------------------------


class RelativeBias(nn.Module):
    """T5's bias per head and distance bucket: near distances exact, far ones logarithmic."""

    def __init__(self, heads: int, buckets: int, distance: int, causal: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(buckets, heads))
        self.distance, self.causal = distance, causal

    def bucket(self, offset: Tensor) -> Tensor:
        """Bucket of key position − query position (Raffel 2020, as in its code)."""
        buckets = self.weight.shape[0]
        if self.causal:
            side = torch.zeros_like(offset)
            offset = (-offset).clamp(min=0)
        else:
            buckets //= 2
            side = (offset > 0).long() * buckets
            offset = offset.abs()
        exact = buckets // 2
        log = torch.log(offset.clamp(min=1).float() / exact) / math.log(self.distance / exact)
        far = (exact + (log * (buckets - exact)).long()).clamp(max=buckets - 1)
        return side + torch.where(offset < exact, offset, far)

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Positions (B, T), (B, S) → (B, H, T, S)."""
        offset = keys[:, None, :] - queries[:, :, None]
        return nn.functional.embedding(self.bucket(offset), self.weight).permute(0, 3, 1, 2)


class GraphBias(nn.Module):
    """Biases per head of what lies between two nodes of a graph (Ying 2021, 3.1.2 and 3.1.3).

    One for the length of the shortest path, one for the kinds of edges on it, by their shares.
    """

    def __init__(self, heads: int, kinds: int, distance: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(distance + 3, heads))
        self.kinds = nn.Parameter(torch.zeros(kinds, heads))

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Paths (B, T, T, 1 + kinds), given twice → (B, H, T, T).

        Rows of the table: the virtual node (a length of −1), lengths from 0, no path (infinite).
        """
        length, longest = queries[..., 0], len(self.weight) - 3
        row = torch.where(length.isinf(), longest + 2, length.clamp(max=longest) + 1).long()
        bias = nn.functional.embedding(row, self.weight) + queries[..., 1:] @ self.kinds
        return bias.permute(0, 3, 1, 2)


class Alibi(nn.Module):
    """Linear penalty on distance, −2^(−8h/H) · |i − j| for head h = 1…H (Press 2022)."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Positions (B, T), (B, S) → (B, H, T, S)."""
        head = torch.arange(1, self.heads + 1, device=queries.device)
        slopes = torch.exp2(-8.0 * head / self.heads)
        distance = (queries[:, :, None] - keys[:, None, :]).abs()
        return -slopes[:, None, None] * distance[:, None]
