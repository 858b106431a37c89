"""Tokenizers from pieces with scores: SentencePiece's BPE, as Llama uses it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from tokenizers import AddedToken, decoders, models, normalizers
from tokenizers import Tokenizer as Rust

from regard.errors import DataError


class PieceKind(IntEnum):
    """What a piece is for, with the numbers that GGUF gives them."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER = 4
    UNUSED = 5
    BYTE = 6


class ScoredPiece(NamedTuple):
    """An entry of the vocabulary; spaces are written '▁', bytes '<0x0A>'."""

    text: str
    score: float
    kind: PieceKind = PieceKind.NORMAL


def merges_by_score(pieces: Sequence[ScoredPiece]) -> list[tuple[str, str]]:
    """All ways to make a piece from two others, the best piece first.

    SentencePiece merges the neighbours that make the piece of best score; `tokenizers` wants
    pairs in the order of their rank, so each way to make a piece becomes a pair.
    """
    mergeable = {piece.text for piece in pieces if piece.kind in (PieceKind.NORMAL, PieceKind.USER)}
    ranked = [
        (-score, id, text[:cut], text[cut:])
        for id, (text, score, _) in enumerate(pieces)
        if text in mergeable
        for cut in range(1, len(text))
        if text[:cut] in mergeable and text[cut:] in mergeable
    ]
    return [(left, right) for _, _, left, right in sorted(ranked)]


def scored_bpe(pieces: Sequence[ScoredPiece], prefix_space: bool = True) -> Rust:
    """The pipeline of Llama's tokenizer: no words, spaces as '▁', unknown characters as bytes."""
    vocab: dict[str, int] = {}
    for id, piece in enumerate(pieces):
        if vocab.setdefault(piece.text, id) != id:
            raise DataError(
                "building a tokenizer from scored pieces",
                f"{piece.text!r} both at {vocab[piece.text]} and at {id}",
                "each piece once",
            )
    unk = next((piece.text for piece in pieces if piece.kind == PieceKind.UNKNOWN), None)
    model = models.BPE(
        vocab, merges_by_score(pieces), unk_token=unk, fuse_unk=True, byte_fallback=True
    )
    rust = Rust(model)
    prefix = [normalizers.Prepend("▁")] if prefix_space else []
    rust.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", "▁")])
    strip = [decoders.Strip(" ", left=1)] if prefix_space else []
    rust.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    mark_kinds(rust, [(piece.text, piece.kind) for piece in pieces])
    return rust


def mark_kinds(rust: Rust, kinds: Sequence[tuple[str, PieceKind]]) -> None:
    """Tell the pipeline which pieces are control tokens and which are never cut."""
    control = [t for t, kind in kinds if kind in (PieceKind.CONTROL, PieceKind.UNKNOWN)]
    rust.add_special_tokens([AddedToken(t, normalized=False) for t in control])
    user = [t for t, kind in kinds if kind == PieceKind.USER]
    rust.add_tokens([AddedToken(t, normalized=False) for t in user])
