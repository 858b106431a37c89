"""Bad input to the verbs that look inside: it is said what is wrong, for every kind of model."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from regard.cli.main import main
from regard.kit import Kit
from regard.loading import load
from regard.model.presets import recurrent_lm
from regard.model.recurrent import model_class
from tests.cli.small_folders import masker, pair, save_model, writer  # noqa: F401
from tests.properties.small_models import randomise

TEXT = "the cat sat on the"
LONG = "the cat sat on the mat " * 2000


@pytest.fixture(scope="module")
def places(tmp_path_factory, writer, masker, pair):  # noqa: F811
    """Models of every kind, with the writer's tokenizer, and files."""
    folder, tokenizer = tmp_path_factory.mktemp("kinds"), load(writer).tokenizer
    model = model_class(config := recurrent_lm("lstm", 12, 16, 1, tokenizer.size)).fresh(config)
    randomise(model)
    Kit(model, tokenizer).save(folder / "lstm")
    sizes = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    more = dict(vocab_size=tokenizer.size, max_position_embeddings=64)
    ids = dict(bos_token_id=1, eos_token_id=1)
    save_model(folder / "llama", "LlamaForCausalLM", "LlamaConfig", **sizes, **more, **ids)
    tokenizer.save(folder / "llama")
    (folder / "a.txt").write_text("the cat sat on the mat\nthe dog sat on the log\n")
    assert (
        main(["train", "ngram", str(folder / "a.txt"), "--out", str(folder / "ngram"), "-q"]) == 0
    )
    (folder / "pairs.tsv").write_text(f"{TEXT}\tthe cat mat on the\tmat\tsat\n" * 4)
    (folder / "long.tsv").write_text(f"{LONG}\t{LONG}\tmat\tsat\n")
    (folder / "long.txt").write_text(f"{LONG}\n")
    save_file({"v": torch.ones(7)}, folder / "v.safetensors")
    schema = '{"text": "%s _ b", "a": "x", "b": "y", "answer": "a"}\n'
    (folder / "long.jsonl").write_text(schema % LONG)
    (folder / "cut.jsonl").write_text('{"text": "a _ b", "a"\n')
    for name, there in (("gpt2", writer), ("bert", masker), ("t5", pair)):
        (folder / name).symlink_to(there)
    return folder


LENGTHS = [("gpt2", "at most 40"), ("llama", "at most 5,000"), ("t5", "at most 5,000")]


@pytest.mark.parametrize(("model", "fits"), LENGTHS)
@pytest.mark.parametrize("verb", ["look attention", "look lens", "look explain"])
def test_a_long_text_says_what_fits(here, places, model, fits, verb):
    code, out, err = here(*verb.split(), places / model, LONG)
    assert (code, out) == (3, "") and fits in err and "tokens" in err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("look patch llama long.tsv", 3, "pair 1: a text of"),
        ("evaluate winograd gpt2 long.jsonl", 3, "at most 40"),
        ("evaluate winograd gpt2 cut.jsonl", 3, "line 1: Expecting"),
        ("evaluate winograd gpt2 .", 3, "a folder"),
        ("look attention ngram x", 2, "verbs that take n-grams"),
        ("look lens ngram x", 2, "verbs that take n-grams"),
        ("look explain ngram x", 2, "verbs that take n-grams"),
        ("look patch ngram pairs.tsv", 2, "verbs that take n-grams"),
        ("score ngram x --edit *.z=zero", 2, "n-grams: config.json says regard-ngram"),
        ("evaluate ioi ngram", 2, "verbs that take n-grams"),
        ("look attention lstm x", 2, "without attention"),
        ("look heads lstm", 2, "without attention"),
        ("look lens lstm x", 2, "recurrent"),
        ("look patch lstm pairs.tsv", 2, "--over stream patches the states"),
        ("look patch lstm pairs.tsv --over mlps", 2, "without places to patch"),
        ("look patch gpt2 pairs.tsv --to end *.1.attn.q", 2, "`end` alone, or taps alone"),
        ("look circuit lstm pairs.tsv", 2, "a Transformer"),
        ("evaluate ioi bert", 2, "a language model"),
        ("evaluate ioi t5", 2, "a language model"),
        ("evaluate ioi gpt2", 3, "no single tokens"),
        ("look patch t5 pairs.tsv", 3, "as many tokens in a prompt"),
        ("look lens bert x", 3, "looking through the logit lens: no [MASK]"),
        ("look attention t5 ", 3, "an empty text"),
        ("look heads gpt2 --sort inductoin", 2, 'did you mean "induction"?'),
        ("look circuit gpt2 pairs.tsv --kind meen", 2, 'did you mean "mean"?'),
        ("look circuit gpt2 pairs.tsv --edges -1", 2, "from 0 up"),
        (
            "score gpt2 abc --edit *.resid_post=add,file=v.safetensors",
            2,
            "shape (7,) at resid_post",
        ),
    ],
)
def test_what_is_wrong_is_said(here, places, words, code, said, monkeypatch):
    monkeypatch.chdir(places)
    found, out, err = here(*words.split(" "))
    assert (found, out) == (code, "") and said in err, err


def test_states_are_patched(here, places, monkeypatch):
    monkeypatch.chdir(places)
    code, out, _ = here("look", "patch", "lstm", "pairs.tsv", "--over", "stream", "--top", "3")
    assert code == 0 and "decoder.cells.0.state " in out
