"""Texts to tokens and back; train, inspect and explain tokenizers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from regard import verbs
from regard.ambient import note, track
from regard.errors import DataError, RegardError, UsageError
from regard.result import Failed
from regard.tokens import results
from regard.tokens.results import Cuts, Decoded, Encoding, Merges, TokenizerInfo
from regard.verbs import Count, File, Files, Natural, Text, Texts, Words, verb

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

SAMPLE = 1000  # lines on which the number of tokens for a word is measured
Counted = Literal["words", "chars", "graphemes"]
Kind = Literal["bpe", "pieces", "wordpiece", "words", "spaced", "chars", "graphemes", "bytes"]
Wrap = Literal["none", "bos", "eos", "bos-eos", "cls-sep"]


def load(path: str | Path) -> Tokenizer:
    """The tokenizer of a folder, a tokenizer.json or a .gguf file.

    Args:
        path: where it lies.

    Example:
        >>> regard.tokens.load("folder").encode("Je suis un chat.")
    """
    from regard.tokens.tokenizer_folder import open_tokenizer

    place = Path(path)
    if not place.exists():
        raise DataError(f"opening {path}", "no such file or folder", "a folder with tokenizer.json")
    if (place / "adapter_config.json").is_file():  # its base has one
        from regard.tune.adapter_folder import base_of

        place = Path(base_of(place))
    if place.suffix == ".gguf":
        from regard.interop.source import open_source, read_tokenizer

        tokenizer = read_tokenizer(open_source(place))
    else:
        tokenizer = open_tokenizer(place if place.is_dir() else place.parent)
    if tokenizer is None:
        fix = f"regard tokens train corpus.txt --out {path}"
        raise DataError(f"opening {path}", "no tokenizer there", "tokenizer.json or the like", fix)
    return tokenizer


@verb
def encode(
    texts: Texts,
    *,
    tokenizer: File | None = None,
    kind: Literal["words", "chars", "graphemes", "bytes"] | None = None,
    wrap: bool = True,
    allow_special: bool = False,
) -> Encoding | Iterator[Encoding | Failed]:
    """Texts to ids.

    Args:
        texts: one text, which gives one encoding, or several, which give an iterator of them;
            of a stream of texts only the ids are given.
        tokenizer: a folder, tokenizer.json or .gguf; without one the words of these texts are
            numbered by how often they occur.
        kind: without a tokenizer, what tokens are (words).
        wrap: whether the control tokens that a model expects stand around each text.
        allow_special: whether text that spells a control token, such as <mask>, becomes it.

    Example:
        >>> regard.tokens.encode("Je suis un chat.").ids
        [2, 4, 5, 3, 1]
        $ regard tokens encode "Je suis un chat."
        $ regard tokens encode "Je suis un chat." --tokenizer folder --json
        $ regard tokens encode --tokenizer folder --file corpus.txt > ids.txt
    """
    if tokenizer is not None and kind is not None:
        raise UsageError("encoding", "a tokenizer and a kind", "one of the two")
    several = verbs.one_or_several(texts)
    if tokenizer is None:
        encodings: Iterator[Encoding | Failed] = _encode_alone(several, kind or "words")
    else:
        encodings = _encode_each(load(tokenizer), several, wrap, allow_special)
    return next(encodings) if isinstance(texts, str) else encodings  # type: ignore[return-value]


def _encode_alone(texts: Iterable[str | RegardError], kind: str) -> Iterator[Encoding | Failed]:
    """Number the words or characters of the texts themselves, the most frequent first."""
    from regard.tokens.trainers import train_tokenizer

    listed = list(texts)
    readable = [text for text in listed if isinstance(text, str)]
    blank = not any(text.split() if kind == "words" else text for text in readable)
    what = "words and marks" if kind == "words" else kind
    note(f"no tokenizer: {what}, with ids of these texts alone")
    tokenizer = train_tokenizer(["-"] if blank else readable, kind, specials=())
    yield from _encode_each(tokenizer, listed, wrap=False, allow_special=False)


def _encode_each(
    tokenizer: Tokenizer, texts: Iterable[str | RegardError], wrap: bool, allow_special: bool
) -> Iterator[Encoding | Failed]:
    """Encode texts: those of a list with their pieces, those of a stream in batches."""
    from regard.data.text_files import chunks

    if isinstance(texts, Sequence):
        for text in texts:
            if isinstance(text, RegardError):
                yield Failed(text)
                continue
            ids = tokenizer.encode(text, wrap, allow_special=allow_special)
            spans = tokenizer.offsets(text, wrap, allow_special=allow_special)
            yield Encoding(ids, tokenizer.pieces(ids, "source"), spans, text)
        return
    for group in chunks(texts):
        readable = [text for text in group if isinstance(text, str)]
        encoded = iter(tokenizer.encode_batch(readable, wrap, allow_special=allow_special))
        for text in group:
            yield Encoding(next(encoded)) if isinstance(text, str) else Failed(text)


@verb
def decode(
    ids: Annotated[str | Sequence[int] | Iterable[str | RegardError], Words("joined")],
    *,
    tokenizer: File,
    special: bool = False,
) -> Decoded | Iterator[Decoded | Failed]:
    """Ids to text.

    Args:
        ids: a list of ids, or texts with ids in them; one list gives one text.
        tokenizer: a folder, tokenizer.json or .gguf.
        special: whether control tokens are shown too.

    Example:
        >>> regard.tokens.decode([15, 7, 22], tokenizer="folder").text
        $ regard tokens decode 15 7 22 --tokenizer folder
        $ regard tokens decode --tokenizer folder < ids.txt
        $ regard tokens decode 15 7 22 --tokenizer folder --special --json
    """
    opened = load(tokenizer)
    if not isinstance(ids, str) and isinstance(ids, Sequence):
        if all(isinstance(id, int) for id in ids):
            return Decoded(opened.decode(ids, special=special))  # type: ignore[arg-type]

    def decode_line(lines: list[str], done: int) -> list[Decoded]:
        # numbers, a list of them, or the JSON of `encode`
        listed = re.fullmatch(r'\s*(?:\{"ids":\s*)?\[([^\]]*)\].*', lines[0])
        words = listed[1].replace(",", " ").split() if listed else lines[0].split()
        for word in words:
            if not word.isdecimal():
                raise DataError("reading ids", f"{word!r} in line {done + 1}", "whole numbers")
        return [Decoded(opened.decode([int(word) for word in words], special=special))]

    return verbs.answer_texts(ids, nullcontext, decode_line)  # type: ignore[arg-type]


@verb
def train(
    files: Files = "-",
    *,
    out: str | Path,
    kind: Kind = "bpe",
    size: Count | None = None,
    min_count: Count = 1,
    specials: str | Sequence[str] | None = None,
    wrap: Wrap = "none",
    lossless: bool = False,
    force: bool = False,
) -> results.TrainedTokenizer:
    """Learn a tokenizer from files, folders or stdin, in bounded memory.

    Args:
        files: text files or folders, also .gz, .xz; - is stdin.
        out: the folder to write it to.
        kind: what tokens are.
        size: ids at most, control tokens included (bpe, pieces and wordpiece 8000, else all).
        min_count: how often a pair, word or character must occur.
        specials: control tokens: pad,bos,eos,unk,mask,cls,sep.
        wrap: control tokens that are put around texts.
        lossless: words, chars and graphemes write what they do not know in bytes.
        force: write over a tokenizer that is there.

    Example:
        >>> regard.tokens.train("corpus.txt", out="folder", size=8000)
        $ regard tokens train corpus.txt --out folder --size 8000
        $ regard tokens train texts/ --out folder --kind wordpiece --size 30000 --wrap cls-sep
        $ zcat corpus.gz | regard tokens train - --out folder --kind chars --lossless
    """
    from regard.tokens.trainers import train_tokenizer

    folder = Path(out)
    if (folder / "tokenizer.json").exists() and not force:
        problem = f"{folder} has a tokenizer.json"
        raise UsageError("training a tokenizer", problem, "a new folder, or --force")
    if isinstance(specials, str):
        specials = [word.strip() for word in specials.split(",") if word.strip()]
    sample: list[str] = []

    def sampled(texts: Iterator[str]) -> Iterator[str]:
        for text in texts:
            if len(sample) < SAMPLE:
                sample.append(text)
            yield text

    tokenizer = train_tokenizer(
        () if kind == "bytes" else sampled(_read_texts(files)),
        kind,
        size,
        specials=specials,
        min_count=min_count,
        wrap=wrap,
        lossless=lossless,
    )
    tokenizer.save(folder)
    if size and tokenizer.size < size:
        note(f"{tokenizer.size:,} ids, not {size:,}: the texts give no more")
    factor = _tokens_per_word(tokenizer, sample)
    return results.TrainedTokenizer(str(folder), tokenizer.size, tokenizer.specials, factor, kind)


def _read_texts(files: Files) -> Iterator[str]:
    """The lines of files, with progress."""
    from regard.data.text_files import read_parts

    yield from track(read_parts(files), "counting lines")


def _tokens_per_word(tokenizer: Tokenizer, texts: Sequence[str]) -> float | None:
    """How many tokens stand for a word between blanks; None where there are no words."""
    words = sum(len(text.split()) for text in texts)
    return sum(map(len, tokenizer.encode_batch(texts, special=False))) / words if words else None


@verb
def info(tokenizer: File, *, files: Files | None = None) -> TokenizerInfo:
    """Kind, size and control tokens of a tokenizer.

    Args:
        tokenizer: a folder, tokenizer.json or .gguf.
        files: texts whose first thousand lines are cut, for how many tokens a word takes.

    Example:
        >>> regard.tokens.info("folder").size
        $ regard tokens info folder
        $ regard tokens info model.gguf
        $ regard tokens info folder --files corpus.txt --json
    """
    opened = load(tokenizer)
    specials = {
        role: results.Special(id, opened.pieces([id], "source")[0])
        for role, id in opened.specials.items()
    }
    around = opened.pieces(opened.encode(""), "source")
    sample = [] if files is None else list(islice(_read_texts(files), SAMPLE))
    factor = _tokens_per_word(opened, sample)
    return TokenizerInfo(opened.kind, opened.size, specials, around, factor, str(tokenizer))


@verb
def merges(text: Text, *, top: Natural | None = None) -> Merges:
    """Each merge of byte pair encoding on a small text.

    Args:
        text: a page at most.
        top: merges at most (all).

    Example:
        >>> regard.tokens.merges("low lower lowest", top=3).words
        [['low'], ['lowe', 'r'], ['lowe', 's', 't']]
        $ regard tokens merges "Peter Piper picked a peck of pickled peppers"
        $ regard tokens merges "low lower lowest" --top 3 --json
        $ regard tokens merges --file page.txt
    """
    from regard.tokens.byte_pairs import learn_merges

    learnt, words = learn_merges(text, top)
    if top and len(learnt) < top:
        note(f"{len(learnt)} merges, not {top}: no pair occurs twice any more")
    return Merges(learnt, words)


@verb
def explain(texts: Texts, *, tokenizer: File) -> Cuts | Iterator[Cuts | Failed]:
    """Why each word of a text was cut as it was.

    Args:
        texts: one text, or several.
        tokenizer: a folder, tokenizer.json or .gguf.

    Example:
        >>> regard.tokens.explain("pickled peppers", tokenizer="folder")
        $ regard tokens explain "pickled peppers" --tokenizer folder
        $ regard tokens explain --tokenizer folder < words.txt
        $ regard tokens explain "pickled peppers" --tokenizer folder --json
    """
    from regard.tokens.byte_pairs import explain_text

    opened = load(tokenizer)
    return verbs.answer_texts(
        texts, nullcontext, lambda t, _: [Cuts(t[0], explain_text(opened, t[0]))]
    )


@verb
def vocab(
    files: Files = "-",
    *,
    kind: Counted = "words",
    min_count: Count = 1,
    top: Count = 20,
    out: str | Path | None = None,
) -> results.Vocabulary:
    """The words of a corpus, how often they occur, and how much of it they cover.

    Args:
        files: text files or folders, also .gz, .xz; - is stdin.
        kind: what is counted.
        min_count: leave out what occurs less often.
        top: rows shown.
        out: write all of them and their counts to this file, as JSON.

    Example:
        >>> regard.tokens.vocab("corpus.txt", min_count=2).coverage
        $ regard tokens vocab corpus.txt --min-count 2
        $ regard tokens vocab corpus.txt --kind chars --top 100
        $ regard tokens vocab texts/ --out vocab.json
    """
    from regard.tokens.word_counts import list_vocabulary

    return list_vocabulary(_read_texts(files), kind, min_count, top, out)
