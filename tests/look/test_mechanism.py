"""The pytest plug-in, by pytest itself, on a model with a planted induction head."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import regard
from regard.errors import UsageError
from regard.kit import Kit
from regard.look.mechanism import Mechanism
from regard.model.presets import recurrent_seq2seq
from regard.model.recurrent import Recurrent
from regard.tokens.trainers import train_tokenizer
from tests.look.planted import forget_induction, planted_induction
from tests.properties.small_models import random_ids, small_kit

pytest_plugins = ("pytester",)
ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def planted():
    return Mechanism(planted_induction())


@pytest.fixture(scope="module")
def forgotten():
    return Mechanism(forget_induction(planted_induction()))


SUITE = """
from tests.look.planted import forget_induction, planted_induction

def test_sound(mechanism):
    model = mechanism(planted_induction())
    model.some_head("induction", at_least=0.9, blocks=range(0, 4))
    model.head(0, 1).scores("previous", at_least=0.9)

def test_destroyed(mechanism):
    mechanism(forget_induction(planted_induction())).some_head("induction", at_least=0.5)
"""


def test_a_model_that_lost_its_induction_head_fails_the_build(pytester):
    pytester.makepyfile(SUITE)
    done = pytester.runpytest_inprocess("-p", "regard.look.pytest_plugin", "-p", "no:cacheprovider")
    done.assert_outcomes(passed=1, failed=1)
    said = done.stdout.str()
    assert "no induction head of at least 0.5; the best: head " in said
    assert "raise AssertionError" not in said  # the line of the test is shown, not ours


def test_loading_the_plug_in_loads_no_torch():
    code = "import sys, regard.look.pytest_plugin; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60)
    assert done.returncode == 0


def test_some_head(planted, forgotten):
    found = planted.some_head("induction", at_least=0.9)
    assert (found.block, found.head) == (1, 2)
    with pytest.raises(AssertionError, match=r"in blocks range\(0, 1\); the best: head 0\."):
        planted.some_head("induction", at_least=0.9, blocks=range(0, 1))
    with pytest.raises(AssertionError, match="none there"):
        planted.some_head("induction", blocks=range(7, 9))
    with pytest.raises(AssertionError, match=r"the best: head \d\.\d 0\.\d\d\d, head"):
        forgotten.some_head("induction", at_least=0.5)
    assert forgotten.some_head("previous", at_least=0.9).name == "0.1"
    with pytest.raises(UsageError, match="did you mean induction"):
        planted.some_head("inducton")


def test_one_head(planted, forgotten):
    assert planted.head(0, 1).scores("previous", at_least=0.9) > 0.9
    assert planted.head(1, 2).scores("induction", at_least=0.9) > 0.9
    with pytest.raises(AssertionError, match=r"the induction score of head 1\.1 is 0"):
        planted.head(1, 1).scores("induction")
    with pytest.raises(AssertionError, match=r"the best: head 1\.2 1\.000"):
        planted.head(0, 1).scores("induction")
    with pytest.raises(AssertionError, match="duplicate score of head 0.1 is 0.000"):
        planted.head(0, 1).scores("duplicate")
    assert planted.head(1, 2).copies(at_least=0.9, top=1) == 1.0
    with pytest.raises(AssertionError, match=r"attn head 0 copies 0\.\d+ of the tokens, not 0.9"):
        planted.head(1, 0).copies(at_least=0.9, top=1)
    assert forgotten.head(1, 2).copies(at_least=0.9, top=1) == 1.0  # its values are still there
    with pytest.raises(UsageError, match="0 to 3"):
        planted.head(1, 4)
    with pytest.raises(UsageError, match="blocks.2"):
        planted.head(2, 0)


def test_unused(planted, forgotten):
    ids = planted.repeats.batch.inputs
    with pytest.raises(AssertionError, match=r"attn.z head 2 is used: without it"):
        planted.unused("decoder.blocks.1.attn.z", head=2, on=ids, change_below=0.5)
    assert planted.unused("decoder.blocks.1.mlp.out", on=ids, change_below=1e-6) == 0  # writes 0
    silent = Mechanism(planted_induction(idle=0.0))
    assert silent.unused("decoder.blocks.0.attn.z", on=ids, head=[0, 2, 3], change_below=1e-6) == 0
    with pytest.raises(UsageError, match="head"):
        planted.unused("decoder.blocks.0.attn.z", on=ids, head=9)


def test_unused_edge():
    """The previous-token head is read by the induction head's keys, and by nothing else."""
    model = Mechanism(planted_induction(idle=0.0))
    ids = model.repeats.batch.inputs
    previous, induction = model.head(0, 1), model.head(1, 2)
    with pytest.raises(AssertionError, match="attn.k head 2 is used"):
        previous.unused_by(induction, "k", on=ids, change_below=0.5)
    assert previous.unused_by(induction, "q", on=ids, change_below=1e-4) < 1e-4
    assert previous.unused_by(induction, "v", on=ids, change_below=1e-4) < 1e-4
    assert model.head(0, 0).unused_by(induction, "k", on=ids, change_below=1e-6) == 0
    assert previous.unused_by(model.head(1, 0), "k", on=ids, change_below=1e-6) == 0
    with pytest.raises(UsageError, match="q, k or v"):
        previous.unused_by(induction, "z", on=ids)


def test_impossible_edges_are_refused():
    """Nothing passes from a head to one of its own block or of an earlier one."""
    model, ids = Mechanism(planted_induction()), [[1, 2, 3, 1]]
    for writer, reader in (((1, 2), (0, 1)), ((0, 0), (0, 1)), ((1, 1), (1, 1))):
        with pytest.raises(UsageError, match="comes after the head"):
            model.head(*writer).unused_by(model.head(*reader), "k", on=ids)
    pair = Mechanism(small_kit("t5"))
    on = [(random_ids(5, 1).tolist(), random_ids(4, 2).tolist())]
    own, cross = pair.head(0, 1), pair.head(0, 1, "decoder.blocks.0.cross")
    encoder = pair.head(0, 1, "encoder.blocks.1.attn")
    for writer, reader, into in ((own, cross, "k"), (cross, own, "q"), (encoder, own, "q")):
        with pytest.raises(UsageError, match="comes after the head"):
            writer.unused_by(reader, into, on=on)
    assert own.unused_by(cross, "q", on=on, change_below=1e9) > 0
    recurrent = Mechanism(Recurrent.fresh(recurrent_seq2seq("gru", 8, 8, 1, 20, "additive")))
    only = recurrent.head(0, 0, "decoder.cross")
    with pytest.raises(UsageError, match="a recurrent model"):
        only.unused_by(only, "q", on=on)


def test_an_edge_of_a_model_with_shared_keys():
    """Against the definition, step by step: the reader's k computed from a changed stream."""
    kit = small_kit("llama")
    model, ids = Mechanism(kit), random_ids(7, 3).tolist()
    hooked, block = kit.hooked, kit.model.decoder.blocks[0]
    reader = kit.model.decoder.blocks[1].attn
    heads, groups, width = reader.heads, reader.groups, reader.width
    assert groups < heads
    with torch.no_grad():
        batch = kit.batch([ids])
        before, seen = hooked.run(batch, ["*.0.attn.z", "*.1.resid_pre", "*.1.attn.k"])
        z = seen["decoder.blocks.0.attn.z"][:, :, 1]  # (1, T, K)
        written = z @ block.attn.o.weight[:, width : 2 * width].T
        stream = seen["decoder.blocks.1.resid_pre"] - written
        _, moved = hooked.run(
            batch, ["*.1.attn.k"], {"decoder.blocks.1.resid_pre": regard.patch(stream)}
        )
        k = seen["decoder.blocks.1.attn.k"].clone()
        group = (heads - 1) * groups // heads
        k[:, :, group] = moved["decoder.blocks.1.attn.k"][:, :, group]
        after, _ = hooked.run(batch, edits={"decoder.blocks.1.attn.k": regard.patch(k)})
    places = torch.arange(len(ids) - 1)
    change = after.log_softmax(-1)[0] - before.log_softmax(-1)[0]
    expected = float(change[places, torch.tensor(ids[1:])].abs().max())
    found = model.head(0, 1).unused_by(model.head(1, heads - 1), "k", on=[ids], change_below=1e9)
    assert found == pytest.approx(expected, rel=1e-3, abs=1e-7) and found > 0


@torch.no_grad()
def test_a_change_is_that_of_the_tokens_themselves():
    """Against a plain loop, with rows of different lengths."""
    kit = small_kit("gpt2")
    rows = [random_ids(5, 1).tolist(), random_ids(8, 2).tolist()]
    with pytest.raises(AssertionError) as failed:
        Mechanism(kit).unused("decoder.blocks.0.attn.z", on=rows, head=1, change_below=1e-9)
    changes = []
    for row in rows:
        before = kit.logits([row]).log_softmax(-1)[0]
        weight = kit.model.decoder.blocks[0].attn.o.weight
        kept = weight.clone()
        weight[:, 8:16] = 0  # head 1 writes nothing
        after = kit.logits([row]).log_softmax(-1)[0]
        weight.copy_(kept)
        changes += [float((after - before)[n, row[n + 1]].abs()) for n in range(len(row) - 1)]
    assert f"changes by {max(changes):.3g}"[:13] in str(failed.value)


def test_models_of_other_kinds():
    pairs = [(random_ids(5, 1).tolist(), random_ids(4, 2).tolist())]
    for name, on in (("t5", pairs), ("bert", [random_ids(6, 1).tolist()])):
        stack = "decoder" if name == "t5" else "encoder"
        model = Mechanism(small_kit(name))
        with pytest.raises(AssertionError, match="is used"):
            model.unused(f"{stack}.blocks.1.attn.z", on=on, change_below=1e-9)
        assert model.unused(f"{stack}.blocks.1.attn.z", on=on, change_below=1e9) > 0
    with pytest.raises(UsageError, match="self-attention"):
        Mechanism(small_kit("t5")).head(0, 0, "decoder.blocks.0.cross").scores("induction")
    picture = torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    assert Mechanism(small_kit("vit")).unused("blocks.1.mlp.out", on=picture, change_below=1e9) > 0


def test_a_folder_without_a_tokenizer(tmp_path):
    Kit(planted_induction()).save(tmp_path / "model")
    assert Mechanism(tmp_path / "model").some_head("induction", at_least=0.9).name == "1.2"


def test_a_folder_with_a_tokenizer(tmp_path):
    made = train_tokenizer(["abcdefghijklmnopqrstuvwx"], "chars", 24, specials=())
    Kit(planted_induction(made.size), made).save(tmp_path / "model")
    model = Mechanism(tmp_path / "model", length=15, rows=2, seed=3)
    assert model.repeats.batch.inputs.shape == (2, 30)
    assert model.some_head("induction", at_least=0.9).name == "1.2"
    with pytest.raises(AssertionError, match="is used"):
        model.unused("decoder.blocks.0.attn.z", head=1, on=["abcdabcd", "xyab"])
