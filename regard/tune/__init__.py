"""Adapt a trained model to a task of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from regard.train import TRAINING, Toml, Trained, Training
from regard.train.config import BelowOne, DataConfig, LoRA, TrainConfig
from regard.tune.config import HeadTuning
from regard.tune.results import Merged, Prediction
from regard.verbs import FLAT, File, Files, ModelLike, Precision, takes, verb

HEAD = HeadTuning()


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
    """Teach a model the classes of texts.

    The folder `final` opens in transformers as the family's ForSequenceClassification, where the
    family has one and no other head is asked for.

    Args:
        files: CSV, TSV or JSONL with columns text and label; TSV may be text TAB label alone.
        model: the model to begin with, any encoder or decoder: a folder or a name.
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
@takes(classify)
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
@takes(classify)
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


def _tune(
    name: str,
    files: Any = None,
    *,
    model: Any = None,
    dev: Any = None,
    holdout: float | None = None,
    head: HeadTuning = HEAD,
    config: TrainConfig = TRAINING,
    **rest: Any,
) -> Trained:
    from regard.train.runs import train_files
    from regard.tune.classification import KINDS

    asked = {"init": model, "valid": dev, "holdout": holdout}
    data = DataConfig(**{name: value for name, value in asked.items() if value is not None})
    return train_files(KINDS[name], files, configs=(config, head, data), **rest)


@verb
def predict(
    model: ModelLike, path: File, *, text: str | None = None, precision: Precision = "auto"
) -> Iterator[Prediction]:
    """What a tuned model says of each text of a file: its class, its number, or its words' tags.

    Args:
        model: the folder `final` of `regard tune`, a classifier of transformers, or an opened Kit.
        path: CSV, TSV or JSONL with a column of texts, or a text on each line; for tags CoNLL too.
        text: the column of the texts (text, sentence).
        precision: of the matrix products; less is faster.

    Example:
        >>> list(regard.predict("run/final", "test.tsv"))[0].label
        $ regard predict run/final test.tsv
        $ regard predict run/final mails.csv --text body --json
        $ regard predict run/final lines.txt --json > answers.jsonl
    """
    from regard.loading import open_kit
    from regard.tune.prediction import predict_file

    return predict_file(open_kit(model, precision), path, text)


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
