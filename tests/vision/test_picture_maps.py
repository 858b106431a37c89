"""Looking inside models of pictures: maps over the picture, reasons, probes, edits."""

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard.errors import DataError, UsageError
from regard.model.batch import Batch
from regard.train.config import PixelConfig
from regard.vision.picture_classes import IMAGE_RUN
from regard.vision.pixel_tokens import PIXEL_RUN

QUIET = dict(device="cpu", quiet=True)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A ViT and an ImageGPT that know where a bright patch lies, and a picture."""
    root = tmp_path_factory.mktemp("corners")
    dice = np.random.default_rng(0)
    images = dice.integers(90, 110, (80, 8, 8, 3)).astype(np.uint8)
    labels = np.array(["above", "below"])[dice.integers(2, size=80)]
    for image, label in zip(images, labels, strict=True):
        at = 4 * int(dice.integers(2))
        image[slice(0, 4) if label == "above" else slice(4, 8), at : at + 4] = (250, 250, 40)
    np.savez(root / "all.npz", images=images, labels=labels)
    Image.fromarray(images[0]).save(root / "one.png")
    config = regard.TrainConfig(steps=60, eval_every=60, lr=5e-3, optimizer="adamw")
    small = dict(size=8, dim=16, depth=3, heads=2, rows=16)
    shape = regard.PictureConfig(patch=4, crop=0, **small)
    with regard.settings(**QUIET):
        regard.train.image(root / "all.npz", out=root / "vit", config=config, shape=shape)
        few = regard.TrainConfig(steps=4, eval_every=4)
        shape = PixelConfig(codes=4, **small)
        regard.train.pixels(root / "all.npz", out=root / "gpt", config=few, shape=shape)
    return root, images[0], labels[0]


def read(place, kind=IMAGE_RUN, folder="vit/final"):
    kit = kind.open(place[0] / folder)[0]
    return kit, kind.batch(kit, torch.from_numpy(place[1].copy()).permute(2, 0, 1)[None])


def test_maps_are_the_patterns_and_are_drawn_over_the_picture(place, tmp_path):
    path = str(place[0] / "one.png")
    maps = regard.look.attention(place[0] / "vit/final", path)
    kit, batch = read(place)
    pattern = kit.hooked.run(batch, "encoder.blocks.1.attn.pattern")[1].popitem()[1]
    shown = maps.stack().heads[1][0].dense()
    assert np.abs(shown - pattern[0, 0].detach().numpy()).max() < 1 / 255
    assert maps.tokens == {"picture": ["class", "0,0", "0,1", "1,0", "1,1"]}
    assert maps.predicted()[0][0] == place[2]
    assert maps.effects["encoder"].changes.shape[:2] == (3, 2)
    maps.save(tmp_path / "maps.png")
    regard.look.attention(place[0] / "vit/final", path, head="1.0").save(tmp_path / "head.png")
    assert "0,1" in maps.page()
    heights = []
    for name in ("maps.png", "head.png"):
        with Image.open(tmp_path / name) as image:
            heights.append(image.height)
    assert heights[0] > 2 * heights[1]


def test_maps_of_a_decoder_of_pixels(place, tmp_path):
    maps = regard.look.attention(place[0] / "gpt/final", str(place[0] / "one.png"), effects=False)
    assert len(maps.tokens["picture"]) == 64 and maps.tokens["picture"][-1] == "7,6"
    maps.save(tmp_path / "maps.png")


def test_edits_and_ablation_work_as_on_text(place):
    kit, batch = read(place)
    plain = kit.run_batch(batch)
    with kit.edit({"encoder.blocks.*.attn.z": regard.zero(head=1)}):
        without = kit.run_batch(batch)
    kept = [block.attn.o.weight.clone() for block in kit.model.encoder.blocks]
    with torch.no_grad():
        for block in kit.model.encoder.blocks:
            block.attn.o.weight[:, 8:] = 0  # head 1 of two writes nothing
        by_hand = kit.run_batch(batch)
        for block, weight in zip(kit.model.encoder.blocks, kept, strict=True):
            block.attn.o.weight.copy_(weight)
    assert torch.allclose(without, by_hand, atol=1e-6) and not torch.allclose(without, plain)
    assert torch.equal(kit.run_batch(batch), plain)
    output, seen = kit.run(batch.inputs, taps="encoder.blocks.*.resid_post")
    assert torch.allclose(output.logits, plain) and len(seen) == 3


def test_integrated_gradients_are_complete_and_of_the_bright_patch(place):
    said = regard.look.explain(place[0] / "vit/final", str(place[0] / "one.png"))
    kit, batch = read(place)
    scores = kit.run_batch(Batch(torch.cat((batch.inputs, 0 * batch.inputs))))
    label = list(kit.config["id2label"].values()).index(place[2])
    difference = float((scores[0] - scores[1])[label].detach())
    assert said.target == place[2] and len(said.scores) == 64
    assert sum(said.scores) == pytest.approx(difference, rel=0.05)
    bright = (place[1][..., 0] > 200).ravel()
    assert np.array(said.scores)[bright].sum() > 0.5 * sum(said.scores)


def test_rollout_is_the_product_of_the_layers(place, tmp_path):
    said = regard.look.explain(place[0] / "vit/final", str(place[0] / "one.png"), method="rollout")
    kit, batch = read(place)
    product = torch.eye(5)
    for pattern in kit.hooked.run(batch, "*.attn.pattern")[1].values():
        product = (0.5 * pattern[0].mean(0) + 0.5 * torch.eye(5)) @ product
    assert np.allclose(said.scores, product[0, 1:].detach(), atol=1e-6)
    said.save(tmp_path / "rollout.png")
    attended = regard.look.explain(
        place[0] / "vit/final", str(place[0] / "one.png"), method="attention", against="below"
    )
    assert sum(attended.scores) == pytest.approx(attended.explanation.share)


@pytest.mark.parametrize("folder", ["vit/final", "gpt/final"])
def test_probes_by_layer(place, folder):
    with regard.settings(**QUIET):
        probe = regard.look.probe(place[0] / folder, place[0] / "all.npz")
    assert len(probe.taps) == 4 and probe.words == {"train": 64, "dev": 8, "test": 8}
    if folder == "vit/final":
        assert probe.taps[-1].accuracy >= 0.75


def test_what_cannot_be_explained_is_refused(place, tmp_path):
    path = str(place[0] / "one.png")
    with pytest.raises(UsageError, match="method shap"):
        regard.look.explain(place[0] / "vit/final", path, method="shap")
    with pytest.raises(UsageError, match="compare"):
        regard.look.explain(place[0] / "vit/final", path, compare=True)
    with pytest.raises(UsageError, match="a classifier of pictures"):
        regard.look.explain(place[0] / "gpt/final", path)
    with pytest.raises(UsageError, match="no class is called 'beyond'"):
        regard.look.explain(place[0] / "vit/final", path, target="beyond")
    with pytest.raises(UsageError, match="a target for what is no text"):
        regard.look.attention(place[0] / "vit/final", path, target="above")
    (tmp_path / "bad.png").write_bytes(b"no")
    with pytest.raises(DataError, match="bad.png"):
        regard.look.attention(place[0] / "vit/final", str(tmp_path / "bad.png"))


def test_pictures_of_the_kinds_have_places(place):
    assert IMAGE_RUN.places(read(place)[0])[2] == 1
    assert PIXEL_RUN.places(read(place, PIXEL_RUN, "gpt/final")[0])[0] == (8, 8)
