"""Verbs, options, streams and exit codes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from regard.cli import main as command
from regard.cli.main import VERBS, explain, main
from regard.errors import ResourceError


def test_help_is_light(regard):
    heavy = "import sys; sys.argv[1:] = ['--help']\nfrom regard.cli.main import main\n"
    heavy += "try: main()\nfinally: print(sorted({'torch', 'numpy', 'rich'} & set(sys.modules)))"
    code, out, _ = regard(code=heavy)
    assert code == 0 and out.endswith("[]\n")
    assert all(f"  {verb} " in out for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_three_examples(verb, capsys):
    with pytest.raises(SystemExit) as end:
        main([verb, "--help"])
    text = capsys.readouterr().out
    assert end.value.code == 0
    assert text.partition("examples:")[2].count(f"\n  regard {verb}") == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["chek", "x"], "did you mean `regard check`?"),
        (["info", "gpt2", "--tabs"], "did you mean --taps?"),
        (["info"], "the following arguments are required: PATH"),
        (["plan", "gpt2", "--batch", "0"], "'0' is not a whole number from 1 up"),
        (["plan"], "regard plan gpt2"),
        (["plan", "gpt2", "--dim", "8"], "one of the two"),
        (["plan", "gpt2", "--length", "2000"], "at most 1,024, the rows of"),
        (["info", "gtp2"], "did you mean gpt2"),
        (["check", "gpt2"], "a shape without weights"),
    ],
)
def test_a_wrong_call_exits_2_with_the_way_out(arguments, said, here):
    code, out, err = here(*arguments)
    assert (code, out) == (2, "")
    assert said in err and err.startswith("error: ") and "Traceback" not in err


def test_nothing_to_do_prints_help_and_exits_2(capsys):
    with pytest.raises(SystemExit) as end:
        main([])
    assert end.value.code == 2 and "verbs:" in capsys.readouterr().err


def test_version(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0 and capsys.readouterr().out == "regard 0.1.0\n"


def test_options_are_accepted_on_both_sides_of_the_verb():
    for arguments in (["--json", "list"], ["list", "--json"]):
        assert command.parse(arguments).json
    assert not command.parse(["list"]).json


def test_v_shows_the_traceback(here, tmp_path):
    assert "Traceback" not in here("info", tmp_path)[2]
    assert "Traceback" in here("-v", "info", tmp_path)[2]


def test_interrupt_exits_130(here, monkeypatch):
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "import_module", interrupted)
    code, _, err = here("list")
    assert code == 130 and err == "error: interrupted\n"


def test_a_bug_and_a_lack_of_memory_are_explained(here, monkeypatch):
    def broken(name):
        raise ValueError("odd")

    monkeypatch.setattr(command, "import_module", broken)
    code, _, err = here("list")
    assert code == 1 and "ValueError: odd" in err and "-v" in err
    text = "[enforce fail] DefaultCPUAllocator: can't allocate memory"
    assert isinstance(explain(RuntimeError(text)), ResourceError)
    assert explain(MemoryError()).exit_code == 4
    assert "torch is not installed" in str(explain(ModuleNotFoundError("no", name="torch")))


def test_a_closed_pipe_is_quiet():
    line = f"{sys.executable} -m regard info gpt2 --taps | head -n 1"
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line], cwd=root, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "gpt2\n", "")
