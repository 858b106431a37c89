"""`regard eval winograd`: accuracy on Winograd schemas, one by one and in pairs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from regard.cli.opening import open_kit
from regard.cli.show import Show
from regard.cli.texts import check_finite
from regard.data.schemas import Schema, pair_up, read_schemas
from regard.errors import UsageError, did_you_mean
from regard.history.ngram_model import NgramModel
from regard.look.text_limits import max_tokens_of
from regard.model_kinds import is_ngrams
from regard.score.winograd import Judged, Lines, Report, Share, judge, judge_lines, report

DOING = "scoring Winograd schemas"
CHANCE = "chance is 50 % of single schemas and 25 % of pairs"


def run(args: argparse.Namespace, show: Show) -> int:
    """Judge each schema, count, print."""
    schemas = chosen(read_schemas(args.file), args)
    with show.progress("Winograd schemas") as progress:
        progress("opening the model")

        def tell(done: int) -> None:
            progress(f"{done:,} of {len(schemas):,}")

        judged = judge_by(args, schemas, tell)
    check_finite(DOING, (x for each in judged for x in each.scores))
    groups = {name: report(in_group(judged, name)) for name in names_of(judged)}
    every = report(judged)
    if show.as_json:
        show.result(
            {
                **as_data(every),
                "score": "full" if args.full else "partial",
                "groups": {name: as_data(made) for name, made in groups.items()},
                "schemas": [described(each) for each in judged],
                "pairs_at": pair_up([each.schema for each in judged]),
            }
        )
        return 0
    if args.verbose:
        print_pairs(judged, show)
    named = [*groups.items(), ("all", every)] if len(groups) > 1 else [("all", every)]
    rows = [row for name, made in named for row in table_rows(name, made)]
    columns = "", "", "accuracy", "95 % interval", "right", "of"
    title = f"{args.path} on {args.file}, {'full' if args.full else 'partial'} score"
    show.table(title, columns, rows, left=2)
    ties = f"; {every.ties:,} ties, counted as wrong" if every.ties else ""
    show.line(f"{every.alone:,} schemas without their pair are not in the pairs{ties}; {CHANCE}")
    return 0


def chosen(schemas: list[Schema], args: argparse.Namespace) -> list[Schema]:
    """The schemas of the group asked for, at most so many."""
    if args.only is not None:
        groups = list(dict.fromkeys(schema.group for schema in schemas))
        schemas = [schema for schema in schemas if schema.group.startswith(args.only)]
        if not schemas:
            fix = did_you_mean(args.only, groups, 1)
            expected = (
                f"the beginning of one of {', '.join(groups)}" if any(groups) else "no --only"
            )
            raise UsageError("choosing schemas", f"no group {args.only!r}", expected, fix)
    return schemas[: args.limit]


def judge_by(
    args: argparse.Namespace, schemas: Sequence[Schema], tell: Callable[[int], None]
) -> list[Judged]:
    """By n-grams or by a model."""
    if is_ngrams(args.path):
        counted = NgramModel.open(Path(args.path))
        return judge_lines(ngram_lines(counted), counted.tokenizer, schemas, args.full, None, tell)
    kit = open_kit(args.path, args.device, args.precision, edits=args.edit)
    room = max_tokens_of(kit, DOING)
    return judge(kit.model, kit.text_tokenizer, schemas, args.full, room, tell)


def ngram_lines(model: NgramModel) -> Lines:
    """How n-grams score rows."""

    def score(rows: Sequence[list[int]]) -> list[list[float | None]]:
        found = [model.tables.logprobs(np.array(row, np.int64)).tolist() for row in rows]
        return [[None if value != value else value for value in line] for line in found]

    return score


def names_of(judged: Sequence[Judged]) -> list[str]:
    """Groups in the order of the file."""
    return list(dict.fromkeys(each.schema.group for each in judged))


def in_group(judged: Sequence[Judged], name: str) -> list[Judged]:
    """Those of one group."""
    return [each for each in judged if each.schema.group == name]


def share_data(share: Share) -> dict[str, Any]:
    """A share as plain data."""
    low, high = share.interval
    return {"accuracy": share.accuracy, **share._asdict(), "low": low, "high": high}


def as_data(made: Report) -> dict[str, Any]:
    """A report as plain data."""
    return {
        "single": share_data(made.single),
        "pairs": share_data(made.pairs),
        "alone": made.alone,
        "ties": made.ties,
    }


def described(each: Judged) -> dict[str, Any]:
    """One schema as plain data."""
    schema = each.schema
    return {
        "place": schema.place,
        "text": f"{schema.before}_{schema.after}",
        "candidates": schema.candidates,
        "answer": "ab"[schema.answer],
        "scores": each.scores,
        "right": each.right,
    }


def table_rows(name: str, made: Report) -> list[tuple[str, ...]]:
    """Single and pair accuracy of a group."""
    rows: list[tuple[str, ...]] = []
    for what, share in (("single", made.single), ("pairs", made.pairs)):
        low, high = share.interval
        numbers = (f"{share.accuracy:.1%}", f"{low:.1%} to {high:.1%}")
        rows.append((name, what, *numbers, f"{share.right:,}", f"{share.asked:,}"))
    return rows


def print_pairs(judged: Sequence[Judged], show: Show) -> None:
    """Each pair: its texts with the right candidate, by how much it scores higher, both right?"""
    rows = []
    for pair in pair_up([each.schema for each in judged]):
        for n in pair:
            schema, scores = judged[n].schema, judged[n].scores
            gain = scores[schema.answer] - scores[1 - schema.answer]
            both = all(judged[m].right for m in pair)
            told = "" if n == pair[0] else "both" if both else "not both"
            marked = f"{schema.before}[{schema.candidates[schema.answer]}]{schema.after}"
            rows.append((marked, f"{gain:+.2f}", told))
    show.table("log-probability of the right candidate above the other", ("", "", ""), rows)
