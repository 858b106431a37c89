"""DPO's first twenty losses are TRL's."""

import pytest

from regard.loading import load_kit
from regard.train.config import TrainConfig
from regard.train.data import RunPlan
from regard.train.trainer import Trainer, TrainJob
from regard.tune.alignment import preference_loss, read_reference
from regard.tune.config import PreferenceConfig
from regard.tune.instructions import Comparisons, instruction_store

TRL = [
    *(0.6931471824645996, 0.6988153457641602, 0.6959091424942017, 0.6906726360321045),
    *(0.7104060649871826, 0.7171741724014282, 0.665605366230011, 0.6973646879196167),
    *(0.6914809346199036, 0.6977293491363525, 0.2197786122560501, 0.3793746829032898),
    *(0.4085209369659424, 0.43266791105270386, 0.40103718638420105, 0.4087916612625122),
    *(0.38358771800994873, 0.4317307770252228, 0.45359867811203003, 0.4753093719482422),
]
"""python bench/dpo_trl.py with trl 1.16.0, transformers 5.23.0, torch 2.13.0 on a CPU."""


def test_twenty_losses_are_those_of_trl(dpo_trl, inputs, tmp_path):
    folder, pairs = inputs
    kit = load_kit(folder, precision=None)
    quiet = (lambda text: None,) * 2
    store = instruction_store(tmp_path / "s", [str(pairs)], kit.tokenizer, "dpo", 64, quiet)
    source = Comparisons(store, dpo_trl.ROWS, None)
    config = TrainConfig(
        **dict(steps=dpo_trl.STEPS, lr=dpo_trl.RATE, schedule="constant", warm_up=0),
        **dict(weight_decay=0.0, eval_every=0, log_every=1, workers=0),
    )
    own = PreferenceConfig(beta=dpo_trl.BETA)
    plan = RunPlan(None, None, (), 0, None, own, config, tmp_path, "cpu")
    source.reference = read_reference(tmp_path / "r.npy", source, kit.model, plan)
    trainer = Trainer(TrainJob(config, kit.model, source, tmp_path, loss=preference_loss(own)))
    stream = trainer.loader(source).iterate()
    trainer.model.train()
    losses = [trainer.step([next(stream).examples])["loss"] for _ in range(dpo_trl.STEPS)]
    assert losses == pytest.approx(TRL, abs=1e-4)
