"""`regard generate --capture`: rows of the texts that are written."""

from __future__ import annotations

import json

import torch

from regard.loading import load
from regard.look.activation_store import Extracted
from tests.cli.small_folders import pair, stdin, writer  # noqa: F401


def test_rows_are_those_of_the_finished_texts(here, writer, stdin, tmp_path):  # noqa: F811
    for number, more in enumerate(((), ("--beams", 3), ("--temperature", 2))):
        stdin(b"the cat sat\na\xff\nHello\n")
        out = tmp_path / f"{number}"
        words = ("generate", writer, "--max-new", 6, "--json", "--capture", "*.resid_post")
        code, said, _ = here(*words, "--out", out, *more)
        answers = [json.loads(line) for line in said.splitlines()]
        assert code == 3 and "error" in answers[1]  # the line that is not UTF-8
        kit, found = load(writer), Extracted(out)
        for text, prompt in ((0, "the cat sat"), (2, "Hello")):
            ids = kit.tokenizer.encode(prompt)
            whole, here_ = [*ids, *answers[text]["tokens"][:-1]], found.index.text == text
            assert found.index.token[here_].tolist() == whole
            assert found.index.position[here_].tolist() == list(range(len(whole)))
            assert found.column("new")[here_].tolist() == [
                int(n >= len(ids)) for n in range(len(whole))
            ]
            _, seen = kit.run([whole], taps="*.resid_post")
            for tap in found.taps:
                torch.testing.assert_close(
                    found.tensor(tap)[here_], seen[tap][0], atol=1e-4, rtol=1e-4
                )


def test_a_pair_reads_its_source(here, pair, tmp_path):  # noqa: F811
    words = ("generate", pair, "the cat", "--max-new", 4, "--capture", "encoder.*.resid_post")
    assert here(*words, "--out", tmp_path / "a")[0] == 0
    kit, found = load(pair), Extracted(tmp_path / "a")
    assert found.index.token.tolist() == kit.tokenizer.encode("the cat")
    assert found.column("new").sum() == 0
    _, seen = kit.run("the cat", taps="encoder.*.resid_post")
    for tap in found.taps:
        torch.testing.assert_close(found.tensor(tap), seen[tap][0], atol=1e-4, rtol=1e-4)


def test_what_does_not_go_together(here, writer, stdin, tmp_path):  # noqa: F811
    words = ("generate", writer, "the cat", "--max-new", 2)
    code, _, err = here(*words, "--capture", "*.z")
    assert code == 2 and "capture without out" in err
    code, _, err = here(*words, "--out", tmp_path / "a")
    assert code == 2 and "out without capture" in err
    code, _, err = here(*words, "--capture", "*.pattern", "--out", tmp_path / "a")
    assert code == 2 and "two tokens" in err and not (tmp_path / "a").exists()
    code, _, err = here(*words, "--capture", "*.z", "--out", tmp_path / "a", "--strict")
    assert code == 2 and "strict" in err and not (tmp_path / "a").exists()
    stdin(b"\xff\n")
    code, _, err = here("generate", writer, "--capture", "*.z", "--out", tmp_path / "a")
    assert code == 3 and not (tmp_path / "a").exists()
