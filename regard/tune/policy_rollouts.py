"""Rollouts: answers that the policy draws and a reward judges, as batches for the training loop.

An epoch is one rollout: answers are drawn by `decode` with the model as it is by then, scored, and
gone through a few times in minibatches. What was drawn is part of a checkpoint, so that a killed
run goes on with the same bits. The policy is the model with its adapters, the reference the model
without them.
"""

from __future__ import annotations

import math
import os
import pkgutil
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.ambient import note
from regard.data.order import shuffled
from regard.data.token_store import Say
from regard.data.windows import IGNORED, Examples, check_index
from regard.decode.loop import search_kit
from regard.decode.sampling import SampleConfig
from regard.errors import DataError, UsageError
from regard.kit import Kit
from regard.loading import load_kit
from regard.model.batch import Batch, pad_rows
from regard.model.model import Model
from regard.tokens.chat_template import find_template
from regard.train.objectives import Loss, token_logprobs
from regard.tune import preference_losses as losses
from regard.tune.config import PolicyConfig
from regard.tune.instructions import Instruction, encode_instruction
from regard.tune.lora import adapters_off
from regard.tune.results import FrontierPoint

Reward = Callable[[Sequence[str], Sequence[Any]], Sequence[float]]
"""(answers, their prompts) → a number for each."""
Autocast = Callable[[], AbstractContextManager[Any]]
Prompt = tuple[Any, list[int]]
"""What is asked: as it stood in the file, and its ids."""
JUDGED = 64  # prompts that best-of-n is measured on
ROWS = 256  # answers that are drawn or scored at once
DOING = "rewarding answers"


def open_reward(name: str, device: str) -> Reward:
    """The reward that a name means: the folder of a reward model, or `module:function`."""
    if Path(name).exists():
        return partial(score_answers, load_kit(name, device=device))
    sys.path.insert(0, os.getcwd())
    try:
        if ":" not in name:
            raise ValueError(repr(name))
        return pkgutil.resolve_name(name)  # type: ignore[no-any-return]
    except (ImportError, AttributeError, ValueError) as error:
        expected = "a folder that `tune reward` made, or module:function"
        raise UsageError("opening the reward", str(error), expected) from None
    finally:
        sys.path.pop(0)


@torch.no_grad()
def score_answers(kit: Kit, texts: Sequence[str], prompts: Sequence[Any]) -> list[float]:
    """What a model with one output gives prompts with their answers, at the last token."""
    tokenizer, scores = kit.text_tokenizer, list[float]()
    chat = find_template(tokenizer) is not None
    for at in range(0, len(texts), ROWS):
        asked = zip(prompts[at : at + ROWS], texts[at : at + ROWS], strict=True)
        both = [encode_instruction(tokenizer, Instruction("", p, [t]), chat) for p, t in asked]
        rows = [(start + end)[-(kit.room or 1 << 30) :] for start, end in both]
        scores += kit.logits(rows)[:, 0].tolist()
    return scores


def judge(reward: Reward, texts: Sequence[str], prompts: Sequence[Any]) -> Tensor:
    """A finite number for each answer, or an error that says what came instead."""
    scores = torch.as_tensor(reward(list(texts), list(prompts)), dtype=torch.float32).cpu()
    if scores.shape != (len(texts),):
        fault = f"{tuple(scores.shape)} rewards for {len(texts)} answers"
        raise DataError(DOING, fault, "one number for each")
    for text, score in zip(texts, scores.tolist(), strict=True):
        if not math.isfinite(score):
            raise DataError(DOING, f"{score} for {text!r}", "finite numbers")
    return scores


# What a model says of answers ---------------------------------------------------------------------


def draw_answers(
    kit: Kit, prompts: Sequence[Prompt], most: int, seed: int, first: int = 0
) -> tuple[Tensor, Tensor, list[str]]:
    """(ids of prompts with their answers (B, T + 1), labels (B, T), texts of the answers)."""
    answers: list[list[int]] = []
    for at in range(0, len(prompts), ROWS):
        batch = kit.batch([ids for _, ids in prompts[at : at + ROWS]])
        how = SampleConfig(seed=seed, first=first + at)
        answers += [row[0].tokens for row in search_kit(kit, batch, most, how)]
    rows = [start + answer for (_, start), answer in zip(prompts, answers, strict=True)]
    ids, _ = pad_rows(rows)
    labels = torch.full((len(rows), ids.shape[1] - 1), IGNORED)
    for label, row, answer in zip(labels, rows, answers, strict=True):
        label[len(row) - len(answer) - 1 : len(row) - 1] = torch.tensor(answer)
    return ids, labels, [kit.text(answer) for answer in answers]


@torch.no_grad()
def read_answers(
    kit: Kit, ids: Tensor, labels: Tensor, autocast: Autocast
) -> tuple[Tensor, Tensor, Tensor]:
    """What policy, reference and value head say of drawn answers: each (B, T), on the CPU."""
    model, parts = kit.model, []
    for some, label in zip(ids[:, :-1].split(ROWS), labels.split(ROWS), strict=True):
        batch, label = Batch(some).to(kit.device), label.to(kit.device)
        with autocast():
            hidden = model.hidden(batch)
            policy = token_logprobs(model, hidden, label)
            value = model._modules.get("value")
            values = torch.zeros_like(policy) if value is None else value(hidden).float()[..., 0]
            with adapters_off(model):
                reference = token_logprobs(model, model.hidden(batch), label)
        parts.append([x.cpu() for x in (policy, reference, values * (label != IGNORED))])
    policy, reference, values = (torch.cat(each) for each in zip(*parts, strict=True))
    return policy, reference, values


def add_value_head(model: Model) -> nn.Linear:
    """A map from final vectors to the reward that is expected, zero at the start."""
    value = model.value = nn.Linear(model.config.width, 1).to(model.device)
    for weight in value.parameters():
        nn.init.zeros_(weight)
    return value


class Rollouts:
    """The batches of PPO (with a value head) or GRPO (with groups of answers to a prompt)."""

    kit: Kit
    reward: Reward
    autocast: Autocast = nullcontext

    say: Say = staticmethod(note)

    def __init__(
        self, prompts: Sequence[Prompt], config: PolicyConfig, value: bool, seed: int
    ) -> None:
        self.prompts, self.config, self.value, self.seed = prompts, config, value, seed
        self.drawn: dict[str, Tensor] = {}
        """The rollout: rows first, each with the weight `beta` of its divergence; and `epoch`."""

    def count(self, epoch: int) -> int:
        """Minibatches of a rollout, in all its passes."""
        return self.config.passes * self.config.minibatches

    def batch(self, epoch: int, index: int) -> Examples:
        """One minibatch; the first of a rollout draws it."""
        check_index(index, self.count(epoch))
        if not self.drawn or int(self.drawn["epoch"]) != epoch:
            self.drawn = self.collect(epoch)
        rows = {name: x for name, x in self.drawn.items() if x.dim()}
        parts, total = self.config.minibatches, len(rows["labels"])
        part, place = divmod(index, parts)
        own = np.arange(place * total // parts, (place + 1) * total // parts)
        chosen = torch.from_numpy(shuffled(own, total, self.seed, epoch, stream=2 + part))
        rows = {name: x[chosen] for name, x in rows.items()}
        labels = rows.pop("labels")
        kept = labels != IGNORED
        width = int(kept.any(0).nonzero().max()) + 1
        extra = {name: x[:, :width] if x.dim() > 1 else x for name, x in rows.items()}
        return Examples(extra.pop("inputs"), labels[:, :width], int(kept.sum()), extra=extra)

    def collect(self, epoch: int) -> dict[str, Tensor]:
        """Draw answers to the next prompts, reward them, and say how good each token was."""
        config, total = self.config, len(self.prompts)
        asked = config.answers // config.group
        passes = (divmod(place, total) for place in range(epoch * asked, (epoch + 1) * asked))
        order = [int(shuffled(np.array([at]), total, self.seed, n)[0]) for n, at in passes]
        prompts = [self.prompts[n] for n in order for _ in range(config.group)]
        kit, draws = self.kit, (self.seed, epoch * config.answers)
        training = kit.model.training
        kit.model.eval()
        ids, labels, texts = draw_answers(kit, prompts, config.max_new, *draws)
        policy, reference, values = read_answers(kit, ids, labels, self.autocast)
        kit.model.train(training)
        rewards = judge(self.reward, texts, [said for said, _ in prompts])
        if bool((rewards == rewards[0]).all()):
            fault = f"{float(rewards[0]):g} for all {len(texts)} answers, such as {texts[0]!r}"
            if epoch == 0:
                fix = "check the reward, or draw more --answers"
                raise DataError(DOING, f"a constant reward: {fault}", "rewards that differ", fix)
            self.say(f"warning: rollout {epoch}: a constant reward, {fault}: nothing to learn")
        real = labels != IGNORED
        apart = policy - reference  # k1, at each token
        beta = float(self.drawn["beta"][0]) if self.drawn else config.beta
        if config.target_kl is not None and epoch:
            before, now = float(self.drawn["kl"].mean()), float(apart.sum(1).mean())
            beta = losses.adapt_beta(beta, before, now, config.target_kl)
        if self.value:
            last = real.int().cumsum(1).argmax(1)
            paid = -beta * apart
            paid[torch.arange(len(paid)), last] += rewards
            gains = losses.generalized_advantages(paid, values, real, config.gamma, config.decay)
            advantages, targets = losses.whiten(gains, real), gains + values
        else:
            groups, paid = (x.view(-1, config.group) for x in (rewards, beta * apart.sum(1)))
            each = losses.group_advantages(groups, config.scale)
            each = each - losses.group_advantages(paid, scale=False)
            advantages, targets = each.view(-1, 1) * real, torch.zeros_like(values)
        return {
            **{"inputs": ids[:, :-1], "labels": labels, "before": policy},
            **{"advantages": advantages, "values": values, "targets": targets},
            **{"reward": rewards, "kl": apart.sum(1), "length": real.sum(1).float()},
            **{"epoch": torch.tensor(epoch), "beta": torch.full_like(rewards, beta)},
        }

    def measure_frontier(self) -> dict[str, Any]:
        """Rewards and divergences of best-of-n and of the policy, over answers to these prompts."""
        config, kit, points = self.config, replace(self.kit, driver="plain"), []
        prompts = [p for p in self.prompts[:JUDGED] for _ in range(config.best_of)]
        asked, draws = [said for said, _ in prompts], (config.max_new, ~self.seed)
        kit.model.eval()
        with adapters_off(kit.model):
            texts = draw_answers(kit, prompts, *draws)[2]
        rewards = judge(self.reward, texts, asked).view(-1, config.best_of).double()
        ranked, most = rewards.sort(1).values, config.best_of
        for n in sorted({1 << k for k in range(most.bit_length())} | {most}):
            ways = [math.comb(k, n - 1) / math.comb(most, n) for k in range(most)]
            best = float((ranked @ torch.tensor(ways).double()).mean())  # over all draws of n
            points.append(FrontierPoint(f"best of {n}", best, math.log(n) - (n - 1) / n))
        ids, labels, texts = draw_answers(kit, prompts, *draws)
        policy, reference, _ = read_answers(kit, ids, labels, self.autocast)
        own = float(judge(self.reward, texts, asked).double().mean())
        points.append(FrontierPoint("policy", own, float((policy - reference).sum(1).mean())))
        spread = float(rewards.std(correction=0))
        gain = (own - points[0].reward) / spread if spread else None
        return {"frontier": points, "deviation": spread, "gain": gain}

    def tensors(self) -> dict[str, Tensor]:
        """The rollout, for a checkpoint."""
        return {name: x.contiguous() for name, x in self.drawn.items()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take the rollout of a checkpoint."""
        self.drawn = dict(tensors)


def policy_loss(config: PolicyConfig) -> Callable[..., Loss]:
    """The objective of PPO or GRPO, as the loop calls it; their divergence is in the advantages."""

    def loss(model: Model, batch: Batch, labels: Tensor, *how: Any, extra: Any) -> Loss:
        kept = labels != IGNORED
        hidden = model.hidden(batch)
        policy = token_logprobs(model, hidden, labels)
        ratio = (policy - extra["before"]).exp()
        each = losses.clipped_policy_loss(ratio, extra["advantages"], config.clip_range)
        if "value" in model._modules:
            values = model.value(hidden).float()[..., 0]  # type: ignore[operator]
            old = extra["values"], extra["targets"], config.clip_range
            each = each + config.value_weight * losses.clipped_value_loss(values, *old)
        total, rows, tokens = (each * kept).sum(), kept.any(1), kept.sum()
        share = tokens / rows.sum().clamp(min=1)  # figures are of rows, sums of tokens
        figures = {n: (extra[n] * rows).sum() * share for n in ("reward", "kl", "length", "beta")}
        return Loss(total, total.detach(), tokens, figures)

    return loss
