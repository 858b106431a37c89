"""Build the C files of this folder: compiled once on a machine that can, found again later.

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

FOLDER = Path(__file__).parent
SECONDS = 60  # a compiler that takes longer is not waited for


class NativeLibrary(NamedTuple):
    """Compiled functions, or why there are none."""

    library: ctypes.CDLL | None
    why: str = ""


def switched_off() -> bool:
    """Whether the user wants none."""
    return os.environ.get("REGARD_NATIVE") == "0"


def build_library(name: str, flags: Sequence[str]) -> NativeLibrary:
    """The functions of a C file; the name of the library says what it was made from."""
    if switched_off():
        return NativeLibrary(None, "REGARD_NATIVE=0")
    source = FOLDER / name
    headers = (file.read_bytes() for file in sorted(FOLDER.glob("*.h")))
    inputs = b"".join([source.read_bytes(), *headers, repr(list(flags)).encode()])
    try:
        # The user's own folder for what can be made again.
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "regard"
        library = cache / f"{source.stem}-{hashlib.sha256(inputs).hexdigest()[:16]}.so"
        if not library.exists():
            compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
            if compiler is None:
                return NativeLibrary(None, "no C compiler (cc) on this machine")
            cache.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=cache) as folder:
                new = Path(folder) / library.name  # renamed: two processes may compile at once
                command = [compiler, *flags, "-shared", "-fPIC", str(source), "-lm", "-o", str(new)]
                subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
                os.replace(new, library)
        return NativeLibrary(ctypes.CDLL(str(library)))
    except (OSError, subprocess.SubprocessError, RuntimeError) as error:  # the last: no home
        return NativeLibrary(None, f"compiling them failed: {error}")


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
