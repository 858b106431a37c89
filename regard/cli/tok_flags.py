"""Arguments of `regard tok` and its actions. No torch and no tokenizers here: help is quick."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from regard.cli.options import add_action, add_common, positive

KINDS = ("bpe", "pieces", "wordpiece", "words", "spaced", "chars", "graphemes", "bytes")
COUNTED = ("words", "chars", "graphemes")
WRAPS = ("none", "bos", "eos", "bos-eos", "cls-sep")

ACTIONS = {
    "encode": (
        "texts to ids; one text per line of a file or of stdin",
        'regard tok encode "Je suis un chat."',
        'regard tok encode "Je suis un chat." --tokenizer folder --explain',
        "regard tok encode --tokenizer folder --file corpus.txt > ids.txt",
    ),
    "decode": (
        "ids to texts; one text per line of a file or of stdin",
        "regard tok decode 15 7 22 --tokenizer folder",
        "regard tok decode --tokenizer folder < ids.txt",
        "regard tok decode 15 7 22 --tokenizer folder --special --json",
    ),
    "explain": (
        "why each word of a text was cut as it was",
        'regard tok explain "pickled peppers" --tokenizer folder',
        "regard tok explain --tokenizer folder < words.txt",
        'regard tok explain "pickled peppers" --tokenizer folder --json',
    ),
    "train": (
        "learn a tokenizer from files, folders or stdin, in bounded memory",
        "regard tok train corpus.txt --out folder --size 8000",
        "regard tok train texts/ --out folder --kind wordpiece --size 30000 --wrap cls-sep",
        "zcat corpus.gz | regard tok train --out folder --kind chars --lossless",
    ),
    "vocab": (
        "the words of a corpus, how often they occur, and how much of it they cover",
        "regard tok vocab corpus.txt --min-count 2",
        "regard tok vocab corpus.txt --kind chars --top 100",
        "regard tok vocab texts/ --out vocab.json",
    ),
    "info": (
        "kind, size and control tokens of a tokenizer",
        "regard tok info folder",
        "regard tok info folder --json",
        "regard tok info model.gguf",
    ),
    "merges": (
        "each merge of byte pair encoding on a small text",
        'regard tok merges "Peter Piper picked a peck of pickled peppers"',
        'regard tok merges "low lower lowest" --limit 3 --json',
        "regard tok merges --file page.txt",
    ),
}
"""What each action does, and three examples."""


def add_tok(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard tok`."""
    choices = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, (summary, *examples) in ACTIONS.items():
        sub = add_action(choices, name, summary, examples)
        if name == "train":
            add_train(sub, positive)
        elif name == "vocab":
            add_vocab(sub)
        elif name == "info":
            sub.add_argument("path", metavar="PATH", help="a folder, tokenizer.json or .gguf")
        else:
            add_texts(sub, name, positive)
        add_common(sub)


def add_texts(parser: argparse.ArgumentParser, name: str, positive: Callable[[str], int]) -> None:
    """Texts or ids as words of the command, as files, or on stdin."""
    what = "ID" if name == "decode" else "TEXT"
    text = f"{what.lower()}s; none: lines of --file or stdin"
    parser.add_argument("texts", metavar=what, nargs="*", help=text)
    parser.add_argument("--file", action="append", metavar="FILE", help="read lines from here")
    if name == "merges":
        parser.add_argument("--limit", type=positive, metavar="N", help="merges at most (all)")
        return
    place = "a folder, tokenizer.json or .gguf"
    missing = " (the words of the texts themselves)" if name == "encode" else ""
    parser.add_argument(
        "--tokenizer", "-t", metavar="PATH", required=not missing, help=place + missing
    )
    if name == "decode":
        parser.add_argument("--special", action="store_true", help="show control tokens too")
    if name == "encode":
        kind = "without a tokenizer: what tokens are (words)"
        parser.add_argument("--kind", choices=(*COUNTED, "bytes"), help=kind)
        parser.add_argument("--no-wrap", action="store_true", help="nothing around the text")
        allow = "text that spells a control token, such as <mask>, becomes it"
        parser.add_argument("--allow-special", action="store_true", help=allow)
        parser.add_argument("--explain", action="store_true", help="show why words were cut")


def add_vocab(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard tok vocab`."""
    files = "text files or folders, also .gz, .xz, .zst; none: stdin"
    parser.add_argument("files", metavar="FILE", nargs="*", help=files)
    parser.add_argument("--kind", choices=COUNTED, default="words", help="what is counted (words)")
    least = "leave out what occurs less often (1)"
    parser.add_argument("--min-count", type=positive, default=1, metavar="N", help=least)
    parser.add_argument("--top", type=positive, default=20, metavar="N", help="rows shown (20)")
    parser.add_argument("--out", metavar="FILE", help="write all of them and their counts as JSON")


def add_train(parser: argparse.ArgumentParser, positive: Callable[[str], int]) -> None:
    """Arguments of `regard tok train`."""
    files = "text files or folders, also .gz, .xz, .zst; none: stdin"
    parser.add_argument("files", metavar="FILE", nargs="*", help=files)
    parser.add_argument("--out", metavar="FOLDER", required=True, help="where to write it")
    parser.add_argument("--force", action="store_true", help="write over a tokenizer that is there")
    parser.add_argument("--kind", choices=KINDS, default="bpe", help="what tokens are (bpe)")
    size = "ids at most, control tokens included (bpe, pieces and wordpiece 8000, else all)"
    parser.add_argument("--size", type=positive, metavar="N", help=size)
    least = "how often a pair, word or character must occur (1)"
    parser.add_argument("--min-count", type=positive, default=1, metavar="N", help=least)
    roles = "control tokens: pad,bos,eos,unk,mask,cls,sep, or with spellings: pad=<pad>,mask=<m>"
    parser.add_argument("--specials", metavar="LIST", help=roles)
    parser.add_argument("--wrap", choices=WRAPS, default="none", help="put around texts (none)")
    unknown = "words, chars and graphemes write what they do not know in bytes"
    parser.add_argument("--lossless", action="store_true", help=unknown)
