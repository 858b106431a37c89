"""`regard translate`: one line out for each line in, whatever runs with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from regard import translation as module
from regard.loading import load
from regard.translation import segment, translator
from regard.translation.document import STRAY
from regard.translation.results import Alternative, TargetWord, Translation
from tests.cli.small_folders import pair, stdin, writer  # noqa: F401

LINES = ["the cat sat", "", "Paris is the capital of France", "a", "   ", "the dog sat on the log"]


def test_lines_keep_their_order_and_their_gaps(here, pair, stdin, tmp_path, monkeypatch):  # noqa: F811
    flags = ("--model", pair, "--max-new", 6)
    alone = []
    for line in LINES:
        stdin(line + "\n")
        code, out, err = here("translate", *flags)
        assert code == 0 and out.count("\n") == 1 and err == ""
        alone.append(out)
    assert alone[1] == alone[4] == "\n" and all(alone[n].strip() for n in (0, 2, 3, 5))
    stdin("".join(f"{line}\n" for line in LINES))
    assert here("translate", *flags)[1] == "".join(alone)
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(LINES))
    monkeypatch.setattr(module, "SORTED", 4)
    monkeypatch.setattr(translator, "ROWS", 8)
    assert here("translate", *flags, "--file", file)[1] == "".join(alone)
    assert here("translate", LINES[0], LINES[2], *flags)[1] == alone[0] + alone[2]
    assert here("translate", *flags, LINES[0], "--strict")[1] == alone[0]


def test_a_text_after_a_list_of_words_is_a_text(here, pair):  # noqa: F811
    flags = ("--model", pair, "--max-new", 6)
    last = here("translate", LINES[0], *flags, "--ban", "cat", "--ban", "dog")
    assert here("translate", *flags, "--ban", "cat", "--ban", "dog", LINES[0]) == last
    assert last[0] == 0 and last[1].count("\n") == 1


def test_greedy_equals_transformers(here, pair):  # noqa: F811
    import torch
    import transformers

    reference = transformers.T5ForConditionalGeneration.from_pretrained(pair).eval()
    kit = load(pair)
    for line in (LINES[0], LINES[2]):
        ids = torch.tensor([kit.tokenizer.encode(line)])
        made = reference.generate(ids, max_new_tokens=8, do_sample=False)[0, 1:].tolist()
        out = here("translate", line, "--model", pair, "--beams", 1, "--max-new", 8)[1]
        whole = STRAY.sub("", kit.text(made))  # bytes of no letter are not written
        assert out == " ".join(whole.split()) + "\n"


def test_alternatives(here, pair, tmp_path):  # noqa: F811
    flags = ("--model", pair, "--max-new", 5, "--alternatives", 4)
    code, out, _ = here("translate", LINES[2], "", *flags, "--json")
    first, second = [json.loads(line) for line in out.splitlines()]
    texts = [a["text"] for a in first["alternatives"]]
    assert code == 0 and 2 <= len(texts) <= 4 and len(set(texts)) == len(texts)
    logs = [a["logprob"] for a in first["alternatives"]]
    assert logs == sorted(logs, reverse=True)
    assert [a["probability"] for a in first["alternatives"]] == pytest.approx(np.exp(logs))
    assert first["text"] == texts[0] and first["source"] == LINES[2]
    assert second == {"source": "", "text": "", "logprob": 0.0, "confidence": 1.0, "words": []}
    lines = here("translate", LINES[2], *flags)[1].splitlines()  # read by a person
    assert [line[10:] for line in lines] == texts and all(line[7] == "%" for line in lines)
    file = tmp_path / "lines.txt"
    file.write_text(LINES[2] + "\n")
    assert here("translate", "--file", file, *flags)[1] == "\t".join(texts) + "\n"


def test_one_text_has_one_answer(here, pair, stdin, tmp_path):  # noqa: F811
    """By argument, stdin, file and Python, with others and reasons or without."""
    texts, flags = [LINES[0], LINES[2], "Hello world! 42 cats."], ("--model", pair, "--max-new", 6)
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"{text}\n" for text in texts))
    answers = list[list[tuple[str, float]]]()
    for more in ((), ("--alternatives", 3), ("--explain",), ("--alternatives", 5, "--explain")):
        for how in (texts, ("--file", file), ()):
            stdin(file.read_text())
            code, out, _ = here("translate", *how, *flags, *more, "--json")
            lines = [json.loads(line) for line in out.splitlines()]
            assert code == 0 and [line["source"] for line in lines] == texts
            assert all(0 <= line["confidence"] <= 1 for line in lines)
            for line in lines:
                assert "".join(w["text"] for w in line["words"]) == "".join(line["text"].split())
            answers.append([(line["text"], line["logprob"]) for line in lines])
    kit = load(pair)
    answers.append([(one.text, one.logprob) for one in kit.translate(texts, max_new=6)])
    for beams in (1, 4):
        plain = kit.translate(texts[0], max_new=6, beams=beams, doubt=False)
        several = kit.translate(texts[0], max_new=6, beams=beams, alternatives=7)
        assert (several.text, several.logprob) == (plain.text, plain.logprob)
    assert plain.confidence is None and plain.words == [] and len(several.words) > 0
    assert all(other == answers[0] for other in answers)


def test_doubtful_words_are_dim_and_listed_in_a_terminal(capsys):
    words = [TargetWord("He", 0.9, ["Il"]), TargetWord("enters", 0.2, ["entarté"])]
    words += [TargetWord("he", 0.6, ["me"]), TargetWord(".", 0.1, ["."])]
    result = Translation("…", "He enters he.", -1.0, 0.5, words=words, threshold=0.7)
    several = replace(result, alternatives=[Alternative(t, -1.0) for t in ("He enters he.", "he")])
    for shown, before in ((result, ""), (several, "     37%  ")):
        console = Console(force_terminal=True, width=80)
        console.print(shown)
        line, *rest = capsys.readouterr().out.splitlines()
        assert line == f"{before}He \x1b[2menters\x1b[0m \x1b[2mhe\x1b[0m."
        assert "doubtful: enters (20%), he (60%)" in rest[-1]
    assert str(result) == "He enters he."


def test_the_command_and_the_kit_agree(here, pair):  # noqa: F811
    assert here("translate", LINES[0], "--model", pair)[1].split() == (
        load(pair).translate(LINES[0]).text.split()
    )


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--beams", 0), "beams = 0\n  expected: a whole number from 1 up"),
        (("--alternatives", 0), "from 1 up"),
        (("--max-new", 0), "from 1 up"),
        (("--alpha", -1), "alpha = -1.0\n  expected: a number from 0"),
        (("--file", "x"), "texts and --file"),
    ],
)
def test_wrong_calls(here, pair, flags, said):  # noqa: F811
    code, out, err = here("translate", "text", "--model", pair, *flags)
    assert (code, out) == (2, "") and said in err


def test_wrong_models(here, writer):  # noqa: F811
    code, _, err = here("translate", "text", "--model", writer)
    assert code == 2 and "an encoder-decoder" in err
    code, _, err = here("translate", "text", "--model", "xx-yy")
    assert code == 2 and "no model of that name" in err


def test_more_beams_than_words(here, pair):  # noqa: F811
    code, _, err = here("translate", "a", "--model", pair, "--beams", 5000, "--max-new", 1)
    assert code == 0 and "words in the vocabulary" in err


def test_a_limit_does_not_depend_on_the_neighbours(pair):  # noqa: F811
    kit = load(pair)
    lines = [LINES[0], LINES[2] * 4]
    together = [found.text for found in kit.translate(lines, beams=2)]
    assert together == [kit.translate(line, beams=2).text for line in lines]


def test_bytes_that_are_no_text(here, pair, stdin):  # noqa: F811
    flags = ("--model", pair, "--max-new", 6)
    stdin("the cat sat\nthe dog sat\n")
    good = here("translate", *flags)[1].splitlines()
    stdin(b"the cat sat\n\xe9t\xe9\nthe dog sat\n")
    code, out, err = here("translate", *flags)
    assert code == 3 and out.splitlines() == [good[0], "", good[1]]
    assert "stdin, line 2, byte 12 (0xe9) is not UTF-8" in err
    stdin(b"a\n" + b"\xff\n" * 30)
    code, out, err = here("translate", *flags, "--json")
    assert code == 3 and err.count("is not UTF-8") == 10 and "30 texts" in err
    assert "line 2" in json.loads(out.splitlines()[1])["error"] and len(out.splitlines()) == 31
    assert here("translate", *flags, "--file", "nowhere.txt")[0] == 3


def test_paragraphs_and_what_is_not_translated(here, pair):  # noqa: F811
    flags = ("--model", pair, "--max-new", 6)
    one, two = here("translate", *flags, "The cat sat.", "Hello world!")[1].splitlines()
    assert here("translate", *flags, "The cat sat. Hello world!\n42")[1] == f"{one} {two} 42\n"
    assert here("translate", *flags, "42", "a.b@c.fr", "😀")[1] == "42\na.b@c.fr\n😀\n"


def test_a_pathological_line_gives_one_line(here, pair, monkeypatch):  # noqa: F811
    monkeypatch.setattr(segment, "MAX_SOURCE_TOKENS", 64)
    flags = ("--model", pair, "--max-new", 3, "--beams", 1)
    for text in ("cat " * 500, "x" * 10_000, ". " * 5000, "é" * 300):
        code, out, _ = here("translate", text, *flags)
        assert code == 0 and out.count("\n") == 1 and len(out) < 20_000


def test_explain(here, pair, tmp_path):  # noqa: F811
    page, picture = tmp_path / "page.html", tmp_path / "page.png"
    flags = ("--model", pair, "--max-new", 6, "--alternatives", 2, "--explain")
    text = "Paris is the capital. 42 !"
    code, out, _ = here("translate", text, *flags, "--save", page, "--save", picture)
    assert code == 0 and picture.read_bytes().startswith(b"\x89PNG")
    assert out.count("→ ") == 3 and "written" in out and "Copied as it is" in out
    assert "<table>" in page.read_text(encoding="utf-8")
    code, out, _ = here("translate", text, *flags, "--json")
    (first,) = [json.loads(line) for line in out.splitlines()]
    assert len(first["explain"]) == 2 and len(first["words"]) > 0
    found = load(pair).translate(text, explain=True, alternatives=2, max_new=6)
    assert first == json.loads(json.dumps(found.to_dict())) and found.explain[1].copied


def test_explain_writes_no_file_unasked(here, pair, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    for more in ((), ("--json",)):
        code, out, _ = here("translate", "the cat", "--model", pair, "--explain", *more)
        assert code == 0 and out
    assert len(out.splitlines()) == 1 and not [*tmp_path.iterdir()]


def test_a_terminal_is_told_that_lines_are_awaited(here, pair, stdin):  # noqa: F811
    stdin("the cat\n")
    assert "until Ctrl-D" not in here("translate", "--model", pair)[2]
    stdin("the cat\n")
    sys.stdin.isatty = lambda: True
    code, out, err = here("translate", "--model", pair)
    assert code == 0 and out and "reading lines from the terminal, until Ctrl-D" in err
    assert "Ctrl-D" not in here("translate", "the cat", "--model", pair)[2]


def test_progress_counts_lines_or_sentences(pair, monkeypatch):  # noqa: F811
    kit, told = load(pair), list[str]()
    monkeypatch.setattr("regard.ambient.Progress.__call__", lambda self, text: told.append(text))
    kit.translate("the cat", max_new=4)
    assert told == []
    kit.translate("The cat sat. The dog sat on the log.", max_new=4)
    assert told == ["sentence 2 of 2"]
    told.clear()
    list(kit.translate(iter(["the cat", "the dog"]), max_new=4))
    assert told == ["line 2"]


def test_processes_give_what_one_gives(here, pair, tmp_path):  # noqa: F811
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"{LINES[n % 6]} {n}\n" for n in range(40)))
    flags = ("--model", pair, "--max-new", 5, "--no-progress", "--file", file)
    code, out, err = here("translate", *flags, "--workers", 1)
    assert code == 0 and err == "" and out.count("\n") == 40
    for more in (("--workers", 2), ("--workers", 3, "--batch", 1), ("--batch", 40)):
        assert here("translate", *flags, *more) == (0, out, "")
    for name in ("--workers", "--batch"):
        assert here("translate", *flags, name, 0)[0] == 2
    long = (*flags, "--begin", "a beginning that is longer than five")
    told = here("translate", *long, "--workers", 1)
    assert told[0] == 2 and "a shorter beginning" in told[2]
    assert here("translate", *long, "--workers", 2) == told


def run_workers(pair, tmp_path, action):  # noqa: F811
    """A real command whose other process is met by `action(pids)`; (exit code, stderr)."""
    file = tmp_path / "many.txt"
    file.write_text("the cat sat on the mat\n" * 20_000)
    flags = ["--model", pair, "--file", file, "--workers", "2", "--batch", "1"]
    command = [sys.executable, "-m", "regard", "translate", *map(str, flags)]
    pipe = subprocess.PIPE

    def heed() -> None:
        """Whoever runs the tests in the background ignores Ctrl-C, and so would the command."""
        signal.signal(signal.SIGINT, signal.default_int_handler)

    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, preexec_fn=heed) as process:
        deadline, found = time.monotonic() + 60, []
        while not found and time.monotonic() < deadline:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            found = [int(child) for child in children.read_text().split()]
            time.sleep(0.05)
        action(process.pid, found)
        err = process.communicate(timeout=60)[1]
    gone = [child for child in found if not Path(f"/proc/{child}").exists()]
    return process.returncode, err, gone == found


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
def test_a_killed_worker_is_told(pair, tmp_path):  # noqa: F811
    def kill(parent, children):
        os.kill(children[0], signal.SIGKILL)

    code, err, gone = run_workers(pair, tmp_path, kill)
    assert code == 4 and "--workers 1" in err and "Traceback" not in err and gone


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
def test_ctrl_c_ends_the_workers_too(pair, tmp_path):  # noqa: F811
    def interrupt(parent, children):
        os.kill(parent, signal.SIGINT)

    code, err, gone = run_workers(pair, tmp_path, interrupt)
    assert code == 130 and "Traceback" not in err and gone


def test_more_alternatives_than_a_beam_can_hold(here, pair):  # noqa: F811
    code, _, err = here("translate", "a", "--model", pair, "--alternatives", 100_000)
    assert code == 2 and "alternatives = 100000" in err and "at most 200" in err
