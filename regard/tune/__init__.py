"""Adapt a trained model: answers, preferences, rewards, LoRA adapters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from regard.train.config import DataConfig, LoRA, TrainConfig
from regard.train.results import DryRun, Run, RunSettings
from regard.tune.config import AnswerConfig, PolicyConfig, PreferenceConfig
from regard.tune.results import Merged
from regard.verbs import FLAT, Files, Flag, ModelLike, takes, verb

Tuned = Run | DryRun | RunSettings
"""A run; with `dry_run` what it would take, with `print_config` its settings."""
Training = Annotated[TrainConfig, FLAT]
Preference = Annotated[PreferenceConfig, FLAT]
Policy = Annotated[PolicyConfig, FLAT]
TRAINING, PREFERENCE, POLICY = TrainConfig(), PreferenceConfig(), PolicyConfig()
Toml = Annotated[str | Path | None, Flag("--config")]


@verb
def sft(
    files: Files | None = None,
    *,
    model: ModelLike | None = None,
    dev: Files | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    config: Training = TRAINING,
    lora: LoRA | str | None = None,
    toml: Toml = None,
    print_config: bool = False,
    dry_run: bool = False,
) -> Tuned:
    """Teach a decoder to answer, by prompts with answers (supervised fine-tuning).

    JSONL, CSV or TSV with prompt and answer, with instruction, input and output, or with messages:
    conversations, of which every turn of the assistant is learnt. Prompts are put into the chat
    template of the model's folder where there is one. The loss is that of the answers alone.

    Args:
        files: prompts with answers, compressed or not.
        model: the model to begin with: a folder, or a name.
        dev: validation files of the same form; without them the end of the data is held out.
        out: the run's folder, new or empty (runs/sft-1, -2, …).
        resume: the folder of a run to go on with, from its last checkpoint and with its settings.
        config: how to train: steps, learning rate, batches, checkpoints.
        lora: train a low-rank adapter of the model: r=8,alpha=16,targets=*.attn.q …
        toml: a file of settings, such as the config.toml of a run; what is given here comes first.
        print_config: give all settings with the origin of each, and stop.
        dry_run: read the data, say what a run would take, and write nothing.

    Example:
        >>> regard.tune.sft("answers.jsonl", model="folder", out="run").kit.generate("Name a fish.")
        $ regard tune sft answers.jsonl --model folder --out run --steps 500
        $ regard tune sft chats.jsonl --model folder --out run --lr 1e-5 --length 512
        $ regard tune sft --resume run
    """
    return _tune("sft", **locals())


@verb
@takes(sft)
def reward(*args: Any, **named: Any) -> Tuned:
    """Teach a model to score answers, by pairs or rankings (Bradley–Terry).

    JSONL with prompt, chosen and rejected, or with prompt and answers, a list with the best first.

    Args:
        files: prompts with answers to compare, compressed or not.
        model: the model to begin with: a folder, or a name.
        dev: validation files of the same form; without them the end of the data is held out.
        out: the run's folder, new or empty (runs/reward-1, -2, …).
        resume: the folder of a run to go on with, from its last checkpoint and with its settings.
        config: how to train: steps, learning rate, batches, checkpoints.
        lora: train a low-rank adapter of the model: r=8,alpha=16,targets=*.attn.q …
        toml: a file of settings, such as the config.toml of a run; what is given here comes first.
        print_config: give all settings with the origin of each, and stop.
        dry_run: read the data, say what a run would take, and write nothing.

    Example:
        >>> regard.tune.reward("pairs.jsonl", model="folder", out="run").best_valid
        0.52
        $ regard tune reward pairs.jsonl --model folder --out run --steps 500
        $ regard tune reward rankings.jsonl --model folder --out run --batch-tokens 8192
        $ regard tune reward --resume run
    """
    return _tune("reward", *args, **named)


@verb
def dpo(
    files: Files | None = None,
    *,
    model: ModelLike | None = None,
    dev: Files | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    config: Training = TRAINING,
    preference: Preference = PREFERENCE,
    lora: LoRA | str | None = None,
    toml: Toml = None,
    print_config: bool = False,
    dry_run: bool = False,
) -> Tuned:
    """Teach a decoder which of two answers is better, without a reward model (DPO, IPO, cDPO).

    What the model says at the start is what it is held to: its log-probabilities of all answers are
    computed once, before training, and kept with the run.

    Args:
        files: JSONL with prompt, chosen and rejected, compressed or not.
        model: the model to begin with: a folder, or a name.
        dev: validation files of the same form; without them the end of the data is held out.
        out: the run's folder, new or empty (runs/dpo-1, -2, …).
        resume: the folder of a run to go on with, from its last checkpoint and with its settings.
        config: how to train: steps, learning rate, batches, checkpoints.
        lora: train a low-rank adapter of the model: r=8,alpha=16,targets=*.attn.q …
        toml: a file of settings, such as the config.toml of a run; what is given here comes first.
        print_config: give all settings with the origin of each, and stop.
        dry_run: read the data, say what a run would take, and write nothing.
        preference: the loss, and how strongly the model is held to what it was.

    Example:
        >>> regard.tune.dpo("pairs.jsonl", model="folder", out="run", lora=regard.LoRA(r=8))
        $ regard tune dpo pairs.jsonl --model folder --out run --lora r=8 --steps 500
        $ regard tune dpo pairs.jsonl --model folder --out run --loss ipo --beta 0.2
        $ regard tune dpo --resume run
    """
    return _tune("dpo", **locals())


@verb
def ppo(
    files: Files | None = None,
    *,
    model: ModelLike | None = None,
    dev: Files | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    config: Training = TRAINING,
    policy: Policy = POLICY,
    lora: LoRA | str | None = None,
    toml: Toml = None,
    print_config: bool = False,
    dry_run: bool = False,
) -> Tuned:
    """Teach a decoder by rewards of its own answers (PPO, with a value head and GAE).

    The policy is the model with its adapter, which is held to the model without. The reward is a
    folder that `tune reward` made, or any function of answers and prompts. Best-of-n is measured
    beside, on held-out prompts.

    Args:
        files: prompts: lines of text, or JSONL with prompt.
        model: the model to begin with: a folder, or a name.
        dev: prompts to measure with; without them the end of the data is held out.
        out: the run's folder, new or empty (runs/ppo-1, -2, …).
        resume: the folder of a run to go on with, from its last checkpoint and with its settings.
        config: how to train: steps, learning rate, batches, checkpoints.
        lora: the adapter (r=8): r=16,alpha=16,targets=*.attn.q …
        toml: a file of settings, such as the config.toml of a run; what is given here comes first.
        print_config: give all settings with the origin of each, and stop.
        dry_run: read the data, say what a run would take, and write nothing.
        policy: the reward, the size of a rollout, how far the policy may go.

    Example:
        >>> policy = regard.PolicyConfig(reward="judge:short")
        >>> regard.tune.ppo("prompts.txt", model="folder", policy=policy).gain
        $ regard tune ppo prompts.txt --reward judge:short --model folder --out run --steps 400
        $ regard tune ppo prompts.jsonl --reward reward/final --model folder --target-kl 5
        $ regard tune ppo --resume run
    """
    return _tune("ppo", **locals())


@verb
@takes(ppo)
def grpo(*args: Any, **named: Any) -> Tuned:
    """Teach a decoder by rewards of its own answers, several to each prompt (GRPO).

    As `tune ppo`, but an answer is compared to the others to its prompt, without a value head.

    Args:
        files: prompts: lines of text, or JSONL with prompt.
        model: the model to begin with: a folder, or a name.
        dev: prompts to measure with; without them the end of the data is held out.
        out: the run's folder, new or empty (runs/grpo-1, -2, …).
        resume: the folder of a run to go on with, from its last checkpoint and with its settings.
        config: how to train: steps, learning rate, batches, checkpoints.
        lora: the adapter (r=8): r=16,alpha=16,targets=*.attn.q …
        toml: a file of settings, such as the config.toml of a run; what is given here comes first.
        print_config: give all settings with the origin of each, and stop.
        dry_run: read the data, say what a run would take, and write nothing.
        policy: the reward, the size of a rollout, how far the policy may go.

    Example:
        >>> policy = regard.PolicyConfig(reward="judge:short", group=16)
        >>> regard.tune.grpo("prompts.txt", model="folder", policy=policy).gain
        $ regard tune grpo prompts.txt --reward judge:short --model folder --out run --group 16
        $ regard tune grpo prompts.jsonl --reward reward/final --model folder --answers 128
        $ regard tune grpo --resume run
    """
    return _tune("grpo", *args, **named)


@verb
def merge(model: ModelLike, *, out: str | Path) -> Merged:
    """Write a model whose weights have its adapter in them, and say how far its scores drift.

    Args:
        model: the folder of an adapter, such as RUN/final of a run with --lora, or a Kit with
            adapters, which are merged as they are mixed now; it has none afterwards.
        out: a new or empty folder, which `regard.load` and transformers open.

    Example:
        >>> regard.tune.merge("run/final", out="whole").drift
        $ regard tune merge run/final --out whole
        $ regard tune merge run --out whole --json
        $ regard tune merge adapter --out whole --seed 7
    """
    from regard.files import check_new
    from regard.kit import Kit
    from regard.loading import load_kit
    from regard.tune.adapter_folder import merge_adapter

    check_new(Path(out), "merging an adapter")
    kit = model if isinstance(model, Kit) else load_kit(model, precision=None)
    return merge_adapter(kit, Path(out))


def _tune(
    name: str,
    files: Any = None,
    model: Any = None,
    dev: Any = None,
    config: TrainConfig = TRAINING,
    preference: PreferenceConfig = PREFERENCE,
    policy: PolicyConfig = POLICY,
    **rest: Any,
) -> Tuned:
    from regard.train.runs import train_files
    from regard.tune.alignment import KINDS

    said = {"init": model, "valid": dev}
    data = DataConfig(**{key: value for key, value in said.items() if value is not None})
    own = policy if name in ("ppo", "grpo") else preference if name == "dpo" else AnswerConfig()
    return train_files(KINDS[name], files, configs=(config, own, data), **rest)
