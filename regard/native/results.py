"""What `regard.doctor` returns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from regard.result import Grid, Result, Row, human_bytes, shown


@dataclass(frozen=True)
class MainMemory(Row):
    """Bytes of main memory."""

    total: int | None
    available: int | None


@dataclass(frozen=True)
class NativeKernels(Row):
    """Whether the kernels in C run here."""

    there: bool
    why_not: str


@dataclass(frozen=True)
class Speed(Row):
    """Of a float32 matrix product."""

    device: str
    float32_gflops: float


@dataclass(frozen=True)
class Machine(Result):
    """What this machine has, and how fast it is."""

    python: str
    platform: str
    regard: str
    packages: dict[str, str | None]
    """Required ones with their versions; None where one is missing."""
    optional: dict[str, str | None]
    memory: MainMemory
    disk_free: int
    ok: bool
    """Whether all that is required is there."""
    devices: list[str] | None = None
    """None without torch, as are the fields below."""
    native: NativeKernels | None = None
    threads: int | None = None
    cores: int | None = None
    speed: Speed | None = None
    uses: dict[str, str] = shown(json=False, default_factory=dict)
    """What the optional packages are for."""

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        """1 where a package is missing."""
        return 0 if self.ok else 1

    def to_dict(self) -> dict[str, Any]:
        """Without what only torch could tell, where there is none."""
        values = super().to_dict()
        unknown = ("devices", "native", "threads", "cores", "speed")
        return {k: v for k, v in values.items() if k not in unknown or v is not None}

    def parts(self) -> Iterator[str | Grid]:
        """Packages, then the machine."""
        packages = {"regard": self.regard, "Python": self.python}
        packages |= {name: number or "MISSING" for name, number in self.packages.items()}
        for name, number in self.optional.items():
            packages[name] = number or f"not installed ({self.uses.get(name, '')})"
        yield Grid("packages", ("", ""), list(packages.items()), left=2)
        machine = {"platform": self.platform}
        if self.memory.total is not None:
            free = human_bytes(self.memory.available or 0)
            machine["memory"] = f"{human_bytes(self.memory.total)}, {free} available"
        machine["free disk here"] = human_bytes(self.disk_free)
        if self.devices is not None and self.native is not None and self.speed is not None:
            machine["devices"] = ", ".join(self.devices)
            there = self.native.there
            machine["int8 kernels"] = "native" if there else f"torch's: {self.native.why_not}"
            machine["threads"] = f"{self.threads} of {self.cores} cores"
            speed = f"{self.speed.float32_gflops:,} GFLOP/s"
            machine["speed"] = f"{speed} (float32 matrix product, {self.speed.device})"
        yield Grid("machine", ("", ""), list(machine.items()), left=2)
