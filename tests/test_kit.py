"""Kit: one object that reads text, ids, pictures and sound, and answers (MISSION N1, N3, N6)."""

from __future__ import annotations

import pytest
import torch

import regard
from regard.errors import DataError, UsageError
from regard.interop.families import bind
from regard.kit import Kit
from regard.loading import load, read_dtype
from regard.model import presets
from regard.model.model import Model
from regard.tokens.tokenizer_folder import open_tokenizer
from tests.properties.small_models import VOCAB, assert_near, example, random_ids, small_kit
from tests.properties.threads import one_thread  # noqa: F401
from tests.tokens.small_tokenizers import byte_bpe, write_json


@pytest.fixture
def tokenizer(tmp_path):
    """A byte-level tokenizer without template; <pad> is 1 and </s> is 2."""
    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    byte_bpe(specials).save(str(tmp_path / "tokenizer.json"))
    roles = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token"), specials, strict=True))
    settings = roles | {"tokenizer_class": "PreTrainedTokenizerFast"}
    write_json(tmp_path / "tokenizer_config.json", settings)
    return open_tokenizer(tmp_path)


def writer(tokenizer):
    """A decoder that speaks with this tokenizer."""
    model = Model.fresh(presets.gpt2(32, 2, 4, vocab=tokenizer.size, length=64), seed=1)
    return Kit(model, tokenizer, bind("GPT2LMHeadModel"))


# Reading in -----------------------------------------------------------------------------------


def test_ids_as_tensor_row_list_and_lists():
    kit = small_kit("gpt2")
    expected = kit.logits(torch.tensor([[3, 1, 4]]))
    assert expected.shape == (1, 3, VOCAB)
    for given in (torch.tensor([3, 1, 4]), [3, 1, 4], [[3, 1, 4]]):
        assert torch.equal(kit.logits(given), expected)


def test_lists_of_unequal_length_are_padded_and_masked():
    kit = small_kit("gpt2")
    batch = kit.batch([[3, 1, 4], [5]])
    assert batch.mask.tolist() == [[True, True, True], [True, False, False]]
    assert_near(kit.logits([[3, 1, 4], [5]])[1, :1], kit.logits([5])[0])


def test_text_needs_a_tokenizer():
    with pytest.raises(UsageError, match=r"without a tokenizer[\s\S]*tokenizer\.json"):
        small_kit("gpt2").logits("hello")


def test_text_is_read_by_the_tokenizer(tokenizer):
    kit = writer(tokenizer)
    ids = tokenizer.encode("the cat sat")
    assert torch.equal(kit.logits("the cat sat"), kit.logits(ids))
    batch = kit.batch(["the cat sat", "the"])
    assert batch.inputs[0].tolist() == ids and not batch.mask[1].all()
    assert int(batch.inputs[1, -1]) == tokenizer.specials["pad"]


def test_an_unknown_mask_gets_the_nearest():
    with pytest.raises(UsageError, match=r"unknown masks=[\s\S]*mask"):
        small_kit("gpt2").logits([1, 2], masks=torch.ones(1, 2).bool())


def test_wrong_data_is_refused_with_its_place():
    kit = small_kit("gpt2")
    with pytest.raises(DataError, match="id 99 at row 0, position 1"):
        kit.logits([1, 99])
    with pytest.raises(DataError, match=r"mask of shape \(1, 3\)"):
        kit.logits([1, 2], mask=torch.ones(1, 3).bool())
    with pytest.raises(DataError, match=r"mask of torch.float32"):
        kit.logits([1, 2], mask=torch.ones(1, 2))
    with pytest.raises(DataError, match=r"97 tokens[\s\S]*at most 96"):
        kit.logits([1] * 97)


def test_an_encoder_decoder_starts_its_target_itself():
    kit = small_kit("t5")
    kit.config = {"decoder_start_token_id": 5}
    assert kit.batch([[1, 2], [3, 4]]).target.tolist() == [[5], [5]]
    assert torch.equal(kit.logits([1, 2]), kit.logits([1, 2], [5]))


# Running --------------------------------------------------------------------------------------


def test_logits_need_no_gradient_and_the_model_can_give_one():
    kit = small_kit("gpt2")
    assert not kit.logits([1, 2]).requires_grad
    assert kit.model(kit.batch([1, 2])).requires_grad


def test_strict_can_be_the_default_of_a_kit():
    """Strict mode gives zeros at padding, which tells the modes apart."""
    kit = small_kit("gpt2")
    ids, mask = random_ids(40, 1)[None], torch.arange(40)[None] < 38
    expected = kit.logits(ids, mask=mask, strict=True)
    kit.strict = True
    assert (expected[0, 38:] == 0).all()
    assert torch.equal(kit.logits(ids, mask=mask), expected)
    assert torch.equal(kit.logits(ids, mask=mask, cache=kit.cache(1, 40)), expected)
    assert (kit.logits(ids, mask=mask, strict=False)[0, 38:] != 0).any()


def test_run_gives_logits_batch_and_activations():
    kit = small_kit("gpt2")
    output, seen = kit.run([3, 1, 4], taps=["blocks.0.attn.pattern", "embed"])
    assert torch.equal(output.batch.inputs, torch.tensor([[3, 1, 4]]))
    assert list(seen) == ["decoder.embed", "decoder.blocks.0.attn.pattern"]
    assert_near(output.logits, kit.logits([3, 1, 4]))
    output, seen = kit.run([3, 1, 4])
    assert seen == {} and torch.equal(output.logits, kit.logits([3, 1, 4]))


def test_edit_changes_inside_the_block_only():
    kit = small_kit("gpt2")
    before = kit.logits([3, 1, 4])
    with kit.edit({"blocks.*.attn.z": regard.zero(head=[0, 1])}):
        assert not torch.equal(kit.logits([3, 1, 4]), before)
    assert torch.equal(kit.logits([3, 1, 4]), before)


def test_taps_are_listed():
    kit = small_kit("gpt2")
    assert "decoder.blocks.1.mlp.post" in kit.taps and "logits" in kit.taps


def test_embed_is_the_mean_over_real_tokens(tokenizer):
    model = Model.fresh(presets.bert(32, 2, 4, tokenizer.size, 64), seed=1)
    kit = Kit(model, tokenizer)
    texts = ["the cat sat on the mat", "the"]
    found = kit.embed_batch(texts)
    assert found.shape == (2, 32)
    for vector, text in zip(found, texts, strict=True):
        with torch.no_grad():
            x = model.hidden(kit.batch(text))
        assert_near(vector, x[0].mean(0))
        assert_near(kit.embed_batch(text)[0], vector)


def test_embed_reads_the_folder_s_pooling(tokenizer):
    model = Model.fresh(presets.bert(32, 2, 4, tokenizer.size, 64), seed=1)
    kit = Kit(
        model, tokenizer, files={"1_Pooling/config.json": b'{"pooling_mode_cls_token": true}'}
    )
    with torch.no_grad():
        x = model.hidden(kit.batch("the cat"))
    assert torch.equal(kit.embed_batch("the cat"), x[:, 0])


# Generating -----------------------------------------------------------------------------------


def test_ids_continue_as_ids():
    kit = small_kit("gpt2")
    made = kit.generate([[3, 1, 4], [5, 9, 2]], max_new=4)
    assert made.shape == (2, 4)
    assert torch.equal(kit.generate([3, 1, 4], max_new=4)[0], made[0])
    with pytest.raises(UsageError, match="0"):
        kit.generate([3, 1, 4], max_new=0)


def test_text_continues_as_text(tokenizer):
    kit = writer(tokenizer)
    one = kit.generate("the cat sat", max_new=5).text
    several = [found.text for found in kit.generate(["the cat sat", "the dog"], max_new=5)]
    assert isinstance(one, str) and several[0] == one and len(several) == 2
    made = kit.generate(tokenizer.encode("the cat sat"), max_new=5)[0].tolist()
    stop = tokenizer.specials["eos"]
    kept = made[: made.index(stop)] if stop in made else made
    assert tokenizer.decode(tokenizer.encode("the cat sat") + kept).endswith(one)


def test_generation_stops_at_the_end_and_pads():
    kit = small_kit("gpt2")
    free = kit.generate([[3, 1, 4], [5, 9, 2]], max_new=6)
    stop = int(free[0, 2])
    kit.config = {"eos_token_id": stop}
    made = kit.generate([[3, 1, 4], [5, 9, 2]], max_new=6)
    first = free[0].tolist().index(stop)
    assert made[0, : first + 1].tolist() == free[0, : first + 1].tolist()
    assert (made[0, first:] == stop).all()


def test_pictures_and_sound():
    vit, whisper = small_kit("vit"), small_kit("whisper")
    assert vit.logits(example(vit, 1).inputs[None]).shape == (1, 7)
    assert whisper.generate(example(whisper, 1).inputs[None], max_new=3).shape == (1, 3)
    with pytest.raises(UsageError, match="without decoder"):
        vit.generate(example(vit, 1).inputs[None])


# Making, saving, loading ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("float32", torch.float32),
        ("bfloat16", torch.bfloat16),
        ("float16", torch.float16),
        (torch.float64, torch.float64),
        ("auto", None),
    ],
)
def test_dtype_names(given, found):
    assert read_dtype(given) is found


@pytest.mark.parametrize("wrong", ["int8", "flaot32", "Tensor", torch.long])
def test_other_dtypes_are_refused(wrong):
    with pytest.raises(UsageError, match=r"dtype =[\s\S]*float32, bfloat16"):
        read_dtype(wrong)


def test_repr_says_what_it_is():
    kit = small_kit("gpt2")
    text = repr(kit)
    assert "regard's own" in text and f"{sum(p.numel() for p in kit.model.parameters()):,}" in text
    assert "float32" in text and "cpu" in text


@pytest.mark.parametrize("name", ["gpt2", "window", "transformer-pre", "vit-conv", "whisper"])
def test_save_and_load_in_regards_own_folder(name, tmp_path):
    kit = small_kit(name)
    kit.save(tmp_path / "own")
    again = load(tmp_path / "own")
    assert again.model.config == kit.model.config
    for (path, one), other in zip(
        kit.model.named_parameters(), again.model.parameters(), strict=True
    ):
        assert torch.equal(one, other), path


def test_save_and_load_with_tokenizer_and_family(tokenizer, tmp_path):
    kit = writer(tokenizer)
    kit.save(tmp_path / "family")
    again = regard.load(tmp_path / "family")
    assert again.binding.architecture == "GPT2LMHeadModel"
    assert torch.equal(again.logits("the cat"), kit.logits("the cat"))
    assert again.generate("the cat", max_new=4) == kit.generate("the cat", max_new=4)
    half = regard.load(tmp_path / "family", dtype="bfloat16")
    assert half.dtype == torch.bfloat16
    half.save(tmp_path / "half")
    assert regard.load(tmp_path / "half", dtype="auto").dtype == torch.bfloat16
    assert regard.load(tmp_path / "family", strict=True).strict


def test_build_is_seeded(monkeypatch):
    monkeypatch.setitem(presets.PRESETS, "gpt2", (presets.gpt2, 16, 1, 2, 20, 8))
    one, same, other = (regard.build("gpt2", seed=n) for n in (1, 1, 2))
    assert torch.equal(one.logits([1, 2]), same.logits([1, 2]))
    assert not torch.equal(one.logits([1, 2]), other.logits([1, 2]))
    assert one.binding.architecture == "GPT2LMHeadModel"
    with pytest.raises(UsageError, match="did you mean gpt2"):
        regard.build("gtp2")
