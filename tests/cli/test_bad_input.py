"""Wrong files: what is wrong, where, and exit code 3, without a traceback."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file


def change(folder, edit):
    """Rewrite a folder's tensors."""
    file = folder / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(file).items()}
    edit(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


def test_a_missing_path(here, tmp_path):
    code, out, err = here("info", tmp_path / "nothing")
    assert (code, out) == (3, "") and "no such file or folder" in err


def test_an_unknown_architecture(here, decoder):
    config = json.loads((decoder / "config.json").read_text())
    (decoder / "config.json").write_text(json.dumps(config | {"architectures": ["GPT2LMHead"]}))
    code, _, err = here("info", decoder)
    assert code == 3 and "'GPT2LMHead'" in err and "did you mean GPT2LMHeadModel" in err


@pytest.mark.parametrize("verb", ["info", "check"])
def test_tensors_that_do_not_fit_give_three_lists(verb, here, decoder):
    def edit(tensors):
        del tensors["transformer.ln_f.bias"]
        tensors["transformer.other"] = torch.zeros(3)
        tensors["transformer.wpe.weight"] = torch.zeros(40, 8)

    change(decoder, edit)
    code, out, err = here(verb, decoder)
    assert (code, out) == (3, "")
    assert "missing (1): transformer.ln_f.bias" in err
    assert "unexpected (1): transformer.other" in err
    assert "misshapen (1): transformer.wpe.weight (40, 8)" in err


def test_a_pickle_is_refused(here, decoder):
    (decoder / "model.safetensors").unlink()
    (decoder / "pytorch_model.bin").write_bytes(b"\x80\x02}q\x00.")
    code, _, err = here("info", decoder)
    assert code == 3 and "pickle" in err and "safetensors" in err


def test_a_truncated_file_names_itself_and_the_byte(regard, decoder):
    file = decoder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    code, out, err = regard("info", str(decoder))
    assert (code, out) == (3, "")
    assert str(file) in err and "bytes" in err and "Traceback" not in err
