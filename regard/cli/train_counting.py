"""`regard train bayes`, `logreg` and `ibm1`: translators that count words."""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from regard.cli.counted import leave_receipt, new_folder
from regard.cli.show import Progress, Show, human
from regard.cli.texts import at_least
from regard.cli.train_data import all_pairs
from regard.errors import DataError, UsageError
from regard.history.bag_of_words import BagModel, train_bayes, train_logreg
from regard.history.ibm1 import train_words
from regard.history.word_translator import WordTranslator, number_words

DOING = "training a translator that counts words"
SETTINGS = ("k", "l2", "best", "steps", "rounds")
"""Arguments that are written into config.json."""


def run(args: argparse.Namespace, show: Show) -> int:
    """Count or fit, write the folder and say what is in it."""
    for name in ("best", "steps", "rounds"):
        at_least(f"--{name}", getattr(args, name, None))
    for name in ("k", "l2"):
        if not getattr(args, name, 1.0) > 0:
            raise UsageError(DOING, f"--{name} {getattr(args, name)}", "more than 0")
    out = new_folder(args, DOING, "source TAB target on each line")
    began = time.perf_counter()
    with show.progress("training") as progress:
        made, counting = train(args, show, progress)
        progress("writing")
        settings = {name: vars(args)[name] for name in SETTINGS if name in vars(args)}
        counting.save(out, settings)
    made = {"out": str(out), **made, "seconds": round(time.perf_counter() - began, 2)}
    leave_receipt(args, out, made)
    if show.as_json:
        show.result(made)
    else:
        show.fields(args.verb, {name: human(value) for name, value in made.items()})
    return 0


def train(
    args: argparse.Namespace, show: Show, progress: Progress
) -> tuple[dict[str, Any], WordTranslator]:
    """The model, and what there is to say of it."""
    progress("reading")
    pairs = list(all_pairs(args.files))
    if not pairs:
        raise DataError(DOING, f"no pairs in {', '.join(args.files)}", "one or more")
    words, sources, targets = number_words(pairs)
    kind, heard = args.verb.removeprefix("train "), len(words.sources)
    progress(f"counting {len(pairs):,} pairs")
    model: Any
    if kind == "bayes":
        model = train_bayes(sources, targets, heard, args.k)
    elif kind == "logreg":
        model = train_logreg(sources, targets, heard, args.l2, args.best, args.steps, progress)
    else:
        model = train_words(sources, targets, (heard, len(words.targets)), args.rounds, progress)
    made = {
        "pairs": len(sources.bounds) - 1,
        "skipped": len(pairs) - len(sources.bounds) + 1,
        "source_words": heard,
        "target_words": len(words.targets),
    }
    if isinstance(model, BagModel):
        once = np.flatnonzero(model.classes.seen == 1)
        made |= {"classes": len(model.classes.word), "seen_once": len(once)}
        if len(once):
            first = words.targets[model.classes.word[once[0]]]
            show.note(f"warning: {len(once):,} classes were seen once, such as {first!r}; kept")
    made["weights"] = len((model.rows if isinstance(model, BagModel) else model.table).values)
    return made, WordTranslator(kind, model, words)
