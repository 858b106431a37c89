"""Train tokenizers on texts in bounded memory, on the library `tokenizers`.

One function per kind: byte-level BPE, WordPiece, words, characters, graphemes, bytes.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Rust

from regard.ambient import note, progress
from regard.errors import DataError, UsageError, check_known
from regard.tokens.control_tokens import WELL_KNOWN
from regard.tokens.tokenizer import BYTES, Tokenizer
from regard.tokens.vocabulary_files import surround
from regard.tokens.word_counts import CUTS, WordCounts, count_words, rank, repeat, thin

DOING = "training a tokenizer"
WORD = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""What GPT-2 and the library's ByteLevel call a word, a blank before it included."""
PIECE = r" ?[\p{L}\p{M}]+(?:'(?=\p{L}))?| ?\p{N}| ?[^\s\p{L}\p{M}\p{N}]+|\s+"
"""A word for `pieces`: an elided one keeps its apostrophe (l', d'), a digit stands alone."""
SENTENCE = normalizers.Sequence(
    [
        normalizers.NFC(),
        normalizers.Replace("’", "'"),
        normalizers.Replace(Regex(r"\s+"), " "),
        normalizers.Strip(),
        normalizers.Prepend(" "),
    ]
)
"""A sentence as `pieces` reads it: letters composed, blanks and apostrophes alike."""
BERT = normalizers.BertNormalizer(strip_accents=False, lowercase=False)
LETTERS = 1000  # characters that WordPiece learns at most, as BERT did; others are unknown

Texts = Iterable[str]


@dataclass(frozen=True)
class TokenizerPlan:
    """What is asked of a tokenizer."""

    size: int | None
    """How many ids there may be, control tokens included; None: as many as the texts have."""
    specials: dict[str, str]
    """Role to spelling; they have the first ids, but for bytes, whose ids are the bytes."""
    min_count: int
    """How often a pair, word or character must occur to be learnt."""
    lossless: bool
    """Whether words or characters that are not known are written in bytes, not as unknown."""

    def room(self, fixed: int, what: str) -> int:
        """How many ids are left to learn after those that there must be."""
        least = fixed + len(self.specials)
        if self.size is not None and self.size < least:
            need = f"at least {least}: {what} and {len(self.specials)} control tokens"
            raise UsageError(DOING, f"size {self.size}", need)
        return (self.size or 1 << 40) - least

    def frequent(self, counts: Counter[str], room: int) -> list[str]:
        """The most frequent words or characters that are frequent enough."""
        words = [word for word in rank(counts) if counts[word] >= self.min_count]
        if not words:
            most = f"the most frequent occurs {max(counts.values())} times"
            raise DataError(DOING, most, f"{self.min_count} times", "lower the least count")
        return words[:room]

    def numbered(self, *lists: Iterable[str]) -> dict[str, int]:
        """A vocabulary that has the control tokens first."""
        pieces = [*self.specials.values(), *(piece for pieces in lists for piece in pieces)]
        return {piece: id for id, piece in enumerate(pieces)}

    def finish(self, rust: Rust) -> Rust:
        """Mark the control tokens as such."""
        rust.add_special_tokens([control(spelling) for spelling in self.specials.values()])
        return rust


def control(spelling: str) -> AddedToken:
    """A control token with exactly this spelling."""
    return AddedToken(spelling, normalized=False, special=True)


def some(counts: WordCounts) -> WordCounts:
    """The counts, or an error where there are none."""
    if not counts.words:
        raise DataError(DOING, "no words: the texts are empty or blank", "at least one word")
    return counts


def count_bytewise(texts: Texts, word: str = WORD, clean: Any = None) -> WordCounts:
    """Count words, spelt in visible bytes; quicker than ByteLevel, which spells each."""
    counts = some(count_words(texts, pre_tokenizers.Split(Regex(word), "isolated"), clean))
    words = counts.words.items()
    counts.words = Counter(
        {word.encode().decode("latin-1").translate(BYTES): count for word, count in words}
    )
    return counts


def merge(counts: WordCounts, rust: Rust, trainer: Any, plan: TokenizerPlan) -> None:
    """Train on counted words, which have no blanks, and say so where the counts are not exact."""
    words, share = thin(counts.words)
    trainer.min_frequency = -(-plan.min_count // share)
    if counts.lost:
        note(f"more words than memory: counts may be too low by {counts.lost:,}")
    rust.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    with keep_saying("training a tokenizer", f"merging {len(words):,} different words"):
        rust.train_from_iterator(repeat(words), trainer)


@contextmanager
def keep_saying(doing: str, where: str) -> Iterator[None]:
    """Say where the work is while the library does it and calls nobody."""
    ended = threading.Event()
    with progress(doing) as say:

        def tick() -> None:
            while not ended.wait(0.5):
                say(where)

        thread = threading.Thread(target=tick, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def byte_level(rust: Rust) -> Rust:
    """Cut words as GPT-2 does, spell them in bytes, and put the bytes together again."""
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rust.decoder = decoders.ByteLevel()
    return rust


def train_pieces(texts: Texts, plan: TokenizerPlan) -> Rust:
    """Byte-level BPE for sentences, as translation wants it.

    A sentence's first word is spelt like any other, with a blank before it; spaces, composed
    letters and both apostrophes are made alike, so a text comes back in that form.
    """
    rust = learn_bpe(texts, plan, PIECE, SENTENCE)
    rust.normalizer = SENTENCE
    split = pre_tokenizers.Split(Regex(PIECE), "isolated")
    spell = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    rust.pre_tokenizer = pre_tokenizers.Sequence([split, spell])
    rust.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    return rust


def learn_bpe(texts: Texts, plan: TokenizerPlan, word: str = WORD, clean: Any = None) -> Rust:
    """Byte-level BPE (Sennrich et al. 2016; Radford et al. 2019): nothing is ever unknown."""
    left = plan.room(256, "256 bytes")
    counts = count_bytewise(texts, word, clean)
    trainer = trainers.BpeTrainer(
        vocab_size=256 + len(plan.specials) + left,
        special_tokens=[control(spelling) for spelling in plan.specials.values()],
        initial_alphabet=list(BYTES.values()),
        show_progress=False,
    )
    rust = Rust(models.BPE())
    merge(counts, rust, trainer, plan)
    return rust


def train_wordpiece(texts: Texts, plan: TokenizerPlan) -> Rust:
    """WordPiece as the library trains it, by frequency; case and accents are kept."""
    counts = some(count_words(texts, pre_tokenizers.BertPreTokenizer(), BERT))
    letters: Counter[str] = Counter()
    for word, count in counts.words.items():
        for letter in word:
            letters[letter] += count
    first = sorted(rank(letters)[:LETTERS])
    known = {word: n for word, n in counts.words.items() if set(word).issubset(first)}
    counts.words = Counter(known)
    inner = sorted({f"##{letter}" for word in known for letter in word[1:]})
    left = plan.room(len(first) + len(inner), f"{len(first) + len(inner)} letters")
    # Left alone, the library numbers inner letters in the order of a hash, another in each run.
    base = list(plan.numbered(first, inner))
    trainer = trainers.WordPieceTrainer(
        vocab_size=len(base) + left, special_tokens=base, show_progress=False
    )
    helper = Rust(models.WordPiece(unk_token=plan.specials["unk"]))
    merge(counts, helper, trainer, plan)
    rust = Rust(models.WordPiece(helper.get_vocab(), unk_token=plan.specials["unk"]))
    rust.normalizer, rust.pre_tokenizer = BERT, pre_tokenizers.BertPreTokenizer()
    rust.decoder = decoders.WordPiece(prefix="##")
    return plan.finish(rust)


def train_words(texts: Texts, plan: TokenizerPlan) -> Rust:
    """Words and punctuation marks, the most frequent first."""
    if plan.lossless:
        room = plan.room(256, "256 bytes")
        counts = count_bytewise(texts).words
        words = [w for w in plan.frequent(counts, len(counts)) if len(w) > 1][:room]
        vocab = plan.numbered(BYTES.values(), words)
        return plan.finish(byte_level(Rust(models.BPE(vocab, [], ignore_merges=True))))
    return known_words(texts, plan, pre_tokenizers.Whitespace())


def known_words(texts: Texts, plan: TokenizerPlan, cut: Any) -> Rust:
    """The words that `cut` makes, the most frequent first; others are unknown."""
    counts = some(count_words(texts, cut)).words
    for spelling in plan.specials.values():
        del counts[spelling]  # a text that spells one does not teach it
    words = plan.frequent(counts, plan.room(1, "a word") + 1)
    rust = Rust(models.WordLevel(plan.numbered(words), unk_token=plan.specials["unk"]))
    rust.pre_tokenizer = cut
    return plan.finish(rust)


def train_graphemes(texts: Texts, plan: TokenizerPlan) -> Rust:
    """What a reader calls a character: a letter with its accents, an emoji with its colour.

    Those that were not seen fall apart into characters.
    """
    counts = some(count_words(texts, CUTS["graphemes"], whole=True)).words
    for cluster, count in list(counts.items()):
        for letter in cluster if len(cluster) > 1 else "":
            counts[letter] += count
    rust = spelt_out(counts, plan)
    rust.pre_tokenizer = CUTS["graphemes"]
    return rust


def spelt_out(counts: Counter[str], plan: TokenizerPlan) -> Rust:
    """A vocabulary of these, the most frequent first, without merges."""
    codes = [f"<0x{byte:02X}>" for byte in range(256)] if plan.lossless else []
    room = plan.room(len(codes) + 1, f"{len(codes)} bytes, a character")
    vocab = plan.numbered(codes, plan.frequent(counts, room + 1))
    unknown, whole = plan.specials.get("unk"), any(len(piece) > 1 for piece in counts)
    model = models.BPE(
        vocab, [], unk_token=unknown, byte_fallback=plan.lossless, ignore_merges=whole
    )
    rust = Rust(model)
    rust.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return plan.finish(rust)


def train_bytes(texts: Texts, plan: TokenizerPlan) -> Rust:
    """Bytes, whose ids are their values; nothing is learnt."""
    plan.room(256, "256 bytes")
    rust = Rust(models.BPE({BYTES[byte]: byte for byte in range(256)}, []))
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    rust.decoder = decoders.ByteLevel()
    return plan.finish(rust)


KINDS: dict[str, Callable[[Iterable[str], TokenizerPlan], Rust]] = {
    "bpe": lambda texts, plan: byte_level(learn_bpe(texts, plan)),
    "pieces": train_pieces,
    "wordpiece": train_wordpiece,
    "words": train_words,
    "spaced": lambda texts, plan: known_words(texts, plan, pre_tokenizers.WhitespaceSplit()),
    "chars": lambda texts, plan: spelt_out(some(count_words(texts, CUTS["chars"])).words, plan),
    "graphemes": train_graphemes,
    "bytes": train_bytes,
}

SIZED = ("bpe", "pieces", "wordpiece")
"""Kinds that stop at a number of ids."""
SIZE = 8000  # that many, unless said otherwise

UNKNOWING = ("wordpiece", "spaced")
"""Kinds that cannot write what they do not know in bytes."""

WRAPS = {
    "none": ("", ""),
    "bos": ("bos", ""),
    "eos": ("", "eos"),
    "bos-eos": ("bos", "eos"),
    "cls-sep": ("cls", "sep"),
}
"""The role that stands before each text, and the one after it."""

ROLES: dict[str, Sequence[str]] = {"wordpiece": ("pad", "unk", "cls", "sep", "mask")}
USUAL = ("pad", "bos", "eos")


def train_tokenizer(
    texts: Iterable[str],
    kind: str = "bpe",
    size: int | None = None,
    *,
    specials: Sequence[str] | None = None,
    min_count: int = 1,
    wrap: str = "none",
    lossless: bool = False,
) -> Tokenizer:
    """A tokenizer of one kind, learnt from texts such as `regard.data.text_files.read_parts` gives.

    `specials` are roles (pad, bos, eos, unk, mask, cls, sep); those that the kind or `wrap` needs
    are added. `lossless` makes words, chars and graphemes write what
    they do not know in bytes; bpe, pieces and bytes always do.
    """
    for name, value, known in (("kind", kind, KINDS), ("wrap", wrap, WRAPS)):
        check_known(value, known, DOING, f"{name} {value!r}")
    if lossless and kind in UNKNOWING:
        raise UsageError(DOING, f"lossless {kind}", "bpe, bytes, words or chars")
    needed = [role for role in WRAPS[wrap] if role]
    if kind in UNKNOWING or (kind in ("words", "chars", "graphemes") and not lossless):
        needed.append("unk")
    spelling = spell(kind, ROLES.get(kind, USUAL) if specials is None else specials, needed)
    most = size or (SIZE if kind in SIZED else None)
    rust = KINDS[kind](texts, TokenizerPlan(most, spelling, min_count, lossless))
    ids = {role: rust.token_to_id(spelt) or 0 for role, spelt in spelling.items()}
    before, after = map(ids.get, WRAPS[wrap])
    surround(rust, before, after)
    return Tokenizer.from_rust(rust, ids, {"kind": f"{kind}, lossless" if lossless else kind})


def spell(kind: str, asked: Sequence[str], needed: Sequence[str]) -> dict[str, str]:
    """Role to spelling, those that are needed included."""
    usual = {role: spellings[0] for role, spellings in WELL_KNOWN.items()} | {"mask": "<mask>"}
    if kind == "wordpiece":
        usual |= {role: f"[{role.upper()}]" for role in ROLES["wordpiece"]}
    if len(set(asked)) < len(asked):
        raise UsageError(DOING, f"a role twice in {', '.join(asked)}", "each once")
    for role in asked:
        check_known(role, usual, DOING, f"unknown role {role!r}")
    return {role: usual[role] for role in dict.fromkeys([*asked, *needed])}
