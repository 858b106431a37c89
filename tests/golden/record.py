"""`python -m tests.golden.record [ID …]`: write what commands say now to expected/."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import torch

from tests.golden.cases import CASES
from tests.golden.inputs import build
from tests.golden.run import EXPECTED, observe


def record(ids: list[str]) -> None:
    """Write the files of these cases, or of all; say which are slow and which fail."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        places = build(Path(folder))
        for case in CASES:
            if not ids or case.id in ids:
                start = time.perf_counter()
                seen = observe(case, places)
                took = time.perf_counter() - start
                text = json.dumps(seen, ensure_ascii=False, indent=1)
                (EXPECTED / f"{case.id}.json").write_text(text + "\n")
                print(f"{case.id}: exit {seen['exit']}, {len(text):,} bytes, {took:.1f} s")


if __name__ == "__main__":
    record(sys.argv[1:])
