"""tools/whisper_pt.py against a tiny file in OpenAI's layout."""

import base64
import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

from regard.errors import DataError
from regard.interop.source import open_source

SCRIPT = Path(__file__).parents[2] / "tools" / "whisper_pt.py"
spec = importlib.util.spec_from_file_location("whisper_pt", SCRIPT)
whisper_pt = importlib.util.module_from_spec(spec)
spec.loader.exec_module(whisper_pt)

DIMS = dict(n_mels=8, n_vocab=51864, n_audio_ctx=10, n_audio_state=4, n_audio_head=2)
DIMS |= dict(n_audio_layer=2, n_text_ctx=6, n_text_state=4, n_text_head=2, n_text_layer=1)


def openai_state() -> dict[str, torch.Tensor]:
    """The tensors of OpenAI's whisper/model.py, by its own names."""
    d, mels, vocab = 4, DIMS["n_mels"], DIMS["n_vocab"]
    shapes = {
        "encoder.positional_embedding": (10, d),
        "decoder.positional_embedding": (6, d),
        "decoder.token_embedding.weight": (vocab, d),
        "encoder.conv1.weight": (d, mels, 3),
        "encoder.conv1.bias": (d,),
        "encoder.conv2.weight": (d, d, 3),
        "encoder.conv2.bias": (d,),
    }
    norms = ["encoder.ln_post", "decoder.ln"]
    for block in ("encoder.blocks.0", "encoder.blocks.1", "decoder.blocks.0"):
        for attn in ("attn", "cross_attn") if "decoder" in block else ("attn",):
            norms.append(f"{block}.{attn}_ln")
            for part in ("query", "key", "value", "out"):
                shapes[f"{block}.{attn}.{part}.weight"] = (d, d)
                if part != "key":
                    shapes[f"{block}.{attn}.{part}.bias"] = (d,)
        norms.append(f"{block}.mlp_ln")
        for i, (rows, columns) in {0: (4 * d, d), 2: (d, 4 * d)}.items():
            shapes[f"{block}.mlp.{i}.weight"] = (rows, columns)
            shapes[f"{block}.mlp.{i}.bias"] = (rows,)
    for norm in norms:
        shapes[f"{norm}.weight"] = shapes[f"{norm}.bias"] = (d,)
    return {name: torch.randn(shape).half() for name, shape in shapes.items()}


def test_converts_and_opens_in_transformers(tmp_path, monkeypatch, capsys):
    state = openai_state()
    torch.save({"dims": DIMS, "model_state_dict": state}, tmp_path / "tiny.pt")
    out = tmp_path / "out"
    monkeypatch.setattr(sys, "argv", ["whisper_pt.py", str(tmp_path / "tiny.pt"), str(out)])
    assert whisper_pt.main() == 0
    model, info = WhisperForConditionalGeneration.from_pretrained(out, output_loading_info=True)
    assert not any(info.values()), info
    weights = model.state_dict()
    for ours, theirs in {
        "encoder.blocks.1.attn.key.weight": "encoder.layers.1.self_attn.k_proj.weight",
        "decoder.blocks.0.cross_attn_ln.bias": "decoder.layers.0.encoder_attn_layer_norm.bias",
        "decoder.blocks.0.mlp_ln.weight": "decoder.layers.0.final_layer_norm.weight",
        "encoder.ln_post.weight": "encoder.layer_norm.weight",
        "decoder.ln.weight": "decoder.layer_norm.weight",
    }.items():
        assert torch.equal(weights["model." + theirs], state[ours])
    source = open_source(out)
    assert source.config["decoder_start_token_id"] == 50257
    assert source.config["dtype"] == "float16"
    generation = json.loads((out / "generation_config.json").read_text())
    assert generation["no_timestamps_token_id"] == 50362 and not generation["is_multilingual"]


@pytest.mark.parametrize(
    ("vocab", "start", "transcribe", "notimestamps"),
    [(51864, 50257, 50358, 50362), (51865, 50258, 50359, 50363), (51866, 50258, 50360, 50364)],
)
def test_special_tokens_of_english_multilingual_and_large_v3(
    vocab, start, transcribe, notimestamps
):
    token = whisper_pt.special_tokens(vocab)
    found = (token["start"], token["transcribe"], token["notimestamps"])
    assert found == (start, transcribe, notimestamps)
    config = whisper_pt.hf_config({**DIMS, "n_vocab": vocab})
    assert WhisperConfig(**config).decoder_start_token_id == start


class Bomb:
    def __reduce__(self):
        return pytest.fail, ("the pickle ran code",)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "x.pt"
    with pytest.raises(DataError, match="No such file"):
        whisper_pt.convert(path, tmp_path / "out")
    for content in ({"a": torch.ones(2)}, {"dims": {}, "model_state_dict": {}}, [1], Bomb()):
        torch.save(content, path)
        with pytest.raises(DataError, match=r"reading .*x\.pt"):
            whisper_pt.convert(path, tmp_path / "out")
    path.write_text("hello")
    with pytest.raises(DataError):
        whisper_pt.convert(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_writes_the_tokenizer_of_a_tiktoken_file(tmp_path, monkeypatch, capsys):
    pieces = [bytes([byte]) for byte in range(256)] + [b"ab", b" a", b"abc", b" abc", "é".encode()]
    lines = [f"{base64.b64encode(piece).decode()} {rank}\n" for rank, piece in enumerate(pieces)]
    (tmp_path / "small.tiktoken").write_text("".join(lines))
    tokenizer = whisper_pt.tokenizer_of(tmp_path / "small.tiktoken", 51864)
    assert tokenizer.encode("abc abé").ids == [258, 32, 256, 260]  # ab comes before " a"
    assert tokenizer.decode(tokenizer.encode("naïve abc!").ids) == "naïve abc!"
    end = len(pieces)  # then come the control tokens, in OpenAI's order
    special = whisper_pt.special_tokens(51864)
    assert special["end"] == 50256
    for name, spelling in (("start", "startoftranscript"), ("translate", "translate")):
        assert tokenizer.token_to_id(f"<|{spelling}|>") - end == special[name] - special["end"]
    assert tokenizer.token_to_id("<|30.00|>") == tokenizer.get_vocab_size() - 1
    torch.save({"dims": DIMS, "model_state_dict": openai_state()}, tmp_path / "tiny.pt")
    words = [str(tmp_path / "tiny.pt"), str(tmp_path / "out")]
    words += ["--tokens", str(tmp_path / "small.tiktoken")]
    monkeypatch.setattr(sys, "argv", ["whisper_pt.py", *words])
    assert whisper_pt.main() == 3  # not the vocabulary of this model
    assert "1,869 tokens" in capsys.readouterr().err
