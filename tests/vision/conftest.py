import numpy as np
import pytest
from PIL import Image


def picture(colour, side=12, seed=0):
    """A noisy picture whose mean colour tells its class."""
    dice = np.random.default_rng(seed)
    pixels = np.array(colour) + dice.normal(0, 20, (side, side, 3))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


COLOURS = {"red": (200, 60, 60), "green": (60, 180, 60), "blue": (60, 60, 200)}


@pytest.fixture
def folder(tmp_path):
    """30 pictures in three folders."""
    root = tmp_path / "pictures"
    for name, colour in COLOURS.items():
        (root / name).mkdir(parents=True)
        for n in range(10):
            picture(colour, seed=n).save(root / name / f"{n}.png")
    return root
