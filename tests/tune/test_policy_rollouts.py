"""PPO and GRPO: rollouts, rewards, best-of-n, and the closed form of a bandit."""

import itertools
import math
from pathlib import Path

import pytest
import torch

from regard.errors import DataError, UsageError
from regard.interop.families import bind
from regard.kit import Kit
from regard.model.model import Model
from regard.model.presets import llama
from regard.tokens.trainers import train_tokenizer
from regard.train.config import LoRA, TrainConfig
from regard.train.trainer import Trainer, TrainJob
from regard.tune.config import PolicyConfig
from regard.tune.lora import attach
from regard.tune.policy_rollouts import Rollouts, add_value_head, judge, open_reward, policy_loss

REWARDS = {"": 0.3, "a": -0.5, "b": 1.0}


def reward(texts, prompts):
    return [REWARDS[text] for text in texts]


def count_letters(texts, prompts):
    return [float(text.count("a")) for text in texts]


@pytest.fixture
def bandit() -> Kit:
    """Five tokens, of which three say nothing."""
    tokenizer = train_tokenizer(iter(["ab"]), "chars", None, specials=("pad", "eos"), wrap="none")
    assert tokenizer.size == 5
    model = Model.fresh(llama(16, 1, 2, 2, 32, 5, 16), 0)
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.copy_(torch.randn_like(weight) * 0.15)
    return Kit(model, tokenizer, bind("LlamaForCausalLM"))


def make_rollouts(kit: Kit, config: PolicyConfig, value: bool, judged=reward) -> Rollouts:
    attach(kit.model, LoRA(r=4))
    if value:
        add_value_head(kit.model)
    source = Rollouts([("a", kit.tokenizer.encode("a"))], config, value, 0)
    source.kit, source.reward = kit, judged
    return source


def policy(kit: Kit) -> torch.Tensor:
    return kit.logits([kit.tokenizer.encode("a")])[0, -1].double().log_softmax(-1)


@pytest.mark.parametrize("kind", ["ppo", "grpo"])
def test_a_bandit_of_five_arms_reaches_the_tilted_reference(bandit, kind):
    """π* ∝ π_ref exp(r / β): KL(π, π*) < 1e-3, from 0.55 at the start."""
    beta, reference = 0.5, policy(bandit)
    worth = torch.tensor([REWARDS[bandit.tokenizer.decode([n])] for n in range(5)])
    best = (reference + worth.double() / beta).log_softmax(-1)
    assert float((reference.exp() * (reference - best)).sum()) > 0.5
    how = dict(beta=beta, answers=256, max_new=1, passes=1, minibatches=1)
    config = PolicyConfig(**how, group=1 if kind == "ppo" else 256, scale=False)
    source = make_rollouts(bandit, config, kind == "ppo")
    train = TrainConfig(steps=100, lr=2e-2, warm_up=0, floor=0.0, weight_decay=0.0, workers=0)
    loss = policy_loss(config)
    trainer = Trainer(TrainJob(train, bandit.model, source, Path(), loss=loss))
    stream = trainer.loader(source).iterate()
    for _ in range(train.steps):
        trainer.step([next(stream).examples])
    bandit.model.eval()
    learnt = policy(bandit)
    assert float((learnt.exp() * (learnt - best)).sum()) < 1e-3


def test_a_rollout_is_drawn_once_and_restored(bandit):
    config = PolicyConfig(answers=8, max_new=3, passes=2, minibatches=2)
    source = make_rollouts(bandit, config, True, count_letters)
    batches = [source.batch(0, index) for index in range(4)]
    rows = [row.tolist() for batch in batches[:2] for row in batch.extra["reward"]]
    again = [row.tolist() for batch in batches[2:] for row in batch.extra["reward"]]
    assert sorted(rows) == sorted(again) and len(rows) == 8  # each pass has every answer once
    with torch.no_grad():
        for weight in bandit.model.parameters():
            weight.add_(0.1)
    resumed = Rollouts(source.prompts, config, True, 0)
    resumed.restore({name: tensor.clone() for name, tensor in source.tensors().items()})
    assert torch.equal(resumed.batch(0, 3).labels, batches[3].labels)
    for name, tensor in batches[3].extra.items():
        assert torch.equal(resumed.batch(0, 3).extra[name], tensor), name


def test_at_the_start_policy_and_reference_agree_and_nothing_is_clipped(bandit):
    config = PolicyConfig(answers=8, max_new=3, passes=1, minibatches=1)
    source = make_rollouts(bandit, config, True, count_letters)
    batch = source.batch(0, 0)
    assert (batch.extra["kl"] == 0).all() and (batch.extra["values"] == 0).all()
    lengths = (batch.labels != -100).sum(1)
    assert batch.extra["length"].tolist() == lengths.tolist() and batch.tokens == lengths.sum()
    for row, length in enumerate(lengths.tolist()):  # undiscounted, λ = .95, V = 0: r λ^(n - 1 - t)
        returns = batch.extra["targets"][row][batch.labels[row] != -100]
        paid = float(batch.extra["reward"][row])
        assert returns.tolist() == pytest.approx([paid * 0.95**k for k in range(length)][::-1])


def test_answers_do_not_depend_on_their_company(bandit, monkeypatch):
    config = PolicyConfig(answers=16, max_new=4, group=4)
    source = make_rollouts(bandit, config, False, count_letters)
    whole = source.collect(3)
    monkeypatch.setattr("regard.tune.policy_rollouts.ROWS", 3)
    assert torch.equal(source.collect(3)["labels"], whole["labels"])
    assert not torch.equal(source.collect(4)["labels"], whole["labels"])


def test_best_of_n_is_the_mean_over_all_ways_to_choose(bandit):
    config = PolicyConfig(answers=8, max_new=4, best_of=6)
    source = make_rollouts(bandit, config, False, count_letters)
    rewards = []

    def note(texts, prompts):
        rewards.append(count_letters(texts, prompts))
        return rewards[-1]

    source.reward = note
    measured = source.measure_frontier()
    names = [point.answers for point in measured["frontier"]]
    assert names == ["best of 1", "best of 2", "best of 4", "best of 6", "policy"]
    for point, n in zip(measured["frontier"], (1, 2, 4, 6), strict=False):
        best = [max(chosen) for chosen in itertools.combinations(rewards[0], n)]
        assert point.reward == pytest.approx(sum(best) / len(best))
        assert point.kl == pytest.approx(math.log(n) - (n - 1) / n)
    assert measured["frontier"][-1].kl == 0 and measured["gain"] == pytest.approx(0, abs=1e-5)


def test_a_constant_reward_stops_and_says_so(bandit):
    config = PolicyConfig(answers=8, max_new=2)
    source = make_rollouts(bandit, config, True, lambda texts, prompts: [1.0] * len(texts))
    with pytest.raises(DataError, match="a constant reward: 1 for all 8 answers"):
        source.batch(0, 0)


def test_rewards_that_are_no_rewards():
    with pytest.raises(DataError, match=r"\(1,\) rewards for 2 answers"):
        judge(lambda texts, prompts: [1.0], ["a", "b"], ["", ""])
    with pytest.raises(DataError, match="nan for 'b'"):
        judge(lambda texts, prompts: [1.0, math.nan], ["a", "b"], ["", ""])
    for name in ("nowhere", "nowhere:reward", "math:nothing"):
        with pytest.raises(UsageError):
            open_reward(name, "cpu")
    assert open_reward("math:fsum", "cpu") is math.fsum
