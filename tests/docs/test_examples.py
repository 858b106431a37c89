"""Every example runs and shows what its first lines promise."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROMISED = {
    "attention_by_hand": ["0.85    0.65", "gradient scaled"],
    "generate": ["same bits True", "How much wood| would a woodchuck"],
    "kernel_regression": ["prediction -1.55474", "Jurafsky and Martin"],
}


def test_no_example_is_left_out() -> None:
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == set(PROMISED)


@pytest.mark.parametrize("name", PROMISED)
def test_example(name: str) -> None:
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    for words in PROMISED[name]:
        assert words in done.stdout
