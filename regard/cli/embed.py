"""`regard embed`: a vector for each line, or one word's vectors and what context makes of them."""

from __future__ import annotations

import argparse
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save
from torch import Tensor

from regard.cli.kinds import VECTORS, find_kind
from regard.cli.lengths import most_tokens
from regard.cli.lines import FAULTS, Faults, line_groups
from regard.cli.opening import open_kit
from regard.cli.probe_reading import Corpus, chosen_taps, vectors_of
from regard.cli.show import Show
from regard.cli.texts import groups, noted, print_json
from regard.data.files import find_files
from regard.data.words import Span, key, word_spans
from regard.disk import write_whole
from regard.errors import DataError, UsageError, nearest
from regard.history.vectors import Vectors, read_vectors
from regard.kit import Kit
from regard.look.words import Read, mean_by, read_words, sense_cosines
from regard.model.front_text import TextFront

DOING = "embedding"
TOGETHER = 32  # lines that run together
FORMS = (".npy", ".safetensors")
LEAD = 1e-6  # cosines that differ by less are equal
Data = dict[str, Any]


class Place(NamedTuple):
    """A line and where it stands."""

    file: str
    line: int
    text: str

    def told(self, **more: Any) -> Data:
        """Where it stands, as plain data."""
        return {"file": self.file, "line": self.line, **more}


def run(args: argparse.Namespace, show: Show) -> int:
    """Vectors of lines, or of a word."""
    found, faults = find_kind(args.path), Faults(show)
    table = found is not None and found.kind is VECTORS
    if args.word is None and (table or args.layer):
        why = "vectors of words" if table else f"--layer {args.layer}"
        raise UsageError(DOING, f"{why}, but no --word", "--word WORD")
    if table and args.layer:
        raise UsageError(DOING, f"--layer {args.layer} of vectors of words", "no --layer")
    if args.word is not None and (args.out or not args.word.strip()):
        raise UsageError(DOING, "--word that is blank, or with --out", "a word, or --out alone")
    if args.out and Path(args.out).suffix not in FORMS:
        raise UsageError(DOING, f"--out {args.out}", f"a name that ends in {' or '.join(FORMS)}")
    with noted(show):
        if args.word is None:
            run_lines(args, show, faults)
        else:
            run_word(args, show, faults, table)
    return faults.finish()


def read_places(paths: Sequence[str], faults: Faults) -> Iterator[Place]:
    """The lines of files, or of stdin; one that cannot be read is told."""
    for file in map(str, find_files(paths) if paths else ["-"]):
        lines = (line for group in line_groups(None, [file], TOGETHER) for line in group)
        for number, line in enumerate(lines, 1):
            if line.fault:
                faults.tell(line.fault)
            else:
                yield Place("stdin" if file == "-" else file, number, line.text)


# Lines --------------------------------------------------------------------------------------------


def run_lines(args: argparse.Namespace, show: Show, faults: Faults) -> None:
    """One vector per line, as `Kit.embed` gives them: written, or printed as they come."""
    kit = open_kit(args.path, args.device, "fp32", edits=args.edit)
    most_tokens(kit, DOING)  # says so where no text is read
    made, count = list[Tensor](), 0
    for group in groups(read_places(args.files, faults), TOGETHER):
        for place, vector in embed_group(kit, group, faults):
            count += 1
            if args.out:
                made.append(vector)
            elif show.as_json:
                print_json(place.told(vector=vector.tolist()))
            else:
                show.line(" ".join(f"{value:.9g}" for value in vector.tolist()))
    if not count:
        raise DataError(DOING, "no line that gives a vector", "lines of text")
    if args.out:
        write(Path(args.out), torch.stack(made), show)


def embed_group(kit: Kit, group: list[Place], faults: Faults) -> list[tuple[Place, Tensor]]:
    """Lines and their vectors; lines that have none are told, and the others are done."""
    try:
        made = kit.embed([place.text for place in group]).float().cpu()
    except DataError as error:
        if len(group) > 1:
            return [row for place in group for row in embed_group(kit, [place], faults)]
        faults.tell(f"{group[0].file}:{group[0].line}: {error.found}, expected {error.expected}")
        return []
    return list(zip(group, made, strict=True))


def write(out: Path, vectors: Tensor, show: Show) -> None:
    """All vectors in one file."""
    stream = io.BytesIO()
    np.save(stream, vectors.numpy())
    npy = out.suffix == ".npy"
    write_whole(out, stream.getvalue() if npy else save({"vectors": vectors.numpy()}))
    rows, dim = vectors.shape
    if show.as_json:
        show.result({"out": str(out), "rows": rows, "dim": dim})
    else:
        show.line(f"{rows:,} vectors of {dim:,} numbers in {out}")


# A word -------------------------------------------------------------------------------------------


class Sentence(NamedTuple):
    """A line that holds the word: its places first, then those of all other words."""

    place: Place
    spans: list[Span]
    names: list[str]
    """Of the words; none of the word itself."""


def run_word(args: argparse.Namespace, show: Show, faults: Faults, table: bool) -> None:
    """Cosines and neighbours of a word's vectors, and which lines are without it."""
    left = list[Data]()
    sentences = find_word(args, left, faults)
    uses, layers = (look_up if table else read_layers)(args, sentences, left, show)
    for row in left[:FAULTS]:
        show.note(f"left out: {row['file']}:{row['line']}: {row['why']}")
    if len(left) > FAULTS:
        show.note(f"left out: {len(left) - FAULTS:,} lines more; --json names them all")
    files = list(dict.fromkeys(place.file for place in uses))
    if len(files) == 1 and len(find_files(args.files)) > 1:
        show.note(f"{args.word!r} stands in {files[0]} only: there is no other file to compare")
    if show.as_json:
        made = {"model": args.path, "word": args.word, "files": files}
        made |= {"uses": [place.told() for place in uses], "layers": layers, "left_out": left}
        show.result(made)
    else:
        print_word(f"{args.word} by {args.path}", show, uses, files, layers)


def find_word(args: argparse.Namespace, left: list[Data], faults: Faults) -> list[Sentence]:
    """Lines with the word, in any case; the others are left out."""
    pattern = re.compile(rf"(?<!\w){re.escape(args.word)}(?!\w)", re.IGNORECASE)
    made, seen = list[Sentence](), set[str]()
    for place in read_places(args.files, faults):
        own = [match.span() for match in pattern.finditer(place.text)]
        spans = [span for span in word_spans(place.text) if place.text[span[0]].isalnum()]
        free = [(a, b) for a, b in spans if all(b <= start or end <= a for start, end in own)]
        names = [key(place.text[a:b]) for a, b in free]
        if own:
            made.append(Sentence(place, own + free, [""] * len(own) + names))
        elif spans:
            left.append(place.told(why=f"no {args.word!r}"))
            seen.update(names)
    if not made:
        close = nearest(args.word, sorted(seen))
        doing = f"looking for {args.word!r} in {', '.join(args.files) or 'stdin'}"
        fix = f"did you mean {close}?" if close else ""
        raise DataError(doing, f"{len(left):,} lines, none with it", "a line with the word", fix)
    return made


def look_up(
    args: argparse.Namespace, sentences: list[Sentence], left: list[Data], show: Show
) -> tuple[list[Place], list[Data]]:
    """The one vector that word2vec has for the word, whatever the sentence."""
    vectors = read_vectors(args.path)
    row = vectors.row(args.word)
    uses = [s.place for s in sentences for name in s.names if not name]
    x = torch.from_numpy(vectors.matrix[[row] * len(uses)])
    return uses, [study("static", x, uses, vectors, [row], args.top)]


def read_layers(
    args: argparse.Namespace, given: list[Sentence], left: list[Data], show: Show
) -> tuple[list[Place], list[Data]]:
    """The word by the model's table of tokens, and by each layer asked for."""
    kit = open_kit(args.path, args.device, "fp32", edits=args.edit)
    sentences, rows = read_sentences(kit, given, left)
    taps = chosen_taps(kit, args.layer or "last")
    words = [(n, word) for n, row in enumerate(rows) for word in dict.fromkeys(row.words)]
    number = {word: k for k, word in enumerate(words)}
    owner = [number[n, word] for n, row in enumerate(rows) for word in row.words]  # of each token
    names = [sentences[n].names[word] for n, word in words]
    own, rest = ([k for k, name in enumerate(names) if bool(name) == other] for other in (0, 1))
    uses = [sentences[words[k][0]].place for k in own]
    types = {name: k for k, name in enumerate(dict.fromkeys(filter(None, names)))}

    def layer(name: str, x: Tensor) -> Data:
        x = mean_by(x.float().cpu(), owner)
        others = mean_by(x[rest], [types[names[k]] for k in rest])
        return study(name, x[own], uses, Vectors(list(types), others.numpy()), [], args.top)

    ids = torch.tensor([row.ids[column] for row in rows for column in row.columns])
    assert isinstance(kit.model.front, TextFront)
    with torch.no_grad(), show.progress(DOING) as progress:
        seen = vectors_of(kit, Corpus([], rows, 0), taps, progress)
        static = layer("static", kit.model.front.tokens(ids.to(kit.device)))
        return uses, [static, *(layer(tap, x) for tap, x in seen)]


def read_sentences(
    kit: Kit, given: list[Sentence], left: list[Data]
) -> tuple[list[Sentence], list[Read]]:
    """The sentences that fit, and their tokens."""
    most, kept = most_tokens(kit, DOING), list[tuple[Sentence, Read]]()
    assert kit.tokenizer is not None
    for s in given:
        row = read_words(kit.tokenizer, s.place.text, s.spans, "all")
        why = f"{len(row.ids):,} tokens, at most {most:,}" if len(row.ids) > most else ""
        if why or not set(range(s.names.count(""))) <= set(row.words):
            left.append(s.place.told(why=why or "no token for the word"))
        else:
            kept.append((s, row))
    if not kept:
        found = f"{left[-1]['file']}:{left[-1]['line']}: {left[-1]['why']}"
        raise DataError(DOING, found, "a line that the model can read")
    return [s for s, _ in kept], [row for _, row in kept]


def study(
    name: str, x: Tensor, uses: list[Place], table: Vectors, without: list[int], top: int
) -> Data:
    """Cosines of the uses (N, D), and the words of a table that are nearest to each file's."""
    files = list(dict.fromkeys(place.file for place in uses))
    sense = [files.index(place.file) for place in uses]
    cosines, own = sense_cosines(x, sense), torch.tensor(sense)[:, None]
    mine, rival = cosines.gather(1, own)[:, 0], cosines.scatter(1, own, -torch.inf).amax(1)
    near = F.normalize(mean_by(x, sense), dim=1).numpy() @ table.unit.T  # (files, words)
    others = [np.delete(near, k, 0).max(0) for k in range(len(files))] if len(files) > 1 else near
    nearer = [table.best(a - b, without, top) for a, b in zip(near, others, strict=True)]
    return {
        "layer": name,
        "cosines": mean_by(cosines, sense).tolist(),  # (files, files)
        "by_use": cosines.tolist(),  # of each with the others of each file
        "told_apart": int((mine > rival + LEAD).sum()) if len(files) > 1 else None,
        "nearest": [[n._asdict() for n in table.best(row, without, top)] for row in near],
        "nearer": [[n._asdict() for n in row if n.score > LEAD] for row in nearer],
    }


def print_word(
    title: str, show: Show, uses: list[Place], files: list[str], layers: list[Data]
) -> None:
    """Mean cosines by layer; then words near to each sense, without context and with it."""
    short = [Path(file).name for file in files]
    short = short if len(set(short)) == len(short) else files
    within = [(k, k) for k in range(len(files))]
    pairs = within + [(a, b) for b in range(len(files)) for a in range(b)]
    heads = [short[a] if a == b else f"{short[a]} – {short[b]}" for a, b in pairs]
    counts = [f"{sum(u.file == f for u in uses)} in {s}" for f, s in zip(files, short, strict=True)]
    several = len(files) > 1  # else nothing is told apart
    rows = [
        (
            row["layer"],
            *(f"{row['cosines'][a][b]:.3f}".replace("nan", "–") for a, b in pairs),
            f"{row['told_apart']} of {len(uses)}",
        )[: 1 + len(pairs) + several]
        for row in layers
    ]
    columns = ("layer", *heads, "told apart")[: 1 + len(pairs) + several]
    show.table(f"{title}: {', '.join(counts)}; mean cosines", columns, rows)
    lists = ("nearest", "nearer")[: 1 + several]
    rows = [
        (row["layer"], s, *(" ".join(n["word"] for n in row[kind][k]) for kind in lists))
        for row in (layers[0], *layers[1:][-1:])
        for k, s in enumerate(short)
    ]
    columns = ("layer", "file", "nearest words", "nearer than elsewhere")[: 3 + several]
    show.table("", columns, rows, left=4)
