"""Looking inside models of sounds: over the spectrogram, low tones below."""

import numpy as np
import pytest
import torch

import regard
from regard.errors import UsageError
from regard.look.picture import draw_overlays
from regard.look.results import Overlay
from regard.speech.sound_classes import SOUND_RUN
from regard.speech.sound_files import read_clips
from regard.train import SoundConfig

SMALL = dict(seconds=0.5, mels=32, patch=8, stride=6, dim=16, depth=2, heads=2, rows=8)


@pytest.fixture(scope="module", params=["patches", "frames"])
def run(request, tmp_path_factory):
    out = tmp_path_factory.mktemp("hearing") / "run"
    config = regard.TrainConfig(steps=60, eval_every=60, lr=5e-3, optimizer="adamw")
    with regard.settings(device="cpu", quiet=True):
        shape = SoundConfig(reads=request.param, mask_mels=4, pitch=0, **SMALL)
        regard.train.sound("tones", out=out, config=config, shape=shape)
    return out / "final", request.param


def batch_of(model):
    kit, hearing, _ = SOUND_RUN.open(model)
    _, _, planes = next(iter(read_clips(["tones-test"], hearing)))
    return kit, planes, SOUND_RUN.batch(kit, torch.from_numpy(planes.copy())[None])


def test_maps_are_the_patterns_and_are_drawn_for_what_the_head_reads(run, tmp_path):
    model, reads = run
    maps = regard.look.attention(model, "tones-test", head="1.0")
    kit, planes, batch = batch_of(model)
    pattern = kit.hooked.run(batch, "encoder.blocks.1.attn.pattern")[1].popitem()[1][0, 0]
    shown = maps.stack().heads[1][0].dense()
    assert np.abs(shown - pattern.detach().numpy()).max() < 1 / 255
    names = maps.tokens["picture"]
    assert len(names) == len(pattern) == (2 + 5 * 8 if reads == "patches" else 25)
    assert names[:3] == (
        ["class", "teacher", "0,0"] if reads == "patches" else ["0,0", "0,1", "0,2"]
    )
    picture, heat = maps.plot().axes[0].images
    assert np.allclose(picture.get_array(), planes[0][::-1])
    seen = shown[0, 2:].reshape(5, 8)[::-1] if reads == "patches" else shown.mean(0)[None]
    assert np.allclose(heat.get_array(), seen / seen.max(), atol=1e-6)
    maps.save(tmp_path / "maps.png")


def test_reasons_are_of_time_and_frequency(run):
    model, _ = run
    kit, planes, batch = batch_of(model)
    why = regard.look.explain(model, "tones-test", target="rise", against="fall")
    assert len(why.scores) == planes[0].size and why.baseline == "zeros"
    scores = kit.logits(torch.cat((batch.inputs, torch.zeros_like(batch.inputs))))
    number = {name: int(n) for n, name in kit.config["id2label"].items()}
    there, absent = (scores[:, number["rise"]] - scores[:, number["fall"]]).tolist()
    assert sum(why.scores) == pytest.approx(there - absent, abs=0.05 * abs(there - absent) + 0.01)
    mixed = regard.look.explain(model, "tones-test", method="rollout")
    assert len(mixed.scores) == SOUND_RUN.places(kit)[1].size and min(mixed.scores) >= 0
    with pytest.raises(UsageError, match="shap"):
        regard.look.explain(model, "tones-test", method="shap")


def test_classes_are_read_off_each_layer(run):
    probed = regard.look.probe(run[0], "tones", count=200)
    assert [row.tap for row in probed.taps] == [
        "encoder.embed",
        *(f"encoder.blocks.{n}.resid_post" for n in range(2)),
    ]
    assert max(row.accuracy for row in probed.taps) > 0.5


def test_low_tones_are_below():
    overlay = Overlay(np.arange(6.0).reshape(3, 2), (3, 2), np.arange(6), upward=True)
    picture, heat = draw_overlays(overlay, [[np.arange(6.0)]], "").axes[0].images
    assert picture.get_array()[0].tolist() == [4, 5] and heat.get_array()[0].tolist() == [0.8, 1.0]
