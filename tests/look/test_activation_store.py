"""Extraction: each row is what a plain capture of its text alone holds, whatever ran beside it."""

from __future__ import annotations

import pytest
import torch

from regard.errors import DataError, UsageError
from regard.files import drafting
from regard.kit import Kit
from regard.look.activation_store import Extracted, ShardWriter
from regard.look.activations import TextIds, gather_rows, select_taps
from regard.look.extraction import count_row_bytes, group_texts
from regard.model.batch import like_lengths
from regard.model.config import HeadConfig, RecurrentConfig, TextConfig
from regard.model.recurrent import Recurrent
from tests.properties.small_models import TEXT, VOCAB, assert_near, random_ids, randomise, small_kit

LENGTHS = [5, 1, 17, 3, 9, 30, 2, 8]
PLACES = ["resid_post", "attn.z", "mlp.post"]


def items_of(kit, target):
    """Random texts of unequal length; numbers have gaps, as where lines were left out."""
    made = []
    for n, length in enumerate(LENGTHS):
        written = random_ids(LENGTHS[-1 - n], 50 + n).tolist() if target else None
        made.append(TextIds(2 * n, random_ids(length, n).tolist(), written))
    return made


def extract(kit, items, patterns, size=1 << 20, tokens=64, **choice):
    """All rows of the shards joined, and how many each shard had."""
    selection = select_taps(kit.hooked, patterns, **choice)
    rows = size // count_row_bytes(kit.hooked, selection)
    shards = [
        gather_rows(kit.hooked, group, selection, tokens)
        for group in group_texts(items, selection, rows)
    ]
    return {n: torch.cat([s[n] for s in shards]) for n in shards[0]}, [
        len(s["text"]) for s in shards
    ]


def alone(kit, item, taps):
    _, seen = kit.run([list(item.ids)], [list(item.target)] if item.target else None, taps=taps)
    return {name: x[0] for name, x in seen.items()}


@pytest.mark.parametrize("name", TEXT)
def test_rows_are_those_of_each_text_alone(name):
    kit = small_kit(name)
    sides = ["encoder", "decoder"] if kit.model.config.target else [""]
    for side in sides:
        patterns = [f"{side or '*'}*.{place}" for place in PLACES]
        items = items_of(kit, kit.model.config.target is not None)
        found, _ = extract(kit, items, patterns, size=60_000)
        rows = [item.target if side == "decoder" else item.ids for item in items]
        assert found["text"].tolist() == [
            i.number for i, r in zip(items, rows, strict=True) for _ in r
        ]
        assert found["position"].tolist() == [n for row in rows for n in range(len(row))]
        assert found["token"].tolist() == [id for row in rows for id in row]
        for item in items:
            here = found["text"] == item.number
            for tap, x in alone(kit, item, patterns).items():
                assert_near(found[tap][here], x.flatten(1))


def test_an_encoder_is_read_without_targets_and_cross_keys_belong_to_the_source():
    kit = small_kit("t5")
    sources, pairs = items_of(kit, False), items_of(kit, True)
    found, _ = extract(kit, sources, "encoder.*.mlp.out")
    also, _ = extract(kit, pairs, ["encoder.*.mlp.out", "decoder.*.cross.k"])
    name = "encoder.blocks.1.mlp.out"
    assert_near(found[name], also[name])
    last = pairs[-1]
    x = alone(kit, last, "decoder.blocks.1.cross.k")["decoder.blocks.1.cross.k"]
    assert_near(also["decoder.blocks.1.cross.k"][-len(last.ids) :], x.flatten(1))
    with pytest.raises(UsageError, match="run once for each"):
        select_taps(kit.hooked, "*.resid_post")


def test_the_last_token_of_each_text():
    kit, tap = small_kit("llama"), "decoder.blocks.1.attn.z"
    items = items_of(kit, False)
    found, _ = extract(kit, items, tap, position="last")
    for row, item in enumerate(items):
        assert_near(found[tap][row], alone(kit, item, tap)[tap].flatten(1)[-1])
        assert found["text"][row] == item.number and found["token"][row] == item.ids[-1]
        assert found["position"][row] == len(item.ids) - 1
    assert len(found["text"]) == len(items) >= 5


def test_shards_are_bounded_and_batches_change_nothing():
    kit, items = small_kit("gpt2"), items_of(small_kit("gpt2"), False)
    whole, _ = extract(kit, items, "*.resid_mid", tokens=4000)
    bound = 30 * (2 * 32 * 4 + 24)  # as many rows as the longest text has
    cut, counts = extract(kit, items, "*.resid_mid", size=bound, tokens=10)
    assert max(counts) <= 30 and len(counts) > 2 and sum(counts) == sum(LENGTHS)
    for name, x in whole.items():
        assert_near(cut[name], x)
    _, counts = extract(kit, items, "*.resid_mid", size=bound // 6)
    assert counts == [5, 1, 17, 3, 9, 30, 2, 8]  # of one text where it has more rows than fit
    for group in like_lengths(LENGTHS, 20):
        assert len(group) == 1 or max(LENGTHS[n] for n in group) * len(group) <= 20


def test_logits():
    kit = small_kit("gpt2")
    items = items_of(kit, False)
    found, _ = extract(kit, items, ["logits", "blocks.0.resid_pre"])
    assert found["logits"].shape == (sum(LENGTHS), VOCAB)
    assert_near(found["logits"][-LENGTHS[-1] :], alone(kit, items[-1], "logits")["logits"])


def test_a_recurrent_model():
    config = RecurrentConfig(TextConfig(8, VOCAB), HeadConfig(VOCAB), hidden=8, depth=2)
    model = Recurrent(config).eval()
    randomise(model)
    kit = Kit(model)
    items = items_of(kit, False)
    found, _ = extract(kit, items, "*.state")
    (first, *_) = names = [name for name in found if name.endswith("state")]
    assert len(names) == 2
    x = alone(kit, items[2], names)
    assert_near(found[first][found["text"] == 4], x[first])


@pytest.mark.parametrize(
    ("patterns", "told"), [("*.pattern", "two tokens each"), ("*.attn.y", "no tap")]
)
def test_what_cannot_be_extracted(patterns, told):
    kit = small_kit("gpt2")
    with pytest.raises(UsageError, match=told):
        extract(kit, items_of(kit, False), patterns)
    classes = small_kit("gpt2", head=HeadConfig(3, take="first"))
    with pytest.raises(UsageError, match="whole text"):
        select_taps(classes.hooked, "logits")


# Folders ------------------------------------------------------------------------------------------


def rows(start, stop):
    index = torch.arange(start, stop)
    made = {"text": index // 2, "position": index % 2, "token": index + 7}
    return made | {
        "a.b": torch.randn(stop - start, 3, generator=torch.Generator().manual_seed(stop))
    }


def write(folder, parts):
    with drafting(folder, "room") as draft:
        writer = ShardWriter(draft)
        for part in parts:
            writer.write(part)
        writer.finish({})


def test_a_folder_gives_back_what_was_written(tmp_path):
    parts = [rows(0, 3), rows(3, 5)]
    write(tmp_path / "x", parts)
    found = Extracted(tmp_path / "x")
    wanted = torch.cat([part["a.b"] for part in parts])
    assert len(found) == 5 and found.taps == ["a.b"] and torch.equal(found.tensor("a.b"), wanted)
    assert found.index.text.tolist() == [0, 0, 1, 1, 2]
    assert found.index.position.tolist() == [0, 1, 0, 1, 0]
    assert found.index.token.tolist() == [7, 8, 9, 10, 11]
    torch.testing.assert_close(found.mean("*.b"), wanted.mean(0))
    with pytest.raises(UsageError, match="such as a.b"):
        found.tensor("a.c")
    assert len(list((tmp_path / "x").iterdir())) == 3 and len(list(tmp_path.iterdir())) == 1


def test_a_folder_is_whole_or_not_there(tmp_path):
    with pytest.raises(RuntimeError), drafting(tmp_path / "x", "room") as draft:
        writer = ShardWriter(draft)
        writer.write(rows(0, 3))
        raise RuntimeError
    assert not (tmp_path / "x").exists()
    (tmp_path / "y").mkdir()
    write(tmp_path / "y", [rows(0, 3)])
    (tmp_path / "y" / "rows-00000.safetensors").unlink()
    with pytest.raises(DataError, match="missing"):
        Extracted(tmp_path / "y")
