"""Names of taps: patterns, short forms, and the names that TransformerLens made common."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from functools import lru_cache

from regard.errors import UsageError, nearest

# TransformerLens → ours; `resid.pre` and relatives are accepted too.
ALIASES = (
    (r"^hook_embed$", "embed"),
    (r"\bhook_resid_(pre|mid|post)\b", r"resid_\1"),
    (r"\bresid\.(pre|mid|post)\b", r"resid_\1"),
    (r"\bblocks\.([^.]+)\.hook_in\b", r"blocks.\1.resid_pre"),
    (r"\bblocks\.([^.]+)\.hook_out\b", r"blocks.\1.resid_post"),
    (r"\bhook_(attn|mlp)_out\b", r"\1.out"),
    (r"\b(attn|mlp)\.hook_out\b", r"\1.out"),
    (r"\battn\.hook_attn_scores\b", "attn.scores"),
    (r"\bhook_(q|k|v|z|pattern|pre|post)\b", r"\1"),
    (r"\battn\.hook_rot_(q|k)\b", r"attn.\1"),
    (r"\bln_final\.hook_out\b", "final"),
    (r"^unembed\.hook_out$", "logits"),
)

# TransformerLens' names of what is something else here: where, what it is there, what to read.
DIFFERENT = (
    (r"^hook_embed$", "added", "tokens without positions", "embed, which has both"),
    (r"\bhook_(q|k)$", "rotary", "before rotary positions", "attn.q or k, which are after them"),
    (r"ln_final\.hook_normalized$", "", "before the norm's weights", "final, which is after them"),
    (r"\bhook_result$", "", "what each head writes", "attn.z, then head_results() of the cache"),
)


@lru_cache(maxsize=256)
def check_meaning(pattern: str, positions: tuple[str, ...]) -> None:
    """Refuse a name that means something else here; `positions` are kinds that the model has."""
    for theirs, where, there, ours in DIFFERENT:
        if re.search(theirs, pattern) and (not where or where in positions):
            problem = f"{pattern!r}, which in TransformerLens is {there}"
            raise UsageError("finding a tap", problem, ours)


def of_source(name: str) -> bool:
    """Whether a tap's positions are the source's in an encoder-decoder: it is read once."""
    memory = ".cross." in name and name.rpartition(".")[2] in ("k", "v")
    return name.startswith("encoder.") or memory


def find_taps(patterns: str | Iterable[str], names: Iterable[str]) -> list[str]:
    """The taps that the patterns name, in the model's order; an unknown one gets suggestions.

    `*` stands for anything. A model with one stack may leave `encoder.` or `decoder.` away.
    """
    return list(_find_taps(listed(patterns), tuple(names)))


def listed(names: str | Iterable[str]) -> tuple[str, ...]:
    """One pattern or several."""
    several = tuple([names] if isinstance(names, str) or not isinstance(names, Iterable) else names)
    if not all(isinstance(pattern, str) for pattern in several):
        raise UsageError("finding a tap", f"taps = {names!r}", "names or patterns of taps")
    return several


@lru_cache(maxsize=256)  # a new search takes 0.1 ms for each pattern, more than a capture
def _find_taps(patterns: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    chosen: set[str] = set()
    for pattern in patterns:
        hits = match_pattern(pattern, names)
        if not hits:
            short = {name.removeprefix("encoder.").removeprefix("decoder."): name for name in names}
            close = nearest(pattern, names) or nearest(pattern, short) or ", ".join(names[:3])
            problem, fix = f"no tap is called {pattern!r}", "use * for any part of a name"
            raise UsageError("finding a tap", problem, f"a name such as {close}", fix)
        chosen.update(hits)
    return tuple(name for name in names if name in chosen)


def match_pattern(pattern: str, names: tuple[str, ...]) -> list[str]:
    """Taps that one pattern names: as it is, by an alias, or without the name of the stack."""
    for theirs, ours in ALIASES:
        pattern = re.sub(theirs, ours, pattern)
    stacks = {name.split(".")[0] for name in names} & {"encoder", "decoder"}
    prefixes = ["", *(f"{stack}." for stack in stacks if len(stacks) == 1)]
    return next((hits for p in prefixes if (hits := fnmatch.filter(names, p + pattern))), [])
