"""The token store: what is written is read, half a store never opens, a stale one is built anew."""

from __future__ import annotations

import errno
import gzip
import os
import signal
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard import files
from regard.data.bucket import Buckets
from regard.data.token_store import Store, hold_out, pair_store, text_store, write_store
from regard.data.windows import Windows
from regard.errors import DataError, ResourceError
from regard.tokens.tokenizer import Tokenizer
from tests.data.stores import make_store
from tests.tokens.small_tokenizers import byte_bpe

DOCUMENTS = [[1, 2, 3], [], [70_000, 5], [4]]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_rust(byte_bpe(["<s>", "</s>"]), {"bos": 0, "eos": 1})


@pytest.mark.parametrize(("vocab", "kind"), [(65_536, "<u2"), (65_537, "<u4")])
def test_the_type_follows_the_vocabulary(tmp_path, vocab, kind):
    store = make_store(tmp_path / "a", [[vocab - 1, 0]], vocab=vocab)
    assert store.stream.dtype.str == kind and store[0].tolist() == [vocab - 1, 0]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.integers(0, 999), max_size=5), max_size=9).filter(any))
def test_what_is_written_is_read(tmp_path_factory, documents):
    store = make_store(tmp_path_factory.mktemp("store") / "a", documents)
    assert [store[n].tolist() for n in range(len(store))] == documents
    stream = [id for document in documents for id in document]
    assert store.tokens == len(stream) and store.read(0, 999).tolist() == stream
    assert store.read(2, 4).tolist() == stream[2:4]
    assert store.lengths().tolist() == list(map(len, documents))
    with pytest.raises(IndexError):
        store[len(documents)]


def test_documents_in_pieces_and_gathered_rows(tmp_path):
    parts = [part for ids in DOCUMENTS for part in (([ids[:1]], True), ([ids[1:]], False))]
    store = write_store(tmp_path / "a", 100_000, {}, parts)
    assert [store[n].tolist() for n in range(4)] == DOCUMENTS
    rows = store.gather(np.array([0, 3, 5]), np.array([3, 2, 0]), 4, pad=9)
    assert rows.tolist() == [[1, 2, 3, 9], [70_000, 5, 9, 9], [9, 9, 9, 9]]


def test_an_id_outside_the_vocabulary_is_an_error(tmp_path):
    with pytest.raises(DataError, match="ids from 3 to 1000"):
        make_store(tmp_path / "a", [[3, 1000]])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["ids", "bounds", "header.json"])
@pytest.mark.parametrize("kept", [0.0, 0.01, 0.3, 0.5, 0.9, 0.999])
def test_a_part_of_a_store_never_opens(tmp_path, name, kept):
    file = make_store(tmp_path / "a", [[1, 2, 3]] * 50).path / name
    file.write_bytes(file.read_bytes()[: int(file.stat().st_size * kept)])
    with pytest.raises(DataError):
        Store(tmp_path / "a")


def test_a_killed_writer_leaves_the_old_store_and_its_draft_is_cleared(tmp_path):
    path = tmp_path / "a"
    make_store(path, [[7, 8]])
    code = (
        "import os, signal, sys\nfrom pathlib import Path\n"
        "from regard.data.token_store import write_store\n"
        "def batches():\n    yield [[1, 2, 3]] * 100_000, False\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "write_store(Path(sys.argv[1]), 1000, {}, batches())\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], cwd=os.getcwd())
    assert done.returncode == -signal.SIGKILL
    with pytest.raises(DataError):
        Store(tmp_path / ".a.part")
    assert Store(path)[0].tolist() == [7, 8]
    make_store(path, [[9]])
    assert [file.name for file in tmp_path.iterdir()] == ["a"] and Store(path)[0].tolist() == [9]


def test_an_error_or_a_full_disk_leaves_the_old_store(tmp_path, monkeypatch):
    path = tmp_path / "a"
    make_store(path, [[7, 8]])

    def broken(error):
        yield [[1]], False
        raise error

    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(KeyError):
        write_store(path, 10, {}, broken(KeyError()))
    with pytest.raises(ResourceError, match="No space left"):
        write_store(path, 10, {}, broken(full))

    def sync(file):
        raise full

    monkeypatch.setattr(files, "sync", sync)
    with pytest.raises(ResourceError, match="No space left"):
        make_store(path, [[1]])
    assert [file.name for file in tmp_path.iterdir()] == ["a"] and Store(path)[0].tolist() == [7, 8]


def test_text_files_become_documents(tmp_path, tokenizer):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/b.txt").write_text("two lines\n\nand a naïve café\n")
    (tmp_path / "in/a.txt.gz").write_bytes(gzip.compress(b"first\n"))
    files = text_store(tmp_path / "s1", [tmp_path / "in"], tokenizer, end=1)
    texts = ["first\n", "two lines\n\nand a naïve café\n"]
    expected = [tokenizer.encode(text, special=False) + [1] for text in texts]
    assert [files[n].tolist() for n in range(2)] == expected
    lines = text_store(tmp_path / "s2", [tmp_path / "in"], tokenizer, split="line")
    assert [tokenizer.decode(lines[n].tolist()) for n in range(len(lines))] == [
        "first", "two lines", "and a naïve café",
    ]  # fmt: skip


def test_a_long_file_in_pieces_is_the_whole_text(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr("regard.data.text_files.CHUNK", 3000)
    monkeypatch.setattr("regard.data.token_store.PIECE", 700)
    text = "\n".join(f"line {n} of  the café, and   so on" for n in range(800))
    (tmp_path / "a.txt").write_text(text)
    store = text_store(tmp_path / "s", tmp_path / "a.txt", tokenizer)
    assert store.read(0, store.tokens).tolist() == tokenizer.encode(text, special=False)


def test_pairs_are_two_sides(tmp_path, tokenizer):
    (tmp_path / "a.tsv").write_text("un chat\ta cat\n\tonly this\nun chien\ta dog\n")
    (tmp_path / "b.fr").write_text("oui\n")
    (tmp_path / "b.en").write_text("yes\n")
    for names, said in (
        (["a.tsv"], ["un chat", "a cat", "un chien", "a dog"]),
        (["b.fr", "b.en"], ["oui", "yes"]),
    ):
        paths = [tmp_path / name for name in names]
        store = pair_store(tmp_path / f"s{len(names)}", paths, tokenizer)
        assert [tokenizer.decode(store[n].tolist()) for n in range(store.documents)] == said
        assert len(store) == len(said) // 2 and store.lengths().shape == (len(store), 2)


def test_a_stale_store_is_built_again_and_says_why(tmp_path, tokenizer):
    source, path, said = tmp_path / "a.txt", tmp_path / "s", []

    def build(tok=tokenizer, **settings):
        said.clear()
        return text_store(path, [source], tok, tell=(said.append, print), **settings)

    source.write_text("one two")
    build()
    assert "not there yet" in said[0]
    build()
    assert not said
    source.write_text("one ten")  # as long
    assert tokenizer.decode(build()[0].tolist()) == "one ten" and "sources changed" in said[0]
    build(end=1)
    assert "end changed" in said[0]
    other = Tokenizer.from_rust(byte_bpe(["<s>", "</s>"], 300), {"bos": 0, "eos": 1})
    build(other, end=1)
    assert "tokenizer changed" in said[0]
    (path / "ids").write_bytes(b"")
    build(other, end=1)
    assert "empty" in said[0]


def test_nothing_to_read_is_an_error(tmp_path, tokenizer):
    (tmp_path / "a.txt").write_text("\n\n")
    with pytest.raises(DataError, match="0 tokens in"):
        text_store(tmp_path / "s", [tmp_path / "a.txt"], tokenizer, split="line")
    with pytest.raises(DataError, match="(?i)no such file"):
        text_store(tmp_path / "s", [tmp_path / "none.txt"], tokenizer)
    assert not (tmp_path / "s").exists()


def test_memory_is_bounded(tmp_path, tokenizer, monkeypatch):
    """Six times the text takes no more Python objects at once."""
    monkeypatch.setattr("regard.data.text_files.CHUNK", 1 << 16)
    peaks = []
    for count in (4_000, 24_000):
        (tmp_path / "a.txt").write_text("the cat sat on the mat, and the dog sat\n" * count)
        tracemalloc.start()
        text_store(tmp_path / "s", [tmp_path / "a.txt"], tokenizer, split="line")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0]


def make(path, documents, sides=1):
    return make_store(path, documents, sides, 100)


def test_a_stream_is_cut_at_nine_tenths(tmp_path):
    store = make(tmp_path / "s", [list(range(60)), list(range(60, 99))])
    train, valid = hold_out(store, None, by_tokens=True)
    assert (train.tokens, valid.tokens) == (89, 10)
    assert train.read(0, 89).tolist() == list(range(89))
    assert valid.read(0, 10).tolist() == list(range(89, 99))
    batch = Windows(valid, 4, 8, seed=None).batch(0, 0)
    assert batch.inputs.min() >= 89 - 89 and batch.labels.max() == 98
    assert batch.inputs[0].tolist() == [89, 90, 91, 92] and batch.tokens == 9
    seen = Windows(train, 8, 99, seed=None).batch(0, 0)
    assert int(seen.labels.max()) == 88


def test_pairs_and_lines_are_held_out_whole(tmp_path):
    pairs = make(tmp_path / "p", [[n] for n in range(80)], sides=2)
    train, valid = hold_out(pairs, None, by_tokens=False)
    assert (len(train), len(valid)) == (38, 2)
    held = Buckets(valid, 50, 98, 99, seed=None).batch(0, 0)
    assert sorted(held.inputs[:, 0].tolist()) == [76, 78]
    assert sorted(held.labels[:, 0].tolist()) == [77, 79]
    lines = make(tmp_path / "l", [[n, n] for n in range(20)])
    train, valid = hold_out(lines, 0.25, by_tokens=False)
    assert [valid[n].tolist()[0] for n in range(5)] == [15, 16, 17, 18, 19]
    assert np.diff(train.bounds).tolist() == [2] * 15


def test_shares_and_limits(tmp_path):
    store = make(tmp_path / "s", [[1], [2]])
    assert hold_out(store, 0, by_tokens=True) == (store, None)
    assert len(hold_out(store, 0.01, by_tokens=False)[1]) == 1
    with pytest.raises(DataError, match="1 lines"):
        hold_out(make(tmp_path / "t", [[1, 2]]), None, by_tokens=False)
