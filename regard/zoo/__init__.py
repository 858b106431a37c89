"""Models that come with the package, each a folder here, found by its name."""

from __future__ import annotations

import os
import re
from pathlib import Path

from regard.errors import UsageError

HOME = Path(__file__).parent
KNOWN = {
    "en-fr": "translates English into French",
    "fr-en": "translates French into English",
}
"""What the models do."""
PAIR = re.compile(r"[A-Za-z]{2,3}[-_][A-Za-z]{2,3}")  # what names two languages, such as de-en


def shipped() -> dict[str, Path]:
    """The models of this installation: name → folder."""
    return {path.parent.name: path.parent for path in sorted(HOME.glob("*/config.json"))}


def locate(path: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """The folder of a shipped model for its name, of a run's folder its `final`, else the path.

    A file or folder of that name in the working directory comes first: ./fr-en before fr-en.
    """
    name = os.fspath(path)
    final = Path(os.fsdecode(name), "final")
    models = "config.json", "adapter_config.json"
    if any((final / name).is_file() for name in models):
        if not any((final.parent / name).exists() for name in models):
            return final
    if not isinstance(name, str) or os.sep in name or os.path.lexists(name):
        return path
    here = shipped()
    if name in here:
        return here[name]
    if PAIR.fullmatch(name):
        meant = name.lower().replace("_", "-")
        fix = f"did you mean {meant}?" if meant in here else "`regard train seq2seq` makes one"
        fault = f"no such folder, and no model of that name is in the box ({listed(here)})"
        raise UsageError(f"opening {name}", fault, "a folder, or a name `regard models` shows", fix)
    return path


def listed(here: dict[str, Path]) -> str:
    """What can be opened by name, in words."""
    return f"there are: {', '.join(here)}" if here else "there is none"
