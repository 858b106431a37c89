"""`regard extract`: a corpus in, a folder out."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from regard.cli.extract_room import Room
from regard.look.extract_ import Item, Shards, select_taps

from regard.cli import extract
from regard.errors import DataError
from regard.loading import load
from regard.look.activation_store import Extracted, Writer
from tests.cli.conftest import ROOT
from tests.cli.small_folders import masker, pair, stdin, writer  # noqa: F401

LINES = ["the cat sat on the mat", "", "Hello", "the dog sat on the log, naïve café"]


@pytest.fixture
def corpus(tmp_path):
    file = tmp_path / "corpus.txt"
    file.write_text("\n".join(LINES) + "\n")
    return file


def test_rows_of_a_corpus(here, writer, corpus, tmp_path):  # noqa: F811
    out = tmp_path / "acts"
    code, said, err = here(
        "extract", writer, corpus, "--tap", "*.resid_post", "--out", out, "--json"
    )
    assert (code, err) == (0, "")
    told, kit, found = json.loads(said), load(writer), Extracted(out)
    ids = [kit.tokenizer.encode(line) for line in LINES]
    assert told["texts"] == 4 and told["tokens"] == told["rows"] == sum(map(len, ids)) == len(found)
    assert found.index.token.tolist() == [id for row in ids for id in row]
    assert found.index.text.tolist() == [n for n, row in enumerate(ids) for _ in row]
    for n in (0, 2, 3):
        _, seen = kit.run(LINES[n], taps="*.resid_post")
        for tap in found.taps:
            x = found.tensor(tap)[found.index.text == n]
            torch.testing.assert_close(x, seen[tap][0], atol=1e-5, rtol=1e-5)
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["receipt"]["command"][:2] == ["regard", "extract"]
    assert len(manifest["receipt"]["results"]["weights"]) == 64
    code, _, err = here("extract", writer, corpus, "--tap", "*.resid_post", "--out", out)
    assert code == 2 and "already" in err and "--force" in err
    code, said, _ = here(
        *("extract", writer, corpus, "--tap", "*.attn.z", "--out", out, "--force"),
        *("--head", 1, "--position", "last", "--precision", "bf16"),
    )
    again = Extracted(out)
    assert code == 0 and "3 " in said and again.tensor("*.0.attn.z").dtype == torch.bfloat16
    assert again.index.text.tolist() == [0, 2, 3]


def test_lines_that_cannot_be_read_are_named(here, writer, stdin, tmp_path):  # noqa: F811
    stdin(b"the cat\n" + b"the cat sat " * 30 + b"\na\xff\nHello\n")
    out = tmp_path / "acts"
    code, said, err = here("extract", writer, "--tap", "*.0.mlp.out", "--out", out, "--json")
    assert code == 3 and "text 2" in err and "at most 40" in err and "line 3" in err
    assert json.loads(said)["skipped"] == 2
    assert sorted(set(Extracted(out).index.text.tolist())) == [0, 3]
    stdin("Hello\n")
    code, _, err = here(
        *("extract", writer, "--tap", "*.0.mlp.out", "--out", tmp_path / "b", "--position", 30)
    )
    assert code == 3 and "no text that gives a row" in err and not (tmp_path / "b").exists()


def test_a_pair(here, pair, stdin, tmp_path):  # noqa: F811
    lines = "the cat\tthe dog sat\nno tab\nHello\tworld\n"
    stdin(lines)
    out = tmp_path / "a"
    code, _, err = here("extract", pair, "--tap", "decoder.*.cross.z", "--out", out)
    assert code == 3 and "text 2: 0 TABs" in err
    kit, found = load(pair), Extracted(out)
    start, ids = kit.config["decoder_start_token_id"], kit.tokenizer.encode("the dog sat")
    here_ = found.index.text == 0
    assert found.index.token[here_].tolist() == [start, *ids]
    source = kit.tokenizer.encode("the cat")
    _, seen = kit.run([source], [[start, *ids]], taps="decoder.*.cross.z")
    for tap in found.taps:
        x = found.tensor(tap)[here_]
        torch.testing.assert_close(x, seen[tap][0].flatten(1), atol=1e-5, rtol=1e-5)
    stdin(lines)
    code, _, err = here("extract", pair, "--tap", "encoder.*.z", "--out", tmp_path / "b")
    assert (code, err) == (0, "") and set(Extracted(tmp_path / "b").index.text.tolist()) == {
        0,
        1,
        2,
    }


def test_edits_change_what_is_read(here, masker, stdin, tmp_path):  # noqa: F811
    for name, more in (("a", ()), ("b", ("--edit", "*.0.attn.z=zero"))):
        stdin("the cat\nParis\n")
        words = ("extract", masker, "--tap", "*.1.resid_post", "--out", tmp_path / name)
        assert here(*words, *more)[0] == 0
    plain, kit = Extracted(tmp_path / "a"), load(masker)
    _, seen = kit.run("Paris", taps="*.1.resid_post")
    tap = plain.taps[0]
    torch.testing.assert_close(
        plain.tensor(tap)[plain.index.text == 1], seen[tap][0], atol=1e-5, rtol=1e-5
    )
    assert not torch.allclose(plain.tensor(tap), Extracted(tmp_path / "b").tensor(tap))
    stdin("the cat\n")
    words = ("extract", masker, "--tap", "*.1.resid_post", "--out", tmp_path / "c")
    code, _, err = here(*words, "--edit", "*.0.attn.z=mean")
    assert code == 2 and "mean of a run" in err


def test_what_fits_is_said(writer, pair):  # noqa: F811
    kit = load(pair)
    shards = Shards(kit.board, select_taps(kit.board, "encoder.*.z"), 1000, list)
    room = Room(kit, shards)
    with pytest.raises(DataError, match=f"at most {shards.capacity}, a shard"):
        room.check(Item(0, [5] * 100))
    shards.capacity = 10**9
    with pytest.raises(
        DataError, match=r"text 3\n  expected: at most 5,000, which this model reads"
    ):
        room.check(Item(2, [5] * 100_000))
    room.positions, room.free = 1 << 20, 1 << 30
    with pytest.raises(DataError, match="100,000 tokens in text 3") as told:
        room.check(Item(2, [5] * 100_000))
    most = int(told.value.expected.split()[2].replace(",", ""))
    assert room.needed(most) <= room.free < room.needed(most + 1)
    room.check(Item(0, [5] * most))


def test_arrow_has_no_half_precision(here, writer, corpus, tmp_path, monkeypatch):  # noqa: F811
    words = (
        "extract",
        writer,
        corpus,
        "--tap",
        "*.z",
        "--out",
        tmp_path / "a",
        "--format",
        "arrow",
    )
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, _, err = here(*words)
    assert code == 2 and "regard[arrow]" in err and not (tmp_path / "a").exists()
    monkeypatch.undo()
    pytest.importorskip("pyarrow")
    code, _, err = here(*words, "--precision", "bf16")
    assert code == 2 and "fp32" in err
    assert here(*words)[0] == 0
    assert here(*words[:-3], tmp_path / "b")[0] == 0
    a, b = Extracted(tmp_path / "a"), Extracted(tmp_path / "b")
    assert all(torch.equal(a.tensor(tap), b.tensor(tap)) for tap in b.taps)
    assert all(map(torch.equal, a.index, b.index))


def test_an_interrupted_run_goes_on(here, writer, tmp_path, monkeypatch):  # noqa: F811
    lines, out, whole = [f"the cat sat on {n}" for n in range(40)], tmp_path / "a", tmp_path / "b"
    (file := tmp_path / "c.txt").write_text("\n".join([*lines[:9], "\xff" * 90, *lines[9:]]))
    words = ("extract", writer, file, "--tap", "*.resid_post", "--out")
    monkeypatch.setattr(extract, "MEGABYTE", 9_000)
    assert here(*words, whole, "--shard-mb", 1)[0] == 3  # the tenth text is too long
    save, done = Writer.save, []

    def until_the_third(self, tensors, mark):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(save(self, tensors, mark))

    monkeypatch.setattr(Writer, "save", until_the_third)
    code, said, err = here(*words, out, "--shard-mb", 1)
    assert (code, said) == (130, "") and "the same command goes on from there" in err
    monkeypatch.setattr(Writer, "save", save)
    with pytest.raises(DataError, match="no such file"):
        Extracted(out)
    code, said, err = here(*words[:4], "*.0.attn.z", "--out", out, "--shard-mb", 1)
    assert code == 2 and "an interrupted run of another tap" in err
    file.write_text(file.read_text().replace("on 3", "in 3"))
    code, said, err = here(*words, out, "--shard-mb", 1)
    assert code == 3 and "not the texts that the interrupted run" in err
    file.write_text(file.read_text().replace("in 3", "on 3"))
    code, said, err = here(*words, out, "--shard-mb", 1, "--json")
    assert code == 3 and "going on after 2 shards" in err and not list(out.glob(".*"))
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
    for form in ("safetensors", "arrow"):
        command = ["extract", writer, file, "--tap", "*.z", "--out", tmp_path / "a"]
        if form == "arrow":
            pytest.importorskip("pyarrow")
        done = subprocess.run(
            [sys.executable, "-c", FULL, *map(str, command), "--format", form],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 4, done.stderr
        assert "File too large" in done.stderr and not (tmp_path / "a").exists()
