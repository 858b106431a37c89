"""Hugging Face folders: what is written opens in transformers, what is broken is refused."""

import errno
import json
import os
import stat
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from transformers import BertConfig, BertModel

from regard.errors import DataError, ResourceError
from regard.interop.folder import INDEX, SINGLE, FolderSource, write_folder

TENSORS = {
    "a.weight": torch.randn(5, 3),
    "a.bias": torch.randn(5).bfloat16(),
    "b": torch.arange(6).view(2, 3),
    "empty": torch.zeros(0, 4),
    "scalar": torch.tensor(2.5, dtype=torch.float16),
}
CONFIG = {"architectures": ["X"], "model_type": "x", "name": "é"}


def make(path: Path, tensors: dict[str, torch.Tensor] = TENSORS) -> bytes:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(CONFIG))
    save_file(tensors, path / SINGLE)
    return (path / SINGLE).read_bytes()


def assert_holds(path: Path, tensors: dict[str, torch.Tensor] = TENSORS) -> FolderSource:
    source = FolderSource(path)
    assert source.shapes == {name: tuple(t.shape) for name, t in tensors.items()}
    for name, tensor in tensors.items():
        read = source.tensor(name)
        assert read.dtype == tensor.dtype and torch.equal(read, tensor)
    return source


def test_reads_what_safetensors_wrote(tmp_path):
    make(tmp_path)
    source = assert_holds(tmp_path)
    assert source.config == CONFIG and source.metadata == {}


def test_transformers_opens_what_we_write_and_we_open_theirs(tmp_path):
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = BertModel(BertConfig(vocab_size=20, intermediate_size=16, **sizes))
    model.save_pretrained(tmp_path / "theirs", max_shard_size="3KB")
    theirs = FolderSource(tmp_path / "theirs")
    assert (tmp_path / "theirs" / INDEX).exists()
    pairs = ((name, theirs.tensor(name)) for name in theirs.shapes)
    write_folder(tmp_path / "ours", theirs.config, pairs)
    back, info = BertModel.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    for name, weight in model.state_dict().items():
        assert torch.equal(back.state_dict()[name], weight)


def test_round_trip(tmp_path):
    for _ in range(2):  # the second time over the first
        write_folder(tmp_path, CONFIG, TENSORS.items(), {"n.json": b"{}"})
    assert_holds(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"config.json", "n.json", SINGLE}
    assert (tmp_path / "n.json").read_bytes() == b"{}"
    with safe_open(tmp_path / SINGLE, framework="pt") as file:
        assert file.metadata() == {"format": "pt"}
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 1


def shard(folder):
    """A folder in two shards, as transformers writes it."""
    make(folder, {})
    (folder / SINGLE).unlink()
    files = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    where = {name: files[n % 2] for n, name in enumerate(TENSORS)}
    for file in files:
        save_file({n: TENSORS[n] for n in TENSORS if where[n] == file}, folder / file)
    index = {"metadata": {}, "weight_map": where}
    (folder / INDEX).write_text(json.dumps(index))


def test_shards_are_read_and_nothing_of_them_is_left_in_what_is_written(tmp_path):
    shard(tmp_path)
    source = assert_holds(tmp_path)
    pairs = ((name, source.tensor(name)) for name in source.shapes)
    write_folder(tmp_path, source.config, pairs)
    assert {p.name for p in tmp_path.iterdir()} == {"config.json", SINGLE}
    assert_holds(tmp_path)


def test_writes_over_the_files_it_reads_from(tmp_path):
    make(tmp_path)
    source = FolderSource(tmp_path)
    pairs = ((name, source.tensor(name)) for name in source.shapes)
    write_folder(tmp_path, source.config, pairs)
    assert_holds(tmp_path)


def test_views_and_shared_tensors_are_written_whole(tmp_path):
    whole = torch.randn(6, 4)
    tensors = {"q": whole[:2], "k": whole[2:], "t": whole.T, "same": whole, "again": whole}
    write_folder(tmp_path, CONFIG, tensors.items())
    assert_holds(tmp_path, tensors)


def test_reading_maps_and_does_not_copy(tmp_path):
    def anonymous() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

    if not Path("/proc/self/status").exists():
        pytest.skip("needs Linux")
    make(tmp_path, {"big": torch.ones(8 << 20)})  # 32 MB
    source = FolderSource(tmp_path)
    before = anonymous()
    assert source.tensor("big").sum() == 8 << 20
    assert anonymous() - before < 8 << 10  # KiB


def failing(error: Exception):
    def fail(*args, **kwargs):
        raise error

    return fail


FULL = "Error while serializing: I/O error: No space left on device (os error 28)"


@pytest.mark.parametrize(
    ("target", "name", "error", "expected"),
    [
        (safetensors.torch, "save_file", SafetensorError(FULL), ResourceError),
        (os, "fsync", OSError(errno.ENOSPC, "No space left on device"), ResourceError),
        (os, "fsync", OSError(errno.EIO, "Input/output error"), DataError),
        (safetensors.torch, "save_file", SafetensorError("other"), SafetensorError),
    ],
)
def test_a_failed_write_changes_nothing(tmp_path, monkeypatch, target, name, error, expected):
    old = make(tmp_path)
    with monkeypatch.context() as patch, pytest.raises(expected) as caught:
        patch.setattr(target, name, failing(error))
        write_folder(tmp_path, {}, [("z", torch.ones(3)), ("y", torch.ones(2))])
    if expected is ResourceError:
        assert caught.value.exit_code == 4 and "No space" in str(caught.value)
        assert "about 20 bytes of room" in str(caught.value)
    assert {p.name for p in tmp_path.iterdir()} == {"config.json", SINGLE}
    assert (tmp_path / SINGLE).read_bytes() == old


def test_a_failing_tensor_changes_nothing(tmp_path):
    def tensors():
        yield "a", torch.ones(3)
        raise KeyError("b")

    old = make(tmp_path)
    with pytest.raises(KeyError):
        write_folder(tmp_path, {}, tensors())
    assert {p.name for p in tmp_path.iterdir()} == {"config.json", SINGLE}
    assert (tmp_path / SINGLE).read_bytes() == old


def test_a_file_where_the_folder_should_be(tmp_path):
    (tmp_path / "f").write_text("")
    with pytest.raises(DataError, match="writing"):
        write_folder(tmp_path / "f", {}, [])


@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_truncation_is_named_with_its_length(tmp_path, data):
    whole = make(tmp_path)
    cut = data.draw(st.integers(0, len(whole) - 1))
    (tmp_path / SINGLE).write_bytes(whole[:cut])
    with pytest.raises(DataError, match=rf"model\.safetensors: .* {cut} bytes"):
        FolderSource(tmp_path)


@given(st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_flipped_header_bytes_are_refused_or_harmless(tmp_path, data):
    whole = bytearray(make(tmp_path))
    end = 8 + int.from_bytes(whole[:8], "little")
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, end - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / SINGLE).write_bytes(whole)
    try:
        source = FolderSource(tmp_path)
        for name, shape in source.shapes.items():
            assert tuple(source.tensor(name).shape) == shape
    except DataError as error:
        assert SINGLE in str(error)


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ([1], "sequence"),
        ({"a": 3}, "integer `3`"),
        ({"a": entry(dtype="Q7")}, "Q7"),
        ({"a": entry(shape=(3,))}, "invalid shape"),
        ({"a": entry(shape=(-2,), offsets=(8, 0))}, "-2"),
        ({"a": entry(shape=(True, 2))}, "true"),
        ({"a": entry(shape=(2**70, 0), offsets=(0, 0))}, "usize"),
        ({"a": entry(), "b": entry()}, "offset for tensor"),
        ({"a": entry(), "b": entry(offsets=(16, 24))}, "offset for tensor `b`"),
        ({"a": entry(shape=(2**40,), offsets=(0, 2**42))}, "not fully covered"),
        ({}, "not fully covered"),
    ],
)
def test_wrong_headers(tmp_path, header, message):
    make(tmp_path)
    raw = json.dumps(header).encode()
    (tmp_path / SINGLE).write_bytes(len(raw).to_bytes(8, "little") + raw + bytes(8))
    with pytest.raises(DataError) as caught:
        FolderSource(tmp_path)
    assert message in caught.value.found and " bytes" in caught.value.found
    assert SINGLE in caught.value.doing and "again" in caught.value.fix


@pytest.mark.parametrize(
    "raw", [b"[" * 100_000, b"\xff{}", b'{"a": ', b'{"a":' + b"9" * 5000 + b"}", b"3", b""]
)
def test_broken_config(tmp_path, raw):
    make(tmp_path)
    (tmp_path / "config.json").write_bytes(raw)
    with pytest.raises(DataError, match=r"config\.json: byte \d+: "):
        FolderSource(tmp_path)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({"weight_map": {"a": "../model.safetensors"}}, "sends 'a' to '../model.safetensors'"),
        ({"weight_map": {"a": "/etc/x.safetensors"}}, "plain name"),
        ({"weight_map": {"a": "c:\\x.safetensors"}}, "plain name"),
        ({"weight_map": {"a": "pytorch_model.bin"}}, "plain name"),
        ({"weight_map": {"a": 3}}, "plain name"),
        ({"weight_map": {"a": "gone.safetensors"}}, "shard gone.safetensors is missing"),
        ({"weight_map": {"zz": "one.safetensors"}}, "has no tensor 'zz'"),
        ({"weight_map": []}, "weight_map"),
        ({}, "weight_map"),
    ],
)
def test_broken_index(tmp_path, index, message):
    make(tmp_path)
    (tmp_path / SINGLE).rename(tmp_path / "one.safetensors")
    (tmp_path / INDEX).write_text(json.dumps(index))
    with pytest.raises(DataError) as caught:
        FolderSource(tmp_path)
    assert message in caught.value.found + caught.value.expected
    assert caught.value.exit_code == 3
