"""Kinds of runs that teach a decoder how to answer: sft, reward, dpo, ppo and grpo.

They differ in data and objective; the loop, its checkpoints and its settings are those of every
run (`train/runs.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from regard.data.packing import Packed
from regard.data.token_store import Store
from regard.data.windows import IGNORED, Source
from regard.decode.loop import search_kit
from regard.errors import UsageError
from regard.files import write_whole
from regard.interop.families import bind
from regard.kit import Kit
from regard.loading import load_kit
from regard.model.batch import Batch
from regard.model.config import HeadConfig
from regard.model.model import Head, Model
from regard.tokens.chat_template import find_template
from regard.tokens.tokenizer import Tokenizer
from regard.train.config import Config
from regard.train.data import RunData, RunKind, RunPlan
from regard.train.kinds import LM, TextKind
from regard.train.objectives import Loss, token_logprobs
from regard.train.results import Run, RunSettings
from regard.train.settings import begin_with, check_window
from regard.train.trainer import cast_products
from regard.tune.config import PolicyConfig, PreferenceConfig
from regard.tune.instructions import Comparisons, instruction_store, read_instructions
from regard.tune.policy_rollouts import Rollouts, add_value_head, open_reward, policy_loss
from regard.tune.preference_losses import comparison_loss, ranking_loss
from regard.tune.results import PolicyRun

VALUE = "value_head.safetensors"
SAMPLES, NEW = 3, 48  # samples at a validation, new tokens of each


class SFT(LM):
    """Learns the answers of instruction data, prompts being read only."""

    name, room, form, rate, rows = "sft", "tune", "lm", 2e-5, "prompts"
    config: type[Config] = Config  # nothing but how to train
    amount = TextKind.amount

    def usual(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """Small steps: the model knows its language already."""
        return {"lr": (10 if said.get("lora") else 1) * self.rate, "weight_decay": 0.0}

    def decide(self, settings: RunSettings) -> None:
        """A model to begin with."""
        begin_with(settings)
        check_window(settings.values)

    def store(self, plan: RunPlan, tokenizer: Tokenizer, path: Path, files: Sequence[str]) -> Store:
        """The ids of prompts and answers; or of prompts, with room for answers."""
        drawn = isinstance(plan.own, PolicyConfig)
        length = plan.train.length - (plan.own.max_new if drawn else self.name == "reward")
        kind = "prompts" if drawn else self.name
        return instruction_store(path, files, tokenizer, kind, length, plan.tell)

    def source(self, plan: RunPlan, store: Store, tokenizer: Tokenizer, train: bool) -> Source:
        """Prompts with their answers, side by side in rows."""
        rows, seed = plan.train.batch_tokens // plan.train.length, plan.seed if train else None
        return Packed(store, plan.train.length, rows, seed)

    @torch.no_grad()
    def samples(self, plan: RunPlan, data: RunData, kit: Kit, model: Model) -> list[str]:
        """What it answers by now, greedily."""
        now, lines, store = replace(kit, model=model), [], data.held
        for number in range(min(SAMPLES, len(store))):
            prompt = store[number * store.sides].tolist()
            most = min(NEW, plan.train.length - len(prompt))
            if most > 0:
                answer = search_kit(now, now.batch([prompt]), most)[0][0].tokens
                lines.append(f"{kit.decode_text(prompt)!r} → {kit.text(answer)!r}")
        return lines


class RewardModel(SFT):
    """Learns one number for a prompt with its answer, higher for better ones (Bradley–Terry)."""

    name, unit, beside, rate = "reward", "prompts", ("head.*",), 1e-5

    def source(self, plan: RunPlan, store: Store, tokenizer: Tokenizer, train: bool) -> Source:
        """A row for each prompt, with all its answers."""
        rows = plan.train.batch_tokens // (plan.train.length * (store.sides - 1))
        return Comparisons(store, rows, plan.seed if train else None, ends=self.name == "reward")

    def make_kit(self, plan: RunPlan, data: RunData) -> Kit:
        """The model with an output head of one number, zero at the start."""
        kit = super().make_kit(plan, data)
        model, variants = kit.model, kit.binding.table.variants if kit.binding else {}
        name = next((name for name in variants if name.endswith("SequenceClassification")), None)
        model.config = replace(model.config, head=HeadConfig(1, "last"))
        model.head = Head(model.config.head, model.config.width)
        torch.nn.init.zeros_(model.head.out.weight)  # type: ignore[union-attr]
        kit = replace(kit, binding=bind(name) if name else None)
        return replace(kit, config=kit.fresh_config())

    def job(self, plan: RunPlan, data: RunData, kit: Kit) -> dict[str, Any]:
        """Bradley–Terry."""
        return {"loss": reward_loss}

    samples = RunKind.samples  # it writes nothing


class DPO(RewardModel):
    """Learns to prefer chosen answers, measured against the model as it was."""

    name, config, rate = "dpo", PreferenceConfig, 1e-6
    make_kit, samples = SFT.make_kit, SFT.samples

    def job(self, plan: RunPlan, data: RunData, kit: Kit) -> dict[str, Any]:
        """Log-probabilities of the model as it is, once and for all, and the loss against them."""
        for name, source in (("train", data.train), ("valid", data.valid)):
            if isinstance(source, Comparisons):
                path = plan.folder / "data" / f"{name}.reference.safetensors"
                work = partial(read_reference, path, source, kit.model, plan)
                source.reference = plan.world.lead(work)
        return {"loss": preference_loss(plan.own)}


class PPO(SFT):
    """Learns from rewards of its own answers, with a value head to compare them to."""

    name, config, value = "ppo", PolicyConfig, True

    def usual(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """Adapters, whose absence is the reference; no batch is made ahead of its rollout."""
        own = {} if self.value else {"group": 8, "passes": 1}
        return {"lora": "r=8", "lr": 1e-4, "weight_decay": 0.0, "workers": 0, "log_every": 1} | own

    def decide(self, settings: RunSettings) -> None:
        """A reward, and whole groups of answers."""
        super().decide(settings)
        values, divides = settings.values, "a divisor of answers"
        for name, wrong, expected in (
            ("reward", not values["reward"], "the folder of a reward model, or module:function"),
            ("group", values["answers"] % values["group"], divides),
            ("group", values["group"] == 1 and not self.value, "2 or more, to be compared"),
            ("minibatches", values["answers"] % values["minibatches"], divides),
            ("max_new", values["max_new"] >= values["length"], "less than length, for prompts"),
        ):
            if wrong:
                problem = f"{name} = {values[name]!r}"
                raise UsageError(f"configuring `tune {self.name}`", problem, expected)
        if Path(values["reward"]).exists():
            values["reward"] = str(Path(values["reward"]).resolve())
        values["workers"] = 0

    def source(self, plan: RunPlan, store: Store, tokenizer: Tokenizer, train: bool) -> Source:
        """Rollouts; those of held-out prompts are for the end."""
        files = plan.files if train else plan.data.valid or plan.files
        chat = find_template(tokenizer) is not None
        said = [row.prompt for row in read_instructions(files, "prompts", chat)]
        said = said[: len(store)] if train else said[-len(store) :]
        ids = [store[n].tolist() for n in range(len(store))]
        return Rollouts(list(zip(said, ids, strict=True)), plan.own, self.value, plan.seed)

    def prepare(self, plan: RunPlan) -> RunData:
        """Prompts to learn from, and others to measure with."""
        data = super().prepare(plan)
        assert isinstance(data.train, Rollouts)
        data.train.say = plan.say
        return replace(data, valid=None, held=data.valid or data.train)

    def job(self, plan: RunPlan, data: RunData, kit: Kit) -> dict[str, Any]:
        """The reward, the value head, and the objective."""
        reward = open_reward(plan.own.reward, plan.device)
        if self.value:
            add_value_head(kit.model)
        cast = partial(cast_products, plan.device, plan.train.precision)
        for source in (data.train, data.held):
            assert isinstance(source, Rollouts)
            source.kit, source.reward, source.autocast = kit, reward, cast
        return {"loss": policy_loss(plan.own)}

    def save(self, kit: Kit, model: Model, folder: Path) -> None:
        """The adapter, and the value head beside it."""
        value = model._modules.pop("value", None)
        super().save(kit, model, folder)
        if value is not None:
            model.value = value
            write_whole(folder / VALUE, save({n: x.cpu() for n, x in value.state_dict().items()}))

    def restore(self, model: Model, folder: Path) -> Model:
        """With its value head."""
        if self.value:
            add_value_head(model).load_state_dict(load_file(folder / VALUE))
        return model

    def conclude(self, plan: RunPlan, data: RunData, kit: Kit, run: Run) -> Run:
        """Best-of-n beside the policy as it is saved, on held-out prompts."""
        saved = load_kit(run.path, device=plan.device, precision=None).model.state_dict()
        data.held.kit.model.load_state_dict(saved, strict=False)  # the value head is not among them
        return PolicyRun(**vars(run), **data.held.measure_frontier())


class GRPO(PPO):
    """Learns from rewards of its own answers, compared to others to the same prompt."""

    name, value = "grpo", False


# Objectives ---------------------------------------------------------------------------------------


def by_document(values: Tensor, documents: Tensor | None, count: int) -> Tensor:
    """Sums (B, count) of values (B, T) over the documents of each row."""
    assert documents is not None
    return torch.stack([(values * (documents == n)).sum(1) for n in range(count)], 1)


def answer_logprobs(model: Model, batch: Batch, labels: Tensor, per_token: bool) -> Tensor:
    """Log-probabilities (B, 2) of the chosen and the rejected answer of each row."""
    sums = by_document(token_logprobs(model, model.hidden(batch), labels), batch.documents, 2)
    if not per_token:
        return sums
    return sums / by_document(labels != IGNORED, batch.documents, 2).clamp(min=1)


def preference_loss(config: PreferenceConfig) -> Callable[..., Loss]:
    """The objective of DPO, IPO or cDPO, as the loop calls it."""

    def loss(model: Model, batch: Batch, labels: Tensor, *how: Any, extra: Any) -> Loss:
        real = (labels != IGNORED).any(1)
        policy = answer_logprobs(model, batch, labels, config.per_token)
        each = comparison_loss(policy, extra["reference"], config.beta, config.loss, config.flipped)
        rewards = config.beta * (policy.detach() - extra["reference"]) * real[:, None]
        chosen, rejected = rewards.unbind(1)
        figures = {"chosen": chosen.sum(), "rejected": rejected.sum()}
        figures |= {"margin": (chosen - rejected).sum(), "accuracy": (chosen > rejected).sum()}
        total = (each * real).sum()
        return Loss(total, total.detach(), real.sum(), figures)

    return loss


def reward_loss(model: Model, batch: Batch, labels: Tensor, *how: Any) -> Loss:
    """Bradley–Terry over the answers of each row, best first, scored where their labels stand."""
    assert model.head.out is not None and batch.documents is not None
    ends = labels != IGNORED
    scores = model.head.out(model.hidden(batch)).float()[..., 0] * ends
    count = int(batch.documents.max()) + 1
    scores, real = (by_document(x, batch.documents, count) for x in (scores, ends))
    total, paired = ranking_loss(scores, real > 0).sum(), real[:, 1] > 0
    right = (scores[:, 0] > scores[:, 1]) & paired
    return Loss(total, total.detach(), paired.sum(), {"accuracy": right.sum()})


@torch.no_grad()
def read_reference(path: Path, source: Comparisons, model: Model, plan: RunPlan) -> Tensor:
    """Log-probabilities (examples, 2) that the model gives the answers by now; kept in a file."""
    if not path.exists():
        training, ordered, parts = model.training, Comparisons(source.store, source.rows, None), []
        model.eval()
        for index in range(ordered.count(0)):
            examples = ordered.batch(0, index)
            batch, labels = Batch(**examples.parts()).to(model.device), examples.labels
            with cast_products(plan.device, plan.train.precision):
                own = answer_logprobs(model, batch, labels.to(model.device), plan.own.per_token)
            parts.append(own.float().cpu())
        model.train(training)
        write_whole(path, save({"reference": torch.cat(parts)}))
    return load_file(path)["reference"]


KINDS = {kind.name: kind for kind in (SFT(), RewardModel(), DPO(), PPO(), GRPO())}
"""By the words of their commands."""
