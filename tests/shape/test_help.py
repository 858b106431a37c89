"""`regard --help` answers without loading torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"torch", "transformers"}


def test_help_loads_nothing_heavy():
    command = [sys.executable, "-X", "importtime", "-m", "regard", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "regard" in done.stdout
    # Each line reads "import time: self | cumulative | name".
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}
    assert "regard" in loaded and not loaded & HEAVY
