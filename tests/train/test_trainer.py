"""The loop: the same bits however often it is stopped, guards, validation, early stopping."""

from __future__ import annotations

import copy
import json
import os
import signal
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from regard.data.bucket import Buckets
from regard.errors import DataError, RegardError, UsageError
from regard.model.batch import Batch
from regard.model.model import Model
from regard.model.presets import transformer
from regard.train.checkpoint import weight_hash
from regard.train.distributed import World
from regard.train.objectives import Loss, compile_blocks, token_loss
from regard.train.trainer import Interrupted
from tests.train.runs import Killed, kill_at, load_model, make_parts, make_trainer


def curve(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    kept = ("step", "epoch", "loss", "nll", "lr", "norm", "valid_nll", "best")
    return [{k: v for k, v in json.loads(line).items() if k in kept} for line in lines]


@pytest.mark.parametrize(
    ("kind", "optimizer"),
    [("lm", "adamw"), ("mlm", "adamw"), ("seq2seq", "adamw"), ("seq2seq", "muon")],
)
def test_a_killed_run_ends_with_the_same_bits(kind, optimizer, tmp_path):
    how = {"optimizer": optimizer}
    whole = make_trainer(kind, tmp_path, "whole", workers=1, **how)
    whole.run()
    torch.rand(5)  # other draws in this process change nothing
    for number, (step, micro) in enumerate([(2, 1), (7, 0), (9, 1), (12, 1)]):
        trainer = make_trainer(kind, tmp_path, "killed", workers=number, **how)
        kill_at(trainer, step, micro)
        trainer.restore(load_model)
        with pytest.raises(Killed):
            trainer.run()
    last = make_trainer(kind, tmp_path, "killed", workers=2, **how)
    assert last.restore(load_model) is not None
    last.run()
    assert weight_hash(last.model) == weight_hash(whole.model)
    for mine, theirs in zip(*(run.mean.weights.values() for run in (last, whole)), strict=True):
        assert torch.equal(mine, theirs)
    assert curve(tmp_path / "killed") == curve(tmp_path / "whole")


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_frozen_weights_keep_every_bit_and_have_no_state(optimizer, tmp_path):
    how = {"optimizer": optimizer, "frozen": "decoder.blocks.0.*", "weight_decay": 0.5}
    whole = make_trainer("lm", tmp_path, "whole", **how)
    before = {name: p.detach().clone() for name, p in whole.model.named_parameters()}
    names = [name for name in before if name.startswith("decoder.blocks.0.")]
    whole.run()
    after = dict(whole.model.named_parameters())
    assert names and all(torch.equal(before[name], after[name]) for name in names)
    assert all(not torch.equal(before[name], after[name]) for name in set(before) - set(names))
    numbers = [n for n, name in enumerate(before) if name not in names]
    assert list(whole.mean.weights) == numbers  # so that final finds them in a model all unfrozen
    held = load_file(whole.checkpoints / "step-000012/trainer/optimizer.safetensors")
    assert not [name for name in held if name.partition("/")[2] in names]
    kill = kill_at(make_trainer("lm", tmp_path, "killed", **how), 7)
    with pytest.raises(Killed):
        kill.run()
    last = make_trainer("lm", tmp_path, "killed", **how)
    assert last.restore(load_model) is not None
    last.run()
    assert weight_hash(last.model) == weight_hash(whole.model)


class Weighted:
    """A source whose examples carry a weight for each row."""

    def __init__(self, source):
        self.source, self.count = source, source.count

    def batch(self, epoch, index):
        examples = self.source.batch(epoch, index)
        weight = torch.linspace(0.5, 2.0, len(examples.labels))
        return replace(examples, extra={"weight": weight})


def weighted_loss(model, batch, labels, *how, extra):
    rows = [
        token_loss(model, one_row(batch, n), labels[n : n + 1], *how) for n in range(len(labels))
    ]
    total = sum(w * row.sum for w, row in zip(extra["weight"], rows, strict=True))
    return Loss(total, sum(row.plain for row in rows), sum(row.tokens for row in rows))


def one_row(batch, n):
    return batch.each(lambda x: x[n : n + 1])


def test_an_objective_of_its_own_gets_the_extra_of_its_rows(tmp_path):
    how = {"accumulate": 1, "dropout": 0.0, "steps": 2, "clip": 0.0, "workers": 0}
    parts = make_parts("lm", tmp_path)
    source = Weighted(parts[3])
    job = {"loss": weighted_loss, "train": source, "valid": Weighted(parts[4])}
    trainer = make_trainer("lm", tmp_path, job=job, **how)
    examples = source.batch(0, 0)
    value = trainer.step([examples])["loss"]
    fresh = make_trainer("lm", tmp_path, "fresh", **how).model
    batch, weight = Batch(examples.inputs), examples.extra["weight"]
    logits = torch.log_softmax(fresh(batch), -1)
    chosen = -logits.gather(-1, examples.labels[..., None])[..., 0].sum(1)
    assert value == pytest.approx(
        float((chosen * weight).sum().detach()) / examples.tokens, rel=1e-5
    )
    trainer.run()  # validates with them too
    shares = [examples.share(rank, 3) for rank in range(3)]
    together = torch.cat([share.extra["weight"] for share in shares])
    assert sorted(together.tolist()) == weight.tolist()
    assert shares[1].extra["weight"].tolist() == weight[1::3].tolist()


def test_the_hash_sees_every_bit(tmp_path):
    model = make_trainer("lm", tmp_path).model
    before = weight_hash(model)
    with torch.no_grad():
        model.front.tokens.weight[0, 0] += 1e-7
    assert weight_hash(model) != before


def test_a_signal_saves_and_the_rest_gives_the_same_bits(tmp_path):
    whole = make_trainer("lm", tmp_path, "whole")
    whole.run()

    def report(line):
        if line["step"] == 4:
            os.kill(os.getpid(), signal.SIGTERM)

    said = []
    handler = signal.getsignal(signal.SIGTERM)
    first = make_trainer("lm", tmp_path, "cut", job={"report": report, "say": said.append})
    with pytest.raises(Interrupted):
        first.run()
    assert signal.getsignal(signal.SIGTERM) == handler and said
    assert first.state.step in (4, 5)
    second = make_trainer("lm", tmp_path, "cut")
    assert second.restore(load_model).name == f"step-{first.state.step:06d}"
    second.run()
    assert weight_hash(second.model) == weight_hash(whole.model)


@pytest.mark.parametrize("size", [1, 2])
def test_a_signal_in_the_first_step_does_not_wait_for_it(size, tmp_path, monkeypatch):
    trainer, ended = make_trainer("lm", tmp_path, "soon"), list[bool]()
    trainer.world = World(0, size)

    def slow(micro):
        os.kill(os.getpid(), signal.SIGTERM)
        ended.append(True)

    monkeypatch.setattr(trainer, "step", slow)
    with pytest.raises(KeyboardInterrupt) as caught:
        trainer.run()
    assert not ended and not isinstance(caught.value, Interrupted)
    again = make_trainer("lm", tmp_path, "soon")
    assert again.restore(load_model) is None  # nothing was trained: the run begins at step 0
    again.run()
    whole = make_trainer("lm", tmp_path, "whole")
    whole.run()
    assert weight_hash(again.model) == weight_hash(whole.model)


def test_a_bad_number_is_named_before_it_reaches_the_weights(tmp_path):
    trainer = make_trainer("lm", tmp_path, "bad", save_every=100, eval_every=0)
    step = trainer.step

    def poisoned(micro):
        if trainer.state.step == 4:
            hook = trainer.model.decoder.blocks[1].mlp.up.weight.register_hook(
                lambda gradient: gradient * torch.nan
            )
            trainer.poison = hook
        return step(micro)

    trainer.step = poisoned
    with pytest.raises(RegardError, match="gradient of decoder.blocks.1.mlp.up.weight") as caught:
        trainer.run()
    assert "training step 5" in str(caught.value)
    kept = load_model(tmp_path / "bad" / "checkpoints" / "step-000004")
    assert all(bool(torch.isfinite(p).all()) for p in kept.parameters())
    again = make_trainer("lm", tmp_path, "bad", save_every=100, eval_every=0)
    again.restore(load_model)
    assert again.state.step == 4 and again.run().step == 12


def test_the_part_that_a_bad_number_comes_from_is_named(tmp_path):
    trainer = make_trainer("lm", tmp_path, "bad", eval_every=0)
    part = trainer.model.decoder.blocks[1].attn.o
    part.register_forward_hook(
        lambda module, given, out: out * torch.nan if trainer.state.step == 2 else out
    )
    with pytest.raises(RegardError, match="the output of decoder.blocks.1.attn.o") as caught:
        trainer.run()
    assert "training step 3: loss nan" in str(caught.value)


class Overflow:
    """Makes the loss of every step from `first` on not finite."""

    def __init__(self, trainer, first, last=10**9):
        self.trainer, self.first, self.last = trainer, first, last
        trainer.model.decoder.blocks[0].mlp.down.register_forward_hook(self)

    def __call__(self, module, given, out):
        bad = self.first <= self.trainer.state.step + 1 <= self.last
        return out * torch.inf if bad and module.training else out


def test_half_precision_leaves_a_few_steps_out(tmp_path):
    trainer = make_trainer("lm", tmp_path, precision="fp16", steps=6, eval_every=0)
    Overflow(trainer, 3, 4)
    hashes = {}
    step = trainer.step

    def watched(micro):
        made = step(micro)
        hashes[trainer.state.step] = weight_hash(trainer.model)
        return made

    trainer.step = watched
    assert trainer.run().step == 6
    assert hashes[2] == hashes[3] == hashes[4] != hashes[5]
    assert trainer.scaler.get_scale() == 2.0**16 / 4


def test_half_precision_that_never_recovers_is_stopped(tmp_path):
    trainer = make_trainer("lm", tmp_path, precision="fp16", steps=99, eval_every=0, save_every=99)
    Overflow(trainer, 3)
    with pytest.raises(RegardError, match="first bad tensor is the output of decoder.blocks.0.mlp"):
        trainer.run()
    # Halved from 65,536 to below 1: 17 steps without an update, the 18th is the last.
    assert trainer.state.step == 2 + 17 and trainer.scaler.get_scale() == 0.5
    kept = load_model(trainer.checkpoints / "step-000019")
    assert weight_hash(kept) == weight_hash(trainer.model)
    assert all(bool(torch.isfinite(p).all()) for p in kept.parameters())


def test_a_label_outside_the_vocabulary_is_found_before_the_step(tmp_path):
    trainer = make_trainer("lm", tmp_path)
    examples = trainer.job.train.batch(0, 0)
    size = trainer.model.config.head.size
    examples.labels[1, 2] = size
    before = weight_hash(trainer.model)
    with pytest.raises(DataError, match=f"label {size} at row 1, position 2"):
        trainer.step([examples])
    assert weight_hash(trainer.model) == before


def test_a_step_waits_for_the_device_once(tmp_path, monkeypatch):
    # Each of these makes the host wait for a GPU.
    trainer = make_trainer("lm", tmp_path, clip=0.1)
    examples, count = trainer.on_device(trainer.job.train.batch(0, 0)), []
    trainer.on_device = lambda given: examples  # labels are looked at before they go there
    trainer.step([trainer.job.train.batch(0, 0)])  # the optimizer makes its state
    for name in ("tolist", "item", "__float__", "__bool__", "__int__", "cpu", "numpy"):
        real = getattr(torch.Tensor, name)

        def waiting(self, *given, real=real, name=name, **named):
            count.append(name)
            return real(self, *given, **named)

        monkeypatch.setattr(torch.Tensor, name, waiting)
    trainer.step([trainer.job.train.batch(0, 1)])
    assert count == ["tolist"]


def test_another_config_names_the_differing_keys(tmp_path):
    make_trainer("lm", tmp_path, steps=3).run()
    other = make_trainer("lm", tmp_path, lr=0.5, job={"identity": {"kind": "other"}})
    with pytest.raises(UsageError, match=r"lr = 0.5, was 0.001, kind = 'other', was 'lm'"):
        other.restore(load_model)
    longer = make_trainer("lm", tmp_path, steps=5, keep=1, workers=3)
    assert longer.restore(load_model) is not None and longer.run().step == 5


def test_a_run_without_checkpoint_starts_at_step_0(tmp_path):
    trainer = make_trainer("lm", tmp_path)
    (tmp_path / "run" / "metrics.jsonl").write_text('{"step": 3, "loss": 1}\n{"step": 4, "lo')
    assert trainer.restore(load_model) is None and trainer.state.step == 0
    assert curve(tmp_path / "run") == []


def test_a_finished_run_does_no_step(tmp_path):
    make_trainer("lm", tmp_path, steps=3).run()
    again = make_trainer("lm", tmp_path, steps=3)
    again.restore(load_model)
    before = weight_hash(again.model)
    assert again.run().step == 3 and weight_hash(again.model) == before


def test_the_best_step_has_a_checkpoint_and_patience_ends_the_run(tmp_path):
    values = iter([3.0, 2.0, 2.5, 2.5, 1.0])
    trainer = make_trainer("lm", tmp_path, eval_every=1, save_every=100, keep=1, patience=2)
    trainer.measure = lambda source: (next(values), 10, {})
    state = trainer.run()
    assert (state.step, state.best_step, state.best, state.stopped) == (4, 2, 2.0, True)
    names = sorted(path.name for path in trainer.checkpoints.iterdir())
    assert names == ["step-000002", "step-000004"]


def test_validation_weighs_tokens_and_uses_the_mean(tmp_path):
    trainer = make_trainer("seq2seq", tmp_path, steps=2)
    trainer.run()
    source = trainer.job.valid
    with trainer.averaged():
        value, count, scores = trainer.measure(source)
    assert scores == {} and count == sum(source.batch(0, n).tokens for n in range(source.count(0)))
    last = curve(tmp_path / "run")[-1]
    trainer.model.eval()
    with trainer.averaged():
        assert trainer.measure(source)[0] == last["valid_nll"]
    assert trainer.measure(source)[0] != last["valid_nll"] and value > 0


@pytest.mark.parametrize("precision", ["bf16"])
def test_low_precision_trains(precision, tmp_path):
    trainer = make_trainer("lm", tmp_path, precision=precision, steps=4, dropout=0.0)
    trainer.run()
    losses = [line["loss"] for line in curve(tmp_path / "run") if "loss" in line]
    assert losses[-1] < losses[0] and trainer.model.front.tokens.weight.dtype == torch.float32


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # the compiler asks each input
def test_one_graph_of_each_kind_of_block_serves_batches_of_every_shape():
    model = Model.fresh(transformer(32, 3, 4, 50)).train()
    plain = copy.deepcopy(model)
    graphs = []

    def count(graph, inputs):
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    compile_blocks(model, count)
    for rows, source, target in ((4, 8, 8), (6, 16, 8), (3, 24, 24), (5, 2, 30)):
        real = torch.arange(source) < torch.full((rows, 1), source - 1)
        batch = Batch(
            torch.randint(0, 50, (rows, source)),
            torch.randint(0, 50, (rows, target)),
            source_mask=real,
        )
        torch.testing.assert_close(model.hidden(batch), plain.hidden(batch))
    assert len(graphs) == 2  # an encoder's block, a decoder's


def test_a_step_on_few_tokens_takes_the_next_batch_in(tmp_path):
    """Adam would make a step on one short pair as large as one on a full batch."""
    trainer = make_trainer("seq2seq", tmp_path, valid=False, accumulate=1, steps=60)
    given = trainer.job.train
    source = Buckets(given.store, 200, given.start, given.end, seed=0, even=True)
    object.__setattr__(trainer.job, "train", source)
    sizes = [source.batch(0, n).tokens for n in range(source.count(0))]
    assert 4 * min(sizes) < sum(sizes) / len(sizes)  # there are small ones
    seen = []
    step = trainer.step

    def counting(micro):
        seen.append([examples.tokens for examples in micro])
        return step(micro)

    trainer.step = counting
    trainer.run()
    total = len(seen[0])
    for number, group in enumerate(seen[1:], 1):
        usual = sum(map(sum, seen[:number])) / number
        assert 4 * sum(group) >= usual > 4 * sum(group[:-1])  # as few as do
        total += len(group)
    flat = [size for group in seen for size in group]
    assert total > 60 and sum(flat[: len(sizes)]) == sum(sizes)  # an epoch has every pair once
