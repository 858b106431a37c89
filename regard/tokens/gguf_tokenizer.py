"""Tokenizers from the metadata of a GGUF file (llama.cpp), and from pieces with scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Rust

from regard.errors import DataError
from regard.tokens.control_tokens import WELL_KNOWN
from regard.tokens.tokenizer import Tokenizer
from regard.tokens.vocabulary_files import surround

DOING = "reading the tokenizer of a GGUF file"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")  # digits one by one
DEFAULT = (r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]")

LLAMA3_NAMES = ("llama-bpe", "llama-v3", "llama3")
SPLITS: dict[str, tuple[str, ...]] = {
    "default": DEFAULT,
    **dict.fromkeys(("gpt-2", "mpt", "olmo", "phi-2", "roberta-bpe"), (GPT2,)),
    **dict.fromkeys(("codeshell", "command-r", "refact", "smollm", "starcoder"), (r"\p{N}", GPT2)),
    **dict.fromkeys(LLAMA3_NAMES, (LLAMA3,)),
    **dict.fromkeys(("deepseek-r1-qwen", "qwen2", "stablelm2"), (QWEN2,)),
}
"""tokenizer.ggml.pre to the patterns that cut a text, one after the other (llama-vocab.cpp)."""

ROLE_KEYS = {role: role for role in WELL_KNOWN}
ROLE_KEYS |= {"unk": "unknown", "pad": "padding", "sep": "seperator"}  # spelled so in GGUF


def from_gguf(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer that a GGUF file carries in its metadata."""
    fields = {
        key.removeprefix("tokenizer.ggml."): value
        for key, value in metadata.items()
        if key.startswith("tokenizer.ggml.")
    }
    model = fields.get("model")
    if model not in ("gpt2", "llama") or not fields.get("tokens"):
        problem = f"tokenizer.ggml.model = {model!r} with {len(fields.get('tokens') or [])} tokens"
        raise DataError(DOING, problem, "'gpt2' or 'llama', and tokenizer.ggml.tokens")
    if model == "gpt2":
        rust = byte_level_bpe(fields)
    else:
        tokens, scores = fields["tokens"], fields.get("scores", ())
        check_length("scores", scores, tokens)
        pieces = list(map(ScoredPiece, tokens, map(float, scores), read_kinds(fields)))
        rust = scored_bpe(pieces, prefix_space=bool(fields.get("add_space_prefix", True)))
    roles = {
        role: int(fields[f"{key}_token_id"])
        for role, key in ROLE_KEYS.items()
        if f"{key}_token_id" in fields
    }
    for role, id in roles.items():
        if rust.id_to_token(id) is None:
            problem = f"tokenizer.ggml.{ROLE_KEYS[role]}_token_id = {id}"
            raise DataError(DOING, problem, f"an id below {rust.get_vocab_size()}")
    # Where the file is silent, llama.cpp adds bos for SentencePiece models and for Llama 3.
    usual = model == "llama" or fields.get("pre") in LLAMA3_NAMES
    begin = roles.get("bos") if fields.get("add_bos_token", usual) else None
    end = roles.get("eos") if fields.get("add_eos_token", False) else None
    surround(rust, begin, end, twice=True)
    template = metadata.get("tokenizer.chat_template")
    return Tokenizer.from_rust(rust, roles, {"chat_template": template} if template else None)


def read_kinds(fields: Mapping[str, Any]) -> list[PieceKind]:
    """What each token is for."""
    stated = fields.get("token_type", ())
    check_length("token_type", stated, fields["tokens"])
    try:
        return [PieceKind(int(number) or PieceKind.NORMAL) for number in stated]
    except ValueError as error:
        problem = f"in tokenizer.ggml.token_type, {error}"
        raise DataError(DOING, problem, f"numbers from 1 to {max(PieceKind)}") from None


def check_length(name: str, values: Any, tokens: Any) -> None:
    """Stop where a list does not go with the tokens."""
    if len(values) != len(tokens):
        problem = f"{len(values)} entries in tokenizer.ggml.{name}"
        raise DataError(DOING, problem, f"{len(tokens)}, one for each token")


def byte_level_bpe(fields: Mapping[str, Any]) -> Rust:
    """GPT-2's tokenizer: pieces and merges over bytes, with the cuts that `pre` names."""
    pre = fields.get("pre", "default")
    if pre not in SPLITS:
        known, fix = ", ".join(sorted(SPLITS)), "take the tokenizer.json of the original model"
        raise DataError(DOING, f"tokenizer.ggml.pre = {pre!r}", f"one of {known}", fix)
    merges = [tuple(merge.split(" ")) for merge in fields.get("merges", ())]
    vocab = {token: id for id, token in enumerate(fields["tokens"])}
    try:
        # Llama 3 takes a whole word that is in the vocabulary, whatever the merges say.
        rust = Rust(models.BPE(vocab, merges, ignore_merges=pre in LLAMA3_NAMES))
    except Exception as error:  # the library raises no narrower class
        raise DataError("building BPE from tokenizer.ggml.merges", str(error)) from None
    if pre in ("qwen2", "deepseek-r1-qwen"):
        rust.normalizer = normalizers.NFC()
    cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in SPLITS[pre]]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    rust.pre_tokenizer = pre_tokenizers.Sequence([*cuts, byte_level])
    rust.decoder = decoders.ByteLevel()
    mark_kinds(rust, list(zip(fields["tokens"], read_kinds(fields), strict=True)))
    return rust


# SentencePiece's BPE, as Llama uses it ------------------------------------------------------


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
            fault = f"{piece.text!r} both at {vocab[piece.text]} and at {id}"
            raise DataError("building a tokenizer from scored pieces", fault, "each piece once")
    unk = next((piece.text for piece in pieces if piece.kind == PieceKind.UNKNOWN), None)
    merges = merges_by_score(pieces)
    rust = Rust(models.BPE(vocab, merges, unk_token=unk, fuse_unk=True, byte_fallback=True))
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
