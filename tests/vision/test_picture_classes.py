"""Runs over pictures: what they learn, keep and refuse; and what transformers makes of them."""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard.errors import DataError, UsageError
from regard.kit import Kit
from regard.model.batch import Batch
from regard.model.model import Model
from regard.model.presets import llama, preset, vit
from regard.train.objectives import Loss
from regard.train.results import read_metrics
from regard.vision.augmentation import Augmentation, Preparation
from regard.vision.picture_classes import IMAGE_RUN, example_loss
from tests.vision.conftest import picture

SMALL = dict(size=12, patch=4, dim=16, depth=2, heads=2, rows=8)
ALL = dict(flip=True, randaugment=2, mixup=0.8, cutmix=1.0, erase=0.25, drop_path=0.1)


def train(files, out, steps=30, shape=None, resume=None, **data):
    config = regard.TrainConfig(steps=steps, eval_every=10, save_every=10, log_every=1, warm_up=3)
    with regard.settings(device="cpu", quiet=True):
        return regard.train.image(
            files,
            out=out,
            resume=resume,
            config=config,
            shape=regard.PictureConfig(**SMALL | (shape or {})),
            data=regard.DataConfig(**data),
        )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on colours, from a folder and an .npz together."""
    root = tmp_path_factory.mktemp("colours")
    colours = {"red": (200, 60, 60), "green": (60, 180, 60), "blue": (60, 60, 200)}
    for name, colour in colours.items():
        (root / "all" / name).mkdir(parents=True)
        for n in range(10):
            picture(colour, 12, n).save(root / "all" / name / f"{n}.png")
    images = [
        np.asarray(picture(colour, 12, 50 + n)) for n in range(8) for colour in colours.values()
    ]
    np.savez(root / "more.npz", images=np.stack(images), labels=[*colours] * 8)
    result = train([str(root / "all"), str(root / "more.npz")], root / "run", 60)
    return root, result


def test_it_learns_and_names_its_classes(run):
    root, result = run
    scores = regard.evaluate.image(root / "run/final", [root / "all", root / "more.npz"])
    assert scores.accuracy > 0.9 and scores.count == 54 and result.best_valid > 0.7
    config = json.loads((root / "run/final/config.json").read_text())
    assert config["id2label"] == {"0": "blue", "1": "green", "2": "red"}
    assert config["label2id"] == {"blue": 0, "green": 1, "red": 2}
    said = list(regard.predict(root / "run/final", root / "all"))
    right = [prediction.label in prediction.text for prediction in said]
    assert len(said) == 30 and sum(right) > 27


def test_transformers_opens_it_and_gives_the_same_logits(run):
    transformers = pytest.importorskip("transformers")
    folder = run[0] / "run/final"
    theirs = transformers.ViTForImageClassification.from_pretrained(folder).eval()
    processor = transformers.ViTImageProcessorPil.from_pretrained(folder)
    image = picture((90, 20, 160), 30, 3)  # of another size: resized by both
    with torch.no_grad():
        pixels = processor(image, return_tensors="pt")["pixel_values"]
        expected = theirs(pixels).logits
    path = run[0] / "other.png"
    image.save(path)
    kit, sizes, prepare = IMAGE_RUN.open(folder)
    ((_, _, planes),) = IMAGE_RUN.read([str(path)], sizes)
    x, share = prepare(torch.from_numpy(planes.copy())[None])
    assert torch.allclose(x, pixels, atol=1e-5) and share == 1
    assert torch.allclose(kit.logits(x), expected, atol=2e-5 * float(expected.abs().max()))


def test_a_picture_is_the_same_alone_and_in_any_batch(run):
    kit, _, prepare = IMAGE_RUN.open(regard.load(run[0] / "run/final", strict=True))
    x, _ = prepare(
        torch.randint(0, 256, (5, 3, 12, 12), generator=torch.Generator().manual_seed(0))
    )
    together = kit.run_batch(Batch(x))
    alone = torch.cat([kit.run_batch(Batch(row[None])) for row in x])
    assert torch.equal(together, alone)


def test_a_killed_run_ends_with_the_same_bits(folder, tmp_path):
    whole = train(folder, tmp_path / "a", shape=ALL)
    code = f"from tests.vision.test_picture_classes import *; train({str(folder)!r}, None, "
    code += f"resume={str(tmp_path / 'b')!r}, shape=ALL)"
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        lines = read_metrics(tmp_path / "b")
        if lines and lines[-1]["step"] >= 12:
            break
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    again = train(None, None, resume=tmp_path / "b", shape=ALL)
    assert again.last_weights == whole.last_weights
    losses = [[line.get("loss") for line in read_metrics(tmp_path / part)] for part in "ab"]
    assert losses[0] == losses[1]
    assert [store.name for store in (tmp_path / "b/data").iterdir()] == ["examples.store"]


def test_a_run_is_replayed(folder, tmp_path):
    train(folder, tmp_path / "run", 4)
    with regard.settings(quiet=True):
        assert regard.replay(tmp_path / "run").match


@pytest.mark.parametrize(
    "form", [dict(stem="conv"), dict(position="2d", pool="mean"), dict(grey=True)]
)
def test_other_shapes_open_again(folder, tmp_path, form):
    train(folder, tmp_path / "run", 4, form, holdout=0.0)
    kit = regard.load(tmp_path / "run/final")
    assert (kit.binding is None) == ("grey" not in form)
    assert regard.evaluate.image(tmp_path / "run/final", folder).count == 30


def test_it_begins_with_another_model_at_another_size(run, folder, tmp_path):
    """Same classes and size: the very model; another size: positions resized, head kept."""
    final = str(run[0] / "run/final")
    plain = dict(dim=128, depth=4, heads=4)  # what is the model's own is not said
    train(folder, tmp_path / "same", 1, plain, init=final, holdout=0.0)
    before = regard.load(final)
    first = regard.load(tmp_path / "same/checkpoints/step-000001")
    gaps = [
        float((a - b).detach().abs().max())
        for a, b in zip(before.model.parameters(), first.model.parameters(), strict=True)
    ]
    assert max(gaps) < 2e-3  # one step of AdamW away
    train(folder, tmp_path / "large", 1, plain | {"size": 20}, init=final, holdout=0.0)
    assert regard.load(tmp_path / "large/final").model.config.front.height == 20
    with pytest.raises(UsageError, match="depth"):
        train(folder, tmp_path / "other", 1, plain | {"depth": 3}, init=final)


def test_tune_classify_takes_pictures(run, folder, tmp_path):
    final = run[0] / "run/final"
    few = dict(model=final, out=tmp_path / "run", config=regard.TrainConfig(steps=2))
    with regard.settings(device="cpu", quiet=True):
        regard.tune.classify(folder, head=regard.HeadTuning(rows=4), **few)
        assert regard.evaluate.image(tmp_path / "run/final", folder).accuracy > 0.7  # it knew them
        assert (
            regard.load(tmp_path / "run/final").binding.architecture == "ViTForImageClassification"
        )
        values = regard.train.image(resume=tmp_path / "run", print_config=True).values
        assert (values["rows"], values["lr"]) == (4, 1e-4)
        with pytest.raises(UsageError, match="several with a model of pictures"):
            regard.tune.classify(folder, head=regard.HeadTuning(several=True), **few)
        with pytest.raises(UsageError, match="lora with a model of pictures"):
            regard.tune.classify(folder, lora="r=2", **few)
    place = tmp_path / "run/final/preprocessor_config.json"  # as older folders have it
    said = json.loads(place.read_text())
    said["feature_extractor_type"] = said.pop("image_processor_type")
    place.write_text(json.dumps(said))
    assert len(list(regard.predict(tmp_path / "run/final", folder / "red"))) > 1


# The objective ------------------------------------------------------------------------------------


def test_the_loss_is_torch_s_of_soft_labels():
    settings = regard.PictureConfig(crop=0, mixup=0.8, cutmix=1.0)
    model = Model.fresh(vit(16, 1, 2, 4, 8, 5)).train()
    prepare = Preparation(torch.full((3, 1, 1), 128.0), torch.full((3, 1, 1), 60.0))
    augment = Augmentation(settings)
    stored = torch.randint(0, 256, (6, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2, 3, 4, 0])
    dice = torch.from_numpy(augment.draw(np.random.default_rng(0), 6))
    full = Preparation(prepare.mean, prepare.std, augment)
    loss = example_loss(model, Batch(stored), labels, 0.1, prepare=full, extra={"dice": dice})
    x, share = full(stored, dice)
    assert 0 < float(share.min()) < 1
    hot = torch.nn.functional.one_hot(labels, 5).float()
    soft = share[:, None] * hot + (1 - share[:, None]) * hot.flip(0)
    scores = model(Batch(x))
    entropy = torch.nn.functional.cross_entropy
    assert torch.allclose(loss.sum, entropy(scores, soft, reduction="sum", label_smoothing=0.1))
    assert torch.allclose(loss.plain, entropy(scores, soft, reduction="sum"))
    plain = example_loss(model.eval(), Batch(stored), labels, prepare=prepare)
    scores = model(Batch(prepare(stored)[0]))
    assert torch.allclose(plain.sum, entropy(scores, labels, reduction="sum"))
    assert float(plain.figures["accuracy"]) == float((scores.argmax(-1) == labels).sum())
    assert isinstance(plain, Loss) and int(plain.tokens) == 6


def test_drop_path_keeps_the_expectation_and_skips_whole_rows():
    model = Model.fresh(vit(16, 1, 2, 4, 8, 5))
    block = model.encoder.blocks[0].train()
    block.drop_path = 0.4
    x, part = torch.randn(4000, 1, 16), torch.nn.Linear(16, 16)
    part.norm = torch.nn.Identity()
    with torch.no_grad():
        out, whole = block.add(x, part) - x, part(x)
    skipped = (out == 0).all((1, 2))
    assert float(skipped.float().mean()) == pytest.approx(0.4, abs=0.03)
    assert torch.allclose(out[~skipped], whole[~skipped] / 0.6, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("vit-ti16", 5_717_416),
        ("vit-s16", 22_050_664),
        ("vit-b16", 86_567_656),
        ("vit-l16", 304_326_632),
    ],
)
def test_presets_have_the_published_sizes(name, count):
    from regard.model.cost import count_params

    assert count_params(preset(name)) == count
    assert count_params(preset("vit-32")) < 7_000_000


# Bad input ----------------------------------------------------------------------------------------


def test_what_cannot_be_learnt_is_refused(folder, tmp_path):
    out = tmp_path / "run"
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty"):
        train(tmp_path / "empty", out)
    with pytest.raises(DataError, match="one class only, 'red'"):
        train(folder / "red", out)
    with pytest.raises(UsageError, match="12 × 12 pixels, patches of 5"):
        train(folder, out, shape=dict(patch=5))
    with pytest.raises(UsageError, match="bert-base"):
        train(folder, out, preset="bert-base")
    (tmp_path / "violet/violet").mkdir(parents=True)
    picture((100, 0, 100)).save(tmp_path / "violet/violet/0.png")
    with pytest.raises(DataError, match="'violet'"):
        train(folder, out, valid=(str(tmp_path / "violet"),))
    assert not out.exists()


def test_what_cannot_be_judged_is_refused(run, tmp_path):
    final = run[0] / "run/final"
    (tmp_path / "violet").mkdir()
    picture((100, 0, 100)).save(tmp_path / "violet/0.png")
    with pytest.raises(DataError, match="only violet"):
        regard.evaluate.image(final, tmp_path)
    scores = regard.evaluate.image(final, [tmp_path, run[0] / "all"])
    assert scores.count == 31 and scores.classes[-1].name == "violet"
    assert scores.classes[-1].recall == 0
    with pytest.raises(UsageError, match="a model that reads"):
        IMAGE_RUN.open(Kit(Model.fresh(llama(16, 1, 2, 2, 32, 20))))


def test_broken_pictures_are_left_out_of_a_run(folder, tmp_path):
    (folder / "red/3.png").write_bytes(b"no picture")
    Image.new("L", (40, 7)).save(folder / "red/4.png")
    train(folder, tmp_path / "run", 2, holdout=0.0)
    log = (tmp_path / "run/log.txt").read_text()
    assert "left out" in log and "red/3.png" in log and "training on 29 pictures" in log
