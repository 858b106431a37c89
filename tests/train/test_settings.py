"""Settings of a run: fields, flags and TOML keys are one thing; every value has an origin."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest

import regard
from regard.cli.main import main
from regard.errors import DataError, UsageError
from regard.train.config import DataConfig, ShapeConfig, TrainConfig
from regard.train.kinds import WORD
from regard.train.settings import (
    known_settings,
    read_value,
    resolve_run,
    to_toml,
    usual_values,
    write_toml,
)
from tests.train.small_runs import split_configs


def settings(kind, files=("a",), path=None, **changes):
    return resolve_run(WORD[kind], list(files), split_configs(changes).values(), path)


def test_a_config_knows_what_was_given():
    config = TrainConfig(7, lr=1e-3)
    assert config.given == {"steps", "lr"} and config == TrainConfig(steps=7)
    assert TrainConfig().given == frozenset()


def test_given_beats_the_file_which_beats_the_preset(tmp_path):
    file = tmp_path / "f.toml"
    file.write_text("dropout = 0.3\nlr = 1\n[model]\ndim = 64\n")
    made = settings("mlm", path=file, dropout=0.0, depth=2)
    assert [made.values[name] for name in ("dropout", "lr", "dim", "depth")] == [0.0, 1.0, 64, 2]
    assert isinstance(made.values["lr"], float)
    names = ("dropout", "lr", "beta2", "heads", "depth")
    origins = ["flag", str(file), "preset for mlm", "default", "flag"]
    assert [made.origins[name] for name in names] == origins


def test_what_is_around_is_a_setting_too(tmp_path):
    (tmp_path / "c.toml").write_text('seed = 5\ndevice = "cpu"\n')
    assert settings("lm", path=tmp_path / "c.toml").values["seed"] == 5
    with regard.settings(seed=3, device="cpu"):
        made = settings("lm", path=tmp_path / "c.toml")
        assert (made.values["seed"], made.origins["seed"]) == (3, "flag")
    with regard.settings(seed=-1), pytest.raises(UsageError, match="seed = -1"):
        settings("lm")


def test_the_written_settings_are_toml_that_reads_back(tmp_path):
    given = dict(prompts=["a b", 'quote " \\ é \x7f'], eps=1e-9, compile=True, mask=0.2)
    made = settings("mlm", [tmp_path / "a.txt"], **given)
    text = write_toml(made)
    assert "# flag" in text and "# kv_heads is not set" in text and str(made) + "\n" == text
    (tmp_path / "c.toml").write_text(text)
    assert settings("mlm", (), tmp_path / "c.toml").values == made.values
    assert tomllib.loads(text)["prompts"] == given["prompts"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("step = 1", "did you mean steps"),
        ("steps = 1.5", "a whole number"),
        ("steps = true", "a whole number"),
        ("lr = 'fast'", "a number"),
        ("compile = 1", "true or false"),
        ("schedule = 'cosin'", "did you mean cosine"),
        ("prompts = 3", "a list of text"),
    ],
)
def test_a_wrong_key_or_value_of_a_file_is_named(wrong, said, tmp_path):
    (tmp_path / "f.toml").write_text(wrong)
    with pytest.raises(UsageError, match=said) as caught:
        settings("lm", path=tmp_path / "f.toml")
    assert "f.toml" in str(caught.value)


@pytest.mark.parametrize("value", [True, 3, 1e-12, float("inf"), "x\ny", ("a", "b"), ()])
def test_values_as_toml(value):
    read = tomllib.loads(f"x = {to_toml(value)}")["x"]
    assert (tuple(read) if isinstance(value, tuple) else read) == value


def test_a_run_of_given_settings_alone(tmp_path):
    made = settings("lm", [tmp_path / "a.txt"], steps=5, compile=False, kv_heads=2)
    assert made.values["files"] == (str(tmp_path / "a.txt"),) and made.values["steps"] == 5
    assert made.values["family"] == "llama" and made.origins["compile"] == "flag"
    assert made.values["hidden"] == 704 and made.values["tokens"] == "bpe"
    lstm = settings("lstm")
    assert (lstm.values["kind"], lstm.values["family"], lstm.values["carry"]) == ("lm", "lstm", 1)


def test_a_preset_gives_shape_and_recipe_and_what_is_given_changes_it():
    made = settings("seq2seq", preset="transformer-base", dropout=0.2)
    assert made.values["warm_up"] == 4000 and made.values["hidden"] == 2048
    assert made.origins["warm_up"] == "preset transformer-base"
    assert (made.values["dropout"], made.origins["dropout"]) == (0.2, "flag")
    small = settings("lm", preset="gpt2", dim=64, heads=2, depth=1)
    assert small.values["hidden"] == 256 and small.values["family"] == "gpt2"


def test_pairs_are_trained_by_muon_unless_something_else_is_said():
    """Of 30,000 pairs and 1,100 steps, AdamW at its old rate made 7 BLEU, Muon over 30."""
    usual = settings("seq2seq").values
    assert (usual["optimizer"], usual["lr"], usual["schedule"]) == ("muon", 8e-3, "cosine")
    assert not usual["pre_norm"]  # so that transformers opens it
    assert settings("seq2seq", lr=1e-3).values["optimizer"] == "muon"
    for others in ({"optimizer": "adamw"}, {"shard": True}, {"preset": "transformer-base"}):
        values = settings("seq2seq", **others).values
        assert (values["optimizer"], values["schedule"]) == ("adamw", "inverse_sqrt")
        assert values["lr"] <= 1e-3
    assert settings("seq2seq", family="gru").values["optimizer"] == "adamw"
    assert settings("lm").values["optimizer"] == "adamw"


def test_a_budget_of_time_leaves_the_steps_open_unless_they_are_given():
    assert settings("lm", minutes=2.0).values["steps"] == 10**9
    assert settings("lm", minutes=2.0, steps=50).values["steps"] == 50


def test_presets_carry_shape_and_recipe():
    big = usual_values("seq2seq", {"preset": "transformer-big"})
    assert (big["dim"], big["dropout"], big["average"]) == (1024, 0.3, 20)
    assert usual_values("lm", {"preset": "smollm2-135m"})["kv_heads"] == 3
    with pytest.raises(UsageError, match="bert-base"):
        usual_values("lm", {"preset": "bert-base"})


@pytest.mark.parametrize(
    ("kind", "changes", "said"),
    [
        ("lm", {"steps": 0}, "steps = 0"),
        ("lm", {"length": 9, "batch_tokens": 8}, "fewer than length"),
        ("mlm", {"mask": 0.0}, "mask = 0"),
        ("lm", {"holdout": 1.0}, "holdout = 1"),
        ("lm", {"vocab": 0}, "vocab = 0"),
        ("lm", {"preset": "gtp2"}, "did you mean gpt2"),
        ("lm", {"pre_norm": True}, "pre_norm"),
        ("lm", {"carry": True}, "a recurrent family"),
        ("lstm", {"compile": True}, "compile = True with lstm"),
    ],
)
def test_wrong_settings(kind, changes, said):
    with pytest.raises(UsageError, match=said):
        settings(kind, **changes)


def test_no_files_to_train_on():
    with pytest.raises(UsageError, match="no files to train on"):
        settings("lm", ())


def test_a_file_that_is_no_toml(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        settings("lm", path=tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("steps = \n")
    with pytest.raises(DataError, match="line 1"):
        settings("lm", path=tmp_path / "bad.toml")


@pytest.mark.parametrize(
    "given, word, named",
    [
        ('kind = "mlm"', "lm", ("kind = lm", "kind = 'mlm'")),
        ('kind = "seq2seq"', "lstm", ("kind = lm", "kind = 'seq2seq'")),
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path, given, word, named):
    file = tmp_path / "run.toml"
    file.write_text(given)
    with pytest.raises(UsageError) as caught:
        settings(word, path=file)
    assert all(name in str(caught.value) for name in (*named, "run.toml"))
    file.write_text('kind = "lm"')
    assert settings(word, path=file).values["kind"] == "lm"


@pytest.mark.parametrize("name", ["kind", "seed", *TrainConfig.__dataclass_fields__])
def test_defaults_are_what_their_types_allow(name):
    hint, default = known_settings(ShapeConfig)[name]
    assert read_value(name, default, "default", hint) == default


def test_help_lists_every_field_without_torch(capsys):
    assert main(["train", "lm", "--help"]) == 0
    text = capsys.readouterr().out
    names = [n for c in (TrainConfig, ShapeConfig, DataConfig) for n in c.__dataclass_fields__]
    assert all(f"--{name.replace('_', '-')} " in text for name in names)
    assert "Labelled tokens of a micro-batch" in " ".join(text.split()) and "--config " in text
    check = "import regard.train.settings, sys; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", check], timeout=60).returncode == 0


def test_printed_settings_through_both_doors(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("a\n")
    command = ["train", "lm", str(tmp_path / "a.txt"), "--dim", "16", "--print-config"]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "dim = 16  # flag" in out and "lr = 0.001  # default" in out
    (tmp_path / "c.toml").write_text(out.replace("batch_tokens", "batch_token"))
    assert main(["train", "lm", "--config", str(tmp_path / "c.toml")]) == 2
    said = capsys.readouterr().err
    assert "'batch_token'" in said and "did you mean batch_tokens" in said
    shape = ShapeConfig(dim=16)
    printed = regard.train.lm(tmp_path / "a.txt", shape=shape, print_config=True)
    assert str(printed) + "\n" == out
