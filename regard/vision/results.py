"""What the verbs over pictures return. No torch here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regard.result import Grid, Result, shown

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
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
        rows = [(str(n), f"{value:,.1f}") for n, value in enumerate(self.nats)]
        yield Grid(f"{len(self.nats)} pictures; --save grid.png draws them", ("", "nats"), rows)

    def plot(self) -> Any:
        """All of them: each in a row with what it began with, or as a square."""
        from regard.look.picture import new_figure

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
