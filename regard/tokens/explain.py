"""Why a text was cut as it was: the way of each word from its characters to its pieces."""

from __future__ import annotations

import json
from dataclasses import dataclass

from regard.errors import UsageError
from regard.tokens.merges import replay_merges
from regard.tokens.rust import RustEngine
from regard.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class Reason:
    """One word of a text."""

    word: str
    """As the vocabulary spells it."""
    pieces: list[str]
    steps: list[str]
    """What led there, a line each."""


def explain_text(tokenizer: Tokenizer, text: str) -> list[Reason]:
    """Each word of the text with its pieces and the reason for them."""
    engine = tokenizer.engine
    if not isinstance(engine, RustEngine):
        found = "a SentencePiece tokenizer"
        raise UsageError("explaining a tokenizer", found, "one with a tokenizer.json")
    rust = engine.literal
    model = json.loads(engine.rust.to_str())["model"]
    pairs = [tuple(m.split(" ") if isinstance(m, str) else m) for m in model.get("merges", [])]
    ranks = {pair: rank for rank, pair in enumerate(pairs)}
    if rust.normalizer is not None:
        text = rust.normalizer.normalize_str(text)
    cut = rust.pre_tokenizer
    words = [word for word, _ in cut.pre_tokenize_str(text)] if cut else [text] if text else []
    return [explain_word(tokenizer, word, model, ranks) for word in words]


def explain_word(
    tokenizer: Tokenizer, word: str, model: dict[str, object], ranks: dict[tuple[str, ...], int]
) -> Reason:
    """One word, which the pre-tokenizer has cut off."""
    assert isinstance(tokenizer.engine, RustEngine)
    ids = [token.id for token in tokenizer.engine.literal.model.tokenize(word)]
    pieces = [tokenizer.engine.rust.id_to_token(id) or "" for id in ids]  # as spelt elsewhere
    unknown = model.get("unk_token")
    if pieces == [word]:
        return Reason(word, pieces, ["the vocabulary has it whole"])
    if pieces == [unknown]:
        return Reason(word, pieces, ["the vocabulary has neither it nor pieces that make it up"])
    if model["type"] == "BPE" and ranks:
        steps = replay_merges(word, ranks)  # type: ignore[arg-type]
        lines = [" ".join(s.pieces) + (f"  (merge {s.rank:,})" if s.rank else "") for s in steps]
        return Reason(word, pieces, [*lines, "no merge joins any two of these"])
    if model["type"] == "WordPiece":
        return Reason(word, pieces, [f"{p}: the longest piece that fits here" for p in pieces])
    return Reason(word, pieces, ["not in the vocabulary, so written in smaller pieces"])
