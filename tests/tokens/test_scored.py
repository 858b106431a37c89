import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from regard.errors import DataError
from regard.tokens.rust import RustEngine
from regard.tokens.scored import Kind, Piece, from_llama2c, scored_bpe
from tests.tokens.small_tokenizers import TEXTS

BYTES = [Piece(f"<0x{byte:02X}>", 0.0, Kind.BYTE) for byte in range(256)]
FIRST = [
    Piece("<unk>", 0.0, Kind.UNKNOWN),
    Piece("<s>", 0.0, Kind.CONTROL),
    Piece("</s>", 0.0, Kind.CONTROL),
    *BYTES,
]


def greedy(pieces: list[Piece], text: str) -> list[int]:
    """The encoder of llama2.c's run.c: merge the best neighbours until nothing can be merged."""
    ids = {piece.text: id for id, piece in enumerate(pieces) if id >= 259}
    found: list[int] = []
    for character in "▁" + text.replace(" ", "▁") if text else "":
        known = character in ids
        found += [ids[character]] if known else [byte + 3 for byte in character.encode()]
    while True:
        best = (float("-inf"), -1, -1)
        for place, (left, right) in enumerate(zip(found, found[1:], strict=False)):
            id = ids.get(pieces[left].text + pieces[right].text)
            if min(left, right) >= 259 and id is not None and pieces[id].score > best[0]:
                best = (pieces[id].score, place, id)
        if best[1] < 0:
            return found
        found[best[1] : best[1] + 2] = [best[2]]


@st.composite
def vocabularies(draw):
    """Letters, then pieces of two earlier ones, each worse than the one before, as in BPE."""
    texts = ["▁", *draw(st.sampled_from(["ab", "abc", "aé日"]))]
    for _ in range(draw(st.integers(0, 12))):
        pick = st.integers(0, len(texts) - 1)
        new = texts[draw(pick)] + texts[draw(pick)]
        texts += [new] if new not in texts else []
    return FIRST + [Piece(text, -float(rank)) for rank, text in enumerate(texts)]


@given(pieces=vocabularies(), text=st.text("ab c") | st.text("aé日 🎉", max_size=30) | st.text())
@settings(max_examples=500, deadline=None)
def test_merges_as_llama2c(pieces, text):
    engine = RustEngine(scored_bpe(pieces))
    ids = engine.encode(text, special=True, allow_special=False, side="source")
    assert ids == greedy(pieces, text)
    if "▁" not in text:  # the mark of a space is read as one
        assert engine.decode(ids, special=False, side="target") == text


def test_without_byte_pieces_unknown_is_unknown():
    engine = RustEngine(scored_bpe([FIRST[0], Piece("▁", 0.0), Piece("a", -1.0)]))
    assert engine.encode("aéé", True, False, "source") == [1, 2, 0]


def test_piece_given_twice():
    with pytest.raises(DataError, match="'a' both at 0 and at 1"):
        scored_bpe([Piece("a", 0.0), Piece("a", 1.0)])


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
    ours = from_llama2c(tmp_path / "tokenizer.bin", size)
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
        from_llama2c(path, size + 1)
    with pytest.raises(DataError, match=f"bytes after piece {size - 2}"):
        from_llama2c(path, size - 1)
    with pytest.raises(DataError, match="256 bytes"):
        from_llama2c(path, 100)
