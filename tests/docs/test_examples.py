"""Every example runs and shows what its first lines promise."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROMISED = {
    "features": ["thing, beside it: most at encoder.blocks.3.resid_post"],
    "look": ["The animal didn't cross the street", "“elle” looks at “rue”", "doug.html"],
    "pronouns": ["his or her is right: 100%", "than the other person: 100%"],
}
TASKS = {
    "copy": lambda word: word,
    "reverse": lambda word: "".join(reversed(word)),
    "sort": lambda word: "".join(sorted(word)),
}


def run(name: str, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


def test_no_example_is_left_out() -> None:
    there = {path.stem for path in (ROOT / "examples").glob("*.py")}
    assert there == {
        *PROMISED,
        "toy_tasks",
        "induction",
        "approximation",
        "scaled_scores",
        "warm_up",
    }


def test_the_figures_of_induction_are_written_without_matplotlib(tmp_path: Path) -> None:
    code = "import sys, runpy; sys.modules['matplotlib'] = None\n"
    code += f"sys.argv = ['x', '--steps', '5', '--out', {str(tmp_path / 'bump')!r}]\n"
    code += "runpy.run_path('examples/induction.py', run_name='__main__')"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert done.returncode == 0 and "Traceback" not in done.stderr  # a slow machine says how far
    assert "matplotlib is not installed" in done.stdout
    made = json.loads((tmp_path / "bump.json").read_text())
    assert made["training"][0]["step"] == 0 and 0 <= made["training"][0]["induction"] <= 1
    assert made["seconds"] > 0 and not (tmp_path / "bump.png").exists()


@pytest.mark.parametrize(
    ("steps", "least"), [(15, 0.0), pytest.param(400, 5.0, marks=pytest.mark.slow)]
)
def test_errors_fall_with_the_width(steps: int, least: float, tmp_path: Path) -> None:
    code, out = run("approximation", "--steps", str(steps), "--json", str(tmp_path / "a.json"))
    assert code == 0 and "error by depth" in out
    made = json.loads((tmp_path / "a.json").read_text())["error"]
    assert {len(row) for row in made["width"].values()} == {5}
    for name in ("sin 2πx", "|x|", "x³ - x/2"):
        assert made["width"][name][0] > least * made["width"][name][-1]


def test_the_variance_of_a_score_is_the_width_and_scaling_keeps_the_slope() -> None:
    code, out = run("scaled_scores")
    rows = [
        [float(cell.replace(",", "")) for cell in line.split()] for line in out.splitlines()[1:]
    ]
    assert code == 0 and len(rows) == 5
    for dim, variance, scaled, _, _ in rows:
        assert variance == pytest.approx(dim, rel=0.1) and scaled == pytest.approx(1, rel=0.1)
    assert rows[-1][3] < rows[0][3] / 3  # a softmax that is sure has no slope
    assert rows[-1][4] == pytest.approx(rows[0][4], rel=0.1)


@pytest.mark.parametrize("steps", [2, pytest.param(160, marks=pytest.mark.slow)])
def test_post_norm_needs_a_warm_up_from_the_weights_of_2017_only(steps: int) -> None:
    code, out = run("warm_up", "--steps", str(steps))
    losses = [float(line.split()[-1]) for line in out.splitlines()[1:]]
    assert code == 0 and len(losses) == 6
    if steps > 2:
        assert losses.pop(0) > 1.7 and max(losses) < 0.5


@pytest.mark.slow
def test_induction_heads_form_and_are_found(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    code, out = run("induction", "--steps", "1200", "--out", str(tmp_path / "bump"))
    assert (tmp_path / "bump.png").is_file()
    rows = [line.split() for line in out.splitlines() if line.startswith("step")]
    assert code == 0 and float(rows[0][3]) > 4 > 0.1 > float(rows[-1][3])
    assert min(float(rows[-1][5]), float(rows[-1][7])) > 0.9 > 0.1 > float(rows[0][7])
    assert "decoder.blocks.0.attn.z" in out and "decoder.blocks.1.attn.z" in out


@pytest.mark.parametrize("name", PROMISED)
def test_example(name: str) -> None:
    code, out = run(name)
    assert code == 0
    for words in PROMISED[name]:
        assert words in out


def test_a_toy_task_that_was_not_learnt_says_so() -> None:
    code, out = run("toy_tasks", "reverse", "--steps", "5")
    assert code == 1 and "of 1,000 fresh strings exact" in out and "trained in" in out


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_toy_task(task: str) -> None:
    code, out = run("toy_tasks", task)
    assert code == 0
    shown = [line.strip().split(" → ") for line in out.splitlines() if "→" in line]
    assert shown and sum(TASKS[task](word) == answer for word, answer in shown) >= len(shown) - 1
