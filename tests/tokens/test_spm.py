import sys
import warnings

import pytest
from sentencepiece import SentencePieceProcessor
from transformers import LlamaTokenizer, MarianTokenizer, T5Tokenizer

from regard.errors import DataError, RegardError
from regard.tokens.tokenizer_folder import open_tokenizer
from tests.tokens.small_tokenizers import TEXTS, train_spm, write_json

PLAIN = [text for text in TEXTS if "</s>" not in text]
SPELLED = "the </s> cat <pad> <s> <extra_id_0>"


@pytest.fixture
def t5(tmp_path):
    model = train_spm(vocab_size=150, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    (tmp_path / "spiece.model").write_bytes(model)
    write_json(tmp_path / "config.json", {"model_type": "t5"})
    return tmp_path


def test_t5(t5):
    ours, theirs = open_tokenizer(t5), T5Tokenizer.from_pretrained(t5)
    assert ours.size == len(theirs)
    assert ours.specials == {"pad": 0, "eos": 1, "unk": 2}
    assert ours.encode("") == [1] and ours.encode("", special=False) == []
    assert ours.pieces([ours.size - 1, ours.size - 100]) == ["<extra_id_0>", "<extra_id_99>"]
    for text in PLAIN:
        assert ours.encode(text) == theirs.encode(text), text
        ids = ours.encode(text)
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True), text
    text = "the <extra_id_0> sat <extra_id_1>."
    assert ours.encode(text, allow_special=True) == theirs.encode(text)
    assert ours.decode(theirs.encode(text), special=True) == "the<extra_id_0>sat<extra_id_1>.</s>"


def test_control_tokens_in_user_text_stay_text(t5):
    ours = open_tokenizer(t5)
    ids = ours.encode(SPELLED, special=False)
    assert not {0, 1, ours.size - 1} & set(ids)
    assert set(ours.encode(SPELLED, allow_special=True)) >= {0, 1, ours.size - 1}


def test_unknown_characters_do_not_spell_a_control_token(tmp_path):
    # None of < / s > is in this vocabulary: the library returns '</s>' as one unknown piece.
    model = train_spm(["ab ba aab"] * 9, vocab_size=9)
    (tmp_path / "tokenizer.model").write_bytes(model)
    ours = open_tokenizer(tmp_path)
    assert ours.pieces(ours.encode("</s>")) == ["▁", "<unk>"]


def test_offsets(t5):
    ours = open_tokenizer(t5)
    text = "the café 🎉 <extra_id_0> cat"
    for allow in (False, True):
        spans = ours.offsets(text, allow_special=allow)
        assert len(spans) == len(ours.encode(text, allow_special=allow))
        assert spans[-1] == (0, 0)
        party, sentinel = text.index("🎉"), text.index("<")
        assert (party, party + 1) in spans
        assert ((sentinel, sentinel + 12) in spans) == allow
        assert spans[-2][1] == len(text)


def test_llama(tmp_path):
    model = train_spm(
        vocab_size=400,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
    )
    (tmp_path / "tokenizer.model").write_bytes(model)
    write_json(tmp_path / "config.json", {"model_type": "llama"})
    ours = open_tokenizer(tmp_path)
    assert ours.specials == {"unk": 0, "bos": 1, "eos": 2}
    processor = SentencePieceProcessor(model_proto=model)
    for text in TEXTS:
        assert ours.encode(text) == [1, *processor.encode(text)]
        assert ours.decode(ours.encode(text)) == text
    theirs = LlamaTokenizer.from_pretrained(tmp_path)
    for text in PLAIN:
        if not text.startswith(" "):  # transformers adds no space there, Llama's own model does
            assert ours.encode(text, special=False) == theirs.encode(text, add_special_tokens=False)
    write_json(tmp_path / "tokenizer_config.json", {"add_bos_token": False, "add_eos_token": True})
    assert open_tokenizer(tmp_path).encode("") == [2]


def test_added_tokens(t5):
    size = open_tokenizer(t5).size
    write_json(t5 / "added_tokens.json", {"<word>": size, "<mask>": size + 1})
    ours = open_tokenizer(t5)
    assert ours.size == size + 2 and ours.specials["mask"] == size + 1
    ids = ours.encode("the <word> cat <mask>")
    assert size in ids and size + 1 not in ids  # a word of any text, but no control token
    assert size + 1 in ours.encode("the <mask>", allow_special=True)
    assert ours.decode(ours.encode("the<word>")) == "the<word>"
    write_json(t5 / "added_tokens.json", {"<word>": size + 7})
    with pytest.raises(DataError, match="for '<word>'"):
        open_tokenizer(t5)


@pytest.fixture
def marian_folder(tmp_path):
    source, target = train_spm(vocab_size=120), train_spm(vocab_size=90, model_type="bpe")
    (tmp_path / "source.spm").write_bytes(source)
    (tmp_path / "target.spm").write_bytes(target)
    pieces = ["</s>", "<unk>", ">>fra<<"]
    for model in (source, target):
        processor = SentencePieceProcessor(model_proto=model)
        pieces += [processor.id_to_piece(id) for id in range(3, len(processor))]
    vocab = {piece: id for id, piece in enumerate(dict.fromkeys([*pieces[:200], "<pad>"]))}
    write_json(tmp_path / "vocab.json", vocab)
    write_json(tmp_path / "config.json", {"model_type": "marian", "pad_token_id": vocab["<pad>"]})
    return tmp_path


def test_marian(marian_folder):
    ours = open_tokenizer(marian_folder)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses")
        theirs = MarianTokenizer.from_pretrained(marian_folder)
    assert ours.size == theirs.vocab_size
    assert ours.specials["eos"] == 0 and ours.specials["pad"] == theirs.pad_token_id
    assert ours.encode("") == [0]
    for text in [*PLAIN, ">>fra<< the cat", ">>xyz<< the cat"]:
        ids = ours.encode(text)
        assert ids == theirs.encode(text), text
        assert len(ours.offsets(text)) == len(ids)
        target = ours.encode(text, side="target")
        assert target == theirs(text_target=text)["input_ids"], text
        expected = theirs.decode(target, skip_special_tokens=True, use_source_tokenizer=False)
        assert ours.decode(target) == expected
    assert 0 not in ours.encode("a </s>", special=False)


def test_marian_with_two_vocabularies(marian_folder):
    write_json(marian_folder / "tokenizer_config.json", {"separate_vocabs": True})
    write_json(marian_folder / "target_vocab.json", {"<unk>": 0, "</s>": 1, "<pad>": 2, "▁a": 3})
    ours = open_tokenizer(marian_folder)
    assert ours.encode("a", side="target") == [3, 1]
    assert ours.decode([3, 1]) == "a" and ours.pieces([3]) == ["▁a"]
    write_json(marian_folder / "target_vocab.json", {"<unk>": 0, "<pad>": 2})
    with pytest.raises(DataError, match="target vocabulary of Marian: no </s>"):
        open_tokenizer(marian_folder)


def test_saved_folder_is_the_same(t5, tmp_path):
    ours = open_tokenizer(t5)
    ours.save(tmp_path / "saved")
    again = T5Tokenizer.from_pretrained(tmp_path / "saved")
    assert again.encode("the cat sat") == ours.encode("the cat sat")


def test_missing_library_names_the_extra(t5, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(RegardError, match=r"pip install 'regard\[spm\]'"):
        open_tokenizer(t5)


def test_files_that_cannot_be_read(t5):
    write_json(t5 / "config.json", {"model_type": "xlm-roberta"})
    with pytest.raises(DataError, match="'xlm-roberta'"):
        open_tokenizer(t5)
    write_json(t5 / "config.json", {"model_type": "t5"})
    (t5 / "spiece.model").write_bytes(b"not a model")
    with pytest.raises(DataError, match="a SentencePiece model"):
        open_tokenizer(t5)
