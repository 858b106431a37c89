"""How long a text may be that is looked into: what a model has positions for, and what fits."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from regard.errors import DataError, UsageError
from regard.heap import free_memory
from regard.model.cost import RunShape, count_memory, kept_bytes
from regard.model.fronts import TextFront
from regard.result import human_bytes
from regard.tokens.tokenizer import Side

if TYPE_CHECKING:
    from regard.kit import Kit

LONGEST = 5000  # tokens of either side, unless a call says otherwise
MAP_BYTES = 10  # of an attention weight that is read: 12 heads of 5,000 tokens took 2.9 GB


def max_tokens_of(kit: Kit, doing: str, side: Side = "source", asked: int | None = None) -> int:
    """Tokens that one side of a model reads at once: those of its table of positions.

    Without one, so many as asked, or what it was trained on, or 5,000 where that is less.
    """
    front = kit.model.front if side == "source" else kit.model.reader
    if not isinstance(front, TextFront):
        problem = f"a model that reads {kit.model.config.front.kind}"
        raise UsageError(doing, problem, "one that reads text")
    table = None if front.positions is None else front.positions.size
    if asked is not None:
        return min(asked, table or asked)
    return table or max(front.config.length or 0, LONGEST)


def check_length(kit: Kit, ids: list[int], doing: str, side: Side = "source") -> list[int]:
    """The ids of a text, if there are any and no more than the model reads."""
    if not ids:
        raise DataError(doing, "no tokens in the text", "at least one")
    most = max_tokens_of(kit, doing, side)
    if len(ids) > most:
        what = "text" if kit.model.config.target is None else side
        problem = f"a {what} of {len(ids):,} tokens"
        raise DataError(doing, problem, f"at most {most:,}, which this model reads")
    return ids


def check_memory(kit: Kit, length: int, doing: str, maps: int = 0, gradients: bool = False) -> int:
    """Bytes that a text takes where so many heads' maps are held; too many are refused."""

    def needed(tokens: int) -> int:
        run, config = RunShape(1, tokens, tokens), kit.model.config
        memory = count_memory(config, run) if kit.model.stacks else None  # recurrent: not known
        takes = 0 if memory is None else memory.peak - memory.weights
        if gradients and memory is not None:
            takes = sum(kept_bytes(config, run).values())
        return takes + MAP_BYTES * maps * tokens**2

    takes, free = needed(length), free_memory(kit.device.type)
    if free is not None and takes > free:
        problem = f"{length:,} tokens, which take {human_bytes(takes)}"
        most = bisect_right(range(1, length), free, key=needed)
        expected = f"at most {most:,}, which fit into {human_bytes(free)}"
        raise DataError(doing, problem, expected, "a shorter text")
    return takes
