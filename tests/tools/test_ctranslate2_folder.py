"""CTranslate2 answers as we do: greedy and by beam, tokens and scores."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from regard.decode.beam import BeamConfig, length_penalty
from regard.errors import DataError
from regard.kit import Kit
from regard.model import presets
from regard.model.batch import pad_rows
from regard.model.config import ModelConfig
from regard.model.model import Model
from regard.tokens.trainers import train_tokenizer
from tests.cli.small_folders import CORPUS
from tools.ctranslate2_folder import check_shape, main

LIMIT = 60  # tokens; at a limit, CTranslate2 takes an answer without an end before one with it
SENTENCES = [text[n:end] for text in CORPUS[:3] for n in (0, 3, 9, 21) for end in (30, 40, None)]


def shape(
    pre: bool,
    size: int,
    text: dict[str, Any] | None = None,
    block: dict[str, Any] | None = None,
    shared: bool = True,
) -> ModelConfig:
    """Unlike depths and heads on the two sides; more rows than words."""
    config = presets.transformer(16, 3, 4, size + 4, pre)
    assert config.encoder is not None and config.decoder is not None and config.target is not None
    words = replace(config.target, **(text or {}))
    reading = replace(config.encoder.block, **(block or {}))
    writing = replace(config.decoder.block, heads=2, **(block or {}))
    return replace(
        config,
        front=words,
        target=words,
        encoder=replace(config.encoder, block=reading),
        decoder=replace(config.decoder, block=writing, depth=2),
        head=replace(config.head, tied=shared),
        shared=shared,
    )


CASES: dict[str, tuple[bool, dict[str, Any]]] = {
    "post-norm": (False, {}),
    "pre-norm": (True, {}),
    "alternating waves, no scale": (True, {"text": {"position": "sinusoidal", "scale": False}}),
    "learned, gelu, some biases": (
        False,
        {"text": {"position": "learned", "length": 70}, "block": {"act": "gelu", "bias": ("v",)}},
    ),
    "nothing shared": (True, {"shared": False, "block": {"act": "silu", "eps": 1e-3}}),
}


@cache
def make(name: str) -> Kit:
    """Every parameter random, then taught a little, so that answers differ and end."""
    words = train_tokenizer(CORPUS, "bpe", 300, specials=("pad", "eos"), wrap="eos")
    pre, edits = CASES[name]
    kit = Kit(Model(shape(pre, words.size, **edits)).eval(), words)
    draw = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for key, weight in kit.model.named_parameters():
            drawn = torch.randn(weight.shape, generator=draw)
            weight.copy_(1 + drawn / 3 if key.endswith("norm.weight") else drawn / 4)
    teach(kit)
    return kit


def teach(kit: Kit) -> None:
    """A few steps towards copying the sentences."""
    rows = [kit.tokenizer.encode(text)[:16] for text in SENTENCES] if kit.tokenizer else []
    wanted, real = pad_rows(rows, 0)
    read = torch.cat((torch.zeros_like(wanted[:, :1]), wanted[:, :-1]), 1)
    batch = kit.batch(rows, read)
    steps = torch.optim.Adam(kit.model.parameters(), 1e-2)
    for _ in range(100):
        steps.zero_grad()
        cross_entropy(kit.model(batch)[real], wanted[real]).backward()
        steps.step()


def export(kit: Kit, tmp_path: Path) -> Any:
    """The model as CTranslate2 runs it."""
    ctranslate2 = pytest.importorskip("ctranslate2")
    folder, out = tmp_path / "folder", tmp_path / "out"
    kit.save(folder)
    assert main([str(folder), str(out)]) == 0
    assert {"tokenizer.json", "model.bin"} <= {file.name for file in out.iterdir()}
    return ctranslate2.Translator(str(out), compute_type="float32")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("width", [1, 4])
def test_the_same_answers(name: str, width: int, tmp_path: Path) -> None:
    kit = make(name)
    words = kit.tokenizer
    assert words is not None and len(SENTENCES) >= 20
    rows = [words.encode(text) for text in SENTENCES]
    theirs = export(kit, tmp_path).translate_batch(
        [words.pieces(row) for row in rows],
        beam_size=width,
        length_penalty=0,  # log-probabilities, which both search for alike
        min_decoding_length=0,  # the end may come first, as with us
        max_decoding_length=LIMIT,
        return_scores=True,
        return_end_token=True,
    )
    how = BeamConfig(width, 1, length_penalty("none")) if width > 1 else None
    ours = kit.search(kit.batch(rows), LIMIT, how)
    for (best, *_), answer in zip(ours, theirs, strict=True):
        assert words.pieces(best.tokens) == answer.hypotheses[0]
        assert best.logprob == pytest.approx(answer.scores[0], abs=1e-3)
    assert len({tuple(row[0].tokens) for row in ours}) > 2


@pytest.mark.parametrize("name", CASES)
def test_the_same_score_of_any_target(name: str, tmp_path: Path) -> None:
    kit = make(name)
    words = kit.tokenizer
    assert words is not None
    sources = [words.encode(text) for text in SENTENCES]
    targets = [words.encode(text, special=False) for text in reversed(SENTENCES)]
    translator = export(kit, tmp_path)
    theirs = translator.score_batch(
        [words.pieces(row) for row in sources], [words.pieces(row) for row in targets]
    )
    for source, target, found in zip(sources, targets, theirs, strict=True):
        ids = torch.tensor([*target, words.specials["eos"]])
        log = kit.logits([source], [[0, *target]])[0].log_softmax(-1)
        assert log.gather(1, ids[:, None])[:, 0].tolist() == pytest.approx(
            found.log_probs, abs=1e-4
        )


@pytest.mark.parametrize(
    ("config", "found"),
    [
        (presets.gpt2(8, 1, 2, 20, 9), "not an encoder and a decoder"),
        (presets.t5(8, 1, 2, 16, 4, 20), "encoder.block.norm = 'rms'; encoder.block.gated = True"),
        (presets.whisper(8, 1, 2, 20), "not an encoder and a decoder over text"),
        (shape(False, 20, block={"window": 3}), "decoder.block.window = 3"),
        (shape(True, 20, text={"norm": "layer"}), "front.norm = 'layer'"),
    ],
)
def test_shapes_that_it_lacks(config: ModelConfig, found: str) -> None:
    with pytest.raises(DataError) as caught:
        check_shape(config)
    assert found in caught.value.found


def test_without_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    assert main(["folder", str(tmp_path / "out")]) == 1
    assert "regard[ctranslate2]" in capsys.readouterr().err


def test_a_folder_that_holds_something_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").write_text("")
    assert main(["folder", str(tmp_path)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]
