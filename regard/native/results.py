"""What `regard.doctor` returns."""

from __future__ import annotations

from regard.result import Result, Row, human_bytes, shown


class MainMemory(Row):
    """Bytes of main memory."""

    total: int | None = shown(human_bytes)
    available: int | None = shown(human_bytes)


class NativeKernels(Row):
    """Whether the kernels in C run here."""

    there: bool
    why_not: str


class Speed(Row):
    """Of a float32 matrix product."""

    device: str
    float32_gflops: float = shown("{:,} GFLOP/s (float32 matrix product)", title="speed")


class Machine(Result):
    """What this machine has, and how fast it is."""

    python: str = shown(title="Python")
    platform: str = shown()
    regard: str = shown()
    packages: dict[str, str | None] = shown(title="required packages")
    """Required ones with their versions; None where one is missing."""
    optional: dict[str, str | None] = shown(title="optional packages")
    memory: MainMemory = shown()
    disk_free: int = shown(human_bytes, title="free disk here")
    ok: bool = shown()
    """Whether all that is required is there."""
    devices: list[str] | None = shown(optional=True, default=None)
    """None without torch, as are the fields below."""
    native: NativeKernels | None = shown(title="int8 kernels in C", optional=True, default=None)
    threads: int | None = shown(optional=True, default=None)
    cores: int | None = shown(optional=True, default=None)
    speed: Speed | None = shown(optional=True, default=None)
    uses: dict[str, str] = shown(
        title="what the missing ones are for", json=False, default_factory=dict
    )

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        """1 where a package is missing."""
        return 0 if self.ok else 1
