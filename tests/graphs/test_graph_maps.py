"""Attention over graphs: maps are the patterns, drawings lie as far apart as paths are long."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard.errors import DataError, UsageError
from regard.graphs.graph_files import molecule_graph
from regard.graphs.graph_tasks import build_model, collate, lay_out, scatter
from regard.kit import Kit
from regard.model.model import Model
from regard.train.config import GraphShape
from regard.tune.prediction import Task

ETHANOL = "CCO"


@pytest.fixture
def folder(tmp_path):
    """A model of molecules with all biases drawn."""
    graph = molecule_graph(ETHANOL, ETHANOL)
    shape = GraphShape(dim=16, heads=2, depth=2)
    model = Model.fresh(build_model(shape, Task("classify", ["dry", "wet"]), [graph]), 1)
    with torch.no_grad():
        model.encoder.bias.weight.normal_()
    kit = Kit(model)
    kit.config = kit.fresh_config() | {"id2label": {"0": "dry", "1": "wet"}}
    kit.save(tmp_path / "model")
    return tmp_path / "model"


def test_maps_are_the_patterns_and_are_drawn(folder, tmp_path, run_regard):
    maps = regard.look.attention(folder, ETHANOL)
    kit = regard.load(folder)
    batch = collate([lay_out(molecule_graph(ETHANOL, ETHANOL), kit.model.config)])
    seen = kit.hooked.run(batch, "encoder.blocks.1.attn.pattern")[1].popitem()[1]
    shown = maps.stack().heads[1][0].dense()
    assert np.abs(shown - seen[0, 0].detach().numpy()).max() < 1 / 255
    assert maps.tokens == {"graph": ["graph", "C", "C", "O"]}
    assert {word for word, _ in maps.predicted()} == {"dry", "wet"}
    maps.save(tmp_path / "all.png")
    regard.look.attention(folder, ETHANOL, head="1.0").save(tmp_path / "one.png")
    heights = []
    for name in ("all.png", "one.png"):
        with Image.open(tmp_path / name) as image:
            heights.append(image.height)
    assert heights[0] > 1.5 * heights[1]
    assert '"graph","C","C","O"' in maps.page()
    (tmp_path / "some.csv").write_text(f"smiles\n{ETHANOL}\nC\n")
    code, out, _ = run_regard("look", "attention", folder, tmp_path / "some.csv", "--json")
    assert code == 0 and json.loads(out)["tokens"] == {"graph": ["graph", "C", "C", "O"]}


def test_places_are_as_far_apart_as_paths_are_long():
    chain = molecule_graph("CCCCC", "chain")
    places = scatter(chain)
    apart = np.linalg.norm(places[:, None] - places, axis=-1)
    steps = np.abs(np.arange(5)[:, None] - np.arange(5))
    np.testing.assert_allclose(apart, steps, atol=1e-6)
    ring = scatter(molecule_graph("C1CCCCC1", "ring"))
    np.testing.assert_allclose(np.linalg.norm(ring, axis=1), np.linalg.norm(ring[0]), atol=1e-6)
    assert np.isfinite(scatter(molecule_graph("CC.O", "parts"))).all()
    assert scatter(molecule_graph("C", "one")).shape == (1, 2)


def test_what_is_no_graph_is_refused(folder, tmp_path):
    with pytest.raises(DataError, match=r"no such file, and as SMILES 'a' at character 1"):
        regard.look.attention(folder, "al.csv")
    with pytest.raises(UsageError, match="a target"):
        regard.look.attention(folder, ETHANOL, target="wet")
