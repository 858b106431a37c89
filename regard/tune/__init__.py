"""Adapt a trained model to a task of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from regard.result import Failed
from regard.train import TRAINING, Toml, Training
from regard.train.config import BelowOne, DataConfig, LoRA
from regard.train.results import Trained
from regard.tune.config import HeadTuning, PolicyConfig, PreferenceConfig
from regard.tune.results import Merged, Prediction
from regard.verbs import FLAT, File, Files, ModelLike, Precision, extends, verb

HEAD, PREFERENCE, POLICY = HeadTuning(), PreferenceConfig(), PolicyConfig()


@verb
def classify(
    files: Files | None = None,
    *,
    model: File | None = None,
    dev: Files | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    head: Annotated[HeadTuning, FLAT] = HEAD,
    config: Training = TRAINING,
    holdout: BelowOne | None = None,
    lora: LoRA | str | None = None,
    toml: Toml = None,
    print_config: bool = False,
    dry_run: bool = False,
) -> Trained:
    """Teach a model the classes of texts, or of pictures.

    The folder `final` opens in transformers as the family's ForSequenceClassification, where the
    family has one and no other head is asked for. A model of pictures goes on as `regard train
    image --init` does, which has settings of pictures and resumes it.

    Args:
        files: CSV, TSV or JSONL with columns text and label; TSV may be text TAB label alone.
            Pictures as `regard train image` reads them.
        model: the model to begin with, any encoder or decoder, or a ViT: a folder or a name.
        dev: files of the same form to validate on; the best epoch there is final.
        out: the run's folder, new or empty (runs/classify-1, -2, …).
        resume: the folder of a run to go on with, from its last checkpoint and with its settings.
        head: the output head, what of the model is frozen, columns, weights of classes.
        config: how to train: learning rate, steps, checkpoints.
        holdout: share of the texts to validate on without `dev`, drawn at random (0.1).
        lora: train a low-rank adapter and the head, not the model: r=8,targets=*.attn.q …
        toml: a file of settings, such as the config.toml of a run; what is given here comes first.
        print_config: give all settings with the origin of each, and stop.
        dry_run: read the data, say what a run would take, and write nothing.

    Example:
        >>> regard.tune.classify("reviews.tsv", model="folder", out="run").best_valid
        $ regard tune classify reviews.tsv --model folder --dev dev.tsv --out run
        $ regard tune classify mails.csv --model folder --text body --label topic --out run
        $ regard tune classify reviews.tsv --model folder --body none --weights balanced --out run
    """
    return _tune("classify", **locals())


@verb
@extends(classify)
def tag(*args: Any, **named: Any) -> Trained:
    """Teach a model the tags of words: parts of speech, names.

    The first token of each word carries its tag.

    Args:
        files: CoNLL files with a word on each line, or JSONL with lists tokens and tags.
        model: the model to begin with, any encoder or decoder: a folder or a name.
        dev: files of the same form to validate on; the best epoch there is final.
        out: the run's folder, new or empty (runs/tag-1, -2, …).
        resume: the folder of a run to go on with, from its last checkpoint and with its settings.
        head: the output head, what of the model is frozen, the column of the tags.
        config: how to train: learning rate, steps, checkpoints.
        holdout: share of the sentences to validate on without `dev`, drawn at random (0.1).
        lora: train a low-rank adapter and the head, not the model: r=8,targets=*.attn.q …
        toml: a file of settings, such as the config.toml of a run; what is given here comes first.
        print_config: give all settings with the origin of each, and stop.
        dry_run: read the data, say what a run would take, and write nothing.

    Example:
        >>> regard.tune.tag("train.conllu", model="folder", out="run").best_valid
        $ regard tune tag train.conllu --model folder --dev dev.conllu --out run
        $ regard tune tag names.conll --model folder --out run --lora r=8
        $ regard tune tag train.jsonl --model folder --freeze front --out run --epochs 5
    """
    return _tune("tag", *args, **named)


@verb
@extends(classify)
def regress(*args: Any, **named: Any) -> Trained:
    """Teach a model a number of each text: a grade, a similarity, a price.

    Numbers are standardised; config.json keeps their mean and spread.

    Args:
        files: CSV, TSV or JSONL with columns text and label; TSV may be text TAB number alone.
        model: the model to begin with, any encoder or decoder: a folder or a name.
        dev: files of the same form to validate on; the best epoch there is final.
        out: the run's folder, new or empty (runs/regress-1, -2, …).
        resume: the folder of a run to go on with, from its last checkpoint and with its settings.
        head: the output head, what of the model is frozen, columns.
        config: how to train: learning rate, steps, checkpoints.
        holdout: share of the texts to validate on without `dev`, drawn at random (0.1).
        lora: train a low-rank adapter and the head, not the model: r=8,targets=*.attn.q …
        toml: a file of settings, such as the config.toml of a run; what is given here comes first.
        print_config: give all settings with the origin of each, and stop.
        dry_run: read the data, say what a run would take, and write nothing.

    Example:
        >>> regard.tune.regress("grades.tsv", model="folder", out="run").best_valid
        $ regard tune regress grades.tsv --model folder --dev dev.tsv --out run
        $ regard tune regress prices.csv --model folder --label price --out run
        $ regard tune regress grades.jsonl --model folder --take mean --replace 1 --out run
    """
    return _tune("regress", *args, **named)


@verb
@extends(classify, "head")
def sft(*args: Any, **named: Any) -> Trained:
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
        holdout: share of the prompts that is held out without `dev`.
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
    return _tune("sft", *args, **named)


@verb
@extends(sft)
def reward(*args: Any, **named: Any) -> Trained:
    """Teach a model to score answers, by pairs or rankings (Bradley–Terry).

    JSONL with prompt, chosen and rejected, or with prompt and answers, a list with the best first.

    Args:
        files: prompts with answers to compare, compressed or not.
        model: the model to begin with: a folder, or a name.
        dev: validation files of the same form; without them the end of the data is held out.
        out: the run's folder, new or empty (runs/reward-1, -2, …).
        resume: the folder of a run to go on with, from its last checkpoint and with its settings.
        config: how to train: steps, learning rate, batches, checkpoints.
        holdout: share of the prompts that is held out without `dev`.
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
@extends(sft)
def dpo(
    *args: Any, preference: Annotated[PreferenceConfig, FLAT] = PREFERENCE, **named: Any
) -> Trained:
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
        holdout: share of the prompts that is held out without `dev`.
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
    return _tune("dpo", *args, preference=preference, **named)


@verb
@extends(sft)
def ppo(*args: Any, policy: Annotated[PolicyConfig, FLAT] = POLICY, **named: Any) -> Trained:
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
        holdout: share of the prompts that is held out without `dev`.
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
    return _tune("ppo", *args, policy=policy, **named)


@verb
@extends(ppo)
def grpo(*args: Any, **named: Any) -> Trained:
    """Teach a decoder by rewards of its own answers, several to each prompt (GRPO).

    As `tune ppo`, but an answer is compared to the others to its prompt, without a value head.

    Args:
        files: prompts: lines of text, or JSONL with prompt.
        model: the model to begin with: a folder, or a name.
        dev: prompts to measure with; without them the end of the data is held out.
        out: the run's folder, new or empty (runs/grpo-1, -2, …).
        resume: the folder of a run to go on with, from its last checkpoint and with its settings.
        config: how to train: steps, learning rate, batches, checkpoints.
        holdout: share of the prompts that is held out without `dev`.
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


def _tune(name: str, files: Any = None, **said: Any) -> Trained:
    from regard.train.runs import train_files
    from regard.tune import alignment, classification

    kind: Any = (classification.KINDS | alignment.KINDS)[name]
    own = [said.pop(key) for key in ("head", "preference", "policy") if key in said]
    names = {"init": "model", "valid": "dev", "holdout": "holdout"}
    asked = {field: said.pop(key, None) for field, key in names.items()}
    data = DataConfig(**{field: value for field, value in asked.items() if value is not None})
    if name == "classify" and asked["init"] is not None:
        from regard.vision.picture_classes import IMAGE_RUN, head_of_pictures

        shape = head_of_pictures(str(asked["init"]), own[0], said.get("lora"))
        if shape is not None:
            kind, own = IMAGE_RUN, [shape]
    configs = said.pop("config", TRAINING), *(own or [kind.config()]), data
    return train_files(kind, files, configs=configs, **said)


@verb
def predict(
    model: ModelLike, path: File, *, text: str | None = None, precision: Precision = "auto"
) -> Iterator[Prediction | Failed]:
    """What a tuned model says of each text, picture, clip or graph.

    Its class, its number, or the tags of its words; of a file that cannot be read the error.

    Args:
        model: the folder `final` of `regard tune` or of `train image`, `sound` or `graph`, a
            classifier of transformers, or an opened Kit.
        path: CSV, TSV or JSONL with a column of texts, or a text on each line; for tags CoNLL too.
            Of pictures, sounds or graphs a file, a folder, or whatever they are trained on.
        text: the column of the texts (text, sentence).
        precision: of the matrix products; less is faster.

    Example:
        >>> list(regard.predict("run/final", "test.tsv"))[0].label
        $ regard predict run/final test.tsv
        $ regard predict run/final mails.csv --text body --json
        $ regard predict run/final lines.txt --json > answers.jsonl
    """
    from regard.graphs.graph_tasks import predict_graphs
    from regard.loading import open_kit
    from regard.speech.sound_classes import SOUND_RUN
    from regard.tune.prediction import predict_texts
    from regard.vision.picture_classes import IMAGE_RUN

    kit = open_kit(model, precision, text=False)
    front = kit.model.config.front.kind
    if b'"sampling_rate"' in kit.files.get("preprocessor_config.json", b""):
        answers = SOUND_RUN.predict(kit, [str(path)])
    elif front == "image":
        answers = IMAGE_RUN.predict(kit, [str(path)])
    elif front == "graph":
        answers = predict_graphs(kit, path)
    else:
        answers = predict_texts(kit, f"predicting labels of {path}", path, text, None, False)
    return (said for *_, said in answers)


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
