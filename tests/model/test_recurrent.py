"""Cells against torch's modules, carried states, and a run that is killed and goes on."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import regard
from regard.cli.main import main
from regard.data.token_store import text_store
from regard.data.windows import Streams, Windows
from regard.decode.beam import BeamConfig
from regard.decode.exhaustive import exhaustive
from regard.decode.scoring import score_rows, stream_logprobs, windows
from regard.errors import DataError, UsageError
from regard.kit import Kit
from regard.model.batch import Batch
from regard.model.cells import CELL_TYPES, WINDOW
from regard.model.config import CELLS, RecurrentConfig, from_plain
from regard.model.presets import recurrent_lm
from regard.model.recurrent import Recurrent
from regard.tokens.trainers import train_tokenizer
from regard.train.checkpoint import weight_hash
from regard.train.config import DataConfig, ShapeConfig, TrainConfig
from regard.train.data import RunPlan
from regard.train.kinds import LM_RUN
from regard.train.objectives import token_loss
from regard.train.trainer import Trainer, TrainJob, with_dropout
from tests.properties.threads import one_thread  # noqa: F401
from tests.train.runs import Killed, kill_at, load_model, write_text

TORCH = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


def randomise(module: nn.Module, scale: float = 0.5) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
    return module.eval()


def make_model(cell: str = "lstm", depth: int = 2, vocab: int = 11, hidden: int = 8) -> Recurrent:
    model = Recurrent(recurrent_lm(cell, 8, hidden, depth, vocab))
    randomise(model)
    return model


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def listen(module: nn.Module) -> dict[str, torch.Tensor]:
    """Attach a listener to every tap; what each saw last."""
    seen: dict[str, torch.Tensor] = {}
    for name, tap in regard.taps(module).items():

        def look(x, name=name):
            seen[name] = x
            return x

        tap.fn = look
    return seen


# Cells ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TORCH)
@pytest.mark.parametrize("heard", [False, True])
def test_a_cell_is_torchs_fused_and_written_out(kind, heard):
    theirs = randomise(TORCH[kind](5, 7, batch_first=True))
    ours = CELL_TYPES[kind](5, 7)
    ours.load_state_dict(theirs.state_dict())
    x, state = drawn(3, 6, 5), tuple(drawn(3, 7) for _ in range(ours.parts))
    given = tuple(part[None] for part in state)
    wanted, after = theirs(x, given if ours.parts > 1 else given[0])
    seen = listen(ours) if heard else {}
    found, new = ours.read(x, state)
    assert (found - wanted).abs().max() <= 1e-6
    for ours_part, their_part in zip(new, after if ours.parts > 1 else [after], strict=True):
        assert (ours_part - their_part[0]).abs().max() <= 1e-6
    if heard:
        assert torch.equal(seen["state"], found) and all(
            s.shape == (3, 6, 7) for s in seen.values()
        )


@pytest.mark.parametrize("kind", TORCH)
def test_several_layers_are_torchs(kind):
    theirs = randomise(TORCH[kind](8, 8, num_layers=2, batch_first=True))
    model = make_model(kind)
    for layer, cell in enumerate(model.decoder.cells):
        weights = {n: w for n, w in theirs.state_dict().items() if n.endswith(f"l{layer}")}
        cell.load_state_dict({n.replace(f"l{layer}", "l0"): w for n, w in weights.items()})
    ids = torch.tensor([[1, 5, 3, 9, 2]])
    wanted, _ = theirs(model.front.tokens(ids))
    assert (model.hidden(Batch(ids)) - wanted).abs().max() <= 1e-6


def test_an_mlp_is_a_convolution_that_looks_back():
    cell = randomise(CELL_TYPES["mlp"](3, 7))
    x, seen = drawn(2, 6, 3), listen(cell)
    kernel = cell.hide.weight.unflatten(1, (WINDOW, 3)).transpose(1, 2)  # (n, D, WINDOW)
    before = nn.functional.pad(x.transpose(1, 2), (WINDOW - 1, 0))
    wanted = nn.functional.conv1d(before, kernel, cell.hide.bias).tanh().transpose(1, 2)
    found, _ = cell.read(x, cell.start(2))
    assert (found - wanted).abs().max() <= 1e-6 and torch.equal(seen["state"], found)


def test_an_edit_acts_inside_the_recurrence():
    model = make_model("lstm", 1)
    kit, ids = Kit(model), [[1, 5, 3, 9]]
    with kit.edit(
        {"decoder.cells.0.forget": regard.zero(), "decoder.cells.0.input": regard.zero()}
    ):
        out, seen = kit.run(ids, taps="decoder.cells.0.*")
    assert (seen["decoder.cells.0.cell"] == 0).all() and (seen["decoder.cells.0.state"] == 0).all()
    with kit.edit({"decoder.cells.0.cell": regard.zero(position=1)}):
        out, seen = kit.run(ids, taps="decoder.cells.0.cell")
    changed = seen["decoder.cells.0.cell"][0]
    plain = kit.run(ids, taps="decoder.cells.0.cell")[1]["decoder.cells.0.cell"][0]
    assert torch.equal(changed[0], plain[0]) and (changed[1] == 0).all()
    assert (changed[2] - plain[2]).abs().max() > 1e-3  # the next step reads what was changed


def test_forget_gates_begin_open():
    fresh = Recurrent.fresh(recurrent_lm("lstm", 8, 8, 1, 11), seed=3)
    bias = fresh.decoder.cells[0].bias_ih_l0 + fresh.decoder.cells[0].bias_hh_l0
    assert bias.tolist() == [0.0] * 8 + [1.0] * 8 + [0.0] * 16
    assert weight_hash(fresh) == weight_hash(Recurrent.fresh(fresh.config, seed=3))
    assert weight_hash(fresh) != weight_hash(Recurrent.fresh(fresh.config, seed=4))


# Padding and state ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("heard", [False, True])
def test_padding_changes_nothing(kind, heard):
    model = make_model(kind)
    if heard:
        listen(model)
    rows = [[3, 1, 4, 1, 5], [2, 7], [9]]
    width = 6
    ids, real = torch.zeros(3, width, dtype=torch.long), torch.zeros(3, width, dtype=torch.bool)
    for n, (row, at) in enumerate(zip(rows, (0, 2, 5), strict=True)):  # right, both sides, left
        ids[n, at : at + len(row)], real[n, at : at + len(row)] = torch.tensor(row), True
    past = model.cache(3)
    found = model(Batch(ids, mask=real), past)
    for n, row in enumerate(rows):
        alone = model.cache(1)
        wanted = model(Batch(torch.tensor([row])), alone)[0]
        assert (found[n][real[n]] - wanted).abs().max() <= 1e-6
        for state, single in zip(past.states, alone.states, strict=True):
            for part, other in zip(state, single, strict=True):
                assert (part[n] - other[0]).abs().max() <= 1e-6


def test_a_row_of_padding_keeps_its_state():
    for heard in (False, True):
        model = make_model("lstm")
        if heard:
            listen(model)
        past = model.cache(2)
        model(Batch(torch.tensor([[3, 1], [4, 1]])), past)
        before = [part[1].clone() for state in past.states for part in state]
        model(Batch(torch.tensor([[5], [0]]), mask=torch.tensor([[True], [False]])), past)
        after = [part[1] for state in past.states for part in state]
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("kind", CELLS)
def test_a_carried_state_is_one_long_run(kind):
    model = make_model(kind)
    ids = torch.randint(0, 11, (2, 12), generator=torch.Generator().manual_seed(2))
    whole, past = model(Batch(ids)), model.carry(2)
    pieces = [model(Batch(part), past) for part in ids.split([1, 5, 4, 2], 1)]
    assert (torch.cat(pieces, 1) - whole).abs().max() <= 1e-5


def test_streams_go_on_and_cover_the_text_once(tmp_path):
    text = write_text(tmp_path / "text.txt", 20)
    tokens = train_tokenizer([text.read_text()], "chars")
    store = text_store(tmp_path / "s.store", text, tokens)
    every = store.read(0, store.tokens).tolist()
    streams = Streams(store, 8, 3)
    rows: list[list[int]] = [[], [], []]
    for index in range(streams.count(0)):
        batch = streams.batch(0, index)
        assert batch.follows == (index > 0) and batch.tokens == int((batch.labels >= 0).sum())
        for row, inputs, labels in zip(rows, batch.inputs, batch.labels, strict=True):
            kept = labels >= 0
            place = streams.starts[rows.index(row)] + len(row)
            assert inputs[kept].tolist() == every[place : place + int(kept.sum())]
            row += labels[kept].tolist()
    assert [*rows[0], *rows[1], *rows[2]] == every[1:]
    with pytest.raises(IndexError):
        streams.batch(0, streams.count(0))


def test_no_gradient_passes_the_edge_of_a_window():
    model = make_model("lstm", 1)
    past = model.carry(1)
    model(Batch(torch.tensor([[3, 1]])), past)
    ((h, c),) = past.states
    model(Batch(torch.tensor([[4, 1]])), past).sum().backward()
    assert h.requires_grad  # it would
    model.zero_grad()
    past.detach()
    assert not any(part.requires_grad for part in past.states[0])


def test_what_a_recurrent_model_cannot_do_is_refused():
    model = make_model()
    with pytest.raises(UsageError, match="packed"):
        model(Batch(torch.tensor([[1, 2]]), documents=torch.tensor([[0, 1]])))
    with pytest.raises(UsageError, match="strict"):
        Kit(model).generate([[1, 2]], 3, strict=True)
    with pytest.raises(DataError, match="cell"):
        from_plain(RecurrentConfig, model.config.to_dict() | {"cell": "elman"}, "model")
    with pytest.raises(DataError, match="depht"):
        from_plain(RecurrentConfig, model.config.to_dict() | {"depht": 2}, "model")


# Decoding ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CELLS)
def test_beam_search_finds_what_exhaustive_search_does(kind):
    model, start = make_model(kind, vocab=4), torch.tensor([[1], [2]])
    found = Kit(model).search(Batch(start), 3, BeamConfig(width=64), None)
    for row, answers in zip(start, found, strict=True):

        def log_probs(prefixes, row=row):
            ids = torch.cat([row.expand(len(prefixes), 1), prefixes], 1)
            return model(Batch(ids))[:, -1].log_softmax(-1)

        (best,) = exhaustive(log_probs, 4, 3, ())
        assert answers[0].tokens == best.tokens
        assert answers[0].logprob == pytest.approx(best.logprob, abs=1e-5)
        (scored,) = score_rows(model, [[*row.tolist(), *best.tokens]])
        assert sum(scored) == pytest.approx(best.logprob, abs=1e-5)


def test_prompts_of_unequal_length_go_on_as_alone():
    kit = Kit(make_model("gru"))
    together = kit.generate([[1, 2, 3, 4], [5]], 6)
    assert torch.equal(together[1], kit.generate([[5]], 6)[0])


def test_a_stream_is_scored_with_all_that_came_before():
    model, ids = make_model(), torch.randint(0, 11, (30,)).tolist()
    (wanted,) = score_rows(model, [ids])
    parts = list(stream_logprobs(model, windows(iter(ids), 7, 7)))
    assert [value for _, values in parts for value in values] == pytest.approx(wanted, abs=1e-5)
    assert [before for before, _ in parts] == [1, 8, 15, 22, 29]


# Gradients through time -------------------------------------------------------------------------


def test_a_linear_recurrence_forgets_as_its_radius_to_the_power():
    cell, radius, steps = CELL_TYPES["rnn"](3, 3).double(), 0.8, 30
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.zero_()
        cell.weight_hh_l0.copy_(radius * torch.linalg.qr(drawn(3, 3).double())[0])
    state = torch.zeros(1, 3, dtype=torch.double, requires_grad=True)  # where tanh is linear
    out, _ = cell.read(torch.zeros(1, steps, 3).double(), (state,))
    direction = drawn(3).double()
    (out[0, -1] @ (direction / direction.norm())).backward()
    assert float(state.grad.norm()) == pytest.approx(radius**steps, rel=1e-9)


def test_an_lstm_that_only_remembers_keeps_its_gradient():
    cell = randomise(CELL_TYPES["lstm"](3, 3))
    cell.at.forget.fn, cell.at.input.fn = torch.ones_like, torch.zeros_like
    h, c = drawn(2, 3), drawn(2, 3).requires_grad_()
    _, (_, last) = cell.read(drawn(2, 40, 3), (h, c))
    last.sum().backward()
    assert torch.equal(c.grad, torch.ones_like(c))


# A run ------------------------------------------------------------------------------------------


def make_trainer(folder, run="run", **changes):
    settings = dict(steps=14, length=8, batch_tokens=32, accumulate=2, warm_up=3, dropout=0.1)
    often = dict(ema=0.9, eval_every=5, save_every=3, log_every=1, keep=9)
    config = TrainConfig(**(settings | often | changes))
    text = write_text(folder / "text.txt", 30)
    tokens = train_tokenizer([text.read_text()], "chars")
    store = text_store(folder / "s.store", text, tokens)
    shape = recurrent_lm("lstm", 8, 8, 2, tokens.size)
    kit = Kit(with_dropout(Recurrent.fresh(shape), config.dropout), tokens)
    (folder / run).mkdir(exist_ok=True)
    streams = Streams(store, 8, 4)
    assert streams.count(0) > 2 * 5  # kills fall into the middle of an epoch
    job = TrainJob(
        config,
        kit.model,
        streams,
        folder / run,
        lambda path, model: replace(kit, model=model).save(path),
        Streams(store, 8, 16),
    )
    return Trainer(job)


def curve(trainer):
    lines = (trainer.job.folder / "metrics.jsonl").read_text().splitlines()
    made = [json.loads(line) for line in lines]
    return [(m["step"], m.get("loss"), m.get("valid_nll")) for m in made]


@pytest.mark.parametrize("carried", [True, False])
def test_a_killed_run_goes_on_to_the_same_bits(carried, tmp_path):
    whole = make_trainer(tmp_path, "whole")
    whole.run()
    with pytest.raises(Killed):
        kill_at(make_trainer(tmp_path, "again"), 8, micro=1).run()
    going = make_trainer(tmp_path, "again")
    assert going.restore(load_model).name == "step-000006"
    assert going.state.index == 12  # in the middle of an epoch
    if not carried:  # the control: without its state it is another run
        going.carry.past = None
    going.run()
    assert (weight_hash(going.model) == weight_hash(whole.model)) == carried
    assert (curve(going) == curve(whole)) == carried


def test_a_run_that_carries_reads_streams(tmp_path):
    text = write_text(tmp_path / "text.txt", 30)
    tokens = train_tokenizer([text.read_text()], "chars")
    store = text_store(tmp_path / "s.store", text, tokens)
    config = TrainConfig(length=8, batch_tokens=32)

    def plan(carry):
        rest = (0, DataConfig(carry=carry), ShapeConfig(), config, tmp_path, "cpu")
        return RunPlan(None, LM_RUN, (), *rest)

    made = [
        LM_RUN.source(plan(carry), store, tokens, train)
        for carry in (True, False)
        for train in (True, False)
    ]
    assert [type(one) for one in made] == [Streams, Streams, Windows, Windows]
    assert made[0].batch(0, 1).inputs.shape == (4, 8)


@pytest.mark.parametrize("kind", CELLS)
def test_the_commands_take_it_like_any_model(kind, tmp_path, capsys):
    text, out = write_text(tmp_path / "text.txt", 60), tmp_path / "run"
    sizes = "--dim 16 --depth 1 --length 8 --batch-tokens 64 --steps 6 --tokens words --device cpu"
    assert main(["train", kind, str(text), "--out", str(out), *sizes.split(), "--quiet"]) == 0
    states = list((out / "checkpoints").glob("step-*/trainer/process-0.safetensors"))
    assert states and all("0-0" in load_file(state) for state in states)
    settings = (out / "config.toml").read_text()
    assert "carry = true" in settings and f'family = "{kind}"' in settings
    kit = regard.load(out / "final")
    assert isinstance(kit.model, Recurrent) and kit.model.config.cell == kind
    stored = json.loads((out / "final" / "config.json").read_text())
    assert stored["model_type"] == "regard" and stored["regard"]["cell"] == kind
    test = tmp_path / "test.txt"
    test.write_text("the cat sees the old dog\nred house tree\n")
    capsys.readouterr()
    assert main(["evaluate", "lm", str(out / "final"), str(test), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (
        main(["evaluate", "lm", str(out), str(test), "--json"]) == 0
    )  # the run stands for its final
    assert json.loads(capsys.readouterr().out) == made
    ids = kit.tokenizer.encode(test.read_text())
    (wanted,) = score_rows(kit.model, [ids])
    assert made["loss"] == pytest.approx(-sum(wanted) / len(wanted), abs=1e-5)
    assert made["bits_per_token"] == pytest.approx(made["loss"] / math.log(2))
    assert main(["score", str(out / "final"), "the cat sees", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["logprobs"]) == 3
    assert main(["generate", str(out / "final"), "the cat", "--max-new", "5", "--beams", "2"]) == 0
    assert main(["info", str(out / "final"), "--taps"]) == 0
    assert "decoder.cells.0.state" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["lm", "FILE", "--carry"], "keeps no state"),
        (["lstm", "FILE", "--compile"], "compile = True"),
        (["lstm", "FILE", "--optimizer", "muon"], "optimizer = muon"),
        (["lstm", "FILE", "--attention", "additive"], "seq2seq"),
        (["lstm", "FILE", "--kv-heads", "2"], "kv_heads"),
        (["lstn", "FILE"], "did you mean `regard train lstm`?"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(words, told, tmp_path, capsys):
    file = write_text(tmp_path / "text.txt", 5)
    given = [str(file) if word == "FILE" else word for word in words]
    assert main(["train", *given, "--out", str(tmp_path / "run")]) == 2
    assert told in capsys.readouterr().err


def test_dropout_of_the_run_reaches_the_cells():
    model = with_dropout(make_model(), 0.5).train()
    torch.manual_seed(0)
    ids = Batch(torch.tensor([[1, 2, 3]]))
    assert not torch.equal(model(ids), model(ids))
    assert isinstance(model.config, RecurrentConfig)


@pytest.mark.slow
def test_an_lstm_copies_ten_symbols():
    def strings(count, seed):
        row = torch.randint(1, 5, (count, 10), generator=torch.Generator().manual_seed(seed))
        row = torch.cat((row, torch.zeros(count, 1, dtype=torch.long), row), 1)
        return Batch(row[:, :-1]), row[:, 1:].clone()

    model = Recurrent.fresh(recurrent_lm("lstm", 16, 64, 1, 5)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    rate = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, 2500)
    for step in range(2500):
        batch, labels = strings(64, step)
        labels[:, :10] = -100  # what is copied cannot be predicted
        loss = token_loss(model, batch, labels)
        (loss.sum / loss.tokens).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        rate.step()
    batch, labels = strings(500, 10_000)
    with torch.no_grad():
        right = (model.eval()(batch).argmax(-1) == labels)[:, 10:].all(-1)
    assert right.float().mean() >= 0.99
