"""`regard fill`: the likeliest words for a gap in a text."""

from __future__ import annotations

import argparse
from typing import Any

from regard.cli.lines import Faults, numbered_lines
from regard.cli.opening import open_kit, wrong_network
from regard.cli.show import Show
from regard.cli.texts import at_least, print_json
from regard.decode.prompt import encode_gaps
from regard.errors import DataError
from regard.kit import Kit


def run(args: argparse.Namespace, show: Show) -> int:
    """Rank the words of each gap."""
    at_least("--top", args.top)
    kit = open_kit(args.path, args.device, args.precision, edits=args.edit)
    mask = mask_id(kit, args.path)
    faults = Faults(show)
    for number, line in numbered_lines(None if args.text is None else [args.text]):
        try:
            gaps = fill(kit, line.read(), mask, args.top)
        except DataError as error:
            faults.tell(line.fault or f"line {number}: {error}")
            if show.as_json:
                print_json({"text": line.text, "error": str(error)})
            continue
        if show.as_json:
            print_json({"text": line.text, "masks": gaps})
            continue
        for place, gap in enumerate(gaps, 1):
            rows = [(word["word"], f"{word['probability']:.4f}") for word in gap]
            title = line.text if place == 1 else f"gap {place}"
            show.table(title, ("word", "probability"), rows)
    return faults.finish()


def mask_id(kit: Kit, path: str) -> int:
    """The id of the mask token of a masked language model."""
    found = kit.text_tokenizer.specials.get("mask")
    if found is None or kit.model.encoder is None or kit.model.decoder is not None:
        raise wrong_network("filling a gap", path, kit, "a masked language model such as BERT")
    return found


def fill(kit: Kit, text: str, mask: int, top: int) -> list[list[dict[str, Any]]]:
    """For each gap, its likeliest words with their probabilities, best first."""
    ids = encode_gaps(kit.text_tokenizer, text, mask)
    scores = kit.logits([ids])[0]
    gaps = []
    for place in (n for n, id in enumerate(ids) if id == mask):
        best = (
            scores[place]
            .float()
            .softmax(-1)[: kit.text_tokenizer.size]
            .topk(min(top, kit.text_tokenizer.size, scores.shape[-1]))
        )
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        gaps.append([{"word": word_of(kit, id), "id": id, "probability": p} for id, p in pairs])
    return gaps


def word_of(kit: Kit, id: int) -> str:
    """A token as text; a control token by its name."""
    return kit.text_tokenizer.decode([id]).strip() or kit.text_tokenizer.pieces([id])[0]
