"""`regard look lens`: what each layer would say, and which parts wrote the answer."""

from __future__ import annotations

import argparse

from regard.cli.opening import open_kit
from regard.cli.show import Show
from regard.look.logit_lens import read_lens


def run(args: argparse.Namespace, show: Show) -> int:
    """Follow one token through the layers."""
    kit = open_kit(args.path, args.device, None)
    words = {"target": args.target, "against": args.against}
    lens = read_lens(kit, args.path, args.text, **words, neurons=args.neurons, top=args.top)
    if show.as_json:
        show.result(lens.to_dict())
    else:
        show.line(str(lens))
    return 0
