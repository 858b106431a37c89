"""What `regard translate --explain` shows and writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.cli.show import Show
from regard.cli.texts import print_json
from regard.errors import UsageError
from regard.files import check_places, write_whole
from regard.look.picture import MISSING, can_draw, draw_alignments, png
from regard.translation.explanation import Explanation, as_data, explain_page, shares, to_section


def explain_data(explained: Sequence[Explanation]) -> list[dict[str, Any]]:
    """The list of `--json`."""
    return [as_data(explanation) for explanation in explained]


def show_explanations(explained: Sequence[Explanation], show: Show) -> None:
    """Translations and tables on the terminal."""
    for e in explained:
        show.line(e.source)
        for translation, share in zip(e.translations, shares(e.translations), strict=True):
            known = f"  ({share:.0%})" if len(e.translations) > 1 else ""
            show.line(f"→ {translation.text}{known}")
        if not e.copied:
            columns = ("read", "pieces", "became", "seen")
            show.table("", columns, source_rows(e), left=3)
            show.table("", ("written", "from", "sure"), target_rows(e), left=2)
        for note in e.notes:
            show.line(note)
        show.line()


def source_rows(e: Explanation) -> list[tuple[str, ...]]:
    """A row for each source word."""
    return [
        (
            word.text,
            " · ".join(word.pieces) if len(word.pieces) > 1 else "",
            " ".join(e.target_words[t].text for s, t in e.links if s == n),
            "" if word.seen is None else f"{word.seen:,}" + (" rare" if word.rare else ""),
        )
        for n, word in enumerate(e.source_words)
    ]


def target_rows(e: Explanation) -> list[tuple[str, ...]]:
    """A row for each target word."""
    return [
        (
            word.text,
            " ".join(e.source_words[s].text for s, t in e.links if t == n),
            f"{word.probability:.0%}",
        )
        for n, word in enumerate(e.target_words)
    ]


def check_page(path: Path) -> None:
    """Stop before any work where the page could not be written."""
    if path.suffix == ".png":
        found = f"--page {path}, which is the picture's name"
        raise UsageError("reading the command line", found, "the page's, such as why.html")
    check_places(path)


def write_pages(explained: Sequence[Explanation], path: Path, show: Show) -> None:
    """The page, a picture where matplotlib is there, and their paths, the picture's last."""
    picture = path.with_suffix(".png")
    drawn = draw_alignments([to_section(e) for e in explained]) if can_draw() else None
    write_whole(path, explain_page(explained).encode())
    if drawn is not None:
        write_whole(picture, png(drawn))
    if not can_draw():
        show.note(MISSING)
    paths = {"page": str(path)} | ({} if drawn is None else {"picture": str(picture)})
    if show.as_json:
        print_json(paths)
        return
    for name, where in paths.items():
        show.line(f"{name}: {where}")
