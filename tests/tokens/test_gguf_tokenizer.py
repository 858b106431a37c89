import json

import pytest
from sentencepiece import SentencePieceProcessor
from tokenizers import Tokenizer as Rust
from tokenizers import pre_tokenizers
from transformers import AutoTokenizer

from regard.errors import DataError
from regard.tokens.gguf_tokenizer import from_gguf
from tests.tokens.small_tokenizers import TEXTS, byte_bpe, train_spm


def gpt2_metadata(pre: str, **changes) -> dict:
    rust = byte_bpe(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    model = json.loads(rust.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    fields = {
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens,
        "merges": [" ".join(pair) for pair in model["merges"]],
        "token_type": [3, 3, 3] + [1] * (len(tokens) - 3),
        "bos_token_id": 1,
        "eos_token_id": 2,
        "padding_token_id": 2,
        "unknown_token_id": 0,
    }
    return {f"tokenizer.ggml.{key}": value for key, value in (fields | changes).items()}


def test_smollm_cuts_digits_then_words_like_gpt2():
    ours = from_gguf(gpt2_metadata("smollm"))
    original = Rust.from_str(ours.engine.rust.to_str())
    original.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    original.encode_special_tokens = True
    for text in [*TEXTS, "in  1984", "½ ² Ⅷ ٣٤"]:
        assert ours.encode(text) == original.encode(text).ids
        assert ours.decode(ours.encode(text)) == text
    assert ours.specials == {"bos": 1, "eos": 2, "pad": 2, "unk": 0}


def test_gpt2_is_the_librarys_own_pattern():
    ours = from_gguf(gpt2_metadata("gpt-2"))
    original = byte_bpe(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    original.encode_special_tokens = True
    for text in [*TEXTS, "in  1984"]:
        assert ours.encode(text) == original.encode(text).ids


@pytest.mark.parametrize(
    ("pre", "words"),
    [
        ("default", ["Ab", "'", "ll", " ", "123", "4", "!", "\n", "=", " x"]),
        ("gpt-2", ["Ab", "'ll", " 1234", "!", "\n", "=", " x"]),
        ("smollm", ["Ab", "'ll", " ", "1", "2", "3", "4", "!", "\n", "=", " x"]),
        ("llama-bpe", ["Ab", "'ll", " ", "123", "4", "!\n", "=", " x"]),
        ("qwen2", ["Ab", "'ll", " ", "1", "2", "3", "4", "!\n", "=", " x"]),
    ],
)
def test_where_each_kind_cuts(pre, words):
    cutter = from_gguf(gpt2_metadata(pre)).engine.rust.pre_tokenizer
    found = cutter.pre_tokenize_str("Ab'll 1234!\n= x")
    assert ["Ab'll 1234!\n= x"[a:b] for _, (a, b) in found] == words


def test_llama3_adds_its_first_token_unless_told_otherwise():
    assert from_gguf(gpt2_metadata("llama-bpe")).encode("") == [1]
    assert from_gguf(gpt2_metadata("llama-bpe", add_bos_token=False)).encode("") == []
    assert from_gguf(gpt2_metadata("gpt-2")).encode("") == []
    assert from_gguf(gpt2_metadata("gpt-2", add_bos_token=True, add_eos_token=True)).encode("") == [
        1,
        2,
    ]


def test_control_tokens_and_user_tokens():
    metadata = gpt2_metadata("smollm")
    metadata["tokenizer.ggml.token_type"][-1] = 4  # never cut, but part of any text
    last = metadata["tokenizer.ggml.tokens"][-1]
    ours = from_gguf(metadata)
    assert 1 not in ours.encode("<|im_start|>") and ours.encode(
        "<|im_start|>", allow_special=True
    ) == [1]
    assert len(metadata["tokenizer.ggml.tokens"]) - 1 in ours.encode(f"x{last}x")
    assert ours.decode([1, 2]) == "" and ours.decode([1], special=True) == "<|im_start|>"


def test_saved_folder_as_transformers(tmp_path):
    metadata = gpt2_metadata("smollm", add_bos_token=True)
    metadata["tokenizer.chat_template"] = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    ours = from_gguf(metadata)
    ours.save(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    assert theirs.chat_template == metadata["tokenizer.chat_template"]
    assert theirs.pad_token_id == 2 and theirs.bos_token_id == 1
    for text in TEXTS:
        assert theirs.encode(text, split_special_tokens=True) == ours.encode(text)


def llama_metadata(model: bytes) -> dict:
    processor = SentencePieceProcessor(model_proto=model)
    ids = range(len(processor))
    kinds = [
        2
        if processor.is_unknown(i)
        else 3
        if processor.is_control(i)
        else 6
        if processor.is_byte(i)
        else 1
        for i in ids
    ]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [processor.id_to_piece(i) for i in ids],
        "tokenizer.ggml.scores": [processor.get_score(i) for i in ids],
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }


@pytest.mark.parametrize("prefix", [True, False])
def test_llama_as_sentencepiece(tmp_path, prefix):
    model = train_spm(
        vocab_size=400,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=prefix,
    )
    metadata = llama_metadata(model) | {"tokenizer.ggml.add_space_prefix": prefix}
    ours, processor = from_gguf(metadata), SentencePieceProcessor(model_proto=model)
    for text in [*TEXTS, "the the thethe  the", "aaaaa catcat"]:
        assert ours.encode(text) == [1, *processor.encode(text)], text
        assert ours.decode(ours.encode(text)) == text
    ours.save(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    assert all(theirs.encode(t, split_special_tokens=True) == ours.encode(t) for t in TEXTS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pre": "klingon"}, "'klingon'\n  expected: one of codeshell.*qwen2.*smollm"),
        ({"model": "rwkv"}, "'rwkv'"),
        ({"tokens": []}, "0 tokens"),
        ({"token_type": [1, 2]}, "2 entries in tokenizer.ggml.token_type"),
        ({"bos_token_id": 10_000}, "bos_token_id = 10000"),
        ({"merges": ["q zzz"]}, "zzz"),
        ({"model": "llama"}, "0 entries in tokenizer.ggml.scores"),
    ],
)
def test_broken_metadata(change, message):
    with pytest.raises(DataError, match=message):
        from_gguf(gpt2_metadata(**({"pre": "smollm"} | change)))
