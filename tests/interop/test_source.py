"""open_source finds the format by what is there, and says what to do when it cannot."""

import pickle
import struct

import pytest
import torch
from safetensors.torch import save_file

from regard.errors import DataError
from regard.interop.folder import FolderSource
from regard.interop.source import CheckpointSource, is_pickle, open_source


def refused(path) -> DataError:
    with pytest.raises(DataError) as caught:
        open_source(path)
    error = caught.value
    assert error.exit_code == 3 and str(path) in error.doing
    assert error.found and error.expected and error.fix
    return error


def llama2c(dim: int) -> bytes:
    header = (dim, 1, 1, 1, 1, 1, 1)
    floats = dim + dim + 4 * dim * dim + dim + 3 * dim + dim + dim
    return struct.pack("<7i", *header) + bytes(4 * floats)


def test_a_folder_and_files(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    save_file({"a": torch.ones(2)}, tmp_path / "model.safetensors")
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps({}))  # beside safetensors: left alone
    source: CheckpointSource = open_source(str(tmp_path))
    assert isinstance(source, FolderSource) and source.path == tmp_path
    (tmp_path / "m.bin").write_bytes(llama2c(4))
    assert "tools/llama2c.py" in refused(tmp_path / "m.bin").fix
    assert "open the folder" in refused(tmp_path / "model.safetensors").fix
    assert "open the folder" in refused(tmp_path / "config.json").fix


@pytest.mark.parametrize("dim", [640, 896, 1152])  # first bytes 80 02, 80 03, 80 04, as pickles
def test_a_llama2c_file_is_not_taken_for_a_pickle(tmp_path, dim):
    path = tmp_path / "m.bin"
    path.write_bytes(llama2c(dim))
    assert not is_pickle(path)
    assert "tools/llama2c.py" in refused(path).fix


class Bomb:
    def __reduce__(self):
        return pytest.fail, ("the pickle was opened",)


@pytest.mark.parametrize("name", ["m.pt", "m.pth", "m.bin", "m.pkl", "m.ckpt", "m", "m.gguf"])
@pytest.mark.parametrize("zipped", [True, False])
def test_pickles_are_refused_unopened(tmp_path, name, zipped):
    path = tmp_path / name
    torch.save(Bomb(), path, _use_new_zipfile_serialization=zipped)
    error = refused(path)
    assert "pickle" in error.found and "run code" in error.found
    assert "safetensors" in error.fix and "tools/whisper_pt.py" in error.fix


@pytest.mark.parametrize("protocol", range(6))
def test_bare_pickles(tmp_path, protocol):
    path = tmp_path / ("m.bin" if protocol >= 2 else "m.pkl")
    path.write_bytes(pickle.dumps({"a": 1}, protocol=protocol))
    assert "pickle" in refused(path).found


@pytest.mark.parametrize("with_config", [True, False])
def test_a_folder_of_pickles(tmp_path, with_config):
    if with_config:
        (tmp_path / "config.json").write_text("{}")
    torch.save({}, tmp_path / "pytorch_model.bin")
    with pytest.raises(DataError, match=r"pytorch_model\.bin: refused: this is a pickle"):
        open_source(tmp_path)


def test_nothing_to_open(tmp_path):
    assert "empty" in refused(tmp_path).found
    (tmp_path / "readme.md").write_text("hello")
    assert "no config.json" in refused(tmp_path).found
    assert "not a checkpoint" in refused(tmp_path / "readme.md").found
    (tmp_path / "x.gguf").write_bytes(b"")
    assert "x.gguf" in refused(tmp_path).fix
    assert "0 bytes" in refused(tmp_path / "x.gguf").found
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(DataError, match="neither"):
        open_source(tmp_path)
    missing = refused(tmp_path / "readme.txt")
    assert "no such" in missing.found and "did you mean readme.md" in missing.found
    assert "no such" in refused(tmp_path / "a" / "b").found


def test_a_wrong_gguf_name(tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"hello, this is no model at all")
    with pytest.raises(DataError, match="GGUF magic invalid"):
        open_source(tmp_path / "x.gguf")


def test_an_unreadable_file(tmp_path, monkeypatch):
    path = tmp_path / "m.bin"
    path.write_bytes(llama2c(4))

    def deny(*args):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", deny)
    assert "Permission denied" in refused(path).found
