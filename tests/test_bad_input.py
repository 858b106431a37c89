"""What a user may get wrong in Python: always an error of ours, before any kernel runs."""

import json
from pathlib import Path

import pytest
import torch

import regard
from regard.errors import DataError, RegardError, UsageError
from tests.properties.small_models import small_kit

IDS = [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(
    "given", [None, 5, torch.tensor(3), [1, "a"], [[1, None]], [[2**70]], [[[1]]], [[1.7, 2.2]], []]
)
def test_ids_that_are_none(given) -> None:
    with pytest.raises(RegardError):
        small_kit("gpt2").logits(given)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_ids_of_any_whole_type(dtype) -> None:
    kit = small_kit("gpt2")
    assert torch.equal(kit.logits(torch.tensor(IDS, dtype=dtype)), kit.logits(IDS))


def test_no_mask_given_is_the_mask_of_ragged_rows() -> None:
    kit = small_kit("bert")
    ragged = [[1, 2, 3, 4], [5, 6]]
    assert torch.equal(kit.logits(ragged, mask=None), kit.logits(ragged))
    pair = small_kit("t5")
    start = [[1], [1]]
    assert torch.equal(pair.logits(ragged, start, source_mask=None), pair.logits(ragged, start))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gpt2", {"segments": torch.zeros(2, 3, dtype=torch.long)}),
        ("gpt2", {"source_mask": torch.ones(2, 3, dtype=torch.bool)}),
        ("gpt2", {"documents": torch.full((2, 3), -1)}),
        ("gpt2", {"documents": torch.zeros(2, 3)}),
        ("gpt2", {"mask": torch.ones(2, 3)}),
        ("gpt2", {"mask": "yes"}),
        ("gpt2", {"prefix": torch.ones(3, dtype=torch.long)}),
        ("bert", {"segments": torch.full((2, 3), 7)}),
        ("bert", {"prefix": torch.ones(2, dtype=torch.long)}),
        ("vit", {"mask": torch.ones(2, 3, dtype=torch.bool)}),
    ],
)
@pytest.mark.parametrize("strict", [False, True])
def test_what_a_model_has_no_use_for_is_refused(name, options, strict) -> None:
    kit = small_kit(name)
    front = kit.model.config.front
    inputs = torch.rand(2, 3, front.height, front.width) if name == "vit" else IDS
    with pytest.raises(RegardError):
        kit.logits(inputs, strict=strict, **options)


@pytest.mark.parametrize("strict", [False, True])
def test_targets_belong_to_pairs(strict) -> None:
    for name in ("gpt2", "bert"):
        with pytest.raises(UsageError, match="a target"):
            small_kit(name).logits(IDS, IDS, strict=strict)
    with pytest.raises(UsageError, match="documents= too"):
        documents = torch.zeros(2, 3, dtype=torch.long)
        small_kit("t5").logits(IDS, IDS, source_documents=documents, strict=strict)
    with pytest.raises(UsageError, match="without decoder"):
        small_kit("bert").generate(IDS, 4, strict=strict)


def test_a_cache_of_other_rows() -> None:
    kit = small_kit("gpt2")
    with pytest.raises(UsageError, match="2 rows and a cache of 3"):
        kit.logits(IDS, cache=kit.cache(3, 8))


def test_past_a_learned_table_nothing_is_written_or_cached() -> None:
    kit = small_kit("gpt2")
    size = kit.model.front.positions.size
    with pytest.raises(DataError, match=f"at most {size}"):
        kit.generate([1, 2, 3], max_new=size)
    cache = kit.cache(1, size + 10)
    kit.logits([1] * (size - 1), cache=cache)
    with pytest.raises(DataError, match=f"at most {size}"):
        kit.logits([1, 2], cache=cache)
    kit.logits([1], cache=cache)
    assert int(cache.lengths) == size


def test_rows_without_tokens() -> None:
    kit = small_kit("llama")
    mask = torch.tensor([[True, True], [False, False]])
    batch = kit.batch([[1, 2], [3, 4]], mask=mask)
    with pytest.raises(DataError, match="row 1 has no tokens"):
        kit.search(batch, 3)


def test_one_picture_and_one_sound_are_batches_of_one() -> None:
    for name, shape in (("vit", 3), ("whisper", 2)):
        kit = small_kit(name)
        front = kit.model.config.front
        one = torch.rand(3, front.height, front.width) if shape == 3 else torch.rand(front.mels, 20)
        target = () if shape == 3 else ([[1]],)
        assert torch.equal(kit.logits(one, *target), kit.logits(one[None].double(), *target))
        with pytest.raises(DataError, match="floating"):
            kit.logits(torch.ones(one.shape, dtype=torch.uint8), *target)


@pytest.mark.parametrize(
    "edit",
    [
        lambda: {"blocks.0.attn.z": 0.5},
        lambda: {"blocks.0.attn.z": regard.zero},
        lambda: {"blocks.0.attn.z": regard.zero(head=1.5)},
        lambda: {"blocks.0.attn.z": regard.zero(head=[])},
        lambda: {"blocks.0.mlp.post": regard.zero(neuron=9999)},
    ],
)
def test_edits_that_are_none(edit) -> None:
    with pytest.raises(UsageError), small_kit("gpt2").edit(edit()):
        pass


def test_numbers_as_edits() -> None:
    kit = small_kit("gpt2")
    plain = kit.logits(IDS)
    for made in (regard.add(1), regard.patch(0.5)):
        with kit.edit({"blocks.0.mlp.out": made}):
            assert not torch.equal(kit.logits(IDS), plain)


@pytest.mark.parametrize("made", [regard.zero(position=0), regard.mean()])
def test_edits_of_columns_only_where_columns_mean_something(made) -> None:
    kit = small_kit("gpt2")
    with kit.edit({"blocks.0.resid_post": made}):
        kit.logits(IDS)
        if made.kind == "mean":  # of columns that come one by one there is none
            for run in (lambda: kit.logits(IDS, strict=True), lambda: kit.generate(IDS, 2)):
                with pytest.raises(UsageError, match="do not depend on what else is run"):
                    run()
        else:
            assert len(kit.generate(IDS, 2)) == len(IDS) == len(kit.logits(IDS, strict=True))


@pytest.mark.parametrize("device", ["gpu", 5, "", "cuda:99"])
def test_devices_that_are_not_there(device, tmp_path: Path) -> None:
    small_kit("gpt2").save(tmp_path)
    with pytest.raises(UsageError, match="device"):
        regard.load(tmp_path, device=device)


@pytest.mark.parametrize("value", [0, -4, "8", 1.5, None, [], {}, True, 10**7, float("nan")])
@pytest.mark.parametrize("name", ["llama", "bert", "t5", "vit"])
def test_any_value_in_config_json(name, value, tmp_path: Path) -> None:
    kit = small_kit(name)
    kit.save(tmp_path)
    path = tmp_path / "config.json"
    whole = json.loads(path.read_text())
    for key in whole:
        path.write_text(json.dumps(whole | {key: value}))
        try:
            regard.load(tmp_path)
        except RegardError as error:
            assert error.exit_code == 3, (key, value)


@pytest.mark.parametrize("content", [b"[]", b"null", b"5", b"{", b'{"eos_token_id": "a"}'])
def test_side_files_of_the_wrong_kind(content, tmp_path: Path) -> None:
    kit = small_kit("llama")
    kit.save(tmp_path)
    (tmp_path / "generation_config.json").write_bytes(content)
    with pytest.raises(DataError):
        regard.load(tmp_path).generate([1, 2], max_new=2)


@pytest.mark.parametrize("path", [None, 5, "~nosuchuser/x", "no\0where"])
def test_paths_that_are_none(path) -> None:
    with pytest.raises(RegardError):
        regard.load(path)
    if not isinstance(path, str) or "\0" in path:
        with pytest.raises(RegardError):
            small_kit("gpt2").save(path)
