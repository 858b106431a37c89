"""The resolver: fields, flags and TOML keys are one thing, and every value has an origin."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from argparse import ArgumentTypeError
from dataclasses import dataclass
from typing import Literal

import pytest

from regard.cli.flags import resolve, settings_of, to_toml
from regard.cli.legacy import main, parse
from regard.cli.options import natural
from regard.cli.train_flags import KNOWN, resolve_run
from regard.errors import DataError, UsageError


@dataclass(frozen=True)
class Some:
    """A config for these tests."""

    size: int = 3
    """How large it is;
    in metres."""
    rate: float = 0.5
    """How quick."""
    on: bool = False
    """Whether."""
    mode: Literal["up", "down"] = "up"
    """Which way."""
    names: tuple[str, ...] = ()
    """Of things."""
    limit: int | None = None
    """None for no limit."""


SOME = settings_of(Some)


def test_whole_numbers_from_0_up():
    assert [natural(text) for text in ("0", "00", "7")] == [0, 0, 7]
    for text in ("-1", "x", "1.5"):
        with pytest.raises(ArgumentTypeError, match="from 0 up"):
            natural(text)


def test_docstrings_become_help_and_hints_become_types():
    assert SOME["size"].help == "How large it is; in metres."
    assert SOME["mode"].choices == ("up", "down") and SOME["mode"].kind is str
    assert SOME["names"].many and SOME["limit"].optional and SOME["limit"].kind is int
    assert all(setting.help for setting in KNOWN.values())


def test_flags_beat_the_file_which_beats_the_preset():
    made = resolve(
        SOME,
        {"size": 9, "other": 1},
        ("f.toml", {"size": 8, "rate": 1}),
        ("p", {"rate": 2.0, "on": True}),
    )
    assert made.make(Some) == Some(9, 1.0, True)
    assert isinstance(made.values["rate"], float)
    origins = {k: made.origins[k] for k in ("size", "rate", "on", "mode")}
    assert origins == {"size": "flag", "rate": "f.toml", "on": "preset p", "mode": "default"}


def test_the_printed_settings_are_toml_that_reads_back():
    given = {"names": ["a b", 'quote " \\ é \x7f'], "rate": 1e-9, "on": True}
    made = resolve(SOME, given)
    back = tomllib.loads(made.toml())
    assert resolve(SOME, {}, ("f", back)).values == made.values
    assert "# flag" in made.toml() and "# limit is not set" in made.toml()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"sise": 1}, "did you mean size"),
        ({"size": 1.5}, "a whole number"),
        ({"size": True}, "a whole number"),
        ({"rate": "fast"}, "a number"),
        ({"on": 1}, "true or false"),
        ({"mode": "upp"}, "did you mean up"),
        ({"names": 3}, "a list of str"),
    ],
)
def test_a_wrong_key_or_value_of_a_file_is_named(wrong, said):
    with pytest.raises(UsageError, match=said) as caught:
        resolve(SOME, {}, ("f.toml", wrong))
    assert "f.toml" in str(caught.value)


@pytest.mark.parametrize("value", [True, 3, 1e-12, float("inf"), "x\ny", ("a", "b"), ()])
def test_values_as_toml(value):
    read = tomllib.loads(f"x = {to_toml(value)}")["x"]
    assert (tuple(read) if isinstance(value, tuple) else read) == value


def settings(*words):
    return resolve_run(parse(["train", *map(str, words)]))


def test_a_run_from_flags_alone(tmp_path):
    made = settings("lm", "--steps", 5, tmp_path / "a.txt", "--no-compile", "--kv-heads", "2")
    assert made.values["files"] == (str(tmp_path / "a.txt"),) and made.values["steps"] == 5
    assert made.values["family"] == "llama" and made.origins["compile"] == "flag"
    assert made.values["hidden"] == 704 and made.values["tokens"] == "bpe"


def test_a_preset_gives_shape_and_recipe_and_flags_change_it():
    made = settings("seq2seq", "a.tsv", "--preset", "transformer-base", "--dropout", "0.2")
    assert made.values["warm_up"] == 4000 and made.values["hidden"] == 2048
    assert made.origins["warm_up"] == "preset transformer-base"
    assert (made.values["dropout"], made.origins["dropout"]) == (0.2, "flag")
    small = settings("lm", "a", "--preset", "gpt2", "--dim", 64, "--heads", 2, "--depth", 1)
    assert small.values["hidden"] == 256 and small.values["family"] == "gpt2"


def test_a_config_file_runs_again_as_it_is(tmp_path):
    made = settings("mlm", tmp_path / "a.txt", "--lr", "0.01", "--mask", "0.2", "--length", 64)
    (tmp_path / "c.toml").write_text(made.toml())
    again = settings("--config", tmp_path / "c.toml")
    assert again.values == made.values
    grouped = "kind = 'lm'\nfiles = ['a']\n[train]\nsteps = 3\n[model]\ndim = 32\n"
    (tmp_path / "d.toml").write_text(grouped)
    assert settings("--config", tmp_path / "d.toml").values["dim"] == 32


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lm"], "no files to train on"),
        (["mlmm", "a.txt"], "did you mean mlm"),
        ([], "no kind of training"),
        (["lm", "a", "--step", "3"], "did you mean --steps"),
        (["lm", "a", "--steps", "0"], "steps = 0"),
        (["lm", "a", "--lr", "quick"], "not a number"),
        (["lm", "a", "--schedule", "cosin"], "did you mean cosine"),
        (["lm", "a", "--length", "9", "--batch-tokens", "8"], "fewer than length"),
        (["mlm", "a", "--mask", "0"], "mask = 0"),
        (["lm", "a", "--holdout", "1"], "holdout = 1"),
        (["lm", "a", "--vocab", "0"], "vocab = 0"),
        (["lm", "a", "--preset", "gtp2"], "did you mean gpt2"),
        (["lm", "a", "--pre-norm"], "pre_norm"),
    ],
)
def test_wrong_usage(words, said):
    with pytest.raises(UsageError, match=said):
        settings(*words)


def test_a_file_that_is_no_toml(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        settings("--config", tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("steps = \n")
    with pytest.raises(DataError, match="line 1"):
        settings("--config", tmp_path / "bad.toml")


def test_help_lists_every_field_without_torch(regard):
    code, out, err = regard("train", "--help")
    assert code == 0, err
    assert all(s.flag in out for s in KNOWN.values() if s.name not in ("kind", "files"))
    assert "Labelled tokens of a micro-batch" in " ".join(out.split())
    check = "import regard.cli.train_flags, sys; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", check], timeout=60).returncode == 0


@pytest.mark.parametrize(
    "given, word, named",
    [
        ('kind = "mlm"', "lm", ("kind = lm", "kind = 'mlm'")),
        ('kind = "seq2seq"', "lstm", ("kind = lm", "kind = 'seq2seq'")),
        ('kind = "lm"\nfamily = "gru"', "lstm", ("family = lstm", "family = 'gru'")),
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path, capsys, given, word, named):
    file = tmp_path / "run.toml"
    file.write_text(given)
    command = ["train", word, "tale.txt", "--config", str(file), "--print-config"]
    assert main(command) == 2
    said = capsys.readouterr().err
    assert all(name in said for name in named) and "run.toml" in said
    file.write_text('kind = "lm"')
    assert main(["train", "lstm" if word == "lstm" else "lm", *command[2:]]) == 0
