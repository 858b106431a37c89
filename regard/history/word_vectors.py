"""A table of words and vectors: neighbours, analogies, and word2vec's files in and out.

Analogies: a is to b as c is to whom? The word nearest to b − a + c (3CosAdd, Mikolov 2013). The
three words of the question are left out: c or b itself is nearly always the nearest.
"""

from __future__ import annotations

import difflib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from regard.ambient import current
from regard.data.text_files import open_raw, read_chunk, read_lines, unpack
from regard.errors import DataError, UsageError
from regard.files import check_new, corrupt, read_arrays, read_json, write_counted, write_whole
from regard.history.config import DOING, Word2VecConfig
from regard.history.results import NearWord, VectorRun
from regard.history.word2vec import WordCorpus, train_word2vec

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
WEIGHTS, WORDS = "vectors.safetensors", "words.tsv"
MODEL = "word2vec"  # what config.json says of a folder of ours
Matrix = Literal["in", "out"]
LONGEST = 1 << 16  # bytes of a word in a binary file; what is longer is no word
SPELT = b"0123456789+-.eEnaif"  # what numbers are written in
SPELLED = 50_000  # frequent words among which a likely spelling is looked for


def at_length_one(x: Floats) -> Floats:
    """Rows (N, D) divided by their lengths; nothing stays nothing."""
    norm = np.sqrt(np.einsum("nd,nd->n", x, x, dtype=np.float64))[:, None]  # 1e30² has no float32
    norm = np.where(norm > 0, norm, 1)
    return np.asarray(np.divide(x, norm, dtype=np.float32, casting="same_kind"))


class WordVectors:
    """Words and their vectors (V, D), the most frequent first where that is known."""

    def __init__(self, words: Sequence[str], matrix: Floats, path: Path | None = None) -> None:
        if len(words) != len(matrix) or matrix.ndim != 2:
            problem = f"{len(words):,} words, vectors of shape {matrix.shape}"
            doing = "making a table of vectors" if path is None else f"reading {path}"
            raise DataError(doing, problem, "a row for each word")
        self.words, self.matrix = list(words), np.ascontiguousarray(matrix, np.float32)
        self.path = path
        """Where they were opened from."""

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.index

    def __getitem__(self, word: str) -> Floats:
        """The vector (D,) of a word."""
        return np.asarray(self.matrix[self.row(word)])

    def __repr__(self) -> str:
        return f"<vectors of {len(self):,} words, {self.dim} numbers each>"

    @property
    def dim(self) -> int:
        """Numbers of a vector."""
        return int(self.matrix.shape[1])

    @cached_property
    def index(self) -> dict[str, int]:
        """The row of each word; of a word that stands twice, the first."""
        return {word: n for n, word in reversed(list(enumerate(self.words)))}

    @cached_property
    def unit(self) -> Floats:
        """The vectors at length 1."""
        return at_length_one(self.matrix)

    def row(self, word: str) -> int:
        """Where a word stands, or an error with the nearest spellings."""
        place = self.index.get(word)
        if place is None:
            close = ", ".join(self.spellings(word))
            fix = f"did you mean {close}?" if close else "a word that was frequent in the text"
            what = f"{word!r} is not among {len(self):,} words"
            raise DataError("looking up a word", what, "a word that has a vector", fix)
        return place

    def spellings(self, word: str) -> list[str]:
        """Words that are written alike: in another case, else most letters the same."""
        cases = {word.lower(), word.title(), word.upper()} & self.index.keys()
        alike = [w for w in self.words[:SPELLED] if abs(len(w) - len(word)) <= 2]
        close = difflib.get_close_matches(word, alike, 3, cutoff=0.5)
        return list(dict.fromkeys([*sorted(cases), *close]))[:3]

    def neighbours(self, word: str, top: int = 10) -> list[NearWord]:
        """The words of the largest cosines, the word itself left out."""
        row = self.row(word)
        return self.best(self.unit @ self.unit[row], [row], top)

    def analogy(self, a: str, b: str, c: str, top: int = 10) -> list[NearWord]:
        """Who is to c as b is to a, the three left out."""
        rows = [self.row(word) for word in (a, b, c)]
        return self.best(self.analogy_scores(np.array([rows]))[0], rows, top)

    def analogy_scores(self, rows: Ids) -> Floats:
        """Scores (Q, V) of all words for questions (Q, 3)."""
        a, b, c = (self.unit[rows[:, n]] for n in range(3))
        return np.asarray(at_length_one(b - a + c) @ self.unit.T)

    def best(self, scores: Floats, without: Sequence[int], top: int) -> list[NearWord]:
        """The words of the highest scores (V,); equals in the order of the table."""
        scores = scores.copy()
        scores[list(without)] = -np.inf
        order = np.argsort(-scores, kind="stable")[: max(0, top)]
        return [NearWord(self.words[n], float(scores[n])) for n in order if scores[n] > -np.inf]


# A folder of ours ---------------------------------------------------------------------------------


def save_folder(
    folder: Path,
    words: Sequence[str],
    counts: Sequence[int],
    matrices: Mapping[str, Floats],
    config: Mapping[str, Any],
) -> None:
    """Both matrices, `in` and `out`, the words with their counts, and how they were made."""
    write_counted(folder, {"model": MODEL, **config}, WEIGHTS, matrices)
    rows = "".join(f"{word}\t{count}\n" for word, count in zip(words, counts, strict=True))
    write_whole(folder / WORDS, rows.encode())


# Files of word2vec, gensim and GloVe --------------------------------------------------------------


def read_vectors(path: str | os.PathLike[str], matrix: Matrix = "in") -> WordVectors:
    """A folder of ours, or a file of word2vec's: text, with or without a first line, or binary."""
    place = Path(path)
    if (place / WEIGHTS).is_file() and (place / WORDS).is_file():
        read_json(place / "config.json", "the settings of word vectors")  # which says what is wrong
        held = read_arrays(place / WEIGHTS)
        words = [line.partition("\t")[0] for line in read_lines(place / WORDS) if line]
        if matrix not in held:
            raise DataError(f"reading {place / WEIGHTS}", f"no matrix {matrix!r}", "in and out")
        return WordVectors(words, held[matrix], place)
    if not place.is_file():
        problem = "a folder without word vectors" if place.is_dir() else "no such file or folder"
        expected = f"a folder of `regard train w2v`, with {WEIGHTS}, or a file of word2vec's"
        raise DataError(f"reading {place}", problem, expected)
    if matrix != "in":
        raise UsageError(f"reading {place}", "a file, which has one matrix", "--matrix in")
    with open_raw(place) as raw:  # compressed or not
        stream = unpack(raw, str(place))
        data = b"".join(iter(lambda: read_chunk(stream, str(place)), b""))
    if not data:
        raise corrupt(place, 0, "an empty file", "word2vec's vectors, text or binary")
    rows, dim, start = read_header(data, place)
    if rows == 0:
        raise corrupt(place, start, "no vectors", "one or more")
    return read_text(data, place, start) if is_text(data, start, dim) else read_binary(data, place)


def is_vectors(path: Path) -> bool:
    """Whether a file begins as one of word2vec's does: two counts, or a word and numbers."""
    if not path.is_file():
        return False
    with open_raw(path) as raw:
        chunk = read_chunk(unpack(raw, str(path)), str(path))
    try:
        return bool(read_header(chunk, path))
    except DataError:
        return False


def read_header(data: bytes, name: Path) -> tuple[int, int, int]:
    """Rows, dimensions and where they begin; without a first line of both, as of text."""
    line = data[: data.find(b"\n")] if b"\n" in data[:LONGEST] else data[:LONGEST]
    parts = line.split()
    if len(parts) == 2 and all(part.isdigit() and len(part) < 19 for part in parts):
        if not int(parts[1]):
            raise corrupt(name, 0, "vectors without dimensions", "one or more")
        return int(parts[0]), int(parts[1]), len(line) + 1
    if len(parts) < 3 or not are_numbers(parts[1:]):
        expected = "word2vec's first line: how many words, how many dimensions"
        raise corrupt(name, 0, f"{line[:40]!r}", expected)
    return -1, len(parts) - 1, 0


def is_text(data: bytes, start: int, dim: int) -> bool:
    """Whether the first row has numbers in letters, be they as many as they should or not."""
    end = data.find(b"\n", start)
    _, *rest = data[start : end if end >= 0 else len(data)].split(None, 1) or [b""]
    numbers = b"".join(rest).split()
    spelt = sum(map(len, numbers)) > 3 and not b"".join(numbers).strip(SPELT)
    return start >= len(data) or spelt or (len(numbers) == dim and are_numbers(numbers))


def are_numbers(parts: Sequence[bytes]) -> bool:
    """Whether all can be read as numbers."""
    try:
        [float(part) for part in parts]
    except ValueError:
        return False
    return True


def read_text(data: bytes, name: Path, start: int) -> WordVectors:
    """A word and its numbers on each line."""
    rows, dim, _ = read_header(data, name)
    words: list[str] = []
    matrix: list[Floats] = []
    at = start
    for line in data[start:].split(b"\n"):
        if line.strip():
            word, *numbers = line.rstrip().rsplit(b" ", dim)
            more = word.split(b" ")[1:][-1:]  # a word may have blanks, not numbers after them
            if len(numbers) != dim or not are_numbers(numbers) or (more and are_numbers(more)):
                problem = f"row {len(words):,}: {line[:40]!r}"
                raise corrupt(name, at, problem, f"a word and {dim:,} numbers, with blanks between")
            with np.errstate(over="ignore"):  # 1e39 has no float32
                matrix.append(finite(np.array(numbers, np.float32), name, at, len(words)))
            words.append(word_of(word, name, at, len(words)))
        at += len(line) + 1
    if rows >= 0 and len(words) != rows:
        raise corrupt(name, len(data), f"row {len(words):,}: the end", f"{rows:,} rows")
    return WordVectors(words, np.array(matrix, np.float32).reshape(-1, dim), name)


def read_binary(data: bytes, name: Path) -> WordVectors:
    """A word, a space and float32 numbers in each row; a line feed before a word is dropped."""
    rows, dim, at = read_header(data, name)
    if rows < 0:
        raise corrupt(name, 0, "row 0: no first line", "how many words, how many dimensions")
    words: list[str] = []
    matrix = np.empty((min(rows, len(data) // (4 * dim + 1)), dim), np.float32)
    for row in range(rows):
        at += data[at : at + 1] == b"\n"
        space = data.find(b" ", at, at + LONGEST)
        end = space + 1 + 4 * dim
        if space < 0 or end > len(data):
            problem = "no word and space" if space < 0 else f"{len(data) - space - 1:,} bytes"
            raise corrupt(name, at, f"row {row:,}: {problem}", f"a word and {4 * dim:,} bytes")
        words.append(word_of(data[at:space], name, at, row))
        matrix[row] = finite(np.frombuffer(data, "<f4", dim, space + 1), name, space + 1, row)
        at = end
    if data[at:].strip(b"\n"):
        raise corrupt(name, at, f"row {rows:,}: {len(data) - at:,} bytes more", "the end")
    return WordVectors(words, matrix, name)


def word_of(raw: bytes, name: Path, at: int, row: int) -> str:
    """The word in some bytes."""
    if not raw:
        raise corrupt(name, at, f"row {row:,}: nothing before the numbers", "a word")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        problem = f"row {row:,}: a word that is not UTF-8"
        raise corrupt(name, at + error.start, problem, "a word") from None


def finite(numbers: Floats, name: Path, at: int, row: int) -> Floats:
    """The numbers of a row, unless one is none."""
    if not np.isfinite(numbers).all():
        raise corrupt(name, at, f"row {row:,}: not a number", "finite numbers")
    return numbers


def write_vectors(vectors: WordVectors, path: Path, binary: bool) -> None:
    """word2vec's binary form or its text, in as many digits as bring numbers back bit by bit."""
    bad = next((word for word in vectors.words if not word or word.split() != [word]), None)
    if bad is not None:
        raise DataError(f"writing {path}", f"the word {bad!r}", "words without blanks")
    parts = [f"{len(vectors)} {vectors.dim}\n".encode()]
    for word, row in zip(vectors.words, vectors.matrix, strict=True):
        numbers = row.astype("<f4").tobytes() if binary else " ".join(map(str, row)).encode()
        parts += [f"{word} ".encode(), numbers, b"\n"]  # the authors' code ends binary rows so too
    write_whole(path, b"".join(parts))


# Training -----------------------------------------------------------------------------------------

FORMS = {".bin": True, ".txt": False, ".vec": False}
"""Whether files that end so are binary."""


def train_vectors(corpus: WordCorpus, config: Word2VecConfig, workers: int, out: Path) -> VectorRun:
    """Learn vectors by word2vec and write them: a folder, or a file of word2vec's by its suffix."""
    check_new(out, DOING)
    start, epochs = time.monotonic(), config.times(len(corpus.ids))
    learnt = train_word2vec(corpus, config, current().seed, workers)
    seconds = time.monotonic() - start
    if out.suffix in FORMS:
        write_vectors(WordVectors(corpus.words, learnt.inputs), out, FORMS[out.suffix])
    else:
        settings = asdict(config) | {"epochs": epochs, "seed": current().seed}
        matrices = {"in": learnt.inputs, "out": learnt.outputs}
        save_folder(out, corpus.words, corpus.counts.tolist(), matrices, settings)
    tokens = len(corpus.ids)
    speed = epochs * tokens / seconds
    return VectorRun(str(out), len(corpus.words), config.dim, tokens, epochs, seconds, speed)
