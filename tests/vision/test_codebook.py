"""Palettes and VQ-VAE codebooks: nearest codes, gradients, running means, what they lose."""

import numpy as np
import pytest
import torch
from scipy.cluster.vq import kmeans2

from regard.errors import DataError
from regard.train.config import PixelConfig
from regard.vision import codebook
from regard.vision.codebook import VQVAE, Codebook, Palette, learn_codes, learn_palette


@pytest.fixture(scope="module")
def pixels():
    """Smooth pictures (80, 3, 8, 8) of many colours."""
    dice = np.random.default_rng(0)
    coarse = torch.from_numpy(dice.random((80, 3, 3, 3), np.float32))
    x = torch.nn.functional.interpolate(coarse, (8, 8), mode="bicubic") * 255
    return x.clamp(0, 255).to(torch.uint8).numpy()


def test_the_nearest_code_is_torch_s():
    x, codes = torch.randn(3, 50, 4), torch.randn(20, 4)
    assert torch.equal(Codebook(codes).nearest(x), torch.cdist(x, codes).argmin(-1))


def test_gradients_pass_straight_through():
    x = torch.randn(2, 5, 3, requires_grad=True)
    chosen, numbers, _ = Codebook(torch.randn(7, 3)).eval()(x)
    upstream = torch.randn_like(chosen)
    (gradient,) = torch.autograd.grad(chosen, x, upstream)
    assert torch.equal(gradient, upstream) and numbers.shape == (2, 5)


def test_codes_become_the_means_of_what_chooses_them():
    x = torch.tensor([[0.0, 0.1], [0.0, -0.1], [5.0, 5.0], [5.0, 6.0], [5.0, 7.0]])
    book = Codebook(torch.tensor([[1.0, 0.0], [4.0, 4.0]])).train()
    book.idle.zero_()
    for _ in range(1500):
        book(x)
    assert torch.allclose(book.codes, torch.tensor([[0.0, 0.0], [5.0, 6.0]]), atol=1e-4)


def test_a_dead_code_begins_anew_at_what_there_is():
    x = torch.randn(40, 2)
    book = Codebook(torch.tensor([[0.0, 0.0], [900.0, 900.0]])).train()
    book.idle.zero_()
    for _ in range(codebook.IDLE):
        book(x)
    assert (book.codes[1] == x).all(1).any() and set(book.nearest(x).tolist()) == {0, 1}


def test_a_palette_gives_its_own_colours_back(pixels):
    palette = learn_palette(pixels, PixelConfig(codes=24), 0)
    numbers = torch.randint(0, 24, (3, 64))
    assert torch.equal(palette.encode(palette.decode(numbers, 8)), numbers)


def distortion(palette, pixels):
    x = torch.from_numpy(pixels).float()
    return float((palette.decode(palette.encode(x), 8) - x).square().mean())


def test_a_palette_is_as_good_as_another_k_means_and_better_with_more_colours(pixels):
    losses = [distortion(learn_palette(pixels, PixelConfig(codes=k), 0), pixels) for k in (3, 16)]
    flat = pixels.transpose(0, 2, 3, 1).reshape(-1, 3).astype(float)
    theirs = [kmeans2(flat, 16, 50, minit="++", seed=seed)[0] for seed in range(3)]
    best = min(distortion(Palette(torch.from_numpy(c).float()), pixels) for c in theirs)
    assert losses[1] <= 1.02 * best and losses[1] < losses[0] / 2


def test_too_few_colours_are_refused():
    with pytest.raises(DataError, match="2 colours"):
        grey = np.tile(np.array([0, 255], np.uint8), (2, 1, 4, 2))
        learn_palette(grey, PixelConfig(codes=3), 0)


def test_a_vq_vae_learns_and_uses_its_codes(monkeypatch):
    monkeypatch.setattr(codebook, "PICTURES", 16)
    monkeypatch.setattr(codebook, "IDLE", 20)
    colours = np.array([[20, 20, 20], [220, 40, 40], [40, 220, 40], [40, 40, 220], [230, 230, 60]])
    chosen = np.random.default_rng(0).integers(5, size=(80, 2, 2))
    x = colours[chosen].transpose(0, 3, 1, 2).repeat(4, 2).repeat(4, 3).astype(np.uint8)
    own = PixelConfig(tokens_of="patches", codes=16, patch=4, code_steps=90)
    model = learn_codes(x, own, 0, "cpu", lambda text: None)
    x = torch.from_numpy(x)
    with torch.no_grad():
        numbers = model.encode(x)
        blank = x.float().mean((0, 2, 3), keepdim=True)
        lost = (model.decode(numbers, 8) - x).square().mean()
    assert numbers.shape == (80, 4) and len(numbers.unique()) >= 5
    assert float(lost) < 0.5 * float((x - blank).square().mean())


def test_a_vq_vae_is_the_same_each_time(pixels):
    own = PixelConfig(tokens_of="patches", codes=5, patch=2, code_steps=2)
    models = [learn_codes(pixels[:4], own, 0, "cpu", lambda text: None) for _ in range(2)]
    states = [model.state_dict().values() for model in models]
    assert all(torch.equal(a, b) for a, b in zip(*states, strict=True))
    assert VQVAE(1, 2, 5)(torch.zeros(2, 1, 6, 6))[0].shape == (2, 1, 6, 6)
