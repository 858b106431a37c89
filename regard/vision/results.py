"""What the verbs over pictures return. No torch here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from regard.look.results import Attribution, Overlay
from regard.result import Grid, Result, grid_of_values, new_figure, shown

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Drawing(Result):
    """Pictures that a model drew."""

    columns: tuple[str, ...]
    """What stands beside each other: drawn, and as it was."""
    nats: list[float]
    """Of each: −log of the probability of what was drawn."""
    pictures: NDArray[Any] = shown(json=False, table=False)
    """(N, columns, height, width, channels) of uint8."""

    def parts(self) -> Iterator[str | Grid]:
        """How likely each is."""
        title = f"{len(self.nats)} pictures; --save grid.png draws them"
        yield grid_of_values(title, ("", "nats"), enumerate(self.nats), "{:,.1f}")

    def plot(self) -> Any:
        """All of them: each in a row with what it began with, or as a square."""
        count, beside = self.pictures.shape[:2]
        width = beside * max(1, round((count * beside) ** 0.5 / beside))
        flat = self.pictures.reshape(count * beside, *self.pictures.shape[2:])
        height = -(-len(flat) // width)
        figure = new_figure(width, height + 0.3)
        for n, axes in enumerate(figure.subplots(height, width, squeeze=False).flat):
            axes.axis("off")
            if n < len(flat):
                axes.imshow(flat[n].squeeze(-1) if flat.shape[-1] == 1 else flat[n], cmap="gray")
            if n < width and beside > 1:
                axes.set_title(self.columns[n % beside], fontsize=7)
        return figure


class PictureAttribution(Attribution):
    """What each patch, or pixel, of a picture gives to a class, by one method."""

    overlay: Overlay = shown(json=False, table=False)

    def parts(self) -> Iterator[str | Grid]:
        """The places that give most."""
        pairs = zip(self.pieces, self.scores, strict=True)
        best = sorted(pairs, key=lambda pair: -abs(pair[1]))[:10]
        yield grid_of_values(self.title(), ("row,column", "score"), best, "{:.4f}")
        yield from self.explanation.parts()

    def plot(self) -> Any:
        """The picture, and the scores on it."""
        from regard.look.picture import draw_overlays

        return draw_overlays(self.overlay, [[None], [self.scores]], self.method)
