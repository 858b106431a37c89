"""`dry_run`: counts that a run confirms, and nothing written."""

from __future__ import annotations

import pytest

from regard.errors import DataError, UsageError
from tests.train.small_runs import SMALL, train, train_on, write_corpus

TINY = dict(tokens="chars", length=8, dim=8, heads=1, depth=1)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"))


def listed(folder):
    return sorted(str(path) for path in folder.rglob("*"))


@pytest.mark.parametrize(
    ("kind", "optimizer"), [("lm", "adamw"), ("mlm", "adamw"), ("seq2seq", "muon")]
)
def test_what_it_says_is_what_runs(kind, optimizer, corpus, tmp_path):
    asked, before = dict(ema=0.9, eval_every=1, optimizer=optimizer), listed(corpus)
    plan = train(kind, corpus, tmp_path / "r", dry_run=True, **asked)
    assert listed(tmp_path) == [] and listed(corpus) == before
    run = train(kind, corpus, tmp_path / "r", **asked)
    count, kept = plan.model["parameters"], 4
    if optimizer == "muon":  # it keeps one mean of the blocks' matrices, not two
        stacks = (run.kit.model.encoder, run.kit.model.decoder)
        blocks = [p for stack in stacks for p in stack.blocks.parameters()]
        kept -= sum(p.numel() for p in blocks if p.dim() > 1) / count
    assert count == sum(p.numel() for p in run.kit.model.parameters())
    assert plan.config["steps"] == plan.run["steps"] == 6
    said = (run.folder / "log.txt").read_text()
    assert f"training on {plan.data['train']}, {plan.data['vocabulary']} ids" in said
    assert f"the last {plan.data['valid']}" in said
    epochs = run.metrics[-1]["epoch"]
    assert epochs <= plan.run["epochs"] <= epochs + 1
    # Tensors only: the files have headers and a tokenizer beside them.
    checkpoint = run.folder / "checkpoints" / "step-000006"
    files = [*checkpoint.glob("*.safetensors"), *checkpoint.glob("trainer/[mo]*.safetensors")]
    held = sum(file.stat().st_size for file in files)
    assert 4 * kept * count < held < 4 * kept * count + 30_000
    assert plan.disk_bytes == 4 * kept * count * (3 + 2) + 4 * count


def test_people_read_it_too(corpus, tmp_path):
    text = str(train("lm", corpus, tmp_path / "r", dry_run=True))
    for part in ("steps = 6  # flag", "LlamaForCausalLM", "memory", "disk", "nothing was written"):
        assert part in text


def test_bad_data_and_a_folder_in_use_are_found(corpus, tmp_path):
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").write_text("x")
    with pytest.raises(UsageError, match="is not empty"):
        train("lm", corpus, tmp_path / "used", dry_run=True)
    (tmp_path / "bad.txt").write_bytes(b"abc\n\xff\n" * 50)
    with pytest.raises(DataError, match="bad.txt"):
        train_on(tmp_path / "bad.txt", out=tmp_path / "r", dry_run=True, **SMALL)
    assert not (tmp_path / "r").exists()


def test_validation_on_the_training_file_is_warned_of(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("the cat sat on the mat\n" * 50)
    (tmp_path / "b.txt").write_bytes((tmp_path / "a.txt").read_bytes())
    (tmp_path / "c.txt").write_text("a dog sat on a log\n" * 50)
    for name, warned in (("b.txt", True), ("c.txt", False)):
        train_on(tmp_path / "a.txt", dry_run=True, valid=(str(tmp_path / name),), **TINY)
        assert ("b.txt is validated on and trained on" in capsys.readouterr().err) == warned


def test_validation_lines_in_the_training_file_are_counted(tmp_path, capsys):
    leak = "The cat sat on the mat and then it slept"
    own = [f"line {n} of the file that is trained on has words of its own" for n in range(50)]
    (tmp_path / "a.txt").write_text("\n".join([*own, leak, "short one"]) + "\n")
    other = "a line that only the second of the two files has"
    (tmp_path / "b.txt").write_text(f"{other}\n{leak}\nshort one\n")
    train_on(tmp_path / "a.txt", dry_run=True, valid=(str(tmp_path / "b.txt"),), **TINY)
    said = "1 of 2 validation lines of 8 words or more (line 2) are trained on too"
    assert said in capsys.readouterr().err
    for name in ("a", "b"):
        lines = (tmp_path / f"{name}.txt").read_text().splitlines()
        (tmp_path / f"{name}.tsv").write_text("".join(f"{line}\t{line}!\n" for line in lines))
    valid, pairs = (str(tmp_path / "b.tsv"),), TINY | {"length": 80}
    train_on(tmp_path / "a.tsv", "seq2seq", dry_run=True, valid=valid, **pairs)
    assert "2 of 3 validation pairs (line 2, 3) are trained on too" in capsys.readouterr().err
