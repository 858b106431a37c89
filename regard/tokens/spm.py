"""The engine around the `sentencepiece` library, and how model families number its pieces."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from regard.errors import DataError, check_installed
from regard.tokens.control_tokens import TokenizerSettings
from regard.tokens.tokenizer import Encoded
from regard.tokens.vocabulary_files import check_place

T5_LIKE = ("longt5", "mt5", "switch_transformers", "t5", "umt5")
LLAMA_LIKE = ("gemma", "gemma2", "llama", "mistral", "mixtral")
KNOWN = T5_LIKE + LLAMA_LIKE
LANGUAGE_CODE = re.compile(">>.*?<<", re.DOTALL)


class SpmLanguage:
    """One SentencePiece model and the ids of its pieces, which need not be its own ids."""

    def __init__(self, processor: Any, vocab: dict[str, int], controls: set[str]) -> None:
        self.processor, self.vocab = processor, vocab
        self.names = {id: piece for piece, id in vocab.items()}
        # Unknown characters come back spelled as they are; they must not find a control token.
        self.plain = {piece: id for piece, id in vocab.items() if piece not in controls}


def spelled(tokens: set[str]) -> re.Pattern[str]:
    """A pattern that finds these tokens in a text, the longest first; without any, nothing."""
    longest = sorted(tokens, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest)) if tokens else "(?!)")


@dataclass
class SentencePieceEngine:
    """SentencePiece models (Kudo and Richardson 2018), one per side of the translation.

    `before` and `after` are the control tokens that stand around a text, `words` the added
    tokens that are found in any text.
    """

    languages: dict[str, SpmLanguage]
    controls: set[str]
    unk: str
    before: list[str]
    after: list[str]
    words: set[str] = field(default_factory=set)
    translation: bool = False

    def __post_init__(self) -> None:
        self.size = len(self.languages["source"].vocab)
        self.literal, self.marked = spelled(self.words), spelled(self.controls | self.words)

    def _parts(
        self, text: str, allow_special: bool, side: str
    ) -> Iterator[tuple[int, str, int | None]]:
        """The text in parts: where each starts, its characters, its id if it is one token."""
        vocab, start = self.languages[side].vocab, 0
        if self.translation and (code := LANGUAGE_CODE.match(text)):
            yield 0, code[0], vocab.get(code[0], vocab[self.unk])
            start = code.end()
        for match in (self.marked if allow_special else self.literal).finditer(text, start):
            yield start, text[start : match.start()], None
            yield match.start(), match[0], vocab[match[0]]
            start = match.end()
        yield start, text[start:], None

    def encode(self, text: str, special: bool, allow_special: bool, side: str) -> Encoded:
        """The ids of one text, and where they stand."""
        language = self.languages[side]
        unk, ids, spans = language.vocab[self.unk], list[int](), list[tuple[int, int]]()
        for start, part, id in self._parts(text, allow_special, side):
            if id is not None:
                ids.append(id)
                spans.append((start, start + len(part)))
                continue
            cut = language.processor.encode(part, return_type="offset_mapping")
            ids += [language.plain.get(piece, unk) for piece in cut["pieces"]]
            spans += [(start + first, start + last) for first, last in cut["offsets"]]
        if special:
            ids = [language.vocab[p] for p in self.before] + ids
            ids += [language.vocab[p] for p in self.after]
            spans = [(0, 0)] * len(self.before) + spans + [(0, 0)] * len(self.after)
        return Encoded(ids, spans)

    def encode_batch(
        self, texts: Sequence[str], special: bool, allow_special: bool, side: str
    ) -> list[list[int]]:
        """The ids of each text."""
        return [self.encode(text, special, allow_special, side).ids for text in texts]

    def decode(self, ids: list[int], special: bool, side: str) -> str:
        """The text of the ids."""
        language = self.languages[side]
        runs: list[list[str]] = [[]]  # pieces of text; a control token stands alone
        for id in ids:
            piece = language.names[id]
            if piece not in self.controls:
                runs[-1].append(piece)
            elif special:
                runs += [[piece], []]
        texts = [
            run[0] if run and run[0] in self.controls else language.processor.decode(run)
            for run in runs
        ]
        # A piece that the other language brought keeps its mark in the library's answer.
        text = "".join(texts).replace("▁", " ")
        return text.strip() if self.translation else text

    def piece(self, id: int, side: str) -> str | None:
        """The spelling of one id."""
        return self.languages[side].names.get(id)

    def id(self, piece: str) -> int | None:
        """The id of one spelling."""
        return self.languages["source"].vocab.get(piece)


def load(name: str, data: bytes) -> Any:
    """The library's processor for the bytes of a model file."""
    check_installed("sentencepiece", "spm", f"reading {name}")
    from sentencepiece import SentencePieceProcessor

    try:
        return SentencePieceProcessor(model_proto=data)
    except RuntimeError as error:
        raise DataError(f"reading {name}", str(error), "a SentencePiece model") from None


def single_model(name: str, data: bytes, settings: TokenizerSettings) -> SentencePieceEngine:
    """The engine of a folder with one SentencePiece model; the family decides on the ids."""
    family, options = settings.model_type, settings.tokenizer
    if family and family not in KNOWN:
        fault = f"model_type {family!r} in config.json"
        fix = "save the tokenizer with transformers, which writes tokenizer.json"
        raise DataError(f"reading {name}", fault, "one of " + ", ".join(sorted(KNOWN)), fix)
    processor = load(name, data)
    count, words = range(processor.get_piece_size()), set[str]()
    pieces = [processor.id_to_piece(id) for id in count]
    controls = {pieces[id] for id in count if processor.is_control(id) or processor.is_unknown(id)}
    if family in T5_LIKE and "<extra_id_0>" not in pieces:  # sentinels stand outside of the file
        sentinels = reversed(range(options.get("extra_ids", 100 if family == "t5" else 0)))
        extra = [f"<extra_id_{number}>" for number in sentinels]
        pieces, controls = pieces + extra, controls | set(extra)
    for id, token in settings.outside.items():
        if id == len(pieces):
            pieces.append(token["content"])
        check_place(token["content"], id if pieces[id : id + 1] == [token["content"]] else None, id)
        (controls if token.get("special") else words).add(token["content"])
    vocab = {piece: id for id, piece in enumerate(pieces)}
    roles = settings.roles(vocab.get)
    add_bos = options.get("add_bos_token", family in LLAMA_LIKE)
    add_eos = options.get("add_eos_token", family in T5_LIKE)
    before = [pieces[roles["bos"]]] if add_bos and "bos" in roles else []
    after = [pieces[roles["eos"]]] if add_eos and "eos" in roles else []
    unk = processor.id_to_piece(processor.unk_id())
    language = SpmLanguage(processor, vocab, controls)
    sides = {"source": language, "target": language}
    return SentencePieceEngine(sides, controls, unk, before, after, words)


def marian(
    models: dict[str, bytes], vocabs: dict[str, dict[str, int]], settings: TokenizerSettings
) -> SentencePieceEngine:
    """The engine of a Marian folder: two models, ids from vocab.json, </s> at the end."""
    unk, eos = settings.token("unk", "<unk>"), settings.token("eos", "</s>")
    controls = {unk, eos, settings.token("pad", "<pad>")}
    for side, vocab in vocabs.items():
        if missing := controls - vocab.keys():
            raise DataError(f"reading the {side} vocabulary of Marian", f"no {sorted(missing)[0]}")
    languages = {
        side: SpmLanguage(load(f"{side}.spm", models[side]), vocab, controls)
        for side, vocab in vocabs.items()
    }
    return SentencePieceEngine(languages, controls, unk, [], [eos], translation=True)
