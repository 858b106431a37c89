"""tools/llama2c.py against the tiny transformers model its files were written from."""

import importlib.util
import os
import struct
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

import regard
from regard.errors import DataError
from tests.tokens.small_tokenizers import TEXTS

SCRIPT = Path(__file__).parents[2] / "tools" / "llama2c.py"
spec = importlib.util.spec_from_file_location("llama2c", SCRIPT)
llama2c = importlib.util.module_from_spec(spec)
spec.loader.exec_module(llama2c)
Llama2cSource = llama2c.Llama2cSource

EVERYTHING = list(HealthCheck)


def tiny(tied: bool = True, kv_heads: int = 2) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=kv_heads,
        vocab_size=20,
        max_position_embeddings=12,
        rms_norm_eps=1e-5,
        tie_word_embeddings=tied,
    )
    model = LlamaForCausalLM(config).eval()
    for weight in model.parameters():  # norms too: a swap must show
        torch.nn.init.normal_(weight, std=0.5)
    return model


def interleave(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """permute_reverse of llama2.c's export.py."""
    rows, columns = weight.shape
    return weight.view(heads, 2, rows // heads // 2, columns).transpose(1, 2).reshape(rows, columns)


def legacy_export(model: LlamaForCausalLM, tied: bool) -> bytes:
    """legacy_export of llama2.c's export.py."""
    c, layers = model.config, model.model.layers
    vocab = c.vocab_size if tied else -c.vocab_size
    sizes = [c.hidden_size, c.intermediate_size, len(layers), c.num_attention_heads]
    header = [*sizes, c.num_key_value_heads, vocab, c.max_position_embeddings]
    tables = torch.zeros(2, c.max_position_embeddings, c.hidden_size // c.num_attention_heads // 2)
    tensors = [
        model.model.embed_tokens.weight,
        *(b.input_layernorm.weight for b in layers),
        *(interleave(b.self_attn.q_proj.weight, c.num_attention_heads) for b in layers),
        *(interleave(b.self_attn.k_proj.weight, c.num_key_value_heads) for b in layers),
        *(b.self_attn.v_proj.weight for b in layers),
        *(b.self_attn.o_proj.weight for b in layers),
        *(b.post_attention_layernorm.weight for b in layers),
        *(b.mlp.gate_proj.weight for b in layers),
        *(b.mlp.down_proj.weight for b in layers),
        *(b.mlp.up_proj.weight for b in layers),
        model.model.norm.weight,
        tables,
        *([] if tied else [model.lm_head.weight]),
    ]
    return struct.pack("<7i", *header) + b"".join(t.detach().numpy().tobytes() for t in tensors)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_equals_the_model_it_was_written_from(tmp_path, tied, kv_heads):
    model = tiny(tied, kv_heads)
    path = tmp_path / "model.bin"
    path.write_bytes(legacy_export(model, tied))
    source = Llama2cSource(path)
    expected = model.state_dict()
    if tied:
        del expected["lm_head.weight"]
    assert source.shapes == {name: tuple(weight.shape) for name, weight in expected.items()}
    for name, weight in expected.items():
        assert torch.equal(source.tensor(name), weight), name
    config = LlamaConfig(**source.config)
    for key in ("hidden_size", "num_key_value_heads", "vocab_size", "tie_word_embeddings"):
        assert getattr(config, key) == getattr(model.config, key)
    again = LlamaForCausalLM(config).eval()
    weights = {name: source.tensor(name) for name in source.shapes}
    again.load_state_dict(weights, strict=not tied)
    ids = torch.randint(20, (2, 10))
    assert torch.equal(again(ids).logits, model(ids).logits)


def test_the_folder_opens_and_scores_as_the_model(tmp_path):
    model = tiny()
    (tmp_path / "model.bin").write_bytes(legacy_export(model, True))
    llama2c.convert(tmp_path / "model.bin", tmp_path / "folder")
    ids = torch.randint(20, (2, 10))
    ours = regard.load(tmp_path / "folder").logits(ids)
    assert torch.allclose(ours, model(ids).logits, atol=1e-5)


@given(st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=EVERYTHING)
def test_any_other_length_is_refused_with_both_numbers(tmp_path, data):
    whole = legacy_export(tiny(), True)
    length = data.draw(st.integers(0, len(whole) + 40).filter(lambda n: n != len(whole)))
    path = tmp_path / "model.bin"
    path.write_bytes((whole + bytes(40))[:length])
    with pytest.raises(DataError) as caught:
        Llama2cSource(path)
    assert str(path) in str(caught.value)
    if length >= 28:
        assert f"{length:,}" in str(caught.value) and f"{len(whole):,}" in str(caught.value)


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=7, max_size=7))
@settings(max_examples=200, deadline=None, suppress_health_check=EVERYTHING)
def test_any_header_is_refused_quickly(tmp_path, header):
    path = tmp_path / "model.bin"
    path.write_bytes(struct.pack("<7i", *header) + bytes(400))
    with pytest.raises(DataError):
        Llama2cSource(path)


@pytest.mark.parametrize(
    "header",
    [
        (15, 24, 3, 4, 2, 20, 12),
        (16, 24, 3, 4, 3, 20, 12),
        (16, 24, 3, 4, 2, 0, 12),
        (16, 24, 0, 4, 2, 20, 12),
        (16, 24, 2**31 - 1, 4, 2, 20, 12),
    ],
)
def test_impossible_headers(tmp_path, header):
    path = tmp_path / "model.bin"
    path.write_bytes(struct.pack("<7i", *header) + bytes(400))
    with pytest.raises(DataError, match=r"model\.bin"):
        Llama2cSource(path)


def test_later_exports_are_refused_with_the_way_out(tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(struct.pack("<2i", 0x616B3432, 2) + bytes(400))
    with pytest.raises(DataError, match="version 2") as caught:
        Llama2cSource(path)
    assert "--version 0" in caught.value.fix


WORDS = [" ", *"thecaso", " t", "he", " the", "at", " c", " cat"]


def write_bin(path, spell_byte):
    """tokenizer.bin as llama2.c's tokenizer.py writes it; its versions spell bytes differently."""
    spelled = [b"<unk>", b"\n<s>\n", b"\n</s>\n", *map(spell_byte, range(256))]
    spelled += [word.encode() for word in WORDS]
    scores = [0.0] * 259 + [-float(rank) for rank in range(len(WORDS))]
    data = struct.pack("<i", max(map(len, spelled)))
    for score, raw in zip(scores, spelled, strict=True):
        data += struct.pack("<fi", score, len(raw)) + raw
    path.write_bytes(data)
    return len(spelled)


@pytest.mark.parametrize(
    "spell_byte", [lambda b: bytes([b]), lambda b: chr(b).encode(), lambda b: b"<0x%02X>" % b]
)
def test_llama2c_file(tmp_path, spell_byte):
    size = write_bin(tmp_path / "tokenizer.bin", spell_byte)
    ours = llama2c.open_tokenizer(tmp_path / "tokenizer.bin", size)
    assert ours.size == size and ours.specials == {"unk": 0, "bos": 1, "eos": 2}
    assert ours.encode("") == [1]
    assert ours.pieces(ours.encode("the cat\n")) == ["<s>", "▁the", "▁cat", "<0x0A>"]
    assert ours.offsets("the cat\n") == [(0, 0), (0, 3), (3, 7), (7, 8)]
    for text in TEXTS:
        assert ours.decode(ours.encode(text)) == text
    ours.save(tmp_path / "saved")
    theirs = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert theirs.bos_token_id == 1 and theirs.eos_token_id == 2
    for text in TEXTS:
        assert theirs.encode(text, split_special_tokens=True) == ours.encode(text)
        assert theirs.encode(text) == ours.encode(text, allow_special=True)


def test_llama2c_file_of_another_size(tmp_path):
    path = tmp_path / "tokenizer.bin"
    size = write_bin(path, lambda b: bytes([b]))
    with pytest.raises(DataError, match=f"piece {size} at byte"):
        llama2c.open_tokenizer(path, size + 1)
    with pytest.raises(DataError, match=f"bytes after piece {size - 2}"):
        llama2c.open_tokenizer(path, size - 1)
    with pytest.raises(DataError, match="256 bytes"):
        llama2c.open_tokenizer(path, 100)


@pytest.mark.slow
@pytest.mark.skipif("REGARD_WEIGHTS" not in os.environ, reason="needs real weights")
def test_stories_speaks_english():
    source = Llama2cSource(Path(os.environ["REGARD_WEIGHTS"]) / "stories/model.bin")
    model = LlamaForCausalLM(LlamaConfig(**source.config)).eval()
    model.load_state_dict({n: source.tensor(n) for n in source.shapes}, strict=False)
    ids = model.generate(torch.tensor([[1]]), max_new_tokens=8, do_sample=False, pad_token_id=0)
    # <s> Once upon a time, there was a
    assert ids[0].tolist() == [1, 9038, 2501, 263, 931, 29892, 727, 471, 263]
