"""Draw the coloured shapes that regard ships as pictures to try things on.

    python tools/make_shapes.py    writes regard/vision/shapes.npz and shapes-test.npz

Circles, triangles and crosses in red, green and blue, of any size and place on grey: nine classes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

COLOURS = {"red": (220, 40, 40), "green": (40, 170, 60), "blue": (50, 80, 220)}
SIDE = 32


def draw_shapes(seed: int, count: int) -> dict[str, np.ndarray]:
    """`images` (count, 32, 32, 3) of uint8 and `labels`, such as "red cross"."""
    dice, places = np.random.default_rng(seed), np.mgrid[:SIDE, :SIDE] + 0.5
    images, labels = [], []
    for number in range(count):
        radius = dice.uniform(0.2, 0.4) * SIDE
        y, x = (places - dice.uniform(radius, SIDE - radius, (2, 1, 1))) / radius
        inside = {
            "circle": y**2 + x**2 < 1,
            "triangle": (y < 0.8) & (2 * abs(x) < y + 1),
            "cross": (np.minimum(abs(y), abs(x)) < 0.3) & (np.maximum(abs(y), abs(x)) < 1),
        }
        shape, colour = list(inside)[number % 3], list(COLOURS)[number // 3 % 3]
        shade = np.clip(np.array(COLOURS[colour]) + dice.integers(-30, 31, 3), 0, 255)
        images.append(np.where(inside[shape][..., None], shade, dice.integers(90, 165)))
        labels.append(f"{colour} {shape}")
    return {"images": np.array(images, np.uint8), "labels": np.array(labels)}


if __name__ == "__main__":
    room = Path(__file__).resolve().parent.parent / "regard/vision"
    for name, seed, count in (("shapes", 0, 900), ("shapes-test", 1, 270)):
        np.savez_compressed(room / f"{name}.npz", **draw_shapes(seed, count))
