import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.errors import DataError, UsageError
from regard.tokens.tokenizer import Tokenizer
from regard.tokens.tokenizer_folder import open_tokenizer
from regard.tokens.trainers import train_tokenizer
from tests.tokens.small_tokenizers import CORPUS, TEXTS

BYTES = train_tokenizer((), "bytes")


@pytest.fixture
def tokenizer(folder) -> Tokenizer:
    found = open_tokenizer(folder)
    assert found is not None
    return found


def test_roles_and_size(tokenizer):
    assert tokenizer.size == 350
    assert tokenizer.specials == {"bos": 0, "pad": 1, "eos": 2, "unk": 3, "mask": 4}


def test_empty_text_has_only_what_is_added(tokenizer):
    assert tokenizer.encode("") == [0, 2]
    assert tokenizer.encode("", special=False) == []
    assert tokenizer.decode([]) == ""


@given(text=st.text(max_size=60))
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_round_trip(tokenizer, text):
    ids = tokenizer.encode(text)
    assert ids[0] == 0 and ids[-1] == 2  # neither padded nor cut, though the file asks for both
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode(ids, special=True) == f"<s>{text}</s>"


def test_batch_is_one_by_one(tokenizer):
    assert tokenizer.encode_batch(TEXTS) == [tokenizer.encode(text) for text in TEXTS]
    assert tokenizer.encode_batch([]) == []


def test_control_token_in_user_text_stays_text(tokenizer):
    text = "a <mask> b</s>"
    assert not {2, 4} & set(tokenizer.encode(text, special=False))
    assert not {2, 4} & set(tokenizer.encode_batch([text], special=False)[0])
    assert tokenizer.decode(tokenizer.encode(text)) == text
    allowed = tokenizer.encode(text, allow_special=True)
    assert allowed.count(4) == 1 and allowed[-2:] == [2, 2]
    assert tokenizer.encode(text) != allowed  # the permission was for one call only


def test_pieces_spell_the_vocabulary(tokenizer):
    ids = tokenizer.encode("the cat")
    assert tokenizer.pieces(ids)[0] == "<s>"
    assert "".join(tokenizer.pieces(ids)[1:-1]) == "theĠcat"


def test_offsets_point_into_the_text(tokenizer):
    text = "café e\u0301 🎉!"
    ids, spans = tokenizer.encode(text), tokenizer.offsets(text)
    assert len(ids) == len(spans)
    assert spans[0] == spans[-1] == (0, 0)
    inside = spans[1:-1]
    assert inside[0][0] == 0 and inside[-1] == (len(text) - 1, len(text))
    assert all(a <= b for a, b in inside)
    party = text.index("🎉")
    assert (party, party + 1) in inside  # four bytes, one character


@pytest.mark.parametrize("id", [-1, 350, 10**6])
def test_unknown_id_is_an_error(tokenizer, id):
    for read in (tokenizer.decode, tokenizer.pieces):
        with pytest.raises(DataError, match=f"id {id}\n.*0 to 349"):
            read([5, id])


def test_wrong_calls_are_explained(tokenizer):
    with pytest.raises(UsageError, match="'left'"):
        tokenizer.encode("a", side="left")
    with pytest.raises(UsageError, match="int at index 0"):
        tokenizer.encode(3)
    with pytest.raises(UsageError, match="a single str"):
        tokenizer.encode_batch("abc")


def test_save_writes_the_same_bytes(tokenizer, folder, tmp_path):
    tokenizer.save(tmp_path / "new" / "place")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "new" / "place" / name).read_bytes() == (folder / name).read_bytes()


def test_no_torch_is_imported():
    code = "import sys, regard.tokens; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


ODD = ["a\ud800b", "\udfff", "caf\u00e9 \ud83d\ude00 \0 x\ud800", "\ud800\ud800", "<s>\udc00</s>"]


@pytest.mark.parametrize("kind", ["bpe", "bytes", "words", "chars", "graphemes"])
@pytest.mark.parametrize("wrap", ["none", "bos-eos"])
def test_halves_of_surrogate_pairs_come_back(kind, wrap):
    trained = train_tokenizer(CORPUS, kind, wrap=wrap, lossless=kind not in ("bpe", "bytes"))
    for text in ODD:
        ids, spans = trained.encode(text), trained.offsets(text)
        assert trained.decode(ids) == text and len(spans) == len(ids)
        assert "\ufffd" in trained.decode(ids, halves=False)
        inside = ids[1:-1] if wrap == "bos-eos" else ids
        assert trained.encode(text, special=False) == inside
        assert not set(trained.specials.values()) & set(inside)
        places = [spans[n][0] for n, id in enumerate(ids) if id == trained.byte_ids[0xED]]
        assert places == [at for at, letter in enumerate(text) if "\ud800" <= letter <= "\udfff"]
    assert trained.encode_batch(ODD) == [trained.encode(text) for text in ODD]


@given(st.text(st.characters(), max_size=12))
def test_any_text_at_all_comes_back(text):
    assert BYTES.decode(BYTES.encode(text)) == text


def test_halves_are_refused_where_no_byte_can_be_written():
    words = train_tokenizer(CORPUS, "words")
    with pytest.raises(DataError, match="character 1 of text 0"):
        words.encode("a\ud800")
