"""C beside the Python: compiled once on this machine where it has a compiler, found again later.

REGARD_NATIVE=0 switches all of it off; whoever asks has another way to do the same.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

SECONDS = 60  # a compiler that takes longer is not waited for


class Native(NamedTuple):
    """Compiled functions, or why there are none."""

    library: ctypes.CDLL | None
    why: str = ""


def switched_off() -> bool:
    """Whether the user wants none."""
    return os.environ.get("REGARD_NATIVE") == "0"


def compiled(source: Path, flags: Sequence[str]) -> Native:
    """The functions of a C file; the name of the library says what it was made from."""
    if switched_off():
        return Native(None, "REGARD_NATIVE=0")
    headers = (file.read_bytes() for file in sorted(source.parent.parent.glob("*/*.h")))
    made_from = b"".join([source.read_bytes(), *headers, repr(list(flags)).encode()])
    try:
        made = home() / f"{source.stem}-{hashlib.sha256(made_from).hexdigest()[:16]}.so"
        if not made.exists():
            compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
            if compiler is None:
                return Native(None, "no C compiler (cc) on this machine")
            compile_to(made, [compiler, *flags, "-shared", "-fPIC", str(source), "-lm"])
        return Native(ctypes.CDLL(str(made)))
    except (OSError, subprocess.SubprocessError, RuntimeError) as error:  # the last: no home
        return Native(None, f"compiling them failed: {error}")


def home() -> Path:
    """The user's own folder for what can be made again."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "regard"


def compile_to(made: Path, command: Sequence[str]) -> None:
    """Compile beside the final name and rename: two processes may do so at once."""
    made.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=made.parent) as folder:
        new = Path(folder) / made.name
        done = [*command, "-o", str(new)]
        subprocess.run(done, check=True, capture_output=True, timeout=SECONDS)
        os.replace(new, made)


def vector_flags() -> list[str]:
    """What lets the compiler use the widest vectors of this CPU, as far as the system says."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return []
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []
    has = set(next((line for line in lines if line.startswith("flags")), "").split())
    if {"avx512f", "avx512dq", "fma"} <= has:
        return ["-mavx512f", "-mavx512dq", "-mfma"]
    return ["-mavx2", "-mfma"] if {"avx2", "fma"} <= has else []
