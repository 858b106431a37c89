"""Recurrent encoder-decoders: one vector, and additive attention with its alignments."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
import torch
from torch import nn

import regard
from regard.cli.main import main
from regard.data.bucket import Buckets
from regard.data.token_store import pair_store
from regard.decode.beam import BeamConfig
from regard.decode.scoring import score_rows
from regard.errors import UsageError
from regard.kit import Kit
from regard.model.bahdanau import Additive, Encoder
from regard.model.batch import Batch
from regard.model.cells import StepTaps
from regard.model.presets import recurrent_seq2seq
from regard.model.recurrent import Recurrent
from regard.tokens.trainers import train_tokenizer
from regard.train.checkpoint import weight_hash
from regard.train.config import TrainConfig
from regard.train.trainer import Trainer, TrainJob, with_dropout
from tests.model.test_recurrent import drawn, listen, randomise
from tests.properties.threads import one_thread  # noqa: F401
from tests.train.runs import Killed, kill_at, load_model, write_pairs

PATTERN = "decoder.cross.pattern"
KINDS = [("lstm", "additive"), ("gru", "additive"), ("lstm", "none"), ("rnn", "none")]


def make_model(cell="lstm", attention="additive", depth=1, vocab=11):
    model = Recurrent(recurrent_seq2seq(cell, 6, 8, depth, vocab, attention))
    randomise(model)
    return model


def make_kit(*shape, **more):
    return Kit(make_model(*shape, **more), config={"decoder_start_token_id": 0})


# Attention --------------------------------------------------------------------------------------


def test_weights_sum_to_one_and_padding_has_none():
    kit, ids = make_kit(), torch.randint(1, 11, (3, 5), generator=torch.Generator().manual_seed(0))
    real = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 1, 1, 0]]).bool()
    target = torch.tensor([[0, 3, 4, 5]] * 3)
    _, seen = kit.run(ids, target, taps=PATTERN, source_mask=real)
    weights = seen[PATTERN]
    assert weights.shape == (3, 1, 4, 5)
    assert (weights.sum(-1) - 1).abs().max() <= 1e-6
    assert (weights.masked_select(~real[:, None, None]) == 0).all()
    assert (weights.masked_select(real[:, None, None]) > 0).all()


def test_without_v_it_is_the_mean_of_the_source():
    look = randomise(Additive(4, 6, 5))
    nn.init.zeros_(look.v.weight)
    seen = listen(look)
    states, real = drawn(2, 3, 6), torch.tensor([[True, True, True], [True, True, False]])
    context = look(drawn(2, 4), look.k(states), states, real, StepTaps(1))
    assert seen["pattern"][0, 0, 0].tolist() == pytest.approx([1 / 3] * 3)
    assert seen["pattern"][1, 0, 0].tolist() == [0.5, 0.5, 0.0]
    assert (context[0] - states[0].mean(0)).abs().max() <= 1e-6
    assert (context[1] - states[1, :2].mean(0)).abs().max() <= 1e-6


def test_small_scores_are_a_sum_of_two_dot_products():
    look, errors = randomise(Additive(4, 6, 5)), []
    s, states = drawn(1, 4), drawn(1, 3, 6)
    for size in (0.1, 0.05):
        seen = listen(look)
        look(size * s, size * look.k(states), states, None, StepTaps(1))
        plain = look.v(size * (look.q(s)[:, None] + look.k(states)))[..., 0]
        errors.append(float((seen["scores"][:, 0, 0] - plain).detach().abs().max()))
    assert errors[0] / errors[1] == pytest.approx(8, rel=0.1)  # of third order


def test_one_source_token_is_looked_at_throughout():
    _, seen = make_kit().run([[7]], [[0, 3, 4, 5]], taps=PATTERN)
    assert (seen[PATTERN] == 1).all()


def test_an_edited_pattern_changes_what_is_said():
    kit = make_kit()
    plain = kit.logits([[7, 2, 3]], [[0, 3, 4]])
    first = torch.tensor([1.0, 0.0, 0.0])
    with kit.edit({PATTERN: regard.patch(first)}):
        out, seen = kit.run([[7, 2, 3]], [[0, 3, 4]], taps=PATTERN)
    assert torch.equal(seen[PATTERN][0, 0], first.expand(3, 3))
    assert (out.logits - plain).abs().max() > 1e-3
    with kit.edit({PATTERN: regard.zero(position=2)}):
        late = kit.logits([[7, 2, 3]], [[0, 3, 4]])
    assert torch.allclose(late[:, :2], plain[:, :2], atol=1e-6)
    assert (late[:, 2] - plain[:, 2]).abs().max() > 1e-3


# Encoder and decoder ----------------------------------------------------------------------------


@pytest.mark.parametrize(("cell", "theirs"), [("lstm", nn.LSTM), ("gru", nn.GRU), ("rnn", nn.RNN)])
@pytest.mark.parametrize("heard", [False, True])
def test_both_directions_are_torchs(cell, theirs, heard):
    wanted = randomise(theirs(6, 8, num_layers=2, bidirectional=True, batch_first=True), 0.3)
    ours = Encoder(recurrent_seq2seq(cell, 6, 8, 2, 11, "additive"))
    for layer in range(2):
        for cells, end in ((ours.ahead, ""), (ours.back, "_reverse")):
            names = [n for n, _ in cells[layer].named_parameters()]
            own = {n: getattr(wanted, n.replace("l0", f"l{layer}") + end) for n in names}
            cells[layer].load_state_dict(own)
    if heard:
        listen(ours)
    x, real = drawn(2, 5, 6), torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    found = ours(x, real)
    assert (found[0] - wanted(x[:1])[0][0]).abs().max() <= 1e-6
    assert (found[1, :3] - wanted(x[1:, :3])[0][0]).abs().max() <= 1e-6


def test_without_attention_one_vector_is_seen():
    model = make_model(attention="none", depth=2)
    real = torch.tensor([[1, 1, 1], [1, 0, 0]]) > 0
    memory = model.encode(Batch(torch.tensor([[3, 4, 5], [6, 0, 0]]), mask=real))
    assert memory.x.shape == (2, 1, 8) and memory.real is None
    alone = model.encode(Batch(torch.tensor([[6]])))
    assert (memory.x[1] - alone.x[0]).abs().max() <= 1e-6


@pytest.mark.parametrize(("cell", "attention"), KINDS)
@pytest.mark.parametrize("heard", [False, True])
def test_padding_on_either_side_changes_nothing(cell, attention, heard):
    model = make_model(cell, attention)
    if heard:
        listen(model)
    source = torch.tensor([[3, 1, 4, 1], [2, 7, 0, 0], [0, 0, 9, 5]])
    seen = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1]]).bool()
    target = torch.tensor([[0, 5, 6], [0, 8, 0], [9, 0, 2]])
    real = torch.tensor([[1, 1, 1], [1, 1, 0], [0, 1, 1]]).bool()
    found = model(Batch(source, target, mask=real, source_mask=seen))
    for n in range(3):
        alone = model(Batch(source[n][seen[n]][None], target[n][real[n]][None]))
        assert (found[n][real[n]] - alone[0]).abs().max() <= 1e-5


@pytest.mark.parametrize(("cell", "attention"), KINDS)
def test_beams_score_what_they_write(cell, attention):
    kit = make_kit(cell, attention)
    rows = [[3, 1, 4], [2], [9, 5]]
    found = kit.search(kit.batch(rows), 6, BeamConfig(4, 4))
    for row, answers in zip(rows, found, strict=True):
        assert len({tuple(a.tokens) for a in answers}) == 4
        (alone,) = kit.search(kit.batch([row]), 6, BeamConfig(4, 4))
        assert [a.tokens for a in alone] == [a.tokens for a in answers]
        lines = [[0, *a.tokens] for a in answers]
        for answer, line in zip(answers, score_rows(kit.model, lines, [row] * 4), strict=True):
            assert sum(line) == pytest.approx(answer.logprob, abs=1e-4)


# Training ---------------------------------------------------------------------------------------


def reversals(folder, count=300, longest=7):
    dice, words = random.Random(0), "a b c d e f g h i j k l".split()
    rows = [dice.sample(words, dice.randint(2, longest)) for _ in range(count)]
    path = folder / "pairs.tsv"
    path.write_text("".join(f"{' '.join(r)}\t{' '.join(reversed(r))}\n" for r in rows))
    return path


def make_trainer(folder, pairs, shape, run="run", **settings):
    tokens = train_tokenizer(
        [pairs.read_text().replace("\t", " ")], "words", specials=("pad", "eos"), wrap="eos"
    )
    store = pair_store(folder / "pairs.store", [pairs], tokens)
    ends = tokens.specials["pad"], tokens.specials["eos"]
    config = TrainConfig(**settings)
    made = Recurrent.fresh(recurrent_seq2seq(*shape[:4], tokens.size, shape[4]))
    kit = Kit(with_dropout(made, config.dropout), tokens)
    kit.config = kit.fresh_config() | {"decoder_start_token_id": ends[0]}
    (folder / run).mkdir(exist_ok=True)

    def save(path, model):
        replace(kit, model=model).save(path)

    source = Buckets(store, config.batch_tokens, *ends, seed=0)
    return Trainer(TrainJob(config, kit.model, source, folder / run, save)), kit


def test_a_learnt_reversal_is_read_from_right_to_left(tmp_path):
    settings = dict(steps=180, batch_tokens=400, warm_up=20, lr=8e-3, save_every=180, eval_every=0)
    shape = ("gru", 24, 32, 1, "additive")
    trainer, kit = make_trainer(tmp_path, reversals(tmp_path), shape, **settings)
    trainer.run()
    kit.model.eval()
    hits = total = right = 0
    for line in reversals(tmp_path, 340).read_text().splitlines()[300:]:
        source, target = line.split("\t")
        right += kit.translate(source).text == target
        row, words = kit.tokenizer.encode(source), kit.tokenizer.encode(target)
        _, seen = kit.run(
            [row], [[kit.config["decoder_start_token_id"], *words[:-1]]], taps=PATTERN
        )
        best = seen[PATTERN][0, 0, :, :].argmax(-1).tolist()[: len(words) - 1]
        hits += sum(at == len(best) - 1 - n for n, at in enumerate(best))
        total += len(best)
    assert right >= 36 and hits / total > 0.95, (right, hits / total)


def test_a_killed_run_goes_on_to_the_same_bits(tmp_path):
    pairs = write_pairs(tmp_path / "pairs.tsv")
    often = dict(steps=8, batch_tokens=64, accumulate=2, dropout=0.1, save_every=3, eval_every=0)
    shape = ("lstm", 8, 8, 1, "additive")
    whole, _ = make_trainer(tmp_path, pairs, shape, "whole", **often)
    whole.run()
    with pytest.raises(Killed):
        kill_at(make_trainer(tmp_path, pairs, shape, "again", **often)[0], 5, micro=1).run()
    going, _ = make_trainer(tmp_path, pairs, shape, "again", **often)
    assert going.restore(load_model).name == "step-000003"
    going.run()
    assert weight_hash(going.model) == weight_hash(whole.model)


@pytest.mark.parametrize("attention", ["additive", "none"])
def test_the_commands_take_it_like_any_translator(attention, tmp_path, capsys):
    pairs, out = write_pairs(tmp_path / "pairs.tsv", 60), tmp_path / "run"
    sizes = "--dim 16 --batch-tokens 256 --steps 4 --tokens words --device cpu --quiet".split()
    how = ["--attention", attention, "--out", str(out)]
    assert main(["train", "seq2seq", str(pairs), *how, *sizes]) == 0
    final = str(out / "final")
    stored = json.loads((out / "final" / "config.json").read_text())["regard"]
    assert (stored["kind"], stored["cell"], stored["attention"]) == ("recurrent", "lstm", attention)
    capsys.readouterr()
    assert main(["translate", "--model", final, "the cat", "", "red", "--json"]) == 0
    texts = [json.loads(line)["text"] for line in capsys.readouterr().out.splitlines()]
    assert len(texts) == 3 and texts[1] == ""
    test = tmp_path / "test.tsv"
    test.write_text("cat dog house\thouse dog cat\n")
    assert main(["evaluate", "translate", final, str(test), "--allow-overlap", "--json"]) == 0
    assert "bleu" in json.loads(capsys.readouterr().out)
    page = tmp_path / "page.html"
    asked = ["translate", "--model", final, "the old cat sees", "--explain", "--save", str(page)]
    asked += ["--begin", "sees cat"]  # else it may say nothing: it has learnt little
    code = main([*asked, "--json"])
    answer = capsys.readouterr()
    if attention == "none":
        assert code == 2 and "one vector of its source" in answer.err
        return
    (reason,) = json.loads(answer.out.splitlines()[0])["explain"]
    assert code == 0 and page.read_text().lower().startswith("<!doctype html>")
    assert all(sum(row) == pytest.approx(1, abs=1e-3) for row in reason["weights"])
    assert len(reason["weights"]) >= 2 and all(len(row) == 4 for row in reason["weights"])


def test_attention_of_a_transformer_is_not_additive(tmp_path, capsys):
    pairs = write_pairs(tmp_path / "pairs.tsv", 5)
    words = ["train", "seq2seq", str(pairs), "--family", "marian", "--attention", "additive"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 2
    assert "recurrent family" in capsys.readouterr().err
    with pytest.raises(UsageError, match="packed"):
        make_model()(
            Batch(torch.tensor([[1]]), torch.tensor([[0, 1]]), documents=torch.tensor([[0, 1]]))
        )
