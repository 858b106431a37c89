import json

import pytest
from tokenizers import Tokenizer as Rust
from tokenizers import models, normalizers, pre_tokenizers, trainers
from transformers import (
    AutoTokenizer,
    BertTokenizerFast,
    GPT2TokenizerFast,
    RobertaTokenizerFast,
)

from regard.errors import DataError
from regard.tokens.tokenizer_folder import open_tokenizer
from tests.tokens.small_tokenizers import TEXTS, byte_bpe, write_json


def agree(ours, theirs, texts=TEXTS):
    for text in texts:
        ids = theirs.encode(text, split_special_tokens=True)
        assert ours.encode(text) == ids, text
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True), text
    roles = {role: getattr(theirs, f"{role}_token_id") for role in ours.specials}
    assert ours.specials == roles


def write_bpe(folder, specials, model_type):
    """vocab.json, merges.txt and config.json, without the tokenizer.json that replaced them."""
    model = json.loads(byte_bpe(specials).to_str())["model"]
    write_json(folder / "vocab.json", model["vocab"])
    lines = ["#version: 0.2", *(" ".join(pair) for pair in model["merges"])]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_json(folder / "config.json", {"model_type": model_type})


def test_folder_without_tokenizer(tmp_path):
    write_json(tmp_path / "config.json", {"model_type": "vit"})
    assert open_tokenizer(tmp_path) is None


def test_tokenizer_json_as_transformers(folder):
    agree(open_tokenizer(folder), AutoTokenizer.from_pretrained(folder))


def test_saved_folder_as_transformers(folder, tmp_path):
    ours = open_tokenizer(folder)
    ours.save(tmp_path / "saved")
    agree(ours, AutoTokenizer.from_pretrained(tmp_path / "saved"))


def test_control_tokens_that_only_the_settings_name(tmp_path):
    vocab = {token: id for id, token in enumerate(["<unk>", "</s>", "a"])}
    rust = Rust(models.WordLevel(vocab, unk_token="<unk>"))
    rust.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    rust.save(str(tmp_path / "tokenizer.json"))
    write_json(tmp_path / "tokenizer_config.json", {"eos_token": "</s>"})
    ours = open_tokenizer(tmp_path)
    assert ours.encode("a </s>") == [2, 0]
    assert ours.encode("a </s>", allow_special=True) == [2, 1]
    assert ours.decode([2, 1]) == "a"


def test_gpt2(tmp_path):
    write_bpe(tmp_path, ["<|endoftext|>"], "gpt2")
    ours = open_tokenizer(tmp_path)
    assert ours.specials == {"bos": 0, "eos": 0}
    assert ours.encode("") == []
    agree(ours, GPT2TokenizerFast.from_pretrained(tmp_path))


def test_opt_adds_its_first_token(tmp_path):
    write_bpe(tmp_path, ["<pad>", "</s>"], "opt")
    write_json(
        tmp_path / "tokenizer_config.json",
        {"add_bos_token": True, "bos_token": {"content": "</s>"}, "eos_token": "</s>"},
    )
    assert open_tokenizer(tmp_path).encode("")[0] == 1


def test_roberta(tmp_path):
    write_bpe(tmp_path, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"], "roberta")
    names = {"bos": "<s>", "eos": "</s>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}
    write_json(
        tmp_path / "special_tokens_map.json",
        {f"{k}_token": {"content": v} for k, v in names.items()},
    )
    ours = open_tokenizer(tmp_path)
    assert ours.encode("") == [0, 2]
    agree(ours, RobertaTokenizerFast.from_pretrained(tmp_path))
    masked = ours.encode("the <mask>", allow_special=True)
    assert ours.pieces(masked)[-2:] == ["<mask>", "</s>"]
    assert "Ġ" not in ours.pieces(masked)  # the mask takes the space before it


def test_added_tokens_keep_their_ids(tmp_path):
    write_bpe(tmp_path, ["<|endoftext|>"], "gpt2")
    write_json(tmp_path / "added_tokens.json", {"<pad>": 351, "<word>": 350})
    ours = open_tokenizer(tmp_path)
    assert ours.size == 352 and ours.specials["pad"] == 351
    assert ours.encode("<pad><word>")[-1] == 350  # an ordinary added token is found in text
    assert 351 not in ours.encode("<pad><word>")
    decoder = {"352": {"content": "<new>", "special": True, "__type": "AddedToken"}}
    write_json(tmp_path / "tokenizer_config.json", {"added_tokens_decoder": decoder})
    assert open_tokenizer(tmp_path).encode("<new>", allow_special=True) == [352]
    write_json(tmp_path / "added_tokens.json", {"<word>": 500})
    with pytest.raises(DataError, match="id 35. for '<.*>'"):
        open_tokenizer(tmp_path)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"do_lower_case": False},
        {"do_lower_case": True, "strip_accents": False},
        {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False},
    ],
)
@pytest.mark.parametrize("model_type", ["bert", "distilbert"])
def test_bert(tmp_path, options, model_type):
    rust = Rust(models.WordPiece(unk_token="[UNK]"))
    rust.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    rust.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(
        vocab_size=120, special_tokens=specials, show_progress=False
    )
    texts = [*TEXTS, *(text.lower() for text in TEXTS), "naive cafe"]
    rust.train_from_iterator(texts * 5, trainer)
    vocab = rust.get_vocab()
    (tmp_path / "vocab.txt").write_text("\n".join(sorted(vocab, key=vocab.get)) + "\n", "utf-8")
    write_json(tmp_path / "tokenizer_config.json", options)
    write_json(tmp_path / "config.json", {"model_type": model_type, "pad_token_id": 0})
    ours = open_tokenizer(tmp_path)
    assert ours.specials == {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
    assert ours.encode("") == [2, 3]
    agree(ours, BertTokenizerFast.from_pretrained(tmp_path, **options))


def test_vocab_txt_without_its_control_tokens(tmp_path):
    (tmp_path / "vocab.txt").write_text("[UNK]\n[CLS]\nthe\n")
    with pytest.raises(DataError, match=r"no token \[SEP\]"):
        open_tokenizer(tmp_path)


def test_a_control_token_twice_in_vocab_txt(tmp_path):
    (tmp_path / "vocab.txt").write_text("[UNK]\n[CLS]\n[SEP]\nthe\n[SEP]\n")
    with pytest.raises(DataError, match=r"\[SEP\] 2 times"):
        open_tokenizer(tmp_path)


def test_a_special_token_that_the_vocabulary_lacks_is_an_error_at_load(folder):
    config = json.loads((folder / "tokenizer_config.json").read_text())
    write_json(folder / "tokenizer_config.json", config | {"sep_token": "<sep>"})
    with pytest.raises(DataError, match="sep_token '<sep>'"):
        open_tokenizer(folder)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_corrupt_json_is_told_with_its_place(folder, name):
    (folder / name).write_text('{"version": "1.0",\n  "model": {"type" "BPE"}}')
    with pytest.raises(DataError, match=f"{name}: byte 38: .* line 2, column 20"):
        open_tokenizer(folder)


def test_json_that_is_no_tokenizer(folder):
    (folder / "tokenizer.json").write_text("[]")
    with pytest.raises(DataError, match="type list"):
        open_tokenizer(folder)
    (folder / "tokenizer.json").write_text('{"model": 3}')
    with pytest.raises(DataError, match="installed `tokenizers` library"):
        open_tokenizer(folder)
    (folder / "tokenizer.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(DataError, match="byte 7: not UTF-8"):
        open_tokenizer(folder)


def test_broken_merges(tmp_path):
    write_bpe(tmp_path, ["<|endoftext|>"], "gpt2")
    (tmp_path / "merges.txt").write_text("#version: 0.2\nt h\nthe\n")
    with pytest.raises(DataError, match="line 3: 'the'"):
        open_tokenizer(tmp_path)
    (tmp_path / "merges.txt").write_text("q zzz\n")
    with pytest.raises(DataError, match="zzz"):
        open_tokenizer(tmp_path)
    write_json(tmp_path / "vocab.json", {"e": 0, "e</w>": 1})
    with pytest.raises(DataError, match="</w>"):
        open_tokenizer(tmp_path)
