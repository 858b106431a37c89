"""Commands, options, streams and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from regard.cli import commands
from regard.cli.main import explain
from regard.errors import ResourceError


def test_help_is_light_and_fits_a_screen(regard):
    code = "import sys; sys.argv[1:] = ['--help']\nfrom regard.cli.main import main\n"
    code += "main()\nprint(sorted({'torch', 'numpy', 'tokenizers'} & set(sys.modules)))"
    code, out, _ = regard(code=code)
    lines = out.splitlines()
    assert code == 0 and lines[-1] == "[]" and len(lines) <= 43 and "…" not in out
    assert all(f" {group} " in out for group in commands.GROUPS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tokns", "encode"], "did you mean `regard tokens"),
        (["vocab"], "did you mean `regard tokens vocab`?"),
        (["tokens", "encde"], "did you mean `regard tokens encode`?"),
        (["tokens", "encode", "a", "--kidn", "chars"], "did you mean --kind?"),
        (["tokens", "encode", "a", "--kind", "chras"], "chars"),
        (["tokens", "info"], "TOKENIZER"),
        (["tokens", "vocab", "--top", "many"], "many"),
    ],
)
def test_a_wrong_call_exits_2_with_the_way_out(arguments, said, here):
    code, out, err = here(*arguments)
    assert (code, out) == (2, "")
    assert said in err and err.startswith("error: ") and "Traceback" not in err


def test_nothing_to_do_prints_help_and_exits_2(here):
    assert here()[0] == 2 and here("tokens")[0] == 2
    assert here("tokens", "--help")[0] == 0 and here("--help")[0] == 0


def test_version(here):
    assert here("--version")[:2] == (0, "0.1.0\n")


def test_options_are_accepted_on_both_sides_of_the_command(here):
    before, after = here("--json", "tokens", "merges", "a"), here("tokens", "merges", "a", "--json")
    assert before == after and before[1].startswith("{")


def test_a_text_after_save_is_a_text(here, tmp_path):
    place = tmp_path / "a.json"
    assert here("tokens", "encode", "--save", place, "un chat", "-q")[:2] == (0, "2 1\n")
    assert '"ids"' in place.read_text()
    assert here("tokens", "encode", "un chat", "-q", "--receipt", place)[0] == 0
    receipt = json.loads(place.read_text())
    assert receipt["function"] == "regard.tokens.encode" and receipt["results"]["ids"] == [2, 1]
    code, _, err = here("tokens", "encode", "un", "chat", "-q", "--save", place)
    assert code == 2 and "several results" in err


def test_v_shows_the_traceback(here, tmp_path):
    assert "Traceback" not in here("tokens", "info", tmp_path)[2]
    assert "Traceback" in here("-v", "tokens", "info", tmp_path)[2]


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [(KeyboardInterrupt(), 130, "interrupted\n"), (ValueError("odd"), 1, "ValueError: odd")],
)
def test_an_interrupt_and_a_bug_are_explained(here, monkeypatch, error, code, said):
    def broken(self):
        raise error

    monkeypatch.setattr(commands.Command, "load", broken)
    exit_code, _, err = here("tokens", "merges", "a")
    assert exit_code == code and said in err and "Traceback" not in err


def test_a_lack_of_memory_is_explained():
    text = "[enforce fail] DefaultCPUAllocator: can't allocate memory"
    assert isinstance(explain(RuntimeError(text)), ResourceError)
    assert explain(MemoryError()).exit_code == 4
    assert "torch is not installed" in str(explain(ModuleNotFoundError("no", name="torch")))


def test_a_closed_pipe_is_quiet():
    line = f"{sys.executable} -m regard tokens vocab README.md --top 900 | head -n 1"
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line], cwd=root, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "words\n", "")
