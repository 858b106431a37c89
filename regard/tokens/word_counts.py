"""Count the words of a corpus larger than memory, at the speed of the Rust library.

The library counts with 64 bits but merges with 32 (huggingface/tokenizers#437: a pair seen more
than 2^31 times is lost), keeps every word and where each pair stands (#1681), so it is given
counted words instead of the corpus.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tokenizers import Regex, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Rust

from regard.ambient import note
from regard.errors import DataError
from regard.files import write_whole
from regard.tokens.results import Vocabulary
from regard.tokens.tokenizer import checked

CHUNK = 1 << 24  # characters whose words are counted before they are added up
HEAD = "\0"  # before the first piece of a text; no plain text has it
ROOM = 5 << 22  # characters of different words that are kept, at most 170 bytes each in all
CUTS: dict[str, Any] = {
    "words": pre_tokenizers.Whitespace(),
    "chars": pre_tokenizers.Split("", "isolated"),
    "graphemes": pre_tokenizers.Split(Regex(r"\X"), "isolated"),
}
"""How a text falls into words, characters, or what a reader calls a character."""
MOST = (1 << 31) - 1  # the largest count of a pair that the library holds


class WordCounts:
    """How often each word occurs: exact, unless the different words alone overran the memory."""

    def __init__(self, room: int = ROOM) -> None:
        self.words: Counter[str] = Counter()
        self.room, self.lost = room, 0
        """`lost`: a word's count may be too low by this much, and so may be a word left out."""

    def add(self, counts: dict[str, int]) -> None:
        """Add a chunk's counts; where they overrun twice the room, the rarest words are dropped."""
        self.words.update(counts)
        if sum(map(len, self.words)) > 2 * self.room:
            self.prune()

    def prune(self) -> None:
        """Keep the most frequent words that fit (Manku and Motwani 2002, lossy counting)."""
        kept, size, ranked = 0, 0, rank(self.words)
        while kept < len(ranked) and size + len(ranked[kept]) <= self.room:
            size += len(ranked[kept])
            kept += 1
        if kept < len(ranked):
            self.lost += self.words[ranked[kept]]
            self.words = Counter({word: self.words[word] for word in ranked[:kept]})


def rank(counts: Counter[str]) -> list[str]:
    """The words, most frequent first, equals in the order of their characters."""
    return sorted(counts, key=lambda word: (-counts[word], word))


def count_words(
    texts: Iterable[str], cut: Any, clean: Any = None, room: int = ROOM, *, whole: bool = False
) -> WordCounts:
    """Count the words that the pre-tokenizer `cut` makes, after the normalizer `clean`.

    Where no word goes on behind a space, plain texts fall into pieces at their spaces, and only the
    different pieces are cut into words, a third of the work; `whole` cuts every text as it is.
    """
    counts, pieces = WordCounts(room), Counter[str]()
    stream = checked(texts, "training a tokenizer")
    while chunk := take_chunk(stream):
        odd, plain = list[str](), list[str]()
        for text in chunk:
            # plain: no whitespace but single spaces and a line feed at the end
            simple = "  " not in text and text.removesuffix("\n").isprintable()
            (plain if simple and not whole else odd).append(text)
        for at in range(0, len(plain), 100):
            pieces.update(f"{HEAD}{f' {HEAD}'.join(plain[at : at + 100])}".split(" "))
        if odd:
            counts.add(count_whole(odd, cut, clean))
        if sum(map(len, pieces)) > room:
            counts.add(words_of(pieces, cut, clean))
            pieces.clear()
    counts.add(words_of(pieces, cut, clean))
    if counts.lost:
        counts.prune()
    return counts


def take_chunk(stream: Iterator[str]) -> list[str]:
    """The next texts that add up to a chunk."""
    chunk, size = list[str](), 0
    for text in stream:
        chunk.append(text)
        size += len(text)
        if size >= CHUNK:
            break
    return chunk


def words_of(pieces: Counter[str], cut: Any, clean: Any) -> Counter[str]:
    """The words of pieces that were counted: each but a text's first stood behind a space."""
    words: Counter[str] = Counter()
    for piece, count in pieces.items():
        text = piece[1:] if piece.startswith(HEAD) else f" {piece}"
        for word, _ in cut.pre_tokenize_str(clean.normalize_str(text) if clean else text):
            words[word] += count
    return words


def count_whole(texts: Iterable[str], cut: Any, clean: Any = None) -> dict[str, int]:
    """The words of texts and their counts, each text cut as a whole."""
    counter = Rust(models.WordLevel())
    counter.pre_tokenizer = cut
    if clean is not None:
        counter.normalizer = clean
    trainer = trainers.WordLevelTrainer(vocab_size=1, show_progress=False)
    counter.train_from_iterator(texts, trainer)
    (state,) = json.loads(trainer.__getstate__()).values()  # the counts have no other way out
    return dict(state["words"])


def thin(counts: Counter[str], most: int = MOST) -> tuple[Counter[str], int]:
    """The counts divided by the least number that keeps each pair's within `most`; that number."""
    if sum(len(word) * n for word, n in counts.items()) <= most:
        return counts, 1  # no pair can occur more often than there are characters
    pairs: Counter[str] = Counter()
    for word, n in counts.items():
        for at in range(len(word) - 1):
            pairs[word[at : at + 2]] += n
    # Longer pairs have a pair of characters at their joint, so none is more frequent than these.
    share = max(1, -(-max(pairs.values(), default=0) // most))
    return Counter({word: n // share for word, n in counts.items() if n >= share}), share


def repeat(counts: Counter[str], batch: int = 1000) -> Iterator[str]:
    """Texts in which each word stands as often as counted, with a space after it."""
    for word, count in counts.items():
        whole, rest = divmod(count, batch)
        yield from itertools.repeat(f"{word} " * batch, whole)
        yield f"{word} " * rest


def list_vocabulary(
    texts: Iterable[str], kind: str, min_count: int, top: int, out: str | Path | None
) -> Vocabulary:
    """Count words or characters; the `top` most frequent are returned, `out` gets them all."""
    doing = "listing a vocabulary"
    counts = count_words(texts, CUTS[kind], whole=kind == "graphemes")
    if not counts.words:
        raise DataError(doing, "no tokens: the texts are empty or blank", "at least one")
    kept = [word for word in rank(counts.words) if counts.words[word] >= min_count]
    if not kept:
        most = f"the most frequent occurs {max(counts.words.values()):,} times"
        raise DataError(doing, most, f"{min_count:,} times or more", "lower --min-count")
    if counts.lost:
        note(f"more kinds than memory: counts may be too low by {counts.lost:,}")
    if out is not None:
        data = {word: counts.words[word] for word in kept}
        write_whole(Path(out), (json.dumps(data, ensure_ascii=False, indent=0) + "\n").encode())
    total, words = sum(counts.words.values()), {word: counts.words[word] for word in kept[:top]}
    coverage = sum(counts.words[word] for word in kept) / total
    return Vocabulary(kind, total, len(counts.words), len(kept), coverage, words)
