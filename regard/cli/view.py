"""`regard look`: a page, a table and a picture of where the heads of a model look."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from regard.cli.lengths import check_length, check_room, most_tokens
from regard.cli.lines import numbered_lines
from regard.cli.measured import check_outputs
from regard.cli.opening import open_kit
from regard.cli.show import Progress, Show, human_bytes, human_time
from regard.cli.view_flags import LONGEST
from regard.decode.write import without_end
from regard.errors import DataError, UsageError
from regard.files import write_whole
from regard.interop.side import start_id
from regard.kit import Kit
from regard.look.labels import token_label, token_labels
from regard.look.view import Maps, View, attention_taps, gather_view, head_counts
from regard.look.view_effects import with_effects
from regard.look.view_html import view_page
from regard.look.view_png import draw_head, draw_heads
from regard.look.view_text import LINKS, forecast_line, text_view
from regard.model.batch import Batch

DOING = "looking at attention"
PACE = 4e-8  # seconds of a core for each weight of a map
WORK = 1e13  # multiplications that effects may take unasked on a CPU: a few minutes


class Shown(NamedTuple):
    """One text, ready to be looked at."""

    batch: Batch
    sides: dict[str, list[str]]
    """Tokens as people read them."""
    name: Callable[[int], str]
    """How a prediction is spelt."""


def run(args: argparse.Namespace, show: Show) -> int:
    """Look, print, write."""
    page, picture = Path(args.out), None if args.png is None else Path(args.png)
    check_paths(page, picture)
    head = None if args.head is None else parse_head(args.head)
    if len(args.texts) > 2:
        found = f"{len(args.texts)} texts"
        raise UsageError("reading the command line", found, "one, or a source and its target")
    text = "\n".join(line.read() for _, line in numbered_lines(args.texts[:1]))
    target = args.texts[1] if len(args.texts) > 1 else None
    with show.progress("looking") as progress:
        progress(f"opening {args.path}")
        kit = open_kit(args.path, args.device, args.precision, edits=args.edit)
        attention_taps(kit.board)  # one without attention is refused before it translates
        shown = read(kit, text, target, args.max_tokens, progress)
        check_cost(kit, shown, show)
        view = gather_view(kit.board, shown.batch, shown.sides, progress)
        check_choice(view, args.stack, head)
        if wants_effects(kit, shown, args.effects, show):
            view = with_effects(kit.board, shown.batch, view, progress)
    command = shlex.join(["regard", *args.arguments])
    made = view_page(view, f"{args.path}: {text}"[:200], shown.name, command).encode()
    if picture is not None:
        drawn = draw_head(view, args.stack, head) if head else draw_heads(view, args.stack)
        write_whole(picture, drawn)
    write_whole(page, made)
    paths = {"page": str(page)} | ({} if picture is None else {"picture": str(picture)})
    if show.as_json:
        show.result(as_data(view, args.stack, head, shown.name) | paths)
        return 0
    blocks = (sys.stdout.encoding or "").lower().startswith("utf")
    show.line(text_view(view, args.stack, head, blocks))
    show.line()
    if forecast := forecast_line(view, shown.name):
        show.line(forecast)
    if picture is not None:
        show.line(f"picture: {picture}")
    show.line(f"page: {page} ({human_bytes(len(made))})")
    return 0


def check_paths(page: Path, picture: Path | None) -> None:
    """Stop before any work where a file could not be written."""
    if page.suffix == ".png" or page == picture:
        found = f"--out {page}, which is a picture's name"
        raise UsageError("reading the command line", found, "the page's, such as look.html")
    check_outputs(page, png=picture)


def parse_head(text: str) -> tuple[int, int]:
    """'5.3' → block 5, head 3."""
    block, _, head = text.partition(".")
    if not (block.isdecimal() and head.isdecimal()):
        found = f"--head {text}"
        raise UsageError("reading the command line", found, "block.head, such as 5.3")
    return int(block), int(head)


def check_choice(view: View, stack: str | None, head: tuple[int, int] | None) -> None:
    """Is there such a stack, and such a head in it?"""
    blocks, heads = view.stack(stack).small.shape[:2]
    if head is not None and (head[0] >= blocks or head[1] >= heads):
        found = f"--head {head[0]}.{head[1]}"
        raise UsageError(DOING, found, f"0.0 to {blocks - 1}.{heads - 1}")


def read(kit: Kit, text: str, target: str | None, most: int, progress: Progress) -> Shown:
    """The text as a batch, with its tokens; an encoder-decoder without target translates first."""
    config, tokenizer = kit.model.config, kit.text_tokenizer
    most_tokens(kit, DOING)  # says so where it reads no text
    if config.target is None and target is not None:
        raise UsageError(DOING, "two texts", "one; or an encoder-decoder")
    if not text.strip():
        raise DataError(DOING, "an empty text", "at least one word")
    ids = check_length(kit, tokenizer.encode(text), DOING, text, asked=most)
    if config.target is None:
        sides = {"text": token_labels(tokenizer, ids, "source")}
        return Shown(kit.batch([ids]), sides, namer(kit))
    if target is None:
        progress("translating")
        target = kit.translate(text)
    written = without_end(tokenizer.encode(target, side="target"), kit.stops)
    begun = [start_id(kit.files, kit.config), *written]
    check_length(kit, begun, DOING, target, "target", most)
    sides = {
        "source": token_labels(tokenizer, ids, "source"),
        "target": token_labels(tokenizer, begun, "target"),
    }
    return Shown(kit.batch([ids], [begun]), sides, namer(kit))


def check_cost(kit: Kit, shown: Shown, show: Show) -> None:
    """Refuse what does not fit; say beforehand what a long text takes."""
    heads = head_counts(kit.board)
    longest = max(map(len, shown.sides.values()))
    needed = check_room(kit, longest, DOING, max(heads))
    if longest > LONGEST:
        time = human_time(PACE * sum(heads) * longest**2)
        place = "of a core" if kit.device.type == "cpu" else "on a CPU, less here"
        show.note(f"{longest:,} tokens: about {human_bytes(needed)} of memory and {time} {place}")


def namer(kit: Kit) -> Callable[[int], str]:
    """How predictions are spelt: tokens, or the names of classes."""
    head, tokenizer = kit.model.config.head, kit.text_tokenizer
    classes = kit.config.get("id2label") or {}
    if head.take != "all" or (classes and head.size == len(classes)):
        return lambda number: str(classes.get(str(number), f"class {number}"))
    return lambda token: token_label(tokenizer, token)


def wants_effects(kit: Kit, shown: Shown, asked: bool | None, show: Show) -> bool:
    """Whether to run without each head: as asked, else where it does not take long."""
    if asked is not None or kit.model.config.head.size is None:
        return bool(asked) and kit.model.config.head.size is not None
    heads = sum(head_counts(kit.board))
    weights = sum(p.numel() for p in kit.model.parameters())
    tokens = sum(map(len, shown.sides.values()))
    few = kit.device.type != "cpu" or weights * tokens * heads <= WORK
    if not few:
        show.note(f"not run without each of {heads:,} heads, which takes long; --effects does")
    return few


def as_data(
    view: View, stack: str | None, head: tuple[int, int] | None, name: Callable[[int], str]
) -> dict[str, Any]:
    """The object of `--json`; the maps themselves are in the page."""
    maps = view.stack(stack)
    shown = maps.mean if head is None else maps.heads[head[0]][head[1]]
    links = [shown.links(query, LINKS) for query in range(len(view.sides[maps.sides[0]]))]
    made: dict[str, Any] = {
        "tokens": view.sides,
        "stacks": [stack_data(view, m) for m in view.maps],
    }
    made |= {"stack": maps.stack, "head": None if head is None else list(head)}
    made["links"] = [[{"key": k, "weight": w} for k, w in row] for row in links]
    if view.forecast is not None:
        pairs = zip(view.forecast.tokens[-1], view.forecast.probabilities[-1], strict=True)
        made["forecast"] = [{"text": name(int(t)), "probability": float(p)} for t, p in pairs]
    return made


def stack_data(view: View, maps: Maps) -> dict[str, Any]:
    """Heads of a stack, each in a few figures."""
    effects = view.effects.get(maps.stack)
    heads: list[dict[str, Any]] = []
    for block, row in enumerate(maps.facts):
        for head, fact in enumerate(row):
            query, key, weight = fact.link
            one: dict[str, Any] = {"block": block, "head": head, "distance": fact.distance}
            one |= {"entropy": fact.entropy}
            one["link"] = {"query": query, "key": key, "weight": weight}
            if effects is not None:
                one["effect"] = float(effects.changes[block, head, -1])
            heads.append(one)
    return {"stack": maps.stack, "queries": maps.sides[0], "keys": maps.sides[1], "heads": heads}
