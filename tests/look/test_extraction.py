"""`regard.look.extract`: a corpus in, a folder out."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

import regard
from regard.errors import DataError, UsageError
from regard.loading import load
from regard.look.activation_store import Extracted, ShardWriter
from regard.look.activations import TextIds, select_taps
from regard.look.extraction import Shards, TextCheck
from tests.cli.conftest import ROOT
from tests.cli.small_folders import masker, pair, writer  # noqa: F401

LINES = ["the cat sat on the mat", "", "Hello", "the dog sat on the log, naïve café"]
RESID = {"tap": ["*.resid_post"]}


def test_rows_of_a_corpus(writer, tmp_path):  # noqa: F811
    out = tmp_path / "acts"
    told = regard.look.extract(writer, LINES, **RESID, out=out)
    kit, found = load(writer), Extracted(out)
    ids = [kit.tokenizer.encode(line) for line in LINES]
    assert told.texts == 4 and told.tokens == told.rows == sum(map(len, ids)) == len(found)
    assert told.exit_code == 0
    assert found.index.token.tolist() == [id for row in ids for id in row]
    assert found.index.text.tolist() == [n for n, row in enumerate(ids) for _ in row]
    for n in (0, 2, 3):
        _, seen = kit.run(LINES[n], taps="*.resid_post")
        for tap in found.taps:
            x = found.tensor(tap)[found.index.text == n]
            torch.testing.assert_close(x, seen[tap][0], atol=1e-5, rtol=1e-5)
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["receipt"]["command"][:3] == ["regard", "look", "extract"]
    assert len(manifest["receipt"]["results"]["weights"]) == 64
    with pytest.raises(UsageError, match="already(.|\n)*--force"):
        regard.look.extract(writer, LINES, **RESID, out=out)
    how = {"head": 1, "position": "last", "precision": "bf16", "force": True}
    regard.look.extract(writer, LINES, tap=["*.attn.z"], out=out, **how)
    again = Extracted(out)
    assert again.tensor("*.0.attn.z").dtype == torch.bfloat16
    assert again.index.text.tolist() == [0, 2, 3]


def test_texts_that_cannot_be_read_are_named(writer, tmp_path, capsys):  # noqa: F811
    bad = DataError("reading a line", "line 3: not UTF-8", "UTF-8 text")
    texts, out = ["the cat", "the cat sat " * 30, bad, "Hello"], tmp_path / "acts"
    told = regard.look.extract(writer, texts, tap=["*.0.mlp.out"], out=out)
    err = capsys.readouterr().err
    assert told.exit_code == 3 and "text 2" in err and "at most 40" in err and "line 3" in err
    assert told.skipped == 2 and sorted(set(Extracted(out).index.text.tolist())) == [0, 3]
    with pytest.raises(DataError, match="no text that gives a row"):
        regard.look.extract(writer, "Hello", tap=["*.z"], out=tmp_path / "b", position=30)
    with pytest.raises(UsageError, match="all, last, mean or a whole number"):
        regard.look.extract(writer, "Hello", tap=["*.z"], out=tmp_path / "b", position="end")
    assert not (tmp_path / "b").exists()


def test_a_pair(pair, tmp_path, capsys):  # noqa: F811
    lines, kit = ["the cat\tthe dog sat", "no tab", "Hello\tworld"], load(pair)
    told = regard.look.extract(kit, lines, tap=["decoder.*.cross.z"], out=tmp_path / "a")
    assert told.exit_code == 3 and "text 2: 0 TABs" in capsys.readouterr().err
    found = Extracted(tmp_path / "a")
    start, ids = kit.config["decoder_start_token_id"], kit.tokenizer.encode("the dog sat")
    here = found.index.text == 0
    assert found.index.token[here].tolist() == [start, *ids]
    source = kit.tokenizer.encode("the cat")
    _, seen = kit.run([source], [[start, *ids]], taps="decoder.*.cross.z")
    for tap in found.taps:
        x = found.tensor(tap)[here]
        torch.testing.assert_close(x, seen[tap][0].flatten(1), atol=1e-5, rtol=1e-5)
    told = regard.look.extract(kit, lines, tap=["encoder.*.z"], out=tmp_path / "b")
    assert told.exit_code == 0 and set(Extracted(tmp_path / "b").index.text.tolist()) == {0, 1, 2}


def test_edits_change_what_is_read(masker, tmp_path):  # noqa: F811
    lines, how = ["the cat", "Paris"], {"tap": ["*.1.resid_post"]}
    regard.look.extract(masker, lines, **how, out=tmp_path / "a")
    regard.look.extract(masker, lines, **how, out=tmp_path / "b", edit=["*.0.attn.z=zero"])
    plain, kit = Extracted(tmp_path / "a"), load(masker)
    _, seen = kit.run("Paris", taps="*.1.resid_post")
    tap = plain.taps[0]
    torch.testing.assert_close(
        plain.tensor(tap)[plain.index.text == 1], seen[tap][0], atol=1e-5, rtol=1e-5
    )
    assert not torch.allclose(plain.tensor(tap), Extracted(tmp_path / "b").tensor(tap))
    with pytest.raises(UsageError, match="mean of a run"):
        regard.look.extract(masker, lines, **how, out=tmp_path / "c", edit=["*.0.attn.z=mean"])


def test_what_fits_is_said(pair):  # noqa: F811
    kit = load(pair)
    shards = Shards(kit.hooked, select_taps(kit.hooked, "encoder.*.z"), 1000, list)
    check = TextCheck(kit, shards)
    with pytest.raises(DataError, match=f"at most {shards.capacity}, a shard"):
        check.count_rows(TextIds(0, [5] * 100))
    shards.capacity = 10**9
    with pytest.raises(
        DataError, match=r"text 3\n  expected: at most 5,000, which this model reads"
    ):
        check.count_rows(TextIds(2, [5] * 100_000))
    check.source, check.free = 1 << 20, 1 << 30
    with pytest.raises(DataError, match="100,000 tokens in text 3") as told:
        check.count_rows(TextIds(2, [5] * 100_000))
    most = int(told.value.expected.split()[2].replace(",", ""))
    assert check.needed(most) <= check.free < check.needed(most + 1)
    check.count_rows(TextIds(0, [5] * most))


def test_an_interrupted_run_goes_on(writer, tmp_path, monkeypatch, capsys):  # noqa: F811
    lines, out, whole = [f"the cat sat on {n}" for n in range(40)], tmp_path / "a", tmp_path / "b"
    lines.insert(9, "\xff" * 90)  # too long
    monkeypatch.setattr("regard.look.extraction.MEGABYTE", 9_000)
    assert regard.look.extract(writer, lines, **RESID, out=whole, shard_mb=1).skipped == 1
    save, done = ShardWriter._save, []

    def until_the_third(self, tensors, mark):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(save(self, tensors, mark))

    monkeypatch.setattr(ShardWriter, "_save", until_the_third)
    with pytest.raises(KeyboardInterrupt):
        regard.look.extract(writer, lines, **RESID, out=out, shard_mb=1)
    assert "goes on from there" in capsys.readouterr().err
    monkeypatch.setattr(ShardWriter, "_save", save)
    with pytest.raises(DataError, match="no such file"):
        Extracted(out)
    with pytest.raises(UsageError, match="an interrupted run of another tap"):
        regard.look.extract(writer, lines, tap=["*.0.attn.z"], out=out, shard_mb=1)
    others = [line.replace("on 3", "in 3") for line in lines]
    with pytest.raises(DataError, match="not the texts that the interrupted run"):
        regard.look.extract(writer, others, **RESID, out=out, shard_mb=1)
    assert regard.look.extract(writer, lines, **RESID, out=out, shard_mb=1).skipped == 1
    assert "going on after 2 shards" in capsys.readouterr().err and not list(out.glob(".*"))
    one, two = Extracted(out), Extracted(whole)
    assert one.manifest["shards"] == two.manifest["shards"] and len(one.files) > 3
    for name in ("tokens", "texts", "skipped", "texts_sha256", "rows"):
        assert one.manifest[name] == two.manifest[name]


FULL = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
from regard.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_full_disk_is_exit_4_and_leaves_nothing(writer, tmp_path):  # noqa: F811
    file = tmp_path / "long.txt"
    file.write_text("the cat sat on the mat\n" * 50)
    command = ["look", "extract", writer, "--file", file, "--tap", "*.z", "--out", tmp_path / "a"]
    done = subprocess.run(
        [sys.executable, "-c", FULL, *map(str, command)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 4, done.stderr
    assert "File too large" in done.stderr and not (tmp_path / "a").exists()
