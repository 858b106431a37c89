"""The wheel's C files: compiled for each kind of CPU when a wheel is built, so that its users need
no compiler. Without one here the wheel is for any machine, and compiles them when first used.
"""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeHook(BuildHookInterface):
    """Puts compiled files into `regard/native/built` of a wheel."""

    folder: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before the wheel is written."""
        machine = platform.system(), platform.machine()
        if version == "editable" or machine != ("Linux", "x86_64"):
            return
        place = Path(self.root) / "regard/native/build.py"
        spec = importlib.util.spec_from_file_location("regard_native_build", place)
        assert spec is not None and spec.loader is not None
        build = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(build)
        self.folder = Path(tempfile.mkdtemp())
        pairs = [(name, level) for name, (_, levels) in build.SOURCES.items() for level in levels]
        try:
            made = [build.compile_source(name, level, self.folder) for name, level in pairs]
        except subprocess.SubprocessError as error:
            self.app.display_warning(f"no compiled kernels in the wheel: {error}")
            return
        if None in made:
            self.app.display_warning("no compiled kernels in the wheel: no C compiler here")
            return
        for library in made:
            build_data["force_include"][str(library)] = f"regard/native/built/{library.name}"
        system = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"], build_data["tag"] = False, f"py3-none-{system}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """After it was written."""
        if self.folder is not None:
            shutil.rmtree(self.folder)
