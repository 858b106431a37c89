"""How good a model is, on tasks and test sets."""

from __future__ import annotations

from regard.look.results import IndirectObjects
from regard.verbs import Count, ModelLike, verb


@verb
def ioi(
    model: ModelLike,
    *,
    count: Count = 64,
    heads: bool = False,
    top: Count = 5,
) -> IndirectObjects:
    """Who is the indirect object? Logit difference, and the heads that find out (Wang 2022).

    Args:
        model: a language model.
        count: prompts.
        heads: look for the classes of heads too: paths to the end, and attention between names.
        top: heads of a class that are shown.

    Example:
        >>> regard.evaluate.ioi("folder").logit_difference
        $ regard evaluate ioi folder
        $ regard evaluate ioi folder --count 200 --heads
        $ regard evaluate ioi folder --heads --seed 7 --receipt ioi.json
    """
    from regard.loading import open_kit
    from regard.look.ioi_task import measure_ioi

    return measure_ioi(open_kit(model, None), count, heads=heads, top=top)
