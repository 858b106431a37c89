"""`regard look`: a page, a table and a picture of where the heads of a model look."""

from __future__ import annotations

import argparse
from pathlib import Path

from regard.cli.lines import numbered_lines
from regard.cli.measured import check_outputs
from regard.cli.opening import open_kit
from regard.cli.show import Show, human_bytes
from regard.errors import UsageError
from regard.files import write_whole
from regard.look.attention_maps import map_attention
from regard.look.picture import png


def run(args: argparse.Namespace, show: Show) -> int:
    """Look, print, write."""
    page, picture = Path(args.out), None if args.png is None else Path(args.png)
    if page.suffix == ".png" or page == picture:
        found = f"--out {page}, which is a picture's name"
        raise UsageError("reading the command line", found, "the page's, such as look.html")
    check_outputs(page, png=picture)
    if len(args.texts) > 2:
        found = f"{len(args.texts)} texts"
        raise UsageError("reading the command line", found, "one, or a source and its target")
    text = "\n".join(line.read() for _, line in numbered_lines(args.texts[:1]))
    target = args.texts[1] if len(args.texts) > 1 else None
    kit = open_kit(args.path, args.device, args.precision, edits=args.edit)
    maps = map_attention(
        kit,
        text,
        target,
        stack=args.stack,
        head=args.head,
        effects=args.effects,
        max_tokens=args.max_tokens,
        heading=f"{args.path}: {text}"[:200],
    )
    made = maps.page().encode()
    paths = {"page": str(page)}
    if picture is not None:
        write_whole(picture, png(maps.plot()))
        paths["picture"] = str(picture)
    write_whole(page, made)
    if show.as_json:
        show.result(maps.to_dict() | paths)
        return 0
    show.line(str(maps))
    show.line()
    if picture is not None:
        show.line(f"picture: {picture}")
    show.line(f"page: {page} ({human_bytes(len(made))})")
    return 0
