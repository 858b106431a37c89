"""Folders that do not fit are refused whole, in words; side files travel with those that do."""

import json
from dataclasses import replace

import pytest
import torch
from tokenizers import Tokenizer as Rust
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

import regard
from regard.errors import DataError
from regard.interop.families import ARCHITECTURES, FAMILIES, bind
from regard.interop.folder import FolderSource
from regard.kit import Kit
from regard.model import presets
from regard.model.model import Model
from regard.tokens.tokenizer import Tokenizer
from tests.parity import compare
from tests.parity.compare import Case

SMALL = Case(
    "LlamaForCausalLM",
    dict(
        hidden_size=12,
        intermediate_size=20,
        num_hidden_layers=2,
        num_attention_heads=3,
        vocab_size=17,
    ),
)


@pytest.fixture
def pair(open_pair):
    return open_pair(SMALL)


@pytest.fixture
def no_reading(monkeypatch):
    """Fail when a tensor is read: a refusal comes before the first one."""

    def read(self, name):
        pytest.fail(f"{name} was read")

    monkeypatch.setattr(FolderSource, "tensor", read)


def refused(folder) -> DataError:
    with pytest.raises(DataError) as caught:
        regard.load(folder)
    assert caught.value.exit_code == 3
    return caught.value


def test_three_lists(pair, tmp_path, no_reading):
    held = compare.read_tensors(pair.folder)
    del held["model.layers.1.self_attn.q_proj.weight"]
    held["model.layers.2.mlp.up_proj.weight"] = torch.ones(20, 12)
    held["surprise"] = torch.ones(1)
    held["model.norm.weight"] = torch.ones(11)
    error = refused(compare.copy_with(pair, tmp_path, held))
    missing, unexpected, misshapen = error.found.splitlines()[1:]
    assert missing.strip() == "missing (1): model.layers.1.self_attn.q_proj.weight"
    both = "model.layers.2.mlp.up_proj.weight, surprise"
    assert unexpected.strip() == f"unexpected (2): {both}"
    assert misshapen.startswith("  misshapen (1): model.norm.weight (11,)")
    assert "decoder.norm.weight (12,)" in misshapen
    assert str(error).count("loading a LlamaForCausalLM") == 1


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("missing", "missing (1): lm_head.weight"),
        ("unexpected", "unexpected (1): lm_head.bias"),
        ("misshapen", "misshapen (1): lm_head.weight (17, 13)"),
    ],
)
def test_each_alone(pair, tmp_path, no_reading, change, line):
    held = compare.read_tensors(pair.folder)
    if change == "missing":
        del held["lm_head.weight"]
    elif change == "unexpected":
        held["lm_head.bias"] = torch.ones(17)
    else:
        held["lm_head.weight"] = torch.ones(17, 13)
    found = refused(compare.copy_with(pair, tmp_path, held)).found
    assert line in found
    assert found.count("(0): none") == 2


def test_a_config_of_another_size(pair, tmp_path, no_reading):
    held = compare.read_tensors(pair.folder)
    deeper = refused(compare.copy_with(pair, tmp_path / "a", held, num_hidden_layers=3))
    assert "missing (9): model.layers.2" in deeper.found
    flatter = refused(compare.copy_with(pair, tmp_path / "b", held, num_hidden_layers=1))
    assert "unexpected (9): model.layers.1" in flatter.found
    wider = refused(compare.copy_with(pair, tmp_path / "c", held, vocab_size=18))
    assert "misshapen (2): model.embed_tokens.weight (17, 12)" in wider.found
    gone = refused(compare.copy_with(pair, tmp_path / "d", held, hidden_size=None))
    assert "no key 'hidden_size'" in gone.found
    other = refused(compare.copy_with(pair, tmp_path / "e", held, hidden_act="mish"))
    assert "hidden_act = 'mish'" in other.found and "silu" in other.expected


def test_an_unknown_architecture_lists_the_known(pair, tmp_path, no_reading):
    held = compare.read_tensors(pair.folder)
    folder = compare.copy_with(pair, tmp_path / "a", held, architectures=["LlamaForCausalML"])
    error = refused(folder)
    assert "'LlamaForCausalML'" in error.found and "LlamaForCausalLM" in error.fix
    assert all(name in error.expected for name in ARCHITECTURES)
    folder = compare.copy_with(pair, tmp_path / "b", held, architectures=["Zzz"])
    assert refused(folder).fix == "docs/adding.md says how to add a family"
    folder = compare.copy_with(pair, tmp_path / "c", held, architectures=None, model_type="mamba")
    assert "'mamba'" in refused(folder).found


def test_the_model_type_is_enough(pair, tmp_path):
    held = compare.read_tensors(pair.folder)
    ours = regard.load(compare.copy_with(pair, tmp_path, held, architectures=None))
    assert compare.gap(ours, pair.theirs) <= compare.BAR


REQUIRED = [
    (table.family, key, value) for table in FAMILIES for key, value in table.require.items()
]


@pytest.mark.parametrize(("family", "key", "value"), REQUIRED)
def test_what_is_not_computed_is_refused(pair, tmp_path, no_reading, family, key, value):
    # Refused by the config alone, before the tensors are looked at.
    table = next(table for table in FAMILIES if table.family == family)
    others = {"True": False, "False": True, "1.0": 0.5, "'absolute'": "relative_key"}
    others |= {"'gelu'": "relu", "None": 4}
    wrong = others[repr(value)]
    edits = {"architectures": [next(iter(table.variants))], key: wrong}
    folder = compare.copy_with(pair, tmp_path, compare.read_tensors(pair.folder), **edits)
    error = refused(folder)
    assert error.found == f"{key} = {wrong!r}" and repr(value) in error.expected


def test_rotary_kinds_that_are_not_computed(pair, tmp_path, no_reading):
    held = compare.read_tensors(pair.folder)
    for n, kind in enumerate(("rope_type", "type")):
        scaling = {kind: "yarn", "factor": 4.0}
        edits = {"rope_scaling": scaling, "rope_parameters": None}
        error = refused(compare.copy_with(pair, tmp_path / str(n), held, **edits))
        assert "'yarn'" in error.found and "llama3" in error.expected


def test_a_shape_the_family_cannot_hold(tmp_path):
    config = presets.gpt2(12, 2, 3, vocab=17, length=16)
    block = replace(config.decoder.block, gated=True)
    config = replace(config, decoder=replace(config.decoder, block=block))
    kit = Kit(Model.fresh(config), None, bind("GPT2LMHeadModel"))
    with pytest.raises(DataError, match="a shape this family cannot hold"):
        kit.save(tmp_path)
    assert not list(tmp_path.iterdir())
    Kit(kit.model).save(tmp_path)  # regard's own folder holds every shape
    again = regard.load(tmp_path)
    assert again.model.config == config
    compare.assert_same_tensors(again.model.state_dict(), kit.model.state_dict())


def test_our_own_folder_names_what_differs(tmp_path, no_reading):
    kit = Kit(Model.fresh(presets.transformer(12, 1, 3, vocab=17, pre=True)))
    kit.save(tmp_path)
    held = json.loads((tmp_path / "config.json").read_text())
    held["regard"]["decoder"]["block"]["hidden"] = 49
    (tmp_path / "config.json").write_text(json.dumps(held))
    error = refused(tmp_path)
    assert "decoder.blocks.0.mlp.up.weight (48, 12) → (49, 12)" in error.found


@pytest.mark.parametrize("shape", [(17, 12), (16, 12)])
def test_a_head_that_is_tied_and_stored_otherwise(pair, tmp_path, shape):
    # transformers warns and does not tie; to load the embeddings instead would be silently wrong.
    held = compare.read_tensors(pair.folder) | {"lm_head.weight": torch.randn(shape)}
    folder = compare.copy_with(pair, tmp_path, held, tie_word_embeddings=True)
    error = refused(folder)
    assert "lm_head.weight differs" in error.found and "tie_word_embeddings" in error.fix


def make_tokenizer() -> Tokenizer:
    words = ["<s>", "</s>", "<pad>", *"abcdefghijklmn"]
    rust = Rust(WordLevel({word: n for n, word in enumerate(words)}, unk_token="a"))
    rust.pre_tokenizer = Whitespace()
    return Tokenizer.from_rust(rust, {"bos": 0, "eos": 1, "pad": 2})


def test_tokenizer_and_side_files_travel(pair, tmp_path):
    made = make_tokenizer()
    folder = compare.copy_with(pair, tmp_path / "in", compare.read_tensors(pair.folder))
    files = made.files | {"generation_config.json": b'{"eos_token_id": 1}'}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    kit = regard.load(folder)
    kit.save(tmp_path / "out")
    for name, content in files.items():
        assert (tmp_path / "out" / name).read_bytes() == content
    from transformers import AutoTokenizer

    with compare.listening() as messages:
        theirs = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert not messages
    assert theirs("c a d").input_ids == kit.tokenizer.encode("c a d")
    compare.open_quietly("LlamaForCausalLM", tmp_path / "out")


def test_a_new_model_is_saved_with_its_tokenizer_s_ids(tmp_path):
    model = Model.fresh(presets.llama(12, 1, 3, 1, 20, 17))
    Kit(model, make_tokenizer(), bind("LlamaForCausalLM")).save(tmp_path)
    theirs = compare.open_quietly("LlamaForCausalLM", tmp_path).config
    assert (theirs.bos_token_id, theirs.eos_token_id, theirs.pad_token_id) == (0, 1, 2)
    assert regard.load(tmp_path).tokenizer.specials == {"bos": 0, "eos": 1, "pad": 2}
