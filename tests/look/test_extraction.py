"""`regard.look.extract`: a corpus in, a folder out."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

import regard
from regard.errors import DataError, UsageError
from regard.loading import load
from regard.look.activation_store import Extracted, ShardWriter
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
    with pytest.raises(UsageError, match="already(.|\n)*new or empty"):
        regard.look.extract(writer, LINES, **RESID, out=out)
    regard.look.extract(writer, LINES, tap=["*.attn.z"], out=tmp_path / "z", position="last")
    again = Extracted(tmp_path / "z")
    assert again.index.text.tolist() == [0, 2, 3]


def test_texts_that_cannot_be_read_are_named(writer, tmp_path, capsys):  # noqa: F811
    bad = DataError("reading a line", "line 3: not UTF-8", "UTF-8 text")
    texts, out = ["the cat", "the cat sat " * 30, bad, "Hello"], tmp_path / "acts"
    told = regard.look.extract(writer, texts, tap=["*.0.mlp.out"], out=out)
    err = capsys.readouterr().err
    assert told.exit_code == 3 and "text 2" in err and "at most 40" in err and "line 3" in err
    assert told.skipped == 2 and sorted(set(Extracted(out).index.text.tolist())) == [0, 3]
    with pytest.raises(DataError, match="no text that gives a row"):
        regard.look.extract(writer, "", tap=["*.z"], out=tmp_path / "b")
    with pytest.raises(UsageError, match="one of all, last"):
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


def test_what_fits_is_said(pair, tmp_path, capsys):  # noqa: F811
    kit, lines = load(pair), ["the cat", "the cat " * 5000]
    kit.model.front.config = replace(kit.model.front.config, length=100)
    how = {"tap": ["encoder.*.z"]}
    assert regard.look.extract(kit, lines, **how, out=tmp_path / "a").skipped == 1
    assert "at most 5,000, which this model reads at once" in capsys.readouterr().err


def test_an_interrupted_run_leaves_nothing(writer, tmp_path, monkeypatch):  # noqa: F811
    lines = [f"the cat sat on {n}" for n in range(40)]
    monkeypatch.setattr("regard.look.extraction.SHARD_BYTES", 9_000)
    save, done = ShardWriter.write, []

    def until_the_third(self, tensors):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(save(self, tensors))

    monkeypatch.setattr(ShardWriter, "write", until_the_third)
    with pytest.raises(KeyboardInterrupt):
        regard.look.extract(writer, lines, **RESID, out=tmp_path / "a")
    assert len(done) == 2 and not list(tmp_path.iterdir())
    monkeypatch.setattr(ShardWriter, "write", save)
    regard.look.extract(writer, lines, **RESID, out=tmp_path / "a")
    assert len(Extracted(tmp_path / "a").files) > 3 and len(list(tmp_path.iterdir())) == 1


FULL = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
sys.dont_write_bytecode = True  # or what is imported first is kept cut off, and fails next time
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
