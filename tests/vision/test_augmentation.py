"""Augmentation against Pillow, closed forms, and itself."""

import math

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance

from regard.model.batch import Batch
from regard.model.model import Model
from regard.model.presets import vit
from regard.train.config import PictureConfig
from regard.vision.augmentation import OPERATIONS, PLACES, Augmentation, Preparation
from regard.vision.picture_classes import example_loss


def pictures(count=4, side=8, channels=3):
    dice = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, channels, side, side), generator=dice).float()


def plan(**settings):
    return Augmentation(PictureConfig(**{"crop": 0, **settings}))


def dice_of(rows=4, operations=0, **columns):
    dice = torch.full((rows, PLACES + 2 * operations), 0.5)
    for column, value in columns.items():
        dice[:, int(column[1:])] = torch.as_tensor(value)
    return dice


def chosen(name, level):
    """Dice that draw one operation at a level from −1 to 1."""
    number = OPERATIONS.index(name)
    first, second = f"c{PLACES}", f"c{PLACES + 1}"
    return dice_of(
        operations=1, **{first: (number + 0.5) / len(OPERATIONS), second: (level + 1) / 2}
    )


FILL = torch.full((3, 1, 1), 100.0)


def test_nothing_is_the_identity():
    x = pictures()
    assert torch.allclose(plan().change(x, dice_of(), FILL), x, atol=1e-3)


def test_a_crop_moves_by_whole_pixels_and_fills_what_is_new():
    x, drawn = pictures(), dice_of(c0=0.0, c1=0.999)
    moved = plan(crop=2).change(x, drawn, FILL)
    expected = torch.full_like(x, 100.0)
    expected[:, :, 2:, :-2] = x[:, :, :-2, 2:]
    assert torch.allclose(moved, expected, atol=1e-3)


def test_flip_mirrors_those_below_a_half():
    x = pictures()
    drawn = dice_of(c2=[0.1, 0.9, 0.4, 0.6])
    out = plan(flip=True).change(x, drawn, FILL)
    for n, mirrored in enumerate((True, False, True, False)):
        assert torch.allclose(out[n], x[n].flip(-1) if mirrored else x[n], atol=1e-3)


@pytest.mark.parametrize("name", ["brightness", "contrast", "colour"])
@pytest.mark.parametrize("level", [-0.6, 0.5])
def test_colours_are_those_of_pillow(name, level):
    x = pictures()
    out = plan(randaugment=1, magnitude=10.0).change(x, chosen(name, level), FILL)
    enhance = {"colour": ImageEnhance.Color}.get(name) or getattr(ImageEnhance, name.title())
    for ours, theirs in zip(out, x, strict=True):
        image = Image.fromarray(theirs.permute(1, 2, 0).byte().numpy())
        expected = torch.from_numpy(np.array(enhance(image).enhance(1 + level))).permute(2, 0, 1)
        assert (ours - expected).abs().max() <= 2.5  # Pillow rounds greys and results


def test_rotation_is_that_of_pillow():
    y, x = np.mgrid[:32, :32]
    smooth = torch.from_numpy(np.stack([8 * x, 8 * y, 4 * (x + y)])).float().clamp(max=255)[None]
    out = plan(randaugment=1, magnitude=10.0).change(smooth, chosen("rotate", 0.5)[:1], FILL)
    image = Image.fromarray(smooth[0].permute(1, 2, 0).byte().numpy())
    inside = (slice(None), slice(8, 24), slice(8, 24))
    turned = [
        torch.from_numpy(np.array(image.rotate(angle, Image.Resampling.BILINEAR))).permute(2, 0, 1)
        for angle in (15, -15)
    ]
    gaps = [(out[0][inside] - other[inside]).abs().max() for other in turned]
    assert min(gaps) < 4 < max(gaps)


def test_solarize_turns_what_is_light():
    x = pictures()
    out = plan(randaugment=1, magnitude=10.0).change(x, chosen("solarize", 0.5), FILL)
    moved = torch.where(x > 127.5, 255 - x, x)
    assert torch.allclose(out, moved, atol=1e-2)


def test_erasing_blanks_a_box_of_the_drawn_share():
    x = torch.ones(4, 3, 64, 64)
    drawn = dice_of(c3=[0.1, 0.1, 0.9, 0.1], c4=[0.0, 0.5, 0.5, 1.0], c5=[0.5, 0.5, 0.5, 0.2])
    blank = 1 - plan(erase=0.25).blank(x, drawn).mean((1, 2, 3))
    expected = torch.tensor([0.02, 0.175, 0.0, 0.33])
    assert torch.allclose(blank, expected, atol=0.02)


def test_mixup_of_one_is_the_identity_and_else_the_mean():
    x = pictures()
    same, share = plan(mixup=0.8).mix(x, dice_of(c8=1.0, c9=0.0))
    assert torch.equal(same, x) and torch.equal(share, torch.ones(4))
    mixed, share = plan(mixup=0.8).mix(x, dice_of(c8=0.3, c9=0.0))
    assert torch.allclose(mixed, 0.3 * x + 0.7 * x.flip(0), atol=1e-3)
    assert torch.allclose(share, torch.full((4,), 0.3))


def test_the_area_that_cutmix_leaves_is_its_share_of_the_label():
    x = torch.stack([torch.full((3, 16, 16), float(n)) for n in range(4)])
    drawn = dice_of(c8=[1.0, 0.75, 0.5, 0.1], c9=1.0, c10=[0.5, 0.5, 0.1, 0.9], c11=0.5)
    mixed, share = plan(cutmix=1.0).mix(x, drawn)
    own = (mixed == x).float().mean((1, 2, 3))
    assert torch.allclose(own, share) and share[0] == 1
    assert share[1] == pytest.approx(0.75, abs=0.01)  # inside: nothing is clipped
    other = x.flip(0)
    assert ((mixed == x) | (mixed == other)).all()


def test_draws_follow_alpha_and_are_the_same_again():
    for settings, cut in (
        ({"mixup": 0.8}, 0),
        ({"cutmix": 1.0}, 1),
        ({"mixup": 0.8, "cutmix": 1.0}, 0.5),
    ):
        drawn = plan(**settings).draw(np.random.default_rng((1, 2, 3)), 4000)
        assert drawn[:, 9].mean() == pytest.approx(cut, abs=0.03)
        assert drawn[:, 8].mean() == pytest.approx(0.5, abs=0.03)
        again = plan(**settings).draw(np.random.default_rng((1, 2, 3)), 4000)
        assert np.array_equal(drawn, again)
    spread = plan(mixup=0.8).draw(np.random.default_rng(0), 20000)[:, 8].var()
    assert spread == pytest.approx(1 / (4 * (2 * 0.8 + 1)), rel=0.05)  # of Beta(α, α)


def test_the_whole_loss_is_one_graph_with_the_same_answer():
    settings = dict(crop=2, flip=True, randaugment=2, erase=0.5, mixup=0.8, cutmix=1.0)
    augment, mean, graphs = plan(**settings), torch.full((3, 1, 1), 120.0), []

    def keep(graph, inputs):
        graphs.append(graph)
        return graph

    model = Model.fresh(vit(16, 1, 2, 4, 8, 5)).train()
    compiled = torch.compile(example_loss, backend=keep, fullgraph=True)
    stored, labels = pictures(8).byte(), torch.arange(8) % 5
    for seed in range(3):
        dice = torch.from_numpy(augment.draw(np.random.default_rng(seed), 8))
        given = dict(prepare=Preparation(mean, mean / 2, augment), extra={"dice": dice})
        ours, theirs = (
            run(model, Batch(stored), labels, 0.1, **given) for run in (compiled, example_loss)
        )
        assert torch.allclose(ours.sum, theirs.sum) and math.isfinite(float(ours.plain))
    assert len(graphs) == 1
