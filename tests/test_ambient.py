"""What is written where: plain lines off a terminal, rich on one, progress and notes on stderr."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

import regard
from regard import ambient
from regard.cli.render import show_error
from regard.result import human_bytes, human_count, human_time

ROOT = Path(__file__).resolve().parents[1]
TABLE = "from regard.cli.render import show; from regard.result import Grid; "
TABLE += "show(Grid('t', ('a', 'b'), [('gpt2', '1')]))"


def on_terminal(**env):
    """What a table is on a real terminal."""
    parent, child = pty.openpty()
    values = {**os.environ, "TERM": "xterm", "COLUMNS": "100", **env}
    command = [sys.executable, "-c", TABLE]
    running = subprocess.Popen(command, cwd=ROOT, stdout=child, stderr=child, env=values)
    os.close(child)
    written = b""
    while True:
        try:
            got = os.read(parent, 4096)
        except OSError:  # the other end is closed
            break
        if not got:
            break
        written += got
    os.close(parent)
    assert running.wait(60) == 0
    return written.decode().replace("\r\n", "\n")  # the terminal itself adds the returns


def test_a_terminal_gets_colour_unless_told_otherwise():
    assert "\x1b[" in on_terminal(NO_COLOR="")
    plain = on_terminal(NO_COLOR="1")
    assert "\x1b" not in plain and "\r" not in plain and "gpt2" in plain


def test_off_a_terminal_lines_are_plain():
    command = [sys.executable, "-m", "regard", "models"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == ""
    assert "\x1b" not in done.stdout and "\r" not in done.stdout
    assert "GPT2LMHeadModel" in done.stdout


def test_without_rich_everything_is_plain(monkeypatch):
    monkeypatch.setattr(ambient, "find_spec", lambda name: None)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert not ambient.is_terminal(sys.stdout)


def test_quiet_drops_notes_but_not_errors(capsys):
    ambient.note("heard")
    with regard.settings(quiet=True):
        ambient.note("a note")
        show_error("an error")
    assert capsys.readouterr().err == "heard\nerror: an error\n"


def test_progress_waits_then_speaks_in_plain_lines(capsys, monkeypatch):
    clock = iter([0.0, 1.0, 2.5, 3.0, 8.0])
    monkeypatch.setattr(ambient.time, "monotonic", lambda: next(clock))
    with ambient.progress("working") as say:
        for step in ("one", "two", "three", "four"):
            say(step)
    assert capsys.readouterr().err == "working: two (2 s)\nworking: four (8 s)\n"


@pytest.mark.parametrize("options", [{"quiet": True}, {"progress": False}])
def test_progress_can_be_switched_off(options, capsys, monkeypatch):
    clock = iter([0.0, 9.0])
    monkeypatch.setattr(ambient.time, "monotonic", lambda: next(clock, 9.0))
    with regard.settings(**options), ambient.progress("working") as say:
        say("one")
    assert capsys.readouterr().err == ""


def test_numbers_as_people_read_them():
    assert [human_bytes(n) for n in (0, 1536, 3 * 2**30)] == ["0 B", "1.5 KiB", "3.0 GiB"]
    assert [human_count(n) for n in (7, 124439808)] == ["7", "124.44 M"]
    assert [human_time(s) for s in (1e-5, 0.0123, 3, 300)] == [
        *("10 µs", "12.3 ms", "3.00 s", "5.0 min")
    ]
