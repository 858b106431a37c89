"""Files to a trained model: lm, mlm, seq2seq, rnn, lstm, gru, mlp; and proofs that runs repeat."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from regard.train.config import DataConfig, ShapeConfig, TrainConfig
from regard.train.results import DryRun, Replay, ResumeCheck, Run, RunSettings
from regard.verbs import FLAT, Count, File, Files, Flag, verb

Trained = Run | DryRun | RunSettings
"""A run; with `dry_run` what it would take, with `print_config` its settings."""
Training = Annotated[TrainConfig, FLAT]
Shape = Annotated[ShapeConfig, FLAT]
Data = Annotated[DataConfig, FLAT]
TRAINING, SHAPE, DATA = TrainConfig(), ShapeConfig(), DataConfig()

Toml = Annotated[str | Path | None, Flag("--config")]


@verb
def lm(
    files: Files | None = None,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    config: Training = TRAINING,
    shape: Shape = SHAPE,
    data: Data = DATA,
    toml: Toml = None,
    print_config: bool = False,
    dry_run: bool = False,
) -> Trained:
    """Train a decoder to predict the next token of a text.

    Killed at any moment and resumed, a run ends with the same bits.
    Stopped by Ctrl-C in a notebook, it returns what there is, and `resume=True` goes on.

    Args:
        files: text files or folders, compressed or not.
        out: the run's folder, new or empty (runs/lm-1, -2, …).
        resume: go on from the last checkpoint of the folder; without files, with its settings.
        config: how to train: steps, learning rate, batches, checkpoints.
        shape: which model: family, dim, depth, heads.
        data: validation files, tokenizer, a model to begin with, prompts of samples.
        toml: a file of settings, such as the config.toml of a run; what is given here comes first.
        print_config: give all settings with the origin of each, and stop.
        dry_run: read the data, say what a run would take, and write nothing.

    Example:
        >>> run = regard.train.lm("tale.txt", out="run", config=regard.TrainConfig(steps=300))
        >>> run.kit.generate("Once upon a time")
        $ regard train lm tale.txt --out run --steps 1000 --tokens chars
        $ regard train lm --out run --resume
        $ torchrun --nproc-per-node 2 -m regard train lm texts/ --out run --preset gpt2
    """
    return _train("lm", **locals())


@verb
def mlm(
    files: Files | None = None,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    config: Training = TRAINING,
    shape: Shape = SHAPE,
    data: Data = DATA,
    toml: Toml = None,
    print_config: bool = False,
    dry_run: bool = False,
) -> Trained:
    """Train an encoder to predict masked tokens (BERT).

    Args:
        files: text files or folders, compressed or not.
        out: the run's folder, new or empty (runs/mlm-1, -2, …).
        resume: go on from the last checkpoint of the folder; without files, with its settings.
        config: how to train: steps, learning rate, batches, checkpoints.
        shape: which model: dim, depth, heads.
        data: validation files, tokenizer, a model to begin with, prompts of samples.
        toml: a file of settings, such as the config.toml of a run; what is given here comes first.
        print_config: give all settings with the origin of each, and stop.
        dry_run: read the data, say what a run would take, and write nothing.

    Example:
        >>> regard.train.mlm("tale.txt", out="run").kit.fill("Once upon a [MASK]")
        $ regard train mlm tale.txt --out run --steps 1000
        $ regard train mlm texts/ --valid dev.txt --out run --preset bert-base --dry-run
        $ regard train mlm tale.txt --out run --mask 0.3 --json
    """
    return _train("mlm", **locals())


@verb
def seq2seq(
    files: Files | None = None,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    config: Training = TRAINING,
    shape: Shape = SHAPE,
    data: Data = DATA,
    toml: Toml = None,
    print_config: bool = False,
    dry_run: bool = False,
) -> Trained:
    """Train an encoder-decoder to say the other side of sentence pairs.

    Args:
        files: pairs: TSV files, or a source and a target file.
        out: the run's folder, new or empty (runs/seq2seq-1, -2, …).
        resume: go on from the last checkpoint of the folder; without files, with its settings.
        config: how to train: steps, learning rate, batches, checkpoints.
        shape: which model: family, dim, depth, heads, attention.
        data: validation files, tokenizer, a model to begin with, prompts of samples.
        toml: a file of settings, such as the config.toml of a run; what is given here comes first.
        print_config: give all settings with the origin of each, and stop.
        dry_run: read the data, say what a run would take, and write nothing.

    Example:
        >>> regard.train.seq2seq("pairs.tsv", out="run").kit.translate("Je suis un chat.")
        $ regard train seq2seq pairs.tsv --valid dev.tsv --out run --lr 1e-3
        $ regard train seq2seq train.fr train.en --out run --preset transformer-base
        $ regard train seq2seq pairs.tsv --out run --family gru --attention additive
    """
    return _train("seq2seq", **locals())


@verb
def rnn(
    files: Files | None = None,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    config: Training = TRAINING,
    shape: Shape = SHAPE,
    data: Data = DATA,
    toml: Toml = None,
    print_config: bool = False,
    dry_run: bool = False,
) -> Trained:
    """Train a recurrent language model (Elman 1990).

    Args:
        files: text files or folders, compressed or not.
        out: the run's folder, new or empty (runs/rnn-1, -2, …).
        resume: go on from the last checkpoint of the folder; without files, with its settings.
        config: how to train: steps, learning rate, batches, checkpoints.
        shape: which model: dim, hidden, depth.
        data: validation files, tokenizer, a model to begin with, prompts of samples.
        toml: a file of settings, such as the config.toml of a run; what is given here comes first.
        print_config: give all settings with the origin of each, and stop.
        dry_run: read the data, say what a run would take, and write nothing.

    Example:
        >>> regard.train.rnn("tale.txt", out="run")
        $ regard train rnn tale.txt --out run --steps 1000 --tokens words
        $ regard train rnn tale.txt --out run --dim 128 --depth 1 --json
        $ regard train rnn --out run --resume --steps 2000
    """
    return _train("rnn", **locals())


@verb
def lstm(
    files: Files | None = None,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    config: Training = TRAINING,
    shape: Shape = SHAPE,
    data: Data = DATA,
    toml: Toml = None,
    print_config: bool = False,
    dry_run: bool = False,
) -> Trained:
    """Train a language model of LSTM cells (Hochreiter and Schmidhuber 1997).

    Args:
        files: text files or folders, compressed or not.
        out: the run's folder, new or empty (runs/lstm-1, -2, …).
        resume: go on from the last checkpoint of the folder; without files, with its settings.
        config: how to train: steps, learning rate, batches, checkpoints.
        shape: which model: dim, hidden, depth.
        data: validation files, tokenizer, a model to begin with, prompts of samples.
        toml: a file of settings, such as the config.toml of a run; what is given here comes first.
        print_config: give all settings with the origin of each, and stop.
        dry_run: read the data, say what a run would take, and write nothing.

    Example:
        >>> regard.train.lstm("tale.txt", out="run")
        $ regard train lstm tale.txt --out run --steps 1000 --tokens words
        $ regard train lstm tale.txt --out run --dim 128 --depth 1 --json
        $ regard train lstm --out run --resume --steps 2000
    """
    return _train("lstm", **locals())


@verb
def gru(
    files: Files | None = None,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    config: Training = TRAINING,
    shape: Shape = SHAPE,
    data: Data = DATA,
    toml: Toml = None,
    print_config: bool = False,
    dry_run: bool = False,
) -> Trained:
    """Train a language model of gated recurrent units (Cho et al. 2014).

    Args:
        files: text files or folders, compressed or not.
        out: the run's folder, new or empty (runs/gru-1, -2, …).
        resume: go on from the last checkpoint of the folder; without files, with its settings.
        config: how to train: steps, learning rate, batches, checkpoints.
        shape: which model: dim, hidden, depth.
        data: validation files, tokenizer, a model to begin with, prompts of samples.
        toml: a file of settings, such as the config.toml of a run; what is given here comes first.
        print_config: give all settings with the origin of each, and stop.
        dry_run: read the data, say what a run would take, and write nothing.

    Example:
        >>> regard.train.gru("tale.txt", out="run")
        $ regard train gru tale.txt --out run --steps 1000 --tokens words
        $ regard train gru tale.txt --out run --dim 128 --depth 1 --json
        $ regard train gru --out run --resume --steps 2000
    """
    return _train("gru", **locals())


@verb
def mlp(
    files: Files | None = None,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    config: Training = TRAINING,
    shape: Shape = SHAPE,
    data: Data = DATA,
    toml: Toml = None,
    print_config: bool = False,
    dry_run: bool = False,
) -> Trained:
    """Train a language model that is an MLP of the last words (Bengio et al. 2003).

    Args:
        files: text files or folders, compressed or not.
        out: the run's folder, new or empty (runs/mlp-1, -2, …).
        resume: go on from the last checkpoint of the folder; without files, with its settings.
        config: how to train: steps, learning rate, batches, checkpoints.
        shape: which model: dim, hidden, depth.
        data: validation files, tokenizer, a model to begin with, prompts of samples.
        toml: a file of settings, such as the config.toml of a run; what is given here comes first.
        print_config: give all settings with the origin of each, and stop.
        dry_run: read the data, say what a run would take, and write nothing.

    Example:
        >>> regard.train.mlp("tale.txt", out="run")
        $ regard train mlp tale.txt --out run --steps 1000 --tokens words
        $ regard train mlp tale.txt --out run --dim 128 --depth 1 --json
        $ regard train mlp --out run --resume --steps 2000
    """
    return _train("mlp", **locals())


def _train(
    word: str, files: Any, config: TrainConfig, shape: ShapeConfig, data: DataConfig, **rest: Any
) -> Trained:
    from regard.train.runs import train_files

    return train_files(word, files, configs=(config, shape, data), **rest)


@verb
def verify(
    what: Literal["resume"] = "resume",
    *,
    kind: Literal["lm", "mlm", "seq2seq", "lstm"] = "lm",
    kills: Count = 20,
) -> ResumeCheck:
    """Prove that a killed run ends with the same bits as one that nobody stopped.

    Args:
        what: what to prove.
        kind: what is trained.
        kills: how often a run is killed, at random moments.

    Example:
        >>> regard.verify("resume", kills=5).same
        True
        $ regard verify resume
        $ regard verify resume --kind seq2seq --kills 20
        $ regard verify resume --kills 3 --json
    """
    from regard.train.reproduction import verify_resume

    return verify_resume(kind, kills)


@verb
def replay(path: File, *, keep: str | Path | None = None) -> Replay:
    """Train again what a receipt tells of, and compare weights and losses.

    Args:
        path: a receipt.json, or the folder of a run.
        keep: keep the new run here.

    Example:
        >>> regard.replay("run").match
        True
        $ regard replay run/receipt.json
        $ regard replay run --json
        $ regard replay run/receipt.json --keep folder
    """
    from regard.train.reproduction import replay_receipt

    return replay_receipt(Path(path), None if keep is None else Path(keep))
