"""Adapter folders both ways with PEFT, and beside the base that they remember."""

from __future__ import annotations

import json
import shutil
import warnings
from dataclasses import replace

import pytest
import torch

import regard
from regard.errors import DataError, UsageError
from regard.train.config import LoRA
from regard.tune import lora
from regard.tune.adapter_folder import identify_base
from tests.conftest import make_folder
from tests.tune.test_lora import adapter_parameters, draw_weights

FAMILIES = {
    "llama": (
        *("LlamaForCausalLM", "LlamaConfig"),
        dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
        | dict(intermediate_size=24, vocab_size=50, max_position_embeddings=40),
    ),
    "bert": (
        *("BertForMaskedLM", "BertConfig"),
        dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24)
        | dict(vocab_size=50, max_position_embeddings=40),
    ),
    "gpt2": (
        *("GPT2LMHeadModel", "GPT2Config"),
        dict(n_embd=16, n_layer=2, n_head=4, vocab_size=50, n_positions=40)
        | dict(bos_token_id=1, eos_token_id=1),
    ),
    "t5": (
        *("T5ForConditionalGeneration", "T5Config"),
        dict(d_model=16, d_kv=4, d_ff=24, num_layers=2, num_heads=4, vocab_size=50)
        | dict(decoder_start_token_id=0),
    ),
}
CONFIGS = {
    "plain": LoRA(r=3),
    "rslora": LoRA(r=3, rslora=True, alpha=5, targets=("*.attn.*", "*.mlp.*")),
    "dora": LoRA(r=3, dora=True, targets=("*.attn.{v,o}", "*.mlp.up")),
}
BERT_CLASSES = "BertForSequenceClassification", "BertConfig"
IDS = torch.tensor([[3, 7, 2, 9, 30], [4, 4, 41, 6, 5]])


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    place = tmp_path_factory.mktemp("bases")
    made = {n: make_folder(place / n, a, c, **sizes) for n, (a, c, sizes) in FAMILIES.items()}
    return made


def their_model(base, name):
    import transformers

    architecture = FAMILIES[name][0]
    return getattr(transformers, architecture).from_pretrained(base).eval()


@torch.no_grad()
def their_logits(model, name):
    return model(IDS, decoder_input_ids=IDS).logits if name == "t5" else model(IDS).logits


def our_logits(kit, name):
    return kit.logits(IDS, IDS) if name == "t5" else kit.logits(IDS)


def adapt(base, config, name="default"):
    kit = regard.load(base)
    lora.attach(kit.model, config, name)
    draw_weights(kit.model, name)
    return kit


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("name", FAMILIES)
def test_peft_opens_ours(bases, tmp_path, name, kind):
    from peft import PeftModel

    kit = adapt(bases[name], CONFIGS[kind])
    kit.save(tmp_path / "adapter")
    ours = our_logits(kit, name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        theirs = PeftModel.from_pretrained(their_model(bases[name], name), tmp_path / "adapter")
    assert (their_logits(theirs.eval(), name) - ours).abs().max() <= 1e-5
    with theirs.disable_adapter():
        assert (their_logits(theirs, name) - ours).abs().max() > 1e-2
    again = regard.load(tmp_path / "adapter")
    assert torch.equal(our_logits(again, name), ours)
    held = adapter_parameters(again.model)
    for path, parameter in adapter_parameters(kit.model).items():
        assert torch.equal(held.pop(path), parameter), path
    assert not held
    again.save(tmp_path / "again")
    for file in (tmp_path / "adapter").iterdir():
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes()


THEIRS = {
    "llama": ["q_proj", "down_proj"],
    "bert": ["query", "attention.output.dense"],
    "gpt2": ["c_attn", "mlp.c_proj"],
    "t5": ["q", "wo"],
}


@pytest.mark.parametrize("kind", ["plain", "rslora", "dora", "patterns"])
@pytest.mark.parametrize("name", FAMILIES)
def test_we_open_peft_s(bases, tmp_path, name, kind):
    from peft import LoraConfig, get_peft_model

    first, second = THEIRS[name]
    patterns = (
        dict(rank_pattern={first: 5}, alpha_pattern={second: 7}) if kind == "patterns" else {}
    )
    config = LoraConfig(
        r=3,
        lora_alpha=5,
        target_modules=THEIRS[name],
        use_rslora=kind == "rslora",
        use_dora=kind == "dora",
        fan_in_fan_out=name == "gpt2",
        **patterns,
    )
    theirs = get_peft_model(their_model(bases[name], name), config).eval()
    torch.manual_seed(5)
    with torch.no_grad():
        for path, parameter in theirs.named_parameters():
            if "lora_" in path:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    theirs.save_pretrained(tmp_path)
    expected = their_logits(theirs, name)
    kit = regard.load(tmp_path)  # which names its base
    assert (our_logits(kit, name) - expected).abs().max() <= 1e-5
    kit.switch(None)
    assert (our_logits(kit, name) - expected).abs().max() > 1e-2
    other = regard.load(bases[name], adapter=tmp_path)
    assert (our_logits(other, name) - expected).abs().max() <= 1e-5
    regard.tune.merge(other, out=tmp_path / "whole")
    whole = their_logits(their_model(tmp_path / "whole", name), name)
    assert (whole - expected).abs().max() <= 1e-4


def test_weights_trained_beside_the_adapter_travel_with_it(tmp_path):
    """A classifier's new head is PEFT's modules_to_save."""
    from peft import PeftModel
    from transformers import BertForSequenceClassification

    make_folder(tmp_path / "base", *BERT_CLASSES, **FAMILIES["bert"][2])
    kit = adapt(tmp_path / "base", LoRA(r=2))
    out = kit.model.head.out.requires_grad_(True)
    with torch.no_grad():
        out.weight.normal_(), out.bias.normal_()
    kit.save(tmp_path / "adapter")
    ours = kit.logits(IDS)
    model = BertForSequenceClassification.from_pretrained(tmp_path / "base")
    theirs = PeftModel.from_pretrained(model, tmp_path / "adapter").eval()
    assert (their_logits(theirs, "bert") - ours).abs().max() <= 1e-5
    again = regard.load(tmp_path / "adapter")
    assert torch.equal(again.logits(IDS), ours) and again.model.head.out.weight.requires_grad


def test_a_new_head_is_opened_with_its_base(bases, tmp_path):
    """Another architecture around the base's weights, as a classifier has it, or one of ours."""
    kit = regard.load(bases["bert"])
    base, body = identify_base(bases["bert"]), dict(kit.model.named_parameters())
    make_folder(tmp_path / "other", *BERT_CLASSES, **FAMILIES["bert"][2], num_labels=5)
    other = regard.load(tmp_path / "other")
    with torch.no_grad():
        for name, parameter in other.model.named_parameters():
            if not name.startswith("head."):
                parameter.copy_(body[name])
    for folder, binding in (("theirs", other.binding), ("own", None)):
        lora.detach(other.model)
        lora.attach(other.model, LoRA(r=2))
        draw_weights(other.model)
        lora.train_beside(other.model, ["head.*"])
        described = other.config if binding else {}
        new = replace(other, base=base, binding=binding, config=described)
        new.save(tmp_path / folder)
        opened = regard.load(tmp_path / folder)
        assert torch.equal(opened.logits(IDS), new.logits(IDS)) and opened.logits(IDS).shape[1] == 5
        assert (opened.binding is None) == (binding is None)
        if binding:
            assert opened.config["id2label"] == other.config["id2label"]
        lora.attach(other.model, LoRA(r=2), "frozen")  # the head is not written any more
        new.save(tmp_path / folder)
        with pytest.raises(DataError, match="neither it nor its base"):
            regard.load(tmp_path / folder)


def test_merge_says_the_drift_first(bases, tmp_path, capsys):
    adapt(bases["llama"], LoRA(r=3)).save(tmp_path / "run" / "final")
    kit = regard.load(tmp_path / "run")  # a run's folder is its final
    merged = regard.tune.merge(tmp_path / "run" / "final", out=tmp_path / "whole")
    assert 0 < merged.drift <= 1e-4 < merged.largest_score
    assert f"{merged.drift:.1e}" in capsys.readouterr().err
    assert merged.adapter_parameters == 2 * 3 * (16 + 16 + 16 + 8)
    assert merged.base == str(bases["llama"])
    whole = regard.load(tmp_path / "whole")
    assert not whole.adapters and (whole.logits(IDS) - kit.logits(IDS)).abs().max() <= 1e-4
    with pytest.raises(UsageError, match="no adapter"):
        regard.tune.merge(bases["llama"], out=tmp_path / "other")
    with pytest.raises(UsageError, match="whole is there already"):
        regard.tune.merge(tmp_path / "run", out=tmp_path / "whole")


def test_an_adapter_of_another_base_names_both(bases, tmp_path):
    kit = adapt(bases["llama"], LoRA(r=3))
    kit.save(tmp_path / "adapter")
    sizes = FAMILIES["llama"][2]
    shutil.copytree(bases["llama"], tmp_path / "copy")
    moved = regard.load(tmp_path / "copy", adapter=tmp_path / "adapter")
    assert torch.equal(moved.logits(IDS), kit.logits(IDS))
    other = regard.load(tmp_path / "copy")
    with torch.no_grad():
        other.model.decoder.norm.weight[0] += 1e-3
    other.save(tmp_path / "other")
    make_folder(tmp_path / "wide", "LlamaForCausalLM", "LlamaConfig", **sizes | {"hidden_size": 24})
    for name, base in (("other", tmp_path / "other"), ("gpt2", bases["gpt2"])):
        with pytest.raises(DataError) as caught:
            regard.load(base, adapter=tmp_path / "adapter")
        assert name in str(caught.value) and str(bases["llama"]) in str(caught.value)
    # One of PEFT's has no hash: its shapes and names tell.
    plain = regard.load(bases["llama"], adapter=tmp_path / "adapter")
    from safetensors.torch import load_file, save_file

    file = tmp_path / "adapter" / "adapter_model.safetensors"
    save_file(load_file(file), file)
    assert torch.equal(
        regard.load(tmp_path / "other", adapter=tmp_path / "adapter").logits(IDS).isfinite(),
        plain.logits(IDS).isfinite(),
    )
    for base in (tmp_path / "wide", bases["gpt2"]):
        with pytest.raises(DataError) as caught:
            regard.load(base, adapter=tmp_path / "adapter")
        assert base.name in str(caught.value) and str(bases["llama"]) in str(caught.value)
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = "someone/model"
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(DataError, match="someone/model, is not on this machine"):
        regard.load(tmp_path / "adapter")


@pytest.mark.parametrize(
    "change",
    [{"peft_type": "IA3"}, {"bias": "all"}, {"init_lora_weights": "pissa"}, {"lora_bias": True}],
)
def test_other_methods_are_refused(bases, tmp_path, change):
    adapt(bases["llama"], LoRA(r=3)).save(tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps(config | change))
    with pytest.raises(DataError, match=next(iter(change))):
        regard.load(tmp_path)


def test_what_has_no_place_here_is_refused(bases, tmp_path):
    """Scores are computed from the weight of the output head, in chunks: it has no adapter."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=2, target_modules=["q_proj", "lm_head"])
    theirs = get_peft_model(their_model(bases["llama"], "llama"), config)
    theirs.save_pretrained(tmp_path, save_embedding_layers=False)
    with pytest.raises(DataError, match="lm_head.lora_A"):
        regard.load(tmp_path)


def test_broken_folders_say_what_is_missing(bases, tmp_path):
    adapt(bases["llama"], LoRA(r=3)).save(tmp_path)
    weights = tmp_path / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    with pytest.raises(DataError, match="truncated"):
        regard.load(tmp_path)
    weights.unlink()
    with pytest.raises(DataError, match="no adapter_model.safetensors"):
        regard.load(tmp_path)
    with pytest.raises(DataError, match="no adapter_config.json"):
        regard.load(bases["llama"], adapter=bases["gpt2"])


def test_several_adapters_on_one_base(bases, tmp_path):
    logits = {}
    for name, config in (("fr", LoRA(r=2)), ("law", LoRA(r=4, dora=True))):
        kit = adapt(bases["gpt2"], config)
        kit.save(tmp_path / name)
        logits[name] = kit.logits(IDS)
    folders = {name: tmp_path / name for name in logits}
    kit = regard.load(bases["gpt2"], adapter=folders)
    assert kit.adapters == {"fr": 0.0, "law": 1.0}
    for name in ("fr", "law", "fr"):
        kit.switch(name)
        assert torch.equal(kit.logits(IDS), logits[name])
    kit.switch({"fr": 0.5, "law": 0.5})
    with pytest.raises(UsageError, match="adapters that are on"):
        kit.save(tmp_path / "mixed")
    mixed = kit.logits(IDS)
    regard.tune.merge(kit, out=tmp_path / "whole")
    assert (regard.load(tmp_path / "whole").logits(IDS) - mixed).abs().max() <= 1e-4
    kit = regard.load(tmp_path / "fr", adapter={"law": tmp_path / "law"})
    assert kit.adapters == {"default": 0.0, "law": 1.0}
    with pytest.raises(UsageError, match="gb"):
        kit.switch("gb")


def test_adapter_on_a_folder_stored_as_int8(bases, tmp_path):
    regard.load(bases["llama"]).save(tmp_path / "int8", stored="int8")
    base = regard.load(tmp_path / "int8")
    kit = regard.load(tmp_path / "int8", precision=None)
    lora.attach(kit.model, LoRA(r=3))
    draw_weights(kit.model)
    kit.save(tmp_path / "adapter")
    packed = regard.load(tmp_path / "adapter")
    assert packed.model.decoder.blocks[0].attn.q.packed is not None
    far = (base.logits(IDS) - kit.logits(IDS)).abs().max()
    assert (packed.logits(IDS) - kit.logits(IDS)).abs().max() < far / 4
    packed.switch(None)
    assert torch.equal(packed.logits(IDS), base.logits(IDS))
    with pytest.raises(UsageError, match="adapters"):
        regard.export("int8", packed, tmp_path / "out")


def test_looking_inside_sees_the_adapter(bases, tmp_path):
    kit = adapt(bases["llama"], LoRA(r=3))
    kit.save(tmp_path)
    assert regard.info(tmp_path).parameters == regard.info(bases["llama"]).parameters
    before = kit.matrix("blocks.0.attn.q")
    lora.merge(kit.model)
    assert torch.allclose(kit.matrix("blocks.0.attn.q"), before, atol=1e-6)
    assert regard.info(bases["llama"]).parameters == regard.info(kit).parameters
