import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import DataError
from regard.tokens.gguf_tokenizer import PieceKind, ScoredPiece, scored_bpe
from regard.tokens.tokenizer import RustEngine

BYTES = [ScoredPiece(f"<0x{byte:02X}>", 0.0, PieceKind.BYTE) for byte in range(256)]
FIRST = [
    ScoredPiece("<unk>", 0.0, PieceKind.UNKNOWN),
    ScoredPiece("<s>", 0.0, PieceKind.CONTROL),
    ScoredPiece("</s>", 0.0, PieceKind.CONTROL),
    *BYTES,
]


def greedy(pieces: list[ScoredPiece], text: str) -> list[int]:
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
    return FIRST + [ScoredPiece(text, -float(rank)) for rank, text in enumerate(texts)]


@given(pieces=vocabularies(), text=st.text("ab c") | st.text("aé日 🎉", max_size=30) | st.text())
@settings(max_examples=500, deadline=None)
def test_merges_as_llama2c(pieces, text):
    engine = RustEngine(scored_bpe(pieces))
    ids = engine.encode(text, special=True, allow_special=False, side="source").ids
    assert ids == greedy(pieces, text)
    if "▁" not in text:  # the mark of a space is read as one
        assert engine.decode(ids, special=False, side="target") == text


def test_without_byte_pieces_unknown_is_unknown():
    engine = RustEngine(scored_bpe([FIRST[0], ScoredPiece("▁", 0.0), ScoredPiece("a", -1.0)]))
    assert engine.encode("aéé", True, False, "source").ids == [1, 2, 0]


def test_piece_given_twice():
    with pytest.raises(DataError, match="'a' both at 0 and at 1"):
        scored_bpe([ScoredPiece("a", 0.0), ScoredPiece("a", 1.0)])
