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

from regard.cli.lines import FAULTS, Faults, line_groups
from regard.cli.opening import open_kit
from regard.cli.show import Show
from regard.cli.texts import groups, print_json
from regard.data.text_files import find_files
from regard.data.word_frequencies import Span, key, word_spans
from regard.errors import DataError, UsageError, nearest
from regard.files import write_whole
from regard.history.word_vectors import WordVectors, read_vectors
from regard.kit import Kit
from regard.look.activations import find_word_tokens, group_means, sense_cosines
from regard.look.probing import choose_taps, tap_vectors
from regard.look.text_limits import max_tokens_of
from regard.model.fronts import TextFront
from regard.model_kinds import VECTORS, find_kind

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
    max_tokens_of(kit, DOING)  # says so where no text is read
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
        stream, x = io.BytesIO(), torch.stack(made).numpy()
        np.save(stream, x)
        npy = args.out.endswith(".npy")
        write_whole(Path(args.out), stream.getvalue() if npy else save({"vectors": x}))
        if show.as_json:
            show.result({"out": args.out, "rows": count, "dim": x.shape[1]})
        else:
            show.line(f"{count:,} vectors of {x.shape[1]:,} numbers in {args.out}")


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
        print_word(args, show, uses, files, layers)


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
    most, taps = max_tokens_of(kit, DOING), choose_taps(kit, args.layer or "last")
    assert isinstance(kit.model.front, TextFront)
    read = [(s, find_word_tokens(kit.text_tokenizer, s.place.text, s.spans, "all")) for s in given]
    why = f"more than {most:,} tokens"
    left += [s.place.told(why=why) for s, row in read if len(row.ids) > most]
    read = [(s, row) for s, row in read if len(row.ids) <= most]
    words = [(n, word) for n, (_, row) in enumerate(read) for word in dict.fromkeys(row.words)]
    number = {word: k for k, word in enumerate(words)}
    owner = [number[n, word] for n, (_, row) in enumerate(read) for word in row.words]
    names = [read[n][0].names[word] for n, word in words]
    own, rest = ([k for k, name in enumerate(names) if bool(name) == other] for other in (0, 1))
    uses = [read[words[k][0]][0].place for k in own]
    if not uses:
        raise DataError(DOING, f"no line with {args.word!r} that fits", f"at most {most:,} tokens")
    types = {name: k for k, name in enumerate(dict.fromkeys(filter(None, names)))}

    def layer(name: str, x: Tensor) -> Data:
        x = group_means(x.float().cpu(), owner)  # tokens → words
        others = group_means(x[rest], [types[names[k]] for k in rest])
        return study(name, x[own], uses, WordVectors(list(types), others.numpy()), [], args.top)

    ids = torch.tensor([row.ids[column] for _, row in read for column in row.columns])
    rows = [row for _, row in read]
    with torch.no_grad():
        static = layer("static", kit.model.front.tokens(ids.to(kit.device)))
        return uses, [static, *(layer(*seen) for seen in tap_vectors(kit, rows, taps))]


def study(
    name: str, x: Tensor, uses: list[Place], table: WordVectors, without: list[int], top: int
) -> Data:
    """Cosines of the uses (N, D), and the words of a table that are nearest to each file's."""
    files = list(dict.fromkeys(place.file for place in uses))
    sense = [files.index(place.file) for place in uses]
    cosines, own = sense_cosines(x, sense), torch.tensor(sense)[:, None]
    rival = cosines.scatter(1, own, -torch.inf).amax(1, keepdim=True)
    apart = own[cosines.gather(1, own) > rival + LEAD].bincount(minlength=len(files)).tolist()
    near = F.normalize(group_means(x, sense), dim=1).numpy() @ table.unit.T  # (files, words)
    others = [np.delete(near, k, 0).max(0) for k in range(len(files))] if len(files) > 1 else near
    nearer = [table.best(a - b, without, top) for a, b in zip(near, others, strict=True)]
    return {
        "layer": name,
        "cosines": group_means(cosines, sense).tolist(),  # (files, files)
        "by_use": cosines.tolist(),  # of each use with the others of each file
        "told_apart": apart if len(files) > 1 else [None],
        "nearest": [[n._asdict() for n in table.best(row, without, top)] for row in near],
        "nearer": [[n._asdict() for n in row if n.score > LEAD] for row in nearer],
    }


def print_word(
    args: argparse.Namespace, show: Show, uses: list[Place], files: list[str], layers: list[Data]
) -> None:
    """Mean cosines of the uses in each file with those in each; then the words next to them."""
    cosines, words = list[tuple[str, ...]](), list[tuple[str, ...]]()
    for layer in layers:
        for k, file in enumerate(files):
            means = [f"{cosine:.3f}".replace("nan", "–") for cosine in layer["cosines"][k]]
            apart, count = layer["told_apart"][k], sum(place.file == file for place in uses)
            told = "–" if apart is None else f"{apart} of {count}"
            cosines.append((layer["layer"], file, *means, told))
            near = (" ".join(n["word"] for n in layer[name][k]) for name in ("nearest", "nearer"))
            words.append((layer["layer"], file, *near))
    columns = ("layer", "in", *files, "told apart")
    show.table(f"{args.word} by {args.path}: mean cosines of its uses", columns, cosines, left=2)
    columns = ("layer", "in", "nearest words", "nearer than elsewhere")
    show.table(f"words next to {args.word}", columns, words, left=4)
