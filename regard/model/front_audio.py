"""Audio front: a log-mel spectrogram through two convolutions (Radford 2022, Whisper)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.core.position import Learned
from regard.errors import DataError
from regard.model.config import AudioConfig
from regard.model.front import Sequence


class AudioFront(nn.Module):
    """Log-mel (B, mels, frames) → one vector per two frames."""

    def __init__(self, config: AudioConfig) -> None:
        super().__init__()
        self.config = config
        self.conv1 = nn.Conv1d(config.mels, config.dim, 3, padding=1)
        self.conv2 = nn.Conv1d(config.dim, config.dim, 3, stride=2, padding=1)
        self.positions = Learned(config.length, config.dim)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, mel: Tensor) -> Sequence:
        """(B, mels, frames) → (B, frames / 2, D)."""
        config = self.config
        if mel.dim() != 3 or mel.shape[1] != config.mels or mel.shape[2] > 2 * config.length:
            raise DataError(
                "reading a log-mel spectrogram",
                f"shape {tuple(mel.shape)}",
                f"(batch, {config.mels}, at most {2 * config.length})",
                "cut the sound into pieces; regard.data.sound.log_mel gives the right shape",
            )
        x = F.gelu(self.conv2(F.gelu(self.conv1(mel)))).transpose(1, 2)  # (B, T, D)
        positions = torch.arange(x.shape[1], device=x.device)[None]
        return Sequence(self.dropout(x + self.positions(positions)), positions)
