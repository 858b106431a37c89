"""`regard train … --dry-run`: counts that a run confirms, and nothing written."""

from __future__ import annotations

import json

import pytest

from regard.cli.main import main
from regard.loading import load
from tests.cli.train_runs import SMALL, words, write_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"))


def listed(folder):
    return sorted(str(path) for path in folder.rglob("*"))


@pytest.mark.parametrize("kind", ["lm", "mlm", "seq2seq"])
def test_what_it_says_is_what_runs(kind, here, corpus, tmp_path):
    given = words(kind, corpus, tmp_path / "r", "--ema", "0.9", "--eval-every", "1")
    before = listed(corpus)
    code, out, err = here(*given, "--dry-run", "--json")
    plan = json.loads(out)
    assert code == 0 and listed(tmp_path) == [] and listed(corpus) == before, err
    assert here(*given, "-q")[0] == 0
    model = load(tmp_path / "r" / "final").model
    assert plan["model"]["parameters"] == sum(p.numel() for p in model.parameters())
    assert plan["config"]["steps"] == plan["run"]["steps"] == 6
    said = (tmp_path / "r" / "log.txt").read_text()
    assert f"training on {plan['data']['train']}, {plan['data']['vocabulary']} ids" in said
    assert f"the last {plan['data']['valid']}" in said
    lines = (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()
    epochs = json.loads(lines[-1])["epoch"]
    assert epochs <= plan["run"]["epochs"] <= epochs + 1
    # Tensors only: the files have headers and a tokenizer beside them.
    checkpoint = tmp_path / "r" / "checkpoints" / "step-000006"
    files = [*checkpoint.glob("*.safetensors"), *checkpoint.glob("trainer/[mo]*.safetensors")]
    held = sum(file.stat().st_size for file in files)
    count = plan["model"]["parameters"]
    assert 16 * count < held < 16 * count + 30_000
    assert plan["disk_bytes"] == 16 * count * (3 + 2) + 4 * count


def test_people_read_it_too(here, corpus, tmp_path):
    code, out, err = here(*words("lm", corpus, tmp_path / "r"), "--dry-run")
    assert code == 0, err
    for text in ("steps = 6  # flag", "LlamaForCausalLM", "memory", "disk", "nothing was written"):
        assert text in out


def test_bad_data_and_a_folder_in_use_are_found(here, corpus, tmp_path):
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").write_text("x")
    code, _, err = here(*words("lm", corpus, tmp_path / "used"), "--dry-run")
    assert code == 2 and "is not empty" in err
    (tmp_path / "bad.txt").write_bytes(b"abc\n\xff\n" * 50)
    given = ["train", "lm", tmp_path / "bad.txt", "--out", tmp_path / "r", *SMALL, "--dry-run"]
    code, _, err = here(*given)
    assert code == 3 and "bad.txt" in err and not (tmp_path / "r").exists()


def test_validation_on_the_training_file_is_warned_of(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("the cat sat on the mat\n" * 50)
    (tmp_path / "b.txt").write_bytes((tmp_path / "a.txt").read_bytes())
    (tmp_path / "c.txt").write_text("a dog sat on a log\n" * 50)
    shape = ["--tokens", "chars", "--length", "8", "--dim", "8", "--heads", "1", "--depth", "1"]
    train = ["train", "lm", str(tmp_path / "a.txt"), *shape, "--dry-run", "--valid"]
    for name, warned in (("b.txt", True), ("c.txt", False)):
        assert main([*train, str(tmp_path / name)]) == 0
        assert ("b.txt is validated on and trained on" in capsys.readouterr().err) == warned


def test_validation_lines_in_the_training_file_are_counted(tmp_path, capsys):
    shape = ["--tokens", "chars", "--length", "8", "--dim", "8", "--heads", "1", "--depth", "1"]
    leak = "The cat sat on the mat and then it slept"
    own = [f"line {n} of the file that is trained on has words of its own" for n in range(50)]
    (tmp_path / "a.txt").write_text("\n".join([*own, leak, "short one"]) + "\n")
    other = "a line that only the second of the two files has"
    (tmp_path / "b.txt").write_text(f"{other}\n{leak}\nshort one\n")
    files = [str(tmp_path / "a.txt"), "--valid", str(tmp_path / "b.txt")]
    assert main(["train", "lm", *files, *shape, "--dry-run"]) == 0
    said = "1 of 2 validation lines of 8 words or more (line 2) are trained on too"
    assert said in capsys.readouterr().err
    for name in ("a", "b"):
        lines = (tmp_path / f"{name}.txt").read_text().splitlines()
        (tmp_path / f"{name}.tsv").write_text("".join(f"{line}\t{line}!\n" for line in lines))
    pairs = [str(tmp_path / "a.tsv"), "--valid", str(tmp_path / "b.tsv")]
    assert main(["train", "seq2seq", *pairs, *shape, "--length", "80", "--dry-run"]) == 0
    assert "2 of 3 validation pairs (line 2, 3) are trained on too" in capsys.readouterr().err
