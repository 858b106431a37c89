"""Runs over pictures as tokens: likelihoods, orders, drawings; what transformers makes of them."""

import itertools
import json
import math
import shutil

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import regard
from regard.errors import DataError, UsageError
from regard.kit import Kit
from regard.model.batch import Batch
from regard.model.model import Model
from regard.train.config import PixelConfig
from regard.vision.pixel_tokens import PIXEL_RUN, make_order
from tests.vision.conftest import picture

SMALL = dict(size=6, codes=8, dim=16, depth=2, heads=2, rows=8)


def train(files, out, steps=30, resume=None, **shape):
    config = regard.TrainConfig(
        steps=steps, eval_every=10, save_every=10, log_every=1, warm_up=3, schedule="constant"
    )
    with regard.settings(device="cpu", quiet=True):
        return regard.train.pixels(
            files,
            out=out,
            resume=resume,
            config=config,
            shape=PixelConfig(**SMALL | shape),
            data=regard.DataConfig(holdout=0.2),
        )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on halves of two colours: red above blue, or green above yellow."""
    root = tmp_path_factory.mktemp("halves")
    dice = np.random.default_rng(0)
    pairs = np.array([[[200, 40, 40], [40, 40, 200]], [[40, 180, 40], [220, 220, 40]]])
    images = pairs[dice.integers(2, size=60)].repeat(3, 1)[:, :, None].repeat(6, 2)
    images = (images + dice.normal(0, 9, images.shape)).clip(0, 255).astype(np.uint8)
    np.savez(root / "halves.npz", images=images, labels=np.zeros(60, np.int64))
    return root, train(root / "halves.npz", root / "run", 60), images


def test_it_learns_what_neighbours_do_not_say(run):
    root, result, _ = run
    scores = regard.evaluate.pixels(root / "run/final", root / "halves.npz")
    assert scores.nats_per_token < scores.bigram < scores.unigram
    assert scores.pictures == 60 and scores.tokens == 60 * 36 and scores.used == scores.codes == 8
    bits = scores.nats_per_token * 36 / math.log(2) / (3 * 36)
    assert scores.bits_per_dimension == pytest.approx(bits) and scores.psnr > 20
    first = [json.loads(line) for line in (root / "run/metrics.jsonl").read_text().splitlines()][0]
    assert first["loss"] == pytest.approx(math.log(8), abs=1e-5)  # all codes equally likely


def test_transformers_opens_it_with_the_same_tokens_and_loss(run):
    transformers = pytest.importorskip("transformers")
    root, _, images = run
    folder = root / "run/final"
    theirs = transformers.ImageGPTForCausalImageModeling.from_pretrained(folder).eval()
    processor = transformers.ImageGPTImageProcessorPil.from_pretrained(folder)
    tokens = processor(list(images[:4]), return_tensors="pt")["input_ids"]
    kit, _, coding = PIXEL_RUN.open(folder)
    stored = torch.from_numpy(images[:4]).permute(0, 3, 1, 2)
    assert torch.equal(coding.encode(stored), tokens)
    ids = coding.shift(tokens)
    with torch.no_grad():
        said = theirs(ids, labels=ids)
    ours = kit.logits(ids)
    assert torch.allclose(ours, said.logits, atol=2e-5 * float(said.logits.abs().max()))
    loss = F.cross_entropy(ours[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    assert float(loss) == pytest.approx(float(said.loss), abs=1e-4)


def test_a_completion_keeps_its_beginning_and_goes_on_from_it(run):
    root, _, images = run
    drawing = regard.draw(root / "run/final", [root / "halves.npz"], count=6, top_k=1)
    drawn, real = drawing.pictures[:, 0].astype(int), drawing.pictures[:, 1].astype(int)
    assert drawing.pictures.shape == (6, 2, 6, 6, 3) and drawing.columns == ("drawn", "as it was")
    assert (drawn[:, :3] == real[:, :3]).all()
    assert abs(drawn[:, 3:].mean((1, 2)) - images[:6, 3:].mean((1, 2))).max() < 40
    alone = regard.draw(root / "run/final", [root / "halves.npz"], count=1, top_k=1)
    assert (alone.pictures[0] == drawing.pictures[0]).all()
    drawing.save(root / "grid.png")
    assert (root / "grid.png").stat().st_size > 1000
    new = regard.draw(root / "run/final", count=3)
    assert new.pictures.shape == (3, 1, 6, 6, 3) and len(set(new.nats)) == 3
    tokens = PIXEL_RUN.open(root / "run/final")[2].encode(
        torch.from_numpy(new.pictures[:, 0]).permute(0, 3, 1, 2)
    )
    assert tokens.shape == (3, 36)


@pytest.mark.parametrize("order", ["columns", "random"])
def test_other_orders_are_kept_with_the_model(run, tmp_path, order):
    train(run[0] / "halves.npz", tmp_path / "run", 2, order=order, flip=True)
    coding = PIXEL_RUN.open(tmp_path / "run/final")[2]
    assert coding.order.tolist() == make_order(order, 6, 0) != list(range(36))
    assert sorted(coding.order.tolist()) == list(range(36))
    x = torch.from_numpy(run[2][:3]).permute(0, 3, 1, 2)
    tokens = coding.encode(x)
    assert torch.equal(coding.encode(coding.decode(tokens)), tokens)
    plain = coding.book.encode(x)
    assert torch.equal(tokens, plain[:, coding.order])


def test_all_pictures_together_have_probability_one():
    """Of 2 × 2 pixels and three codes there are 81."""
    shape = PixelConfig(size=2, codes=3, dim=8, depth=1, heads=2)
    model = Model.fresh(PIXEL_RUN.build(shape, None, 2)[0], seed=4)
    tokens = torch.tensor(list(itertools.product(range(3), repeat=4)))
    with torch.no_grad():
        model.head.out.weight.mul_(40)
        log = model(Batch(F.pad(tokens[:, :-1], (1, 0), value=3))).log_softmax(-1)
    each = log.gather(-1, tokens[..., None]).sum((1, 2)).exp()
    assert float(each.sum()) == pytest.approx(1, abs=1e-5) and float(each.std()) > 1e-3


def test_codes_of_patches(run, tmp_path, monkeypatch):
    monkeypatch.setattr("regard.vision.codebook.PICTURES", 8)
    train(run[0] / "halves.npz", tmp_path / "run", 3, tokens_of="patches", patch=2, code_steps=3)
    scores = regard.evaluate.pixels(tmp_path / "run/final", run[0] / "halves.npz")
    assert scores.tokens == 60 * 9
    with regard.settings(quiet=True):
        assert regard.replay(tmp_path / "run").match


def test_a_resumed_run_ends_with_the_same_bits(run, tmp_path):
    whole = train(run[0] / "halves.npz", tmp_path / "a", 20, flip=True)
    train(run[0] / "halves.npz", tmp_path / "b", 10, flip=True)
    again = train(None, None, 20, resume=tmp_path / "b", flip=True)
    assert again.last_weights == whole.last_weights
    stores = [(tmp_path / part / "data/codes.store/ids").read_bytes() for part in "ab"]
    assert stores[0] == stores[1]


def begin_with(run, init, out, **shape):
    with regard.settings(device="cpu", quiet=True):
        regard.train.pixels(
            run[0] / "halves.npz",
            out=out,
            config=regard.TrainConfig(steps=1, eval_every=1),
            shape=PixelConfig(**shape),
            data=regard.DataConfig(init=str(init)),
        )


def test_it_begins_with_another_model(run, tmp_path, monkeypatch):
    begin_with(run, run[0] / "run/final", tmp_path / "run")
    with pytest.raises(UsageError, match="size = 12 with init"):
        begin_with(run, run[0] / "run/final", tmp_path / "other", size=12)
    monkeypatch.setattr("regard.vision.codebook.PICTURES", 8)
    train(run[0] / "halves.npz", tmp_path / "vq", 1, tokens_of="patches", patch=2, code_steps=1)
    with pytest.raises(UsageError, match="flip with patches"):
        begin_with(run, tmp_path / "vq/final", tmp_path / "other", flip=True)
    before, after = (PIXEL_RUN.open(p)[2] for p in (run[0] / "run/final", tmp_path / "run/final"))
    assert torch.equal(before.book.book.codes, after.book.book.codes)


def test_what_cannot_be_is_refused(run, folder, tmp_path):
    with pytest.raises(UsageError, match="patches of 4"):
        train(folder, tmp_path / "run", tokens_of="patches", size=6)
    with pytest.raises(UsageError, match="flip with patches"):
        train(folder, tmp_path / "run", tokens_of="patches", patch=2, flip=True)
    with pytest.raises(UsageError, match="regard train pixels"):
        PIXEL_RUN.open(Kit(Model.fresh(PIXEL_RUN.build(PixelConfig(**SMALL), None, 2)[0])))
    kit = regard.load(run[0] / "run/final")
    place, whole = "preprocessor_config.json", json.loads(kit.files["preprocessor_config.json"])
    for wrong in ({"clusters": [[1, 2], [3]]}, {"order": [0] * 36}):
        kit.files[place] = json.dumps(whole | wrong).encode()
        with pytest.raises(DataError, match="reading codes"):
            PIXEL_RUN.open(kit)
    picture((90, 9, 9)).save(tmp_path / "one.png")
    (tmp_path / "one.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match="no pictures"):
        regard.evaluate.pixels(run[0] / "run/final", tmp_path / "one.png")


def test_a_palette_smaller_than_the_head_is_refused(run, tmp_path):
    """Its missing colours could be drawn, and its start is another token."""
    final = shutil.copytree(run[0] / "run/final", tmp_path / "final")
    place = final / "preprocessor_config.json"
    said = json.loads(place.read_text())
    said["clusters"] = said["clusters"][:5]
    place.write_text(json.dumps(said))
    for verb in (regard.evaluate.pixels, regard.draw):
        with pytest.raises(DataError, match=r"5 codes\n.*8, as many as the model scores"):
            verb(final, run[0] / "halves.npz")


def test_patches_of_one_pixel_are_refused_before_files_are_read(tmp_path):
    """The folder holds no picture that can be read."""
    (tmp_path / "0.png").write_bytes(b"no picture")
    with pytest.raises(UsageError, match="patches of 1\n.*from 2 up"):
        train(tmp_path, tmp_path / "run", tokens_of="patches", patch=1)
