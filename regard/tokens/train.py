"""Train a tokenizer on texts in bounded memory, on the Rust library `tokenizers`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tokenizers import Tokenizer as Rust
from tokenizers import pre_tokenizers, processors

from regard.errors import UsageError, check_known
from regard.tokens.kinds import (
    DOING,
    Plan,
    train_bpe,
    train_bytes,
    train_chars,
    train_graphemes,
    train_pieces,
    train_spaced,
    train_wordpiece,
    train_words,
)
from regard.tokens.special import WELL_KNOWN
from regard.tokens.tokenizer import Tokenizer

KINDS: dict[str, Callable[[Iterable[str], Plan], Rust]] = {
    "bpe": train_bpe,
    "pieces": train_pieces,
    "wordpiece": train_wordpiece,
    "words": train_words,
    "spaced": train_spaced,
    "chars": train_chars,
    "graphemes": train_graphemes,
    "bytes": train_bytes,
}

SIZED = ("bpe", "pieces", "wordpiece")
"""Kinds that must be told how many ids they may have."""
SIZE = 8000  # that many, unless said otherwise

UNKNOWING = ("wordpiece", "spaced")
"""Kinds that cannot write what they do not know in bytes."""

WRAPS = {
    "none": ([], []),
    "bos": (["bos"], []),
    "eos": ([], ["eos"]),
    "bos-eos": (["bos"], ["eos"]),
    "cls-sep": (["cls"], ["sep"]),
}
"""The roles that stand before and after each text."""

ROLES: dict[str, Sequence[str]] = {"wordpiece": ("pad", "unk", "cls", "sep", "mask")}
USUAL = ("pad", "bos", "eos")


def train_tokenizer(
    texts: Iterable[str],
    kind: str = "bpe",
    size: int | None = None,
    *,
    specials: Mapping[str, str] | Sequence[str] | None = None,
    min_count: int = 1,
    wrap: str = "none",
    lossless: bool = False,
    phase: Callable[[str], None] | None = None,
) -> Tokenizer:
    """A tokenizer of one kind, learnt from texts such as `regard.data.files.read_parts` gives.

    `specials` are roles (pad, bos, eos, unk, mask, cls, sep), or roles with their spellings; those
    that the kind or `wrap` needs are added. `lossless` makes words, chars and graphemes write what
    they do not know in bytes; bpe, pieces and bytes always do. `phase` is told what is being done.
    """
    check(kind, size, min_count, wrap, lossless)
    needed = [*WRAPS[wrap][0], *WRAPS[wrap][1]]
    if kind in UNKNOWING or (kind in ("words", "chars", "graphemes") and not lossless):
        needed.append("unk")
    spelling = spell(kind, ROLES.get(kind, USUAL) if specials is None else specials, needed)
    check_spelling(kind, lossless, spelling)
    tell = phase or (lambda doing: None)
    tell("counting")
    rust = KINDS[kind](texts, Plan(size, spelling, min_count, lossless, tell))
    ids = {role: rust.token_to_id(spelt) or 0 for role, spelt in spelling.items()}
    wrap_texts(rust, wrap, spelling, ids)
    return Tokenizer.from_rust(rust, ids)


def usual_size(kind: str, asked: int | None) -> int | None:
    """How many ids a tokenizer may have: as asked, or what is usual for its kind."""
    return asked or (SIZE if kind in SIZED else None)


def check(kind: str, size: int | None, min_count: int, wrap: str, lossless: bool) -> None:
    """Stop at a value that is not allowed, with the limit."""
    for name, value, known in (("kind", kind, KINDS), ("wrap", wrap, WRAPS)):
        check_known(value, known, DOING, f"{name} {value!r}")
    if size is None and kind in SIZED:
        raise UsageError(DOING, f"no size for {kind}", "how many ids it may have, such as 8000")
    if size is not None and size < 1:
        raise UsageError(DOING, f"size {size}", "at least 1")
    if min_count < 1:
        raise UsageError(DOING, f"min_count {min_count}", "at least 1")
    if lossless and kind in UNKNOWING:
        raise UsageError(DOING, f"lossless {kind}", "bpe, bytes, words or chars")


def spell(
    kind: str, asked: Mapping[str, str] | Sequence[str], needed: Sequence[str]
) -> dict[str, str]:
    """Role to spelling, those that are needed included."""
    usual = {role: spellings[0] for role, spellings in WELL_KNOWN.items()} | {"mask": "<mask>"}
    if kind == "wordpiece":
        usual |= {role: f"[{role.upper()}]" for role in ROLES["wordpiece"]}
    given = dict(asked) if isinstance(asked, Mapping) else {role: "" for role in asked}
    made: dict[str, str] = {}
    for role in dict.fromkeys([*given, *needed]):
        check_known(role, usual, DOING, f"unknown role {role!r}")
        made[role] = given.get(role) or usual[role]
    doubled = [role for role, word in made.items() if list(made.values()).count(word) > 1]
    if doubled or (not isinstance(asked, Mapping) and len(given) < len(asked)):
        found = f"{made[doubled[0]]!r} for {' and '.join(doubled)}" if doubled else "a role twice"
        raise UsageError(DOING, found, "one spelling for each control token")
    return made


def check_spelling(kind: str, lossless: bool, spelling: dict[str, str]) -> None:
    """Stop at a control token that could also be learnt as a word of the texts."""
    cuts: dict[str, Any] = {
        "bpe": pre_tokenizers.ByteLevel(add_prefix_space=False),
        "pieces": pre_tokenizers.ByteLevel(add_prefix_space=False),
        "wordpiece": pre_tokenizers.BertPreTokenizer(),
        "words": pre_tokenizers.Whitespace(),
    }
    cut = cuts.get("bpe" if kind == "words" and lossless else kind)
    for role, word in spelling.items():
        parts = len(word) if cut is None else len(cut.pre_tokenize_str(word))
        if parts < 2:
            found = f"{word!r} for {role}, which a text may hold as one word"
            raise UsageError(DOING, found, "letters and marks together", f"such as <{role}>")


def wrap_texts(rust: Rust, wrap: str, spelling: dict[str, str], ids: dict[str, int]) -> None:
    """Have the control tokens of `wrap` put around each text."""
    before, after = ([spelling[role] for role in roles] for roles in WRAPS[wrap])
    if not before and not after:
        return
    rust.post_processor = processors.TemplateProcessing(
        single=[*before, "$A", *after],
        pair=[*before, "$A", *after, "$B:1", *(f"{token}:1" for token in after)],
        special_tokens=[(spelling[r], ids[r]) for roles in WRAPS[wrap] for r in roles],
    )
