"""Which input tokens an answer comes from: gradient × input, integrated gradients, attention.

Integrated gradients (Sundararajan 2017) go along the straight line from a baseline x' to the
input x: IG_i = (x_i − x'_i) ∫ ∂F(x' + a (x − x'))/∂x_i da, by the midpoint rule. They sum to
F(x) − F(x'); what is missing tells whether the steps were enough. Here x are the vectors that the
first block reads; the baseline has the same positions.

How faithful scores are is measured by deletion and insertion curves (Petsiuk 2018). LIME and SHAP
have files of their own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, get_args

import torch
from torch import Tensor

from regard.ambient import current, note
from regard.data import statistics
from regard.errors import DataError, RegardError, RegardWarning, UsageError, did_you_mean
from regard.look.labels import token_label, token_labels
from regard.look.lime import fit_lime
from regard.look.masked_input import Baseline, MaskedInput, SetFunction, run_in_chunks
from regard.look.patching import Goal, goal_columns, head_sites
from regard.look.prompts import AskedText, find_token, read_asked
from regard.look.results import Attribution, AttributionComparison, Method, MethodScores
from regard.look.shap import shapley_values
from regard.look.text_limits import check_length, check_memory, max_tokens_of
from regard.model.batch import Batch
from regard.model.fronts import TextFront

if TYPE_CHECKING:
    from regard.kit import Kit

DOING = "explaining"
METHODS: tuple[Method, ...] = get_args(Method)
FIXED = ("bos", "eos", "pad", "cls", "sep", "mask")  # tokens that are not the user's words
RANDOM_ORDERS = 10  # of the floor that methods are compared with
ATTENTION = ("attention", "rollout")
RESIDUAL = 0.5  # share of the stream that passes a layer beside its attention
TOLERANCE = 0.05  # of F(x) − F(x'): more is missing → more steps
MAX_STEPS = 1600  # that are taken without being asked for

Function = Callable[[Tensor], Tensor]
"""Inputs (R, …) → one number each (R,), with gradients."""


# Gradients --------------------------------------------------------------------------------------


def integrate(
    function: Function,
    x: Tensor,
    base: Tensor,
    steps: int = 50,
    limit: int = MAX_STEPS,
    rows: int = 16,
) -> MethodScores:
    """Integrated gradients of one input x from a baseline, both without batch dimension.

    Steps are doubled, up to `limit`, while more than 5 % of the difference is missing. No steps:
    gradient × input, the gradient at the input alone, as if the function were linear.
    """
    with torch.no_grad():
        ends = run_in_chunks(torch.stack((x, base)), rows, function).double().cpu()
    value, baseline_value = ends.tolist()
    difference = value - baseline_value
    rounding = 1e-6 * (abs(value) + abs(baseline_value)) + 1e-30  # is no error

    def sum_gradients(at: Tensor) -> Tensor:
        inputs = base + at.view([-1, *[1] * x.dim()]) * (x - base)
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            inputs = inputs.detach().requires_grad_()  # recurrent kernels of cudnn: training only
            (gradients,) = torch.autograd.grad(function(inputs).sum(), inputs)
        return gradients.sum(0, keepdim=True)

    while True:
        midpoints = (torch.arange(steps, dtype=torch.float64) + 0.5) / max(1, steps)
        points = midpoints.to(x) if steps else x.new_ones(1)
        scores = (x - base) * run_in_chunks(points, rows, sum_gradients).sum(0) / len(points)
        missing = abs(float(scores.cpu().double().sum()) - difference)
        error = missing / max(abs(difference), rounding)
        if not error > TOLERANCE or not steps or 2 * steps > limit:  # NaN is not worth more steps
            break
        steps *= 2
    if error > TOLERANCE and steps:
        warnings.warn(
            f"[completeness] after {steps} steps the scores still miss {error:.1%} of the "
            "difference between input and baseline: do not trust them, or take another baseline.",
            RegardWarning,
            stacklevel=2,
        )
    return MethodScores(scores, value, baseline_value, error, len(points))


def integrated_gradients(
    masked: MaskedInput, steps: int = 50, limit: int = MAX_STEPS
) -> MethodScores:
    """What each token gives to the goal on the way from the baseline to the input.

    Scores of vectors are summed over their width. No steps: gradient × input.
    """
    path = integrate(masked.goal_at, *masked.vectors, steps, limit, masked.chunk_rows)
    return replace(path, scores=path.scores.cpu().double().sum(-1)[masked.columns])


# Attention --------------------------------------------------------------------------------------


@torch.no_grad()
def attention_row(masked: MaskedInput) -> Tensor:
    """(M,): how much the goal's place attends to each token, the mean over heads and layers.

    Of an encoder-decoder, how much it attends to the source.
    """
    model = masked.hooked.model
    at = int(goal_columns(model, masked.batch, masked.goal)[0])
    patterns = read_patterns(masked, "attn" if model.config.target is None else "cross")
    rows = [pattern[0, :, at].mean(0) for pattern in patterns]  # (H, T, S) → (S,)
    return torch.stack(rows).mean(0).cpu().double()[masked.columns]


def mix_residual(patterns: Sequence[Tensor], residual: float = RESIDUAL) -> list[Tensor]:
    """Mean over heads of each pattern (B, H, T, T), with the residual connection; rows sum to 1."""
    layers = []
    for pattern in patterns:
        mean = pattern.mean(1)
        layer = (1 - residual) * mean + residual * torch.eye(mean.shape[-1]).to(mean)
        layers.append(layer / layer.sum(-1, keepdim=True).clamp(min=1e-12))
    return layers


def rollout(layers: Sequence[Tensor]) -> Tensor:
    """How much of each input token is in each token of the top (B, T, T), of mixed layers."""
    product, *rest = layers
    for layer in rest:
        product = layer @ product
    return product


@torch.no_grad()
def follow_attention(masked: MaskedInput) -> Tensor:
    """(M,): how much of each token attention has carried to the goal's place through all layers.

    By rollout (Abnar and Zuidema 2020); in an encoder-decoder the goal's cross-attention stands
    above the encoder's layers.
    """
    model = masked.hooked.model
    stack = "decoder" if model.encoder is None else "encoder"
    layers = rollout(mix_residual(read_patterns(masked, "attn", stack)))[0].cpu().double()  # (S, S)
    if model.config.target is None:
        return layers[goal_columns(model, masked.batch, masked.goal)[0], masked.columns]
    whole = replace(masked, players=None)
    return (attention_row(whole) @ layers[whole.columns])[masked.columns]


def read_patterns(masked: MaskedInput, part: str, stack: str = "") -> list[Tensor]:
    """The patterns (1, H, T, S) of all attentions of a part, attn or cross."""
    place = f".{part}.pattern"
    names = [n for n in masked.hooked.taps if n.startswith(stack) and n.endswith(place)]
    if not names:
        problem = f"a model without {stack}{place}"
        raise UsageError("explaining by attention", problem, "one with attention")
    return list(masked.hooked.run(masked.batch, names)[1].values())


# Faithfulness -----------------------------------------------------------------------------------


class Curves(NamedTuple):
    """A goal while tokens are taken away, and while they are put in, the highest scores first."""

    deletion: Tensor
    """(M + 1,): the goal with 0 … M tokens absent."""
    insertion: Tensor
    """(M + 1,): the goal with 0 … M tokens there."""
    deletion_area: float
    """Mean height of the curve, from 0 where no token is there to ±1; small is faithful."""
    insertion_area: float
    """Mean height of the other curve; large is faithful."""


def deletion_and_insertion(goal: SetFunction, scores: Tensor) -> Curves:
    """Curves in the order of scores (M,): a faithful method makes them fall, or rise, at once."""
    count = len(scores)
    rank = scores.argsort(descending=True, stable=True).argsort()  # 0 is the highest
    steps = torch.arange(count + 1)[:, None]
    goals = goal(torch.cat((rank >= steps, rank < steps))).double()
    deletion, insertion = goals[: count + 1], goals[count + 1 :]
    none, whole = insertion[0], deletion[0]
    scale = float((whole - none).abs()) or float("nan")  # no difference, no area
    areas = [float(torch.trapezoid((c - none) / scale)) / count for c in (deletion, insertion)]
    return Curves(deletion, insertion, *areas)


def random_areas(
    goal: SetFunction, count: int, orders: int = 10, seed: int = 0
) -> tuple[float, float]:
    """The mean areas of random orders: what a method without any idea reaches."""
    generator = torch.Generator().manual_seed(seed)
    drawn = (torch.rand(count, generator=generator) for _ in range(orders))
    areas = [deletion_and_insertion(goal, scores)[2:] for scores in drawn]
    deletion, insertion = (sum(each) / orders for each in zip(*areas, strict=True))
    return deletion, insertion


def spearman(a: Tensor, b: Tensor) -> float:
    """Rank correlation of two methods' scores; NaN where one has no order."""
    if any(bool((x == x[0]).all()) for x in (a, b)):
        return float("nan")
    return statistics.spearman(a.tolist(), b.tolist())


# Explaining one text ----------------------------------------------------------------------------


class PosedQuestion(NamedTuple):
    """One input and the number that is explained."""

    batch: Batch
    goal: Goal
    ids: list[int]
    """Tokens of the input."""
    spell: Callable[[int], str]
    """How answers are spelt: tokens, or classes."""


def explain_text(
    kit: Kit,
    text: str,
    target: str | None,
    against: str | None,
    method: Method,
    compare: bool,
    steps: int,
    samples: int | None,
    baseline: str | None,
    metric: Callable[..., Tensor] | None,
) -> Attribution | AttributionComparison:
    """What each token of a text gives to an answer, by one method or by all that the model has."""
    pair = kit.model.config.target is not None  # then the target is how the answer begins
    answers = (None if pair else target, against)
    asked = pose_question(kit, text, *answers, DOING, target if pair else None)
    methods = set(METHODS if compare else [method])
    heads = len(head_sites(kit.hooked)) if methods & set(ATTENTION) else 0
    check_memory(kit, len(asked.ids), DOING, heads, bool(methods & {"gradient", "ig"}))
    fixed = {id for role, id in kit.text_tokenizer.of("source").specials.items() if role in FIXED}
    players = [n for n, id in enumerate(asked.ids) if id not in fixed]
    if not players:
        raise DataError(DOING, "a text without words", "at least one word")
    absent, absent_name = choose_baseline(kit, baseline)
    goal = replace(asked.goal, metric=metric)
    masked = MaskedInput(kit.hooked, asked.batch, goal, absent, players)
    ids = [asked.ids[n] for n in players]
    pieces = token_labels(kit.text_tokenizer, ids, "source")
    named = [None if id is None else asked.spell(int(id)) for id in (goal.good, goal.bad)]
    if metric is not None:
        named = [getattr(metric, "__name__", "metric"), None]
    said = (text, str(named[0]), named[1], absent_name, ids, pieces)
    if not compare:
        return Attribution(*said, method, score_tokens(masked, method, steps, samples))
    patterns = [name for name in kit.hooked.taps if name.endswith(".pattern")]
    own = any(".cross." not in name for name in patterns)  # a recurrent reader has none of its own
    unusable = set() if own else {"rollout"} if patterns else set(ATTENTION)
    scores: dict[str, MethodScores] = {}
    for name in METHODS:
        if name not in unusable:
            one = score_tokens(masked, name, steps, samples)
            *_, deletion, insertion = deletion_and_insertion(masked, one.scores)
            scores[name] = replace(one, deletion=deletion, insertion=insertion)
    drawn = random_areas(masked, len(masked.columns), RANDOM_ORDERS, current().seed)
    alike = {a: {b: spearman(scores[a].scores, scores[b].scores) for b in scores} for a in scores}
    random = dict(zip(("deletion", "insertion"), drawn, strict=True))
    return AttributionComparison(*said, scores, random, alike)


def score_tokens(
    masked: MaskedInput, method: Method, steps: int, samples: int | None
) -> MethodScores:
    """What one method gives each token."""
    count, seed = len(masked.columns), current().seed
    if method in ("gradient", "ig"):
        scores = integrated_gradients(masked, steps if method == "ig" else 0)
    elif method == "lime":
        scores = fit_lime(masked, count, samples or 1000, seed=seed)
    elif method == "shap":
        scores = shapley_values(masked, count, samples, seed)
    else:
        weights = attention_row(masked) if method == "attention" else follow_attention(masked)
        scores = MethodScores(weights, share=float(weights.sum()))
    if bool(scores.scores.isnan().any()):
        raise RegardError(DOING, "scores that are NaN", "numbers", "check the model's weights")
    return scores


def pose_question(
    kit: Kit, text: str, target: str | None, against: str | None, doing: str, begun: str | None
) -> PosedQuestion:
    """A text as a batch and an answer as a goal, by kind of model.

    Answers are classes of a classifier, else tokens: the next one, the one of a gap, or the one
    after `begun`, which is how an encoder-decoder's answer begins. Without a target it is the
    likeliest.
    """
    if not text.strip():
        raise DataError(doing, "an empty text", "at least one word")
    max_tokens_of(kit, doing)  # says so where it reads no text
    tokenizer, head = kit.text_tokenizer, kit.model.config.head
    if head.size is None:
        raise UsageError(doing, "a model that gives vectors only", "one that answers")
    classes: dict[int, str] = {}
    if head.take != "all":
        labels = kit.config.get("id2label") or {}
        classes = {n: str(labels.get(str(n), n)) for n in range(head.size)}
        asked = AskedText(check_length(kit, tokenizer.encode(text), doing), "")
    else:
        asked = read_asked(kit, text, doing, begun or "")
    if asked.gap is not None and (gaps := asked.ids.count(asked.ids[asked.gap])) > 1:
        note(f"{gaps} gaps: the first is explained")

    def find(word: str) -> int:
        return find_class(classes, word) if classes else find_token(tokenizer, asked.before, word)

    def spell(id: int) -> str:
        return classes[id] if classes else token_label(tokenizer, id)

    good, bad = (None if word is None else find(word) for word in (target, against))
    batch = kit.batch([asked.ids], None if asked.written is None else [asked.written])
    if good is None:
        with torch.no_grad():
            logits = kit.model(batch)[0]
        scores = logits if logits.dim() == 1 else logits[-1 if asked.gap is None else asked.gap]
        scores = scores[: None if classes else tokenizer.size].clone()
        if bad is not None:
            scores[bad] = -torch.inf
        good = int(scores.argmax())
    if good == bad:
        raise UsageError(doing, f"{spell(good)!r} against itself", "two different words")
    other, at = (None if n is None else torch.tensor([n]) for n in (bad, asked.gap))
    return PosedQuestion(batch, Goal(torch.tensor([good]), other, at), asked.ids, spell)


def find_class(classes: dict[int, str], word: str) -> int:
    """The number of the class that a user names by its label or its number."""
    numbers = {name: id for id, name in classes.items()}
    if word in numbers:
        return numbers[word]
    if word.isdecimal() and int(word) in classes:
        return int(word)
    fix = did_you_mean(word, numbers)
    raise UsageError(DOING, f"no class is called {word!r}", f"one of {', '.join(numbers)}", fix)


def choose_baseline(kit: Kit, asked: str | None) -> tuple[Baseline, str]:
    """What an absent token is, and its name.

    Unless asked for: the mask token where there is one, else zero. Where no positions are added, a
    norm of zero would be all slope, and a token that means little stands in.
    """
    tokenizer, front = kit.text_tokenizer.of("source"), kit.model.front
    specials = tokenizer.specials
    if asked is None:
        bare = bool(kit.model.stacks) and isinstance(front, TextFront) and front.positions is None
        roles = ("mask", "pad", "unk", "eos", "bos") if bare else ("mask",)
        asked = next((role for role in roles if role in specials), "zero")
    if asked == "zero":
        return "zero", "zero"
    if asked in ("pad", "mask") and asked not in specials:
        expected = f"zero, {', '.join(specials) or 'or'} or a token"
        raise UsageError(DOING, f"a tokenizer without {asked} token", expected)
    id = specials.get(asked, tokenizer.engine.id(asked))
    ids = tokenizer.encode(asked, special=False) if id is None else [id]
    if len(ids) != 1 or (asked not in specials and ids[0] == specials.get("unk")):
        fix = did_you_mean(asked, ("zero", *specials), 1)
        raise UsageError(DOING, f"baseline {asked!r} is {len(ids)} tokens", "one token", fix)
    return ids[0], token_label(tokenizer, ids[0], "source").strip()
