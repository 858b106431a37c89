"""A decoder that reads by the frozen encoder of another model (#63)."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
import torch
import transformers

import regard
from regard.data.bucket import Buckets
from regard.data.token_store import pair_store
from regard.errors import DataError, UsageError
from regard.files import file_hash
from regard.loading import load_kit
from regard.model.batch import Batch
from regard.receipt import read_receipt
from regard.tokens.tokenizer import Tokenizer
from regard.tokens.trainers import train_tokenizer
from regard.train.checkpoint import weight_hash
from regard.train.cpu import train_on_cpu
from regard.train.frozen_encoder import borrow_encoder, fill_encoder
from regard.train.trainer import begin_training, with_dropout
from tests.conftest import make_folder
from tests.tokens.small_tokenizers import train_spm
from tests.train.small_runs import WORDS, train, train_on, write_corpus

TEXTS = ["the cat sees", "a dog", "the old red tree likes a house"]
BERT = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
MARIAN = {f"{part}_{name}": n for part in ("encoder", "decoder") for name, n in
          {"layers": 2, "attention_heads": 2, "ffn_dim": 32}.items()}  # fmt: skip
FAMILIES = {
    "bert": ("BertModel", "BertConfig", "cls-sep", BERT),
    "roberta": ("RobertaModel", "RobertaConfig", "cls-sep", BERT | {"pad_token_id": 0}),
    "t5": (
        "T5ForConditionalGeneration",
        "T5Config",
        "eos",
        dict(d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=0),
    ),
    "marian": ("MarianMTModel", "MarianConfig", "eos", MARIAN | dict(d_model=24, pad_token_id=0)),
    "llama": (
        "LlamaForCausalLM",
        "LlamaConfig",
        "bos",
        BERT | dict(hidden_size=24, num_key_value_heads=1),
    ),
}
"""Of each: transformers' class and config, what its tokenizer puts around a text, sizes."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Pairs, a folder of each family, and runs over them when they are asked for."""
    folder = write_corpus(tmp_path_factory.mktemp("corpus"))
    roles = ("pad", "unk", "bos", "eos", "cls", "sep", "mask")
    for name, (model, config, wrap, sizes) in FAMILIES.items():
        kinds = {"cls-sep": "wordpiece", "eos": "words", "bos": "words"}
        wrap = {"bos": "bos-eos"}.get(wrap, wrap)
        texts = [" ".join(WORDS)]
        tokenizer = train_tokenizer(texts, kinds[FAMILIES[name][2]], 60, specials=roles, wrap=wrap)
        room = {} if name == "t5" else {"max_position_embeddings": 40}
        make_folder(folder / name, model, config, vocab_size=tokenizer.size, **sizes, **room)
        tokenizer.save(folder / name)
    return folder


@pytest.fixture(scope="module")
def run_of(corpus):
    runs = {}

    def run(family):
        if family not in runs:
            runs[family] = train("seq2seq", corpus, corpus / f"run-{family}",
                                 encoder=str(corpus / family), dropout=0.5)  # fmt: skip
        return runs[family]

    return run


@torch.no_grad()
def hidden(kit, texts=TEXTS):
    """What the encoder of a model, or its decoder alone, makes of texts."""
    ids, mask = kit.encode(texts)
    model, batch = kit.model, Batch(ids, mask=mask)
    x = model.decode(batch) if model.encoder is None else model.encode(batch).x
    return x, ids, mask


@pytest.mark.parametrize("family", FAMILIES)
def test_the_memory_is_the_source_models_hidden_states(family, corpus, run_of):
    kit, source = run_of(family).kit, load_kit(corpus / family)
    expected, ids, mask = hidden(source)
    (_, seen) = kit.run(TEXTS, TEXTS, taps="encoder.final")
    assert torch.equal(seen["encoder.final"], expected)
    theirs = transformers.AutoModel.from_pretrained(corpus / family).eval()
    theirs = theirs.get_encoder() if family in ("t5", "marian") else theirs
    with torch.no_grad():
        states = theirs(input_ids=ids, attention_mask=mask.long()).last_hidden_state
    scale = states[mask].abs().max()
    assert (states - expected)[mask].abs().max() <= 2e-5 * scale
    ours, before = dict(kit.model.named_parameters()), dict(source.model.named_parameters())
    stack = "decoder." if source.model.encoder is None else "encoder."
    frozen = [name for name in before if name.startswith(("front.", stack))]
    assert len(frozen) > 10
    for name in frozen:
        assert torch.equal(ours[name.replace("decoder.", "encoder.")], before[name]), name
    bridged = {"encoder.bridge.weight", "encoder.bridge.bias"} & set(ours)
    assert bool(bridged) == (family != "t5")  # which is as wide as the decoder


def test_while_it_trains_too(corpus, run_of):
    """Frozen blocks have no dropout and none of the kernels that round differently."""
    source = load_kit(corpus / "bert")
    kit = regard.build(borrow_encoder(run_of("bert").kit.model.config, str(corpus / "bert")))
    fill_encoder(kit.model, str(corpus / "bert"))
    model = with_dropout(kit.model, 0.5)
    assert train_on_cpu(model) and model.encoder.blocks[0].training is False
    begin_training(model)
    assert model.decoder.blocks[0].training and not model.encoder.blocks[0].training
    seen = []
    model.encoder.at.final.fn = lambda x: seen.append(x) or x
    expected, ids, mask = hidden(source)
    memory = model.encode(Batch(ids, mask=mask)).x
    assert torch.equal(seen[0], expected) and not seen[0].requires_grad and memory.requires_grad


def test_only_the_decoder_and_the_bridge_learn(corpus, run_of):
    run = run_of("bert")
    first, last = run.metrics[0]["loss"], run.loss
    assert last < first
    before = regard.build(run.kit.model.config, seed=0).model
    fill_encoder(before, str(corpus / "bert"))
    for (name, old), new in zip(before.named_parameters(), run.kit.model.parameters(), strict=True):
        assert torch.equal(old, new) != old.requires_grad, name
        frozen = name.startswith(("front.", "encoder.")) and ".bridge." not in name
        assert old.requires_grad != frozen


@pytest.mark.parametrize("more", [{"ema": 0.9}, {"average": 2}])
def test_it_resumes_to_the_same_bits(more, corpus, tmp_path):
    asked = dict(encoder=str(corpus / "bert"), schedule="constant", dropout=0.3, **more)
    whole = train("seq2seq", corpus, tmp_path / "whole", **asked)
    train("seq2seq", corpus, tmp_path / "part", steps=4, **asked)
    part = train_on(None, "seq2seq", tmp_path / "part", resume=True, steps=6)
    assert (part.weights, part.last_weights) == (whole.weights, whole.last_weights)
    ours, source = whole.kit.model, load_kit(corpus / "bert").model
    for part in ("front", "encoder"):
        for name, weight in getattr(source, part).named_parameters():
            assert torch.equal(weight, getattr(ours, part).get_parameter(name))


def test_its_receipt_knows_the_encoder(corpus, run_of):
    weights = corpus / "bert" / "model.safetensors"
    assert read_receipt(run_of("bert").folder)["data"][str(weights)] == file_hash(weights)
    assert regard.replay(run_of("bert").folder / "receipt.json").match


def test_padding_changes_nothing(run_of):
    kit = run_of("bert").kit
    together = kit.logits(TEXTS, [[0, 5, 6]] * 3)
    for n, text in enumerate(TEXTS):
        alone = kit.logits(text, [[0, 5, 6]])[0]
        torch.testing.assert_close(together[n], alone, rtol=0, atol=1e-5)
        assert torch.equal(
            kit.logits(TEXTS, [[0, 5, 6]] * 3, strict=True)[n],
            kit.logits(text, [[0, 5, 6]], strict=True)[0],
        )
    answers = [kit.translate(text).text for text in TEXTS]
    assert [one.text for one in kit.translate(TEXTS)] == answers


def test_each_side_has_its_tokenizer(corpus, run_of, tmp_path):
    kit, source = run_of("bert").kit, load_kit(corpus / "bert").tokenizer
    both, text = kit.tokenizer, "the cat sees [SEP]"
    assert both.encode(text) == source.encode(text) != both.encode(text, side="target")
    assert both.encode_batch([text]) == [source.encode(text)]
    assert both.offsets(text) == source.offsets(text)
    ids = both.encode(text)
    assert both.decode(ids, special=True, side="source") == source.decode(ids, special=True)
    assert both.pieces(ids, "source") == source.pieces(ids)
    assert both.decode(both.encode("the cat", side="target")) == "the cat"
    assert kit.stops == {both.specials["eos"]} and "cls" not in both.specials
    other = Tokenizer(both.engine, both.specials | {"pad": 269}, both.files).with_source(source)
    padded = replace(kit, tokenizer=other).encode(TEXTS)[0]
    assert (
        padded.max() < source.size
        and replace(kit, tokenizer=other).encode(TEXTS, "target")[0].max() == 269
    )
    kit.save(tmp_path / "copy")  # and once more, from what was read
    load_kit(tmp_path / "copy").save(tmp_path / "twice")
    copy = load_kit(tmp_path / "twice")
    assert copy.tokenizer.files == both.files and copy.tokenizer.encode(text) == ids
    assert weight_hash(copy.model) == weight_hash(kit.model)


def test_sources_are_read_in_training_as_they_are_later(corpus, run_of, tmp_path):
    """With [CLS] and [SEP] of their own, and padding that is no id of the target's."""
    kit = run_of("bert").kit
    store = pair_store(tmp_path / "s", [corpus / "pairs.tsv"], kit.tokenizer)
    seen = set()
    buckets = Buckets(store, 200, 0, 299)
    for n in range(buckets.count(0)):
        batch = buckets.batch(0, n)
        real = torch.ones_like(batch.inputs, dtype=torch.bool)
        real = real if batch.source_mask is None else batch.source_mask
        assert not batch.inputs[~real].any()
        seen |= {tuple(row[own].tolist()) for row, own in zip(batch.inputs, real, strict=True)}
        assert (batch.labels == 299).sum(1).eq(1).all()
    lines = (corpus / "a.src").read_text().splitlines()
    assert seen == {tuple(kit.encode([line])[0][0].tolist()) for line in lines}


def test_verbs_edits_and_taps(corpus, run_of, run_regard):
    path = str(run_of("bert").path)
    code, said, _ = run_regard("translate", "--model", path, "the cat sees", "--json")
    assert code == 0 and json.loads(said)["source"] == "the cat sees"
    assert run_regard("score", path, "the cat\tcat the")[0] == 0
    assert run_regard("generate", path, "the cat", "--max-new", "4")[0] == 0
    kit = load_kit(path)
    maps = regard.look.attention(kit, "the cat sees", target="sees cat the")
    assert "[CLS]" in str(maps)
    assert "[MASK]" in str(regard.look.explain(kit, "the cat sees"))
    assert regard.info(path, taps=True).taps["encoder.bridge"] == ["B", "S", "D"]
    out, seen = kit.run("the cat", "cat", taps=["encoder.final", "encoder.bridge"])
    bridge = kit.model.encoder.bridge
    assert torch.equal(seen["encoder.bridge"], bridge(seen["encoder.final"]))
    with kit.edit({"encoder.bridge": regard.zero()}):
        changed = kit.logits("the cat", "cat")
    assert not torch.allclose(changed, out.logits)


def test_everything_is_trained_when_a_run_begins_with_it(corpus, run_of, tmp_path):
    begun = run_of("bert")
    run = train_on(corpus / "pairs.tsv", "seq2seq", tmp_path / "r", init=str(begun.path), steps=2,
                   length=16, batch_tokens=64, warm_up=0)  # fmt: skip
    pairs = zip(begun.kit.model.parameters(), run.kit.model.parameters(), strict=True)
    assert sum(not torch.equal(old, new) for old, new in pairs) > 30
    third = train("seq2seq", corpus, tmp_path / "third", encoder=str(begun.path), dim=32)
    assert third.kit.model.encoder.bridge.weight.shape == (32, 24)  # a bridge of its own
    assert third.kit.tokenizer.encode("a dog") == begun.kit.tokenizer.encode("a dog")


def test_a_tokenizer_that_leans_on_its_config(corpus, tmp_path):
    """SentencePiece alone: only config.json says that it is T5's, with </s> and sentinels."""
    name, config, _, sizes = FAMILIES["t5"]
    make_folder(tmp_path / "t5", name, config, vocab_size=140, **sizes)
    ends = dict(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    model = train_spm([" ".join(WORDS)] * 9, vocab_size=30, **ends)
    (tmp_path / "t5" / "spiece.model").write_bytes(model)
    ids = load_kit(tmp_path / "t5").tokenizer.encode("the cat")
    assert ids[-1] == 1
    run = train("seq2seq", corpus, tmp_path / "r", encoder=str(tmp_path / "t5"))
    run.kit.save(tmp_path / "copy")
    assert load_kit(tmp_path / "copy").tokenizer.encode("the cat") == ids


def test_a_dry_run_counts_the_encoder(corpus, run_of, tmp_path):
    plan = train_on(corpus / "pairs.tsv", "seq2seq", tmp_path / "r", dry_run=True, dim=16, depth=1,
                    heads=2, length=16, vocab=270, encoder=str(corpus / "bert"))  # fmt: skip
    assert plan.model["parameters"] == sum(p.numel() for p in run_of("bert").kit.model.parameters())


@pytest.mark.parametrize(
    ("more", "kind", "said"),
    [
        ({"encoder": "nowhere"}, UsageError, "encoder = nowhere: no such"),
        ({"encoder": "fr-eng"}, UsageError, "no such"),
        ({"dim": 18, "heads": 4}, UsageError, "heads = 4 does not divide dim = 18"),
        ({"family": "gru"}, UsageError, "encoder with gru"),
        ({"length": 64}, UsageError, "a length of 64"),
        ({"encoder": "RECURRENT"}, DataError, "a recurrent model"),
        ({"encoder": "SILENT"}, DataError, "no tokenizer"),
        ({"encoder": "NGRAMS"}, UsageError, "n-grams"),
        ({"encoder": "SHORT"}, DataError, "ids in the tokenizer, 20 vectors"),
        ({"init": "BERT"}, UsageError, "with init"),
    ],
)
def test_what_does_not_go_together(more, kind, said, corpus, tmp_path):
    folder = tmp_path / "other"
    if more.get("encoder") == "RECURRENT":
        train_on(corpus / "text.txt", "lm", folder, family="rnn", dim=8, steps=1, tokens="chars")
        more = {"encoder": str(folder / "final")}
    elif more.get("encoder") == "SILENT":
        shutil.copytree(corpus / "bert", folder, ignore=shutil.ignore_patterns("token*"))
        more = {"encoder": str(folder)}
    elif more.get("encoder") == "SHORT":
        make_folder(folder, "BertModel", "BertConfig", vocab_size=20, **BERT)
        shutil.copy(corpus / "bert" / "tokenizer.json", folder)
        more = {"encoder": str(folder)}
    elif more.get("encoder") == "NGRAMS":
        regard.train.ngram(str(corpus / "text.txt"), out=folder)
        more = {"encoder": str(folder)}
    elif "init" in more:
        more = {"init": str(corpus / "bert")} | dict.fromkeys(("dim", "depth", "heads", "vocab"))
    with pytest.raises(kind, match=said):
        train("seq2seq", corpus, tmp_path / "r", **{"encoder": str(corpus / "bert")} | more)
    assert not (tmp_path / "r").exists()


def test_other_kinds_have_no_encoder_to_borrow(corpus, tmp_path):
    with pytest.raises(UsageError, match="encoder with llama"):
        train("lm", corpus, tmp_path / "r", encoder=str(corpus / "bert"))
