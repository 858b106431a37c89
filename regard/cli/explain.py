"""`regard explain`: which tokens of an input an answer comes from, by one method or by all."""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

from torch import Tensor

from regard.cli.explain_flags import METHODS
from regard.cli.explain_goal import DOING, Question, ask, baseline_of
from regard.cli.opening import open_kit
from regard.cli.show import Show
from regard.cli.texts import check_finite
from regard.errors import check_known
from regard.look.attribution import (
    attention_flow,
    attention_rollout,
    attention_row,
    deletion_and_insertion,
    gradient_times_input,
    integrated_gradients,
    random_areas,
    spearman,
)
from regard.look.labels import token_labels
from regard.look.lime import fit_lime
from regard.look.masked_input import MaskedInput
from regard.look.patching import head_sites
from regard.look.results import GradientScores, ShapScores
from regard.look.shap import shapley_values
from regard.look.text_limits import check_memory

BAR = 10  # characters of the longest bar
ATTENTION = {"attention": attention_row, "rollout": attention_rollout, "flow": attention_flow}
FLOW = 100  # tokens: a flow of more takes minutes, and is left to --method
RANDOM = 10  # orders of the floor that methods are compared with


class Found(NamedTuple):
    """What a method found."""

    scores: Tensor
    """(M,)"""
    said: str
    """How good it is, in words."""
    short: str
    """The same in two or three."""
    data: dict[str, Any]
    """The same for `--json`."""
    spread: Tensor | None = None
    """(M,): half the width of intervals."""


def run(args: argparse.Namespace, show: Show) -> int:
    """Explain one input."""
    check_known(args.method, METHODS, DOING, f"unknown method {args.method!r}")
    kit = open_kit(args.path, args.device, None)  # plain maps: packed ones have no gradient
    question = ask(kit, args.text, args.target, args.against, show)
    methods = set(METHODS if args.compare else [args.method])
    heads = len(head_sites(kit.hooked)) if methods & set(ATTENTION) else 0
    check_memory(kit, len(question.ids), DOING, heads, bool(methods & {"gradient", "ig"}))
    baseline, name = baseline_of(kit, args.baseline)
    ids = [question.ids[n] for n in question.players]
    tokens = MaskedInput(kit.hooked, question.batch, question.goal, baseline, question.players)
    head = {
        "text": args.text,
        "target": question.target,
        "against": question.against,
        "baseline": name,
        "tokens": ids,
        "pieces": token_labels(kit.text_tokenizer, ids, "source"),
    }
    if args.compare:
        compare(args, show, tokens, question, head)
    else:
        explain(args, show, tokens, question, head)
    return 0


def explain(
    args: argparse.Namespace,
    show: Show,
    tokens: MaskedInput,
    question: Question,
    head: dict[str, Any],
) -> None:
    """By one method."""
    found = apply(args.method, args, show, tokens)
    if show.as_json:
        show.result({**head, "method": args.method, "scores": found.scores.tolist(), **found.data})
        return
    bars = draw_bars(found.scores.tolist())
    rows = [
        (piece, f"{score:.4f}", bar)
        for piece, score, bar in zip(head["pieces"], found.scores.tolist(), bars, strict=True)
    ]
    columns = ["token", "score", ""]
    if found.spread is not None and bool(found.spread.any()):
        columns.insert(2, "± 95 %")
        spreads = found.spread.tolist()
        rows = [(*row[:2], f"{s:.4f}", row[2]) for row, s in zip(rows, spreads, strict=True)]  # type: ignore[misc]
    show.table(f"{question.name}, by {args.method}", columns, rows)
    show.line(f"  {found.said}")
    if args.method not in ATTENTION:
        show.line(f"  an absent token is {head['baseline']}")


def compare(
    args: argparse.Namespace,
    show: Show,
    tokens: MaskedInput,
    question: Question,
    head: dict[str, Any],
) -> None:
    """By all methods that the model has, with what each is worth."""
    found = {name: apply(name, args, show, tokens) for name in usable(tokens)}
    areas = {}
    for name, one in found.items():
        made = deletion_and_insertion(tokens, one.scores)
        areas[name] = made.deletion_area, made.insertion_area
    areas["random"] = random_areas(tokens, len(tokens.columns), RANDOM, args.seed)
    pairs = {a: {b: spearman(found[a].scores, found[b].scores) for b in found} for a in found}
    if show.as_json:
        methods = {
            name: {"scores": one.scores.tolist(), **one.data, **area_data(areas[name])}
            for name, one in found.items()
        }
        show.result({**head, "methods": methods, "random": area_data(areas["random"]),
                     "spearman": pairs})  # fmt: skip
        return
    columns = zip(*(one.scores.tolist() for one in found.values()), strict=True)
    rows = [
        (piece, *(f"{score:.4f}" for score in scores))
        for piece, scores in zip(head["pieces"], columns, strict=True)
    ]
    show.table(question.name, ("token", *found), rows)
    print_faith(show, found, areas)
    rows = [(a, *(f"{value:.2f}" for value in pairs[a].values())) for a in pairs]
    show.table("rank correlation (Spearman)", ("", *pairs), rows)
    show.line(f"  an absent token is {head['baseline']}")


def print_faith(show: Show, found: dict[str, Found], areas: dict[str, tuple[float, float]]) -> None:
    """Deletion and insertion of each method."""
    rows = [
        (name, f"{out:.3f}", f"{put:.3f}", found[name].short if name in found else "")
        for name, (out, put) in areas.items()
    ]
    title = "faithfulness: deletion (small is good) and insertion (large is good)"
    show.table(title, ("method", "deletion", "insertion", ""), rows)


def area_data(areas: tuple[float, float]) -> dict[str, float]:
    """Areas for `--json`."""
    return {"deletion": areas[0], "insertion": areas[1]}


def usable(tokens: MaskedInput) -> list[str]:
    """The methods that model, baseline and length allow: recurrent ones have no attention."""
    taps = [name for name in tokens.hooked.taps if name.endswith(".pattern")]
    own = any(".cross." not in name for name in taps)  # a recurrent reader has none of its own
    gone = {"rollout", "flow"} if taps and not own else set() if taps else set(ATTENTION)
    gone |= {"flow"} if tokens.width > FLOW else set()
    gone |= {"gradient", "ig"} if tokens.baseline == "drop" else set()
    return [name for name in METHODS if name not in gone]


def apply(name: str, args: argparse.Namespace, show: Show, tokens: MaskedInput) -> Found:
    """What one method finds, with progress."""
    if name in ("gradient", "ig"):
        ig = name == "ig"
        found = of_gradient(
            integrated_gradients(tokens, args.steps) if ig else gradient_times_input(tokens)
        )
    elif name == "lime":
        found = of_lime(tokens, args)
    elif name == "shap":
        found = of_shap(shapley_values(tokens, len(tokens.columns), args.samples, args.seed))
    else:
        found = of_attention(ATTENTION[name](tokens), name)
    check_finite(DOING, found.scores.tolist())
    return found


def of_gradient(found: GradientScores) -> Found:
    """Gradient × input, or integrated gradients."""
    difference = found.value - found.baseline_value
    said = (
        f"sum {float(found.scores.sum()):.4f} of {difference:.4f} "
        f"(from {found.baseline_value:.4f} to {found.value:.4f}), "
        f"completeness error {found.completeness_error:.2%}"
    )
    said += f", {found.steps} steps" if found.steps > 1 else ""
    data = {
        "value": found.value,
        "baseline_value": found.baseline_value,
        "completeness_error": found.completeness_error,
        "steps": found.steps,
    }
    return Found(found.scores, said, f"misses {found.completeness_error:.1%}", data)


def of_lime(tokens: MaskedInput, args: argparse.Namespace) -> Found:
    """LIME."""
    found = fit_lime(tokens, len(tokens.columns), args.samples or 1000, seed=args.seed)
    short = f"R² {found.r2:.3f}" + ("" if found.trusted else ", not trustworthy")
    said = f"{short}, intercept {found.intercept:.4f}"
    data = {"r2": found.r2, "trusted": found.trusted, "intercept": found.intercept}
    return Found(found.scores, said, short, {**data, "value": found.value})


def of_shap(found: ShapScores) -> Found:
    """Shapley values."""
    how = f"{found.orders} orders" if found.orders else "exact"
    said = (
        f"sum {float(found.scores.sum()):.4f} of {found.value - found.baseline_value:.4f} "
        f"(from {found.baseline_value:.4f} to {found.value:.4f}), {how}"
    )
    data = {
        "value": found.value,
        "baseline_value": found.baseline_value,
        "interval": found.interval.tolist(),
        "orders": found.orders,
    }
    return Found(found.scores, said, how, data, found.interval)


def of_attention(scores: Tensor, name: str) -> Found:
    """Attention; a flow is no share, since its ways have parts in common."""
    total = float(scores.sum())
    if name == "flow":
        said = "the most that attention could carry to the answer from each token"
        return Found(scores, said, "", {})
    said = f"{total:.1%} of the attention is on these tokens"
    return Found(scores, said, f"{total:.1%} here", {"share": total})


def draw_bars(scores: list[float]) -> list[str]:
    """Bars to the left for what speaks against, to the right for what speaks for the answer."""
    largest = max(map(abs, scores), default=0.0) or 1.0
    bars = []
    for score in scores:
        bar = "█" * round(abs(score) / largest * BAR)
        left, right = (bar, "") if score < 0 else ("", bar)
        bars.append(f"{left:>{BAR}}│{right:<{BAR}}")
    return bars
