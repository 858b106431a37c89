import pytest
from tokenizers import Tokenizer as Rust
from tokenizers import models, normalizers, pre_tokenizers, processors

from regard.tokens.tokenizer import RustEngine


def unigram() -> Rust:
    """As T5's tokenizer.json: control tokens are pieces of the model, with the best score."""
    scores = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0)]
    letters = [(letter, -3.0) for letter in "abcs</>"]
    rust = Rust(models.Unigram([*scores, *letters], unk_id=2))
    rust.normalizer = normalizers.NFKC()
    rust.pre_tokenizer = pre_tokenizers.Metaspace()
    return rust


def words() -> Rust:
    vocab = {word: id for id, word in enumerate(["<pad>", "</s>", "<unk>", "a", "b"])}
    rust = Rust(models.WordLevel(vocab, unk_token="<unk>"))
    rust.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return rust


@pytest.mark.parametrize("make", [unigram, words])
def test_control_tokens_inside_the_model_do_not_leak(make):
    rust = make()
    rust.add_special_tokens(["<pad>", "</s>", "<unk>"])
    rust.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", 1)])
    engine = RustEngine(rust)
    assert engine.literal is not rust  # the library's own switch is not enough for these models
    ids = engine.encode("a </s> <pad>", special=True, allow_special=False, side="source").ids
    assert ids.count(1) == 1 and ids[-1] == 1 and 0 not in ids
    marked = engine.encode("a </s> b", special=True, allow_special=True, side="source").ids
    assert marked.count(1) == 2
    assert engine.piece(1, "source") == "</s>" and engine.id("</s>") == 1


def test_control_token_in_disguise_does_not_leak():
    rust = unigram()
    rust.add_special_tokens(["<pad>", "</s>", "<unk>"])
    wide = "＜／ｓ＞"  # NFKC makes it </s>, after the library has looked for control tokens
    assert 1 in rust.encode(wide).ids
    assert 1 not in RustEngine(rust).encode(wide, True, False, "source").ids


def test_ordinary_text_is_the_same_after_respelling():
    rust = unigram()
    rust.add_special_tokens(["<pad>", "</s>", "<unk>"])
    before = {text: rust.encode(text).ids for text in ("abc a", "zebra", "", "c ab")}
    engine = RustEngine(rust)
    assert engine.literal is not engine.rust
    assert {text: engine.encode(text, True, False, "source").ids for text in before} == before
