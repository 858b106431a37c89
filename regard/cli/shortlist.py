"""`regard shortlist`: list the words that translations need, so that a CPU scores only those."""

from __future__ import annotations

import argparse
from pathlib import Path

from regard.cli.opening import open_kit
from regard.cli.show import Show, human_bytes
from regard.data.pairs import all_pairs
from regard.translation.lexical_shortlist import learn_shortlist
from regard.zoo import locate


def run(args: argparse.Namespace, show: Show) -> int:
    """Learn the lists, write them into the folder and say what they are worth."""
    kit, folder = open_kit(args.path, "cpu", "auto"), Path(locate(args.path))
    pairs = all_pairs(args.files)
    made = learn_shortlist(kit, folder, pairs, args.best, args.always, args.pairs)
    if show.as_json:
        show.result(vars(made))
        return 0
    show.line(f"{made.file}: {human_bytes(made.bytes)}")
    always = f"{made.always:,} of them always"
    show.line(f"a source has {made.length:,.0f} of {made.words:,} words on average, {always}")
    last = f"the last {made.held_out:,} pairs, which were not learnt from"
    show.line(f"they hold {made.share:.2%} of the target tokens of {last}")
    return 0
