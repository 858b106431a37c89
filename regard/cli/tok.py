"""`regard tok`: encode, decode, explain, train, vocab, info and merges."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from regard.cli.show import Show
from regard.cli.tok_train import run_train
from regard.cli.tok_vocab import run_vocab
from regard.data.files import chunks, decode, join_lines, read_lines
from regard.errors import DataError, UsageError
from regard.tokens.explain import explain_text
from regard.tokens.folder import open_tokenizer
from regard.tokens.merges import learn_merges
from regard.tokens.tokenizer import Tokenizer
from regard.tokens.train import train_tokenizer


def run(args: argparse.Namespace, show: Show) -> int:
    """Do the action that was asked for."""
    actions = {"encode": run_encode, "decode": run_decode, "explain": run_explain}
    actions |= {"train": run_train, "info": run_info, "merges": run_merges, "vocab": run_vocab}
    return actions[args.action](args, show)


# In and out ------------------------------------------------------------------------------------


def open_any(path: str) -> Tokenizer:
    """The tokenizer of a folder, a tokenizer.json or a .gguf file."""
    place = Path(path)
    if not place.exists():
        raise DataError(f"opening {path}", "no such file or folder", "a folder with tokenizer.json")
    if place.suffix == ".gguf":
        from regard.interop.source import open_source
        from regard.loading import read_tokenizer

        found = read_tokenizer(open_source(place))
    else:
        found = open_tokenizer(place if place.is_dir() else place.parent)
    if found is None:
        fix = f"regard tok train corpus.txt --out {path}"
        raise DataError(f"opening {path}", "no tokenizer there", "tokenizer.json or the like", fix)
    return found


def lines_in(args: argparse.Namespace) -> Iterator[str]:
    """The lines of the files, or of stdin."""
    if args.file:
        return read_lines(args.file)
    return join_lines(decode(sys.stdin.buffer, "stdin"))


def print_json(show: Show, value: dict[str, Any]) -> None:
    """One object on one line, for there may be many."""
    show.line(json.dumps(value, ensure_ascii=False))


# Actions ---------------------------------------------------------------------------------------


def check_encode(args: argparse.Namespace) -> None:
    """Stop at options that exclude each other."""
    for one, other, named in (
        (args.texts, args.file, "texts and --file"),
        (args.tokenizer, args.kind, "--tokenizer and --kind"),
    ):
        if one and other:
            raise UsageError("encoding", named, "one of the two")


def run_encode(args: argparse.Namespace, show: Show) -> int:
    """Texts to ids."""
    check_encode(args)
    if args.explain:
        if args.tokenizer is None:
            raise UsageError("explaining", "no tokenizer", "--tokenizer FOLDER")
        return run_explain(args, show)
    if args.tokenizer is None:
        return encode_words(args, show)
    tokenizer = open_any(args.tokenizer)
    options: dict[str, Any] = {"special": not args.no_wrap, "allow_special": args.allow_special}
    for text in args.texts:
        show_text(show, tokenizer, text, options)
    if not args.texts:
        for group in chunks(lines_in(args)):
            for ids in tokenizer.encode_batch(group, **options):
                if show.as_json:
                    print_json(show, {"ids": ids})
                else:
                    show.line(" ".join(map(str, ids)))
    return 0


def encode_words(args: argparse.Namespace, show: Show) -> int:
    """Without a tokenizer: words and marks, numbered by how often they occur in these texts."""
    texts, kind = args.texts or list(lines_in(args)), args.kind or "words"
    blank = not any(text.split() if kind == "words" else text for text in texts)
    what = "words and marks" if kind == "words" else kind
    show.note(f"no --tokenizer: {what}, with ids of these texts alone")
    tokenizer = train_tokenizer(["-"] if blank else texts, kind, specials=())
    for text in texts:
        show_text(show, tokenizer, text, {"special": False})
    return 0


def show_text(show: Show, tokenizer: Tokenizer, text: str, options: dict[str, Any]) -> None:
    """Ids, pieces and offsets of one text."""
    ids, spans = tokenizer.encode(text, **options), tokenizer.offsets(text, **options)
    pieces = tokenizer.pieces(ids, "source")
    if show.as_json:
        print_json(show, {"ids": ids, "pieces": pieces, "offsets": spans})
        return
    rows = [
        (piece, json.dumps(text[start:end], ensure_ascii=False), str(id), str(start), str(end))
        for piece, id, (start, end) in zip(pieces, ids, spans, strict=True)
    ]
    title = " · ".join(pieces) or "no tokens"
    show.table(title, ("piece", "text", "id", "from", "to"), rows, left=2)


def run_decode(args: argparse.Namespace, show: Show) -> int:
    """Ids to texts."""
    tokenizer = open_any(args.tokenizer)
    rows = iter([" ".join(args.texts)]) if args.texts else lines_in(args)
    for number, row in enumerate(rows, 1):
        words = row.split()
        wrong = next((word for word in words if not word.isdecimal()), None)
        if wrong is not None:
            raise DataError("reading ids", f"{wrong!r} in line {number}", "whole numbers")
        text = tokenizer.decode([int(word) for word in words], special=args.special)
        if show.as_json:
            print_json(show, {"text": text})
        else:
            show.line(text)
    return 0


def run_explain(args: argparse.Namespace, show: Show) -> int:
    """Why each word was cut as it was."""
    tokenizer = open_any(args.tokenizer)
    for text in args.texts or lines_in(args):
        reasons = explain_text(tokenizer, text)
        if show.as_json:
            print_json(show, {"text": text, "words": [asdict(reason) for reason in reasons]})
            continue
        for reason in reasons:
            show.line(f"{reason.word}  →  {' · '.join(reason.pieces)}")
            for step in reason.steps:
                show.line(f"    {step}")
    return 0


def run_merges(args: argparse.Namespace, show: Show) -> int:
    """Each merge of a small text, and the words that they leave."""
    text = " ".join(args.texts) if args.texts else "\n".join(lines_in(args))
    merges, words = learn_merges(text, args.limit)
    if show.as_json:
        rows = [{"pair": [m.left, m.right], "count": m.times} for m in merges]
        show.result({"merges": rows, "words": words})
        return 0
    for number, merge in enumerate(merges, 1):
        show.line(f"{number:4}  {merge.left}+{merge.right}  ({merge.times}×)")
    show.line(" / ".join(" ".join(word) for word in words))
    if args.limit and len(merges) < args.limit:
        show.note(f"{len(merges)} merges, not {args.limit}: no pair occurs twice any more")
    return 0


def run_info(args: argparse.Namespace, show: Show) -> int:
    """Kind, size and control tokens."""
    tokenizer = open_any(args.path)
    around = tokenizer.pieces(tokenizer.encode(""), "source")
    spelt = {role: tokenizer.pieces([id], "source")[0] for role, id in tokenizer.specials.items()}
    if show.as_json:
        specials = {r: {"id": id, "piece": spelt[r]} for r, id in tokenizer.specials.items()}
        sizes = {"kind": tokenizer.kind, "size": tokenizer.size}
        show.result(sizes | {"specials": specials, "around": around})
        return 0
    lines = {"kind": tokenizer.kind, "size": f"{tokenizer.size:,}"}
    lines["around each text"] = " ".join(around) or "nothing"
    show.fields(args.path, lines)
    rows = [(role, spelt[role], str(id)) for role, id in tokenizer.specials.items()]
    show.table("control tokens", ("role", "piece", "id"), rows, left=2)
    return 0
