"""The C files of this folder, compiled: in the wheel, or once on a machine that can.

Each is compiled for the kinds of CPUs in LEVELS, and the machine decides which one it loads.
REGARD_NATIVE=0 switches all of it off, REGARD_NATIVE=avx2 asks for the lesser kind; whoever asks
has another way to do the same. A wheel is built by `tools/build_hook.py`, which reads this file
alone.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
BUILT = FOLDER / "built"  # in a wheel
CPU = Path("/proc/cpuinfo")
SECONDS = 60  # a compiler that takes longer is not waited for
LEVELS = {  # what a CPU must have, best first
    "avx512": ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni", "fma"),
    "avx2": ("avx2", "fma"),
}
EXACT = ("-O3", "-std=c11", "-ffp-contract=off")
SOURCES = {  # flags of a C file, and the levels that it is written for
    "inference.c": (EXACT, ("avx512", "avx2")),
    "training.c": ((*EXACT, "-fopenmp"), ("avx512",)),
    "word2vec.c": (("-O3", "-std=gnu11", "-ffp-contract=fast"), ("avx512", "avx2", "")),
}


class NativeLibrary(NamedTuple):
    """Compiled functions, or why there are none."""

    library: ctypes.CDLL | None
    why: str = ""


def find_level() -> str:
    """The best kind that this CPU is, as far as the system says; empty: none of them."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return ""
    try:
        lines = CPU.read_text().splitlines()
    except OSError:
        return ""
    listed = next((line for line in lines if line.startswith("flags")), "")
    has = set(listed.replace("_", "").split())
    levels = [name for name, needs in LEVELS.items() if has.issuperset(needs)]
    asked = os.environ.get("REGARD_NATIVE")
    return asked if asked in levels else next(iter(levels), "")


def flags_of(name: str, level: str) -> list[str]:
    """What a C file is compiled with."""
    return [*SOURCES[name][0], *(f"-m{need}" for need in LEVELS.get(level, ()))]


def library_name(name: str, level: str) -> str:
    """The name of a compiled file, which says what it was made from."""
    headers = (file.read_bytes() for file in sorted(FOLDER.glob("*.h")))
    flags = repr(flags_of(name, level)).encode()
    made_from = hashlib.sha256(b"".join([(FOLDER / name).read_bytes(), *headers, flags]))
    return f"{Path(name).stem}-{made_from.hexdigest()[:16]}.so"


def compile_source(name: str, level: str, folder: Path) -> Path | None:
    """A C file compiled into a folder, where it may be already; None without a compiler."""
    library = folder / library_name(name, level)
    if not library.exists():
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            return None
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as inside:
            new = Path(inside) / library.name  # renamed: two processes may compile at once
            command = [compiler, *flags_of(name, level), "-shared", "-fPIC", str(FOLDER / name)]
            command += ["-lm", "-o", str(new)]
            subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
            os.replace(new, library)
    return library


def build_library(name: str) -> NativeLibrary:
    """The functions of a C file for this CPU, or why there are none."""
    if os.environ.get("REGARD_NATIVE") == "0":
        return NativeLibrary(None, "REGARD_NATIVE=0")
    level, levels = find_level(), SOURCES[name][1]
    if level not in levels:
        wanted = "AVX-512 VNNI or AVX2" if "avx2" in levels else "AVX-512 VNNI"
        return NativeLibrary(None, f"they need Linux on x86-64 with {wanted}")
    try:
        library: Path | None = BUILT / library_name(name, level)
        if library is not None and not library.exists():
            # The user's own folder for what can be made again.
            cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
            library = compile_source(name, level, cache / "regard")
        if library is None:
            return NativeLibrary(None, "no C compiler (cc) on this machine")
        return NativeLibrary(ctypes.CDLL(str(library)))
    except (OSError, subprocess.SubprocessError, RuntimeError) as error:  # the last: no home
        return NativeLibrary(None, f"compiling them failed: {error}")
