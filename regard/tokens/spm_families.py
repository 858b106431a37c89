"""How model families number the pieces of their SentencePiece models."""

from __future__ import annotations

from typing import Any

from regard.errors import DataError, RegardError
from regard.tokens.special import Settings
from regard.tokens.spm import Language, SentencePieceEngine
from regard.tokens.vocabulary import check_place

T5_LIKE = ("longt5", "mt5", "switch_transformers", "t5", "umt5")
LLAMA_LIKE = ("gemma", "gemma2", "llama", "mistral", "mixtral")
XLMR_LIKE = ("xlm-roberta", "xlm-roberta-xl")
KNOWN = T5_LIKE + LLAMA_LIKE + XLMR_LIKE


def load(name: str, data: bytes) -> Any:
    """The library's processor for the bytes of a model file."""
    try:
        from sentencepiece import SentencePieceProcessor
    except ImportError:
        raise RegardError(
            f"reading {name}",
            "the sentencepiece library is missing",
            "it reads this kind of tokenizer",
            "pip install regard[spm]",
        ) from None
    try:
        return SentencePieceProcessor(model_proto=data)
    except RuntimeError as error:
        raise DataError(f"reading {name}", str(error), "a SentencePiece model") from None


def single_model(name: str, data: bytes, settings: Settings) -> SentencePieceEngine:
    """The engine of a folder with one SentencePiece model; the family decides on the ids."""
    family, options = settings.model_type, settings.tokenizer
    if family and family not in KNOWN:
        raise DataError(
            f"reading {name}",
            f"model_type {family!r} in config.json",
            "one of " + ", ".join(sorted(KNOWN)),
            "save the tokenizer with transformers, which writes tokenizer.json",
        )
    processor = load(name, data)
    pieces, controls = number_pieces(processor, family, options)
    words: set[str] = set()
    for id, token in settings.outside.items():
        if id == len(pieces):
            pieces.append(token["content"])
        check_place(token["content"], id if pieces[id : id + 1] == [token["content"]] else None, id)
        (controls if token.get("special") else words).add(token["content"])
    vocab = {piece: id for id, piece in enumerate(pieces)}
    roles = settings.roles(vocab.get)
    add_bos = options.get("add_bos_token", family in LLAMA_LIKE + XLMR_LIKE)
    add_eos = options.get("add_eos_token", family in T5_LIKE + XLMR_LIKE)
    before = [pieces[roles["bos"]]] if add_bos and "bos" in roles else []
    after = [pieces[roles["eos"]]] if add_eos and "eos" in roles else []
    unk = processor.id_to_piece(processor.unk_id())
    language = Language(processor, vocab, controls)
    sides = {"source": language, "target": language}
    return SentencePieceEngine(sides, controls, unk, before, after, words)


def number_pieces(
    processor: Any, family: str, options: dict[str, Any]
) -> tuple[list[str], set[str]]:
    """All pieces in the order of their ids, and which of them are control tokens."""
    ids = range(processor.get_piece_size())
    pieces = [processor.id_to_piece(id) for id in ids]
    if family in XLMR_LIKE:  # fairseq put four control tokens of its own first
        first = ["<s>", "<pad>", "</s>", "<unk>"]
        return [*first, *pieces[3:], "<mask>"], {*first, "<mask>"}
    controls = {pieces[id] for id in ids if processor.is_control(id) or processor.is_unknown(id)}
    sentinels = options.get("extra_ids", 100 if family == "t5" else 0)
    if family not in T5_LIKE or "<extra_id_0>" in pieces:
        sentinels = 0
    extra = [f"<extra_id_{number}>" for number in reversed(range(sentinels))]
    return pieces + extra, controls | set(extra)


def marian(
    models: dict[str, bytes], vocabs: dict[str, dict[str, int]], settings: Settings
) -> SentencePieceEngine:
    """The engine of a Marian folder: two models, ids from vocab.json, </s> at the end."""
    unk, eos = settings.token("unk", "<unk>"), settings.token("eos", "</s>")
    controls = {unk, eos, settings.token("pad", "<pad>")}
    for side, vocab in vocabs.items():
        if missing := controls - vocab.keys():
            raise DataError(f"reading the {side} vocabulary of Marian", f"no {sorted(missing)[0]}")
    languages = {
        side: Language(load(f"{side}.spm", models[side]), vocab, controls)
        for side, vocab in vocabs.items()
    }
    return SentencePieceEngine(languages, controls, unk, [], [eos], translation=True)
