"""Which layer of a picture model knows what: edges, parts, objects.

    python examples/features.py [--steps 150]

A small ViT learns to tell pictures of crosses, squares and bars apart. Probes then read three
features off the vectors of its patches, layer by layer: which edge runs through the patch, and
which thing the picture shows, at patches with an edge of it and at those beside it. What a patch
itself shows is there from the start; what the whole picture shows comes in by attention, block by
block. `regard look probe MODEL FILE --label upos deprel` prints the same table for text.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor

from regard.look.hooks import HookedModel
from regard.look.probing import make_task, probe_vectors
from regard.model import presets
from regard.model.batch import Batch
from regard.model.model import Model

SIDE, PATCH, THINGS = 24, 4, ("cross", "square", "bars")


def draw(count: int, dice: torch.Generator) -> tuple[Tensor, Tensor, list[list[str]]]:
    """Pictures (N, 3, 24, 24) with noise, their things, and what each patch is a part of."""
    pixels = 0.3 * torch.randn(count, 3, SIDE, SIDE, generator=dice)
    things = torch.randint(len(THINGS), (count,), generator=dice)
    corners = torch.randint(0, SIDE - 15, (count, 2), generator=dice)
    grid = SIDE // PATCH
    parts = [["none"] * (grid * grid) for _ in range(count)]
    for n, (thing, (top, left)) in enumerate(zip(things.tolist(), corners.tolist(), strict=True)):
        across, down = ([7], [7]) if thing == 0 else ([0, 14], [0, 14])
        down = [] if thing == 2 else down
        for row in across:  # lines of 15 pixels
            pixels[n, :, top + row, left : left + 15] += 2
        for column in down:
            pixels[n, :, top : top + 15, left + column] += 2
        for p in range(grid * grid):
            y, x = PATCH * (p // grid), PATCH * (p % grid)
            inside = top < y + PATCH and y < top + 15 and left < x + PATCH and x < left + 15
            flat = inside and any(y <= top + row < y + PATCH for row in across)
            steep = inside and any(x <= left + column < x + PATCH for column in down)
            parts[n][p] = ("none", "flat", "steep", "crossing")[flat + 2 * steep]
    return pixels, things, parts


def train(steps: int) -> HookedModel:
    """A ViT of four blocks that names the thing."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # products this small only wait for each other on more
    model = Model.fresh(presets.vit(48, 4, 4, PATCH, SIDE, len(THINGS))).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    dice = torch.Generator().manual_seed(0)
    for _ in range(steps):
        pixels, things, _ = draw(64, dice)
        loss = torch.nn.functional.cross_entropy(model(Batch(pixels)), things)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return HookedModel(model.eval())


def main() -> None:
    """Train, probe each layer for each feature, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=150)
    hooked = train(parser.parse_args().steps)
    pixels, things, parts = draw(60, torch.Generator().manual_seed(1))
    with torch.no_grad():
        logits, seen = hooked.run(Batch(pixels), ["encoder.embed", "*.resid_post"])
    right = float((logits.argmax(-1) == things).float().mean())
    print(f"things named right: {right:.0%}")
    picture = [n for n, row in enumerate(parts) for _ in row]
    place = [str(p) for row in parts for p in range(len(row))]
    thing = [THINGS[int(things[n])] for n in picture]
    edges = [part for row in parts for part in row]
    features = {
        "edge here": edges,
        "thing, where it is": [
            t if e != "none" else "_" for t, e in zip(thing, edges, strict=True)
        ],
        "thing, beside it": [t if e == "none" else "_" for t, e in zip(thing, edges, strict=True)],
    }
    tasks = {name: make_task(labels, place, picture) for name, labels in features.items()}
    vectors = ((tap, x[:, 1:].flatten(0, 1)) for tap, x in seen.items())  # without the class token
    probed = {name: [] for name in tasks}
    for tap, x in vectors:
        for name, task in tasks.items():
            probed[name].append(probe_vectors(tap, x, task))
    print(f"{'':28}" + "".join(f"{name:>20}" for name in tasks))
    for n, tap in enumerate(seen):
        print(f"{tap:28}" + "".join(f"{probed[name][n].accuracy:20.0%}" for name in tasks))
    for name, each in probed.items():
        best = max(each, key=lambda one: one.accuracy)
        print(f"{name}: most at {best.tap}")


if __name__ == "__main__":
    main()
