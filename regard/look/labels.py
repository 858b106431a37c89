"""Labels: tokens as people read them, with the blank before a word kept."""

from __future__ import annotations

from collections.abc import Sequence

from regard.tokens.tokenizer import Side, Tokenizer


def token_label(tokenizer: Tokenizer, token: int, side: Side = "target") -> str:
    """One token; part of a character, or an id past the vocabulary, by its spelling."""
    piece = tokenizer.of(side).engine.piece(token, side)
    if piece is None:
        return f"#{token}"
    text = tokenizer.decode([token], special=True, side=side)
    if not text or "\ufffd" in text:
        return " " if piece in ("▁", "Ġ") else piece
    twice = tokenizer.decode([token, token], special=True, side=side)
    if twice != text + text and text.startswith("##"):  # inside of a word
        return text[2:]
    apart = twice == f"{text} {text}" or (piece[0] in "▁Ġ" and not text[0].isspace())
    return f" {text}" if apart else text


def token_labels(tokenizer: Tokenizer, tokens: Sequence[int], side: Side) -> list[str]:
    """The tokens of a text, each as people read it."""
    known = {token: token_label(tokenizer, token, side) for token in set(tokens)}
    return [known[token] for token in tokens]


def fit(text: str, width: int) -> str:
    """A token in so many columns: cut or filled, and control characters shown."""
    from rich.cells import cell_len, set_cell_size  # quick help needs no rich

    text = "".join("⏎" if c == "\n" else c if c.isprintable() else "·" for c in text.strip(" "))
    text = text or "␣"
    if cell_len(text) > width:
        text = set_cell_size(text, width - 1).rstrip() + "…"
    return set_cell_size(text, width)
