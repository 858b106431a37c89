"""`regard look heads`: what each attention head of a model does."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from regard.look.text_limits import check_length, check_memory
from regard.cli.opening import open_kit
from regard.cli.show import Progress, Show
from regard.cli.texts import groups
from regard.data.files import read_lines
from regard.errors import DataError
from regard.interop.side import start_id
from regard.kit import Kit
from regard.look.head_scores import HeadScores, best_heads, head_scores
from regard.look.attention_patterns import attention_names
from regard.look.head_scores import repeats_for
from regard.look.attention_maps import head_counts
from regard.model.batch import Batch

DOING = "measuring heads"
MEASURES = ("previous", "duplicate", "induction", "entropy", "distance", "norm")


def run(args: argparse.Namespace, show: Show) -> int:
    """Measure every head and show them."""
    kit = open_kit(args.path, args.device, None)
    attention_names(kit.board)  # says so where there are none
    begin = start_id(kit.files, kit.config)
    drawn = repeats_for(kit.model, kit.tokenizer, args.length, args.batch, args.seed, begin)
    with show.progress("measuring heads") as progress:
        progress("random repeats")
        given = args.text is not None or args.file
        batches = text_batches(kit, args, progress) if given else None
        scores = head_scores(kit.board, drawn, batches)
    chosen = best_heads(scores, args.sort) if args.sort else scores
    if show.as_json:
        drawn_from = {"length": drawn.length, "rows": args.batch, "seed": args.seed}
        texts = args.text or args.file
        listed = [asdict(score) for score in chosen[: args.top]]
        show.result({"model": args.path, **drawn_from, "measured_on": texts, "heads": listed})
        return 0
    print_table(args, chosen[: args.top], scores, drawn.length, show)
    return 0


def text_batches(kit: Kit, args: argparse.Namespace, progress: Progress) -> Iterator[Batch]:
    """The text, or the lines of the file that are not empty, in batches."""
    lines = read_lines(args.file) if args.file else iter([args.text])
    found = False
    for number, group in enumerate(groups(filter(str.strip, lines), args.batch), 1):
        found = True
        progress(f"batch {number}")
        yield read_group(kit, group)
    if not found:
        raise DataError(DOING, f"no text in {args.file or '--text'}", "some lines")


def read_group(kit: Kit, lines: Sequence[str]) -> Batch:
    """Lines as a model reads them: source TAB target, which may be missing, of an encoder-decoder.

    Patterns take room with the square of a line's length, so long lines are refused first.
    """
    encode, pair = kit.text_tokenizer.encode, kit.model.target is not None
    sides = [line.partition("\t") if pair else (line, "", "") for line in lines]
    rows = [check_length(kit, encode(source), DOING, source) for source, _, _ in sides]
    check_memory(kit, max(map(len, rows)), DOING, len(rows) * max(head_counts(kit.board)))
    if not pair:
        return kit.batch(rows)
    begin = start_id(kit.files, kit.config)
    targets = [encode(target, side="target") if tab else [] for _, tab, target in sides]
    for ids, (_, _, target) in zip(targets, sides, strict=True):
        check_length(kit, [begin, *ids], DOING, target, "target")
    return kit.batch(rows, [[begin, *ids] for ids in targets])


def print_table(
    args: argparse.Namespace,
    scores: Sequence[HeadScores],
    every: Sequence[HeadScores],
    length: int,
    show: Show,
) -> None:
    """Some of every head for people."""
    parts = {part_of(score) for score in every}
    where = args.text or args.file
    rest = f"; entropy, distance, norm on {where}" if where else ""
    title = f"{args.path}: {len(every)} heads on {args.batch} × 2 × {length} random tokens{rest}"
    rows = []
    for score in scores:
        place = [part_of(score)] if len(parts) > 1 else []
        values = [getattr(score, name) for name in MEASURES]
        cells = ["–" if value is None else f"{value:.3f}" for value in values]
        rows.append([*place, str(score.block), str(score.head), *cells])
    lead = ["part"] if len(parts) > 1 else []
    show.table(title, [*lead, "block", "head", *MEASURES], rows, left=len(lead))


def part_of(score: HeadScores) -> str:
    """Which attention of the model a head belongs to: encoder, decoder or cross."""
    return "cross" if score.layer.endswith(".cross") else score.layer.split(".")[0]
