"""Tokenizers from bare vocabulary files: WordPiece (BERT) and byte-level BPE (GPT-2, RoBERTa)."""

from __future__ import annotations

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Rust

from regard.errors import DataError
from regard.tokens.control_tokens import WELL_KNOWN, TokenizerSettings

SANDWICHED = ("bart", "led", "longformer", "roberta", "roberta-prelayernorm")
"""Byte-level model families whose texts stand between <s> and </s>."""


def word_piece(pieces: list[str], settings: TokenizerSettings) -> Rust:
    """BERT's tokenizer (Devlin et al. 2019) from the lines of vocab.txt."""
    options = settings.tokenizer
    vocab = {piece: id for id, piece in enumerate(pieces)}
    for control in {name for names in WELL_KNOWN.values() for name in names} & set(pieces):
        if pieces.count(control) > 1:
            problem = f"{control} {pieces.count(control)} times"
            raise DataError("reading vocab.txt", problem, "each control token once")
    unk = settings.token("unk", "[UNK]")
    rust = Rust(models.WordPiece(vocab, unk_token=unk))
    rust.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=options.get("tokenize_chinese_chars", True),
        strip_accents=options.get("strip_accents"),  # None: strip where lower-casing
        lowercase=options.get("do_lower_case", True),
    )
    rust.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    rust.decoder = decoders.WordPiece(prefix="##")
    cls, sep = settings.token("cls", "[CLS]"), settings.token("sep", "[SEP]")
    ids = require(rust, "vocab.txt", {"unk": unk, "cls": cls, "sep": sep})
    surround(rust, ids["cls"], ids["sep"])
    add_tokens(rust, settings)
    return rust


def byte_level(
    vocab: dict[str, int], merges: list[tuple[str, str]], settings: TokenizerSettings
) -> Rust:
    """GPT-2's byte-level BPE (Radford et al. 2019) from vocab.json and merges.txt."""
    if "e</w>" in vocab:
        expected = "byte-level merges, as of GPT-2 and RoBERTa"
        fix = "save the tokenizer with transformers, which writes tokenizer.json"
        raise DataError("reading merges.txt", "word ends marked with </w>", expected, fix)
    try:
        rust = Rust(models.BPE(vocab, merges))
    except Exception as error:  # the library raises no narrower class
        raise DataError("building BPE from vocab.json and merges.txt", str(error)) from None
    prefix = settings.tokenizer.get("add_prefix_space", False)
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    rust.decoder = decoders.ByteLevel()
    add_tokens(rust, settings)
    if settings.model_type in SANDWICHED:
        cls, sep = settings.token("cls", "<s>"), settings.token("sep", "</s>")
        ids = require(rust, "vocab.json", {"cls": cls, "sep": sep})
        rust.post_processor = processors.RobertaProcessing(
            (sep, ids["sep"]), (cls, ids["cls"]), add_prefix_space=prefix
        )
    else:
        options, roles = settings.tokenizer, settings.roles(rust.token_to_id)
        begin = roles.get("bos") if options.get("add_bos_token") else None
        end = roles.get("eos") if options.get("add_eos_token") else None
        surround(rust, begin, end, twice=True)
    return rust


def require(rust: Rust, file: str, tokens: dict[str, str]) -> dict[str, int]:
    """The id of each role's token, all of which the vocabulary must have."""
    ids = {}
    for role, token in tokens.items():
        id = rust.token_to_id(token)
        if id is None:
            problem = f"no token {token}"
            fix = f"name the right one as {role}_token in tokenizer_config.json"
            raise DataError(f"reading {file}", problem, f"the model's {role} token", fix)
        ids[role] = id
    return ids


def surround(rust: Rust, bos: int | None, eos: int | None, twice: bool = False) -> None:
    """Let the tokenizer put bos before a text and eos after it, where given.

    Before the second text of a pair bos stands only if `twice`.
    """
    names = {str(rust.id_to_token(id)): id for id in (bos, eos) if id is not None}
    if not names:
        return
    before = [name for name, id in names.items() if id == bos]
    after = [name for name, id in names.items() if id == eos]
    second = [f"{name}:1" for name in (*(before if twice else ()), "$B", *after)]
    rust.post_processor = processors.TemplateProcessing(
        single=[*before, "$A", *after],
        pair=[*before, "$A", *after, *second],
        special_tokens=list(names.items()),
    )


def add_tokens(rust: Rust, settings: TokenizerSettings) -> None:
    """Mark the control tokens, and add the tokens that stand outside the vocabulary file."""
    for id, value in settings.outside.items():
        token = AddedToken(**{k: v for k, v in value.items() if not k.startswith("_")})
        (rust.add_special_tokens if token.special else rust.add_tokens)([token])
        check_place(token.content, rust.token_to_id(token.content), id)
    outside = {value["content"] for value in settings.outside.values()}
    for role, usual in WELL_KNOWN.items():
        for name in {settings.token(role), *usual} - outside - {""}:
            if rust.token_to_id(name) is not None:
                # RoBERTa's <mask> takes the space before it, so that "a <mask>" is two tokens.
                lstrip = name == "<mask>"
                rust.add_special_tokens([AddedToken(name, lstrip=lstrip, normalized=False)])


def check_place(token: str, id: int | None, stated: int) -> None:
    """Stop where an added token would get another id than the files give it."""
    if id != stated:
        expected = f"id {stated}, as added_tokens.json or tokenizer_config.json says"
        fix = "fetch the vocabulary that belongs to these files"
        raise DataError("adding tokens to the vocabulary", f"id {id} for {token!r}", expected, fix)
