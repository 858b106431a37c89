"""Train networks by steps, and models of words by counting."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, TypeVar

from regard.history.config import Smoothing, Word2VecConfig
from regard.history.results import NgramRun, TranslatorRun, VectorRun
from regard.train.config import (
    DataConfig,
    GraphShape,
    LoRA,
    NVAEConfig,
    PictureConfig,
    PixelConfig,
    ShapeConfig,
    SoundConfig,
    TrainConfig,
)
from regard.train.results import LearntMemory, LearntShortlist, Replay, ResumeCheck, Trained
from regard.verbs import (
    FLAT,
    Amount,
    Count,
    File,
    Files,
    Flag,
    Share,
    extends,
    list_files,
    note_call,
    verb,
)

Training = Annotated[TrainConfig, FLAT]
Shape = Annotated[ShapeConfig, FLAT]
Data = Annotated[DataConfig, FLAT]
TRAINING, SHAPE, DATA = TrainConfig(), ShapeConfig(), DataConfig()
WORD2VEC, PICTURE, GRAPH = Word2VecConfig(), PictureConfig(), GraphShape()
PIXELS, SOUND, NVAE = PixelConfig(), SoundConfig(), NVAEConfig()


# Step by step -------------------------------------------------------------------------------------

Toml = Annotated[str | Path | None, Flag("--config")]


@verb
def lm(
    files: Files | None = None,
    *,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    config: Training = TRAINING,
    shape: Shape = SHAPE,
    data: Data = DATA,
    lora: LoRA | str | None = None,
    toml: Toml = None,
    print_config: bool = False,
    dry_run: bool = False,
) -> Trained:
    """Train a decoder to predict the next token of a text.

    Killed at any moment and resumed, a run ends with the same bits.
    Stopped by Ctrl-C in a notebook, it returns what there is, and `resume=run.out` goes on.

    Args:
        files: text files or folders, compressed or not.
        out: the run's folder, new or empty (runs/lm-1, -2, …).
        resume: the folder of a run to go on with, from its last checkpoint and with its settings.
        config: how to train: steps, learning rate, batches, checkpoints.
        shape: which model: family, dim, depth, heads.
        data: validation files, tokenizer, a model to begin with, prompts of samples.
        lora: train a low-rank adapter of the model to begin with: r=8,alpha=16,targets=*.attn.q …
        toml: a file of settings, such as the config.toml of a run; what is given here comes first.
        print_config: give all settings with the origin of each, and stop.
        dry_run: read the data, say what a run would take, and write nothing.

    Example:
        >>> run = regard.train.lm("tale.txt", out="run", config=regard.TrainConfig(steps=300))
        >>> run.kit.generate("Once upon a time")
        $ regard train lm tale.txt --out run --steps 1000 --tokens chars
        $ regard train lm --resume run
        $ torchrun --nproc-per-node 2 -m regard train lm texts/ --out run --preset gpt2
    """
    return _train("lm", **locals())


@verb
@extends(lm)
def mlm(*args: Any, **named: Any) -> Trained:
    """Train an encoder to predict masked tokens (BERT).

    Args:
        files: text files or folders, compressed or not.
        out: the run's folder, new or empty (runs/mlm-1, -2, …).
        resume: the folder of a run to go on with, from its last checkpoint and with its settings.
        config: how to train: steps, learning rate, batches, checkpoints.
        shape: which model: dim, depth, heads.
        data: validation files, tokenizer, a model to begin with, prompts of samples.
        lora: train a low-rank adapter of the model to begin with: r=8,alpha=16,targets=*.attn.q …
        toml: a file of settings, such as the config.toml of a run; what is given here comes first.
        print_config: give all settings with the origin of each, and stop.
        dry_run: read the data, say what a run would take, and write nothing.

    Example:
        >>> regard.train.mlm("tale.txt", out="run").kit.fill("Once upon a [MASK]")
        $ regard train mlm tale.txt --out run --steps 1000
        $ regard train mlm texts/ --valid dev.txt --out run --preset bert-base --dry-run
        $ regard train mlm tale.txt --out run --mask 0.3 --json
    """
    return _train("mlm", *args, **named)


@verb
@extends(lm)
def seq2seq(*args: Any, **named: Any) -> Trained:
    """Train an encoder-decoder to say the other side of sentence pairs.

    With `encoder` in the shape, the encoder of another model (BERT, MiniLM, T5, or a decoder's
    stream) reads the sources with its own tokenizer and stays as it is: a new decoder learns to
    look at what it makes of them. `init` with the result trains all of it further.

    Args:
        files: pairs: TSV files, or a source and a target file.
        out: the run's folder, new or empty (runs/seq2seq-1, -2, …).
        resume: the folder of a run to go on with, from its last checkpoint and with its settings.
        config: how to train: steps, learning rate, batches, checkpoints.
        shape: which model: family, dim, depth, heads, attention, or another's encoder.
        data: validation files, tokenizer, a model to begin with, prompts of samples.
        lora: train a low-rank adapter of the model to begin with: r=8,alpha=16,targets=*.attn.q …
        toml: a file of settings, such as the config.toml of a run; what is given here comes first.
        print_config: give all settings with the origin of each, and stop.
        dry_run: read the data, say what a run would take, and write nothing.

    Example:
        >>> regard.train.seq2seq("pairs.tsv", out="run").kit.translate("Je suis un chat.")
        $ regard train seq2seq pairs.tsv --valid dev.tsv --out run --minutes 30 --metric bleu
        $ regard train seq2seq train.fr train.en --out run --preset transformer-base
        $ regard train seq2seq pairs.tsv --encoder MiniLM --out run --dim 256 --depth 2
    """
    return _train("seq2seq", *args, **named)


@verb
@extends(lm)
def rnn(*args: Any, **named: Any) -> Trained:
    """Train a recurrent language model (Elman 1990).

    Args:
        files: text files or folders, compressed or not.
        out: the run's folder, new or empty (runs/rnn-1, -2, …).
        resume: the folder of a run to go on with, from its last checkpoint and with its settings.
        config: how to train: steps, learning rate, batches, checkpoints.
        shape: which model: dim, hidden, depth.
        data: validation files, tokenizer, a model to begin with, prompts of samples.
        lora: train a low-rank adapter of the model to begin with: r=8,alpha=16,targets=*.attn.q …
        toml: a file of settings, such as the config.toml of a run; what is given here comes first.
        print_config: give all settings with the origin of each, and stop.
        dry_run: read the data, say what a run would take, and write nothing.

    Example:
        >>> regard.train.rnn("tale.txt", out="run")
        $ regard train rnn tale.txt --out run --steps 1000 --tokens words
        $ regard train rnn tale.txt --out run --dim 128 --depth 1 --json
        $ regard train rnn --resume run --steps 2000
    """
    return _train("rnn", *args, **named)


@verb
@extends(lm)
def lstm(*args: Any, **named: Any) -> Trained:
    """Train a language model of LSTM cells (Hochreiter and Schmidhuber 1997).

    Args:
        files: text files or folders, compressed or not.
        out: the run's folder, new or empty (runs/lstm-1, -2, …).
        resume: the folder of a run to go on with, from its last checkpoint and with its settings.
        config: how to train: steps, learning rate, batches, checkpoints.
        shape: which model: dim, hidden, depth.
        data: validation files, tokenizer, a model to begin with, prompts of samples.
        lora: train a low-rank adapter of the model to begin with: r=8,alpha=16,targets=*.attn.q …
        toml: a file of settings, such as the config.toml of a run; what is given here comes first.
        print_config: give all settings with the origin of each, and stop.
        dry_run: read the data, say what a run would take, and write nothing.

    Example:
        >>> regard.train.lstm("tale.txt", out="run")
        $ regard train lstm tale.txt --out run --steps 1000 --tokens words
        $ regard train lstm tale.txt --out run --dim 128 --depth 1 --json
        $ regard train lstm --resume run --steps 2000
    """
    return _train("lstm", *args, **named)


@verb
@extends(lm)
def gru(*args: Any, **named: Any) -> Trained:
    """Train a language model of gated recurrent units (Cho et al. 2014).

    Args:
        files: text files or folders, compressed or not.
        out: the run's folder, new or empty (runs/gru-1, -2, …).
        resume: the folder of a run to go on with, from its last checkpoint and with its settings.
        config: how to train: steps, learning rate, batches, checkpoints.
        shape: which model: dim, hidden, depth.
        data: validation files, tokenizer, a model to begin with, prompts of samples.
        lora: train a low-rank adapter of the model to begin with: r=8,alpha=16,targets=*.attn.q …
        toml: a file of settings, such as the config.toml of a run; what is given here comes first.
        print_config: give all settings with the origin of each, and stop.
        dry_run: read the data, say what a run would take, and write nothing.

    Example:
        >>> regard.train.gru("tale.txt", out="run")
        $ regard train gru tale.txt --out run --steps 1000 --tokens words
        $ regard train gru tale.txt --out run --dim 128 --depth 1 --json
        $ regard train gru --resume run --steps 2000
    """
    return _train("gru", *args, **named)


@verb
@extends(lm)
def mlp(*args: Any, **named: Any) -> Trained:
    """Train a language model that is an MLP of the last words (Bengio et al. 2003).

    Args:
        files: text files or folders, compressed or not.
        out: the run's folder, new or empty (runs/mlp-1, -2, …).
        resume: the folder of a run to go on with, from its last checkpoint and with its settings.
        config: how to train: steps, learning rate, batches, checkpoints.
        shape: which model: dim, hidden, depth.
        data: validation files, tokenizer, a model to begin with, prompts of samples.
        lora: train a low-rank adapter of the model to begin with: r=8,alpha=16,targets=*.attn.q …
        toml: a file of settings, such as the config.toml of a run; what is given here comes first.
        print_config: give all settings with the origin of each, and stop.
        dry_run: read the data, say what a run would take, and write nothing.

    Example:
        >>> regard.train.mlp("tale.txt", out="run")
        $ regard train mlp tale.txt --out run --steps 1000 --tokens words
        $ regard train mlp tale.txt --out run --dim 128 --depth 1 --json
        $ regard train mlp --resume run --steps 2000
    """
    return _train("mlp", *args, **named)


@verb
@extends(lm, "lora")
def image(*args: Any, shape: Annotated[PictureConfig, FLAT] = PICTURE, **named: Any) -> Trained:
    """Train a vision Transformer (ViT) to tell classes of pictures apart.

    Pictures are decoded once, into the run's folder, resized to one size, and augmented on the
    device. `final` opens in transformers as ViTForImageClassification, unless a stem, positions or
    a pool of another kind are asked for. Needs Pillow, the extra `vision`.

    Args:
        files: folders of pictures, each in the folder of its class; .tar, .tar.xz with
            class/name.jpg; .npz with images and labels; CSV or TSV with paths and labels; several
            of them. `shapes`, where there is no such file: coloured shapes that regard ships.
        out: the run's folder, new or empty (runs/image-1, -2, …).
        resume: the folder of a run to go on with, from its last checkpoint and with its settings.
        config: how to train: steps, learning rate, checkpoints.
        shape: which model, the size of pictures, augmentation, rows and epochs.
        data: pictures to validate on (else a tenth is held out), a model to begin with, whose
            positions are resized, or a preset: vit-32, vit-ti16, vit-s16, vit-b16, vit-l16.
        toml: a file of settings, such as the config.toml of a run; what is given here comes first.
        print_config: give all settings with the origin of each, and stop.
        dry_run: read the data, say what a run would take, and write nothing.

    Example:
        >>> regard.train.image("shapes", out="run").best_valid
        $ regard train image shapes --out run --epochs 15
        $ regard train image photos/ more.tar.xz --valid dev/ --out run --flip --randaugment 2
        $ regard train image scans.csv --init folder --out run --epochs 5 --lr 1e-4
    """
    from regard.vision.picture_classes import IMAGE_RUN

    return _train(IMAGE_RUN, *args, shape=shape, **named)


@verb
@extends(lm, "lora")
def pixels(*args: Any, shape: Annotated[PixelConfig, FLAT] = PIXELS, **named: Any) -> Trained:
    """Train a decoder that draws pictures, token by token (ImageGPT).

    A token is the nearest colour of a palette (k-means), one for each pixel, or the code of a patch
    by a VQ-VAE, which is trained first. `final` opens in transformers as
    ImageGPTForCausalImageModeling; `regard draw` draws with it. Needs Pillow, the extra `vision`.

    Args:
        files: pictures as `regard train image` reads them; their classes are not looked at.
        out: the run's folder, new or empty (runs/pixels-1, -2, …).
        resume: the folder of a run to go on with, from its last checkpoint and with its settings.
        config: how to train: steps, learning rate, checkpoints.
        shape: what the tokens are, in which order, which model, rows and epochs.
        data: pictures to validate on (else a tenth is held out), or a model to begin with.
        toml: a file of settings, such as the config.toml of a run; what is given here comes first.
        print_config: give all settings with the origin of each, and stop.
        dry_run: read the data, say what a run would take, and write nothing.

    Example:
        >>> regard.train.pixels("shapes", out="run", print_config=True).values["codes"]
        512
        $ regard train pixels shapes --size 12 --codes 16 --out run --epochs 5
        $ regard train pixels photos/ --out run --flip --dim 384 --depth 11 --heads 6 --epochs 20
        $ regard train pixels photos/ --tokens-of patches --codes 512 --out run
    """
    from regard.vision.pixel_tokens import PIXEL_RUN

    return _train(PIXEL_RUN, *args, shape=shape, **named)


@verb
@extends(lm, "lora")
def sound(*args: Any, shape: Annotated[SoundConfig, FLAT] = SOUND, **named: Any) -> Trained:
    """Train a Transformer to tell classes of sounds apart, or to write what is said.

    Clips are decoded once, into the run's folder, as log-mel at 16 kHz, and augmented on the
    device. With --reads patches `final` opens in transformers as ASTForAudioClassification. Clips
    that are silent or cannot be read are named and left out. Needs soundfile, the extra `audio`.

    Args:
        files: folders of clips, each in the folder of its class; .tar, .tar.xz with class/name.wav;
            clips in no folder have the class that their name begins with (7_jackson_0.flac: 7);
            CSV or TSV with files and labels, beside the list or in archives that are given with
            it; several of them. `tones`, where there is no such file: sounds that regard ships.
        out: the run's folder, new or empty (runs/sound-1, -2, …).
        resume: the folder of a run to go on with, from its last checkpoint and with its settings.
        config: how to train: steps, learning rate, checkpoints.
        shape: which model, the length of clips, augmentation, rows and epochs.
        data: clips to validate on (else a tenth is held out); a model to begin with, of which
            Whisper's encoder will do.
        toml: a file of settings, such as the config.toml of a run; what is given here comes first.
        print_config: give all settings with the origin of each, and stop.
        dry_run: read the data, say what a run would take, and write nothing.

    Example:
        >>> regard.train.sound("tones", out="run").best_valid
        $ regard train sound tones --out run --epochs 20
        $ regard train sound clips/ more.tar.xz --valid dev/ --out run --mixup 0.5
        $ regard train sound list.tsv a.tar b.tar --out run --init whisper --freeze front encoder
    """
    from regard.speech.sound_classes import SOUND_RUN

    return _train(SOUND_RUN, *args, shape=shape, **named)


@verb
@extends(lm, "lora")
def graph(*args: Any, shape: Annotated[GraphShape, FLAT] = GRAPH, **named: Any) -> Trained:
    """Train a Transformer on graphs: a class or number of each, or the classes of nodes.

    Nodes are its tokens. Attention has biases of degrees, shortest paths and kinds of edges
    (Graphormer, Ying 2021), or is that of neighbours alone; without either, nodes are a set.
    Labels that are not whole numbers, or have more than 20 values, are learnt as numbers.

    Args:
        files: CSV, TSV or JSONL with a column smiles and one of labels; or a table of nodes (node,
            label, numbers) and one of edges (source, target, perhaps kind); or of sets, a row for
            each member (graph, label, numbers); or .npz of one graph with labelled nodes: edges,
            labels, features or words as CSR (indptr, indices). A column split, or arrays train,
            val and test, say what is trained and validated on.
        out: the run's folder, new or empty (runs/graph-1, -2, …).
        resume: the folder of a run to go on with, from its last checkpoint and with its settings.
        config: how to train: steps, learning rate, batches, checkpoints.
        shape: the column of the labels, the kind of attention, and the size of the model.
        data: validation files, where the files themselves do not say what to validate on.
        toml: a file of settings, such as the config.toml of a run; what is given here comes first.
        print_config: give all settings with the origin of each, and stop.
        dry_run: read the data, say what a run would take, and write nothing.

    Example:
        >>> regard.train.graph("molecules.csv", out="run").best_valid
        $ regard train graph nodes.csv edges.csv --out run
        $ regard train graph molecules.csv --label logP --out run --steps 5000
        $ regard train graph sets.csv --attention set --out run
    """
    from regard.graphs.graph_tasks import GraphKind

    return _train(GraphKind("graph"), *args, shape=shape, **named)


@verb
@extends(lm, "lora")
def nvae(*args: Any, shape: Annotated[NVAEConfig, FLAT] = NVAE, **named: Any) -> Trained:
    """Train a variational autoencoder of texts (NVAE, Henderson and Fehr 2023).

    Each line is said again through a bottleneck between encoder and decoder: a mixture with a
    Gaussian for each vector, which training draws from and pays for. At its end a run warns of a
    collapsed posterior, of which the decoder reads nothing.

    Args:
        files: files with a text on each line, compressed or not.
        out: the run's folder, new or empty (runs/nvae-1, -2, …).
        resume: the folder of a run to go on with, from its last checkpoint and with its settings.
        config: how to train: steps, learning rate, batches, checkpoints.
        shape: the size of the model, the bottleneck and what training pays for it; the usual VAEs.
        data: validation files and the tokenizer.
        toml: a file of settings, such as the config.toml of a run; what is given here comes first.
        print_config: give all settings with the origin of each, and stop.
        dry_run: read the data, say what a run would take, and write nothing.

    Example:
        >>> regard.train.nvae("tale.txt", out="run").best_valid
        $ regard train nvae tale.txt --out run --anneal 200
        $ regard train nvae texts.txt --valid dev.txt --out run --latent pooled
        $ regard train nvae tale.txt --out run --tokens chars --latent none --nvib-layers 3
    """
    from regard.nvib.text_autoencoder import NVAE_RUN

    return _train(NVAE_RUN, *args, shape=shape, **named)


def _train(
    kind: Any,
    files: Any = None,
    *,
    config: TrainConfig = TRAINING,
    shape: Any = SHAPE,
    data: DataConfig = DATA,
    **rest: Any,
) -> Trained:
    from regard.train.kinds import WORD
    from regard.train.runs import train_files

    kind = WORD[kind] if isinstance(kind, str) else kind
    return train_files(kind, files, configs=(config, shape, data), **rest)


# By counting --------------------------------------------------------------------------------------

P = ParamSpec("P")
Counted = TypeVar("Counted", NgramRun, VectorRun, TranslatorRun)


def counted(function: Callable[P, Counted]) -> Callable[P, Counted]:
    """A function that counts, which leaves its receipt in the folder that it writes."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> Counted:
        bound = signature.bind(*args, **named)
        bound.apply_defaults()
        said = bound.arguments
        said |= {name: list_files(said[name]) for name in ("files", "valid") if said.get(name)}
        run, folder = note_call(function, said, function(*args, **named)), Path(said["out"])
        if folder.is_dir():
            from regard.receipt import leave_receipt

            leave_receipt(run, folder)
        return run

    return call


@verb
@counted
def ngram(
    files: Files,
    *,
    out: str | Path,
    tokens: str = "spaced",
    vocab: Count | None = None,
    min_count: Count = 1,
    lines: bool | None = None,
    valid: Files | None = None,
    order: Count = 5,
    smoothing: Smoothing = "kneser-ney",
    k: float = 1.0,
) -> NgramRun:
    """Count n-grams and smooth them: add-k, Witten–Bell, Kneser–Ney.

    Args:
        files: text files or folders, compressed or not.
        out: a new or empty folder.
        tokens: spaced, words, bpe, chars, graphemes, bytes; or a folder with a tokenizer.
        vocab: tokens at most (all).
        min_count: how often a word must stand in the texts to be known.
        lines: whether each line is a sentence with a beginning and an end (where tokens are words).
        valid: texts whose perplexity is measured.
        order: words that a probability looks at, the predicted one counted.
        smoothing: how unseen words get their share (kneser-ney: interpolated, modified).
        k: of add: what each count gets.

    Example:
        >>> regard.train.ngram("train.txt", out="m", order=3, valid="valid.txt").perplexity
        $ regard train ngram train.txt --out m --order 5 --valid valid.txt
        $ regard train ngram tale.txt --out m --tokens chars --order 8
        $ regard train ngram train.txt --out m --smoothing witten-bell --json
    """
    return _count_ngrams(**locals())


@verb
@counted
@extends(ngram, "order")
def bow(*args: Any, k: float = 1.0, smoothing: bool = True, **named: Any) -> NgramRun:
    """Count a bag of words: each has its probability, whatever stands around it.

    Args:
        files: text files or folders, compressed or not.
        out: a new or empty folder.
        tokens: spaced, words, bpe, chars, graphemes, bytes; or a folder with a tokenizer.
        vocab: tokens at most (all).
        min_count: how often a word must stand in the texts to be known.
        lines: whether each line is a sentence with a beginning and an end (where tokens are words).
        valid: texts whose perplexity is measured.
        k: what each count gets.
        smoothing: whether unseen words are possible; without it k is 0.

    Example:
        >>> regard.train.bow("train.txt", out="m", k=0.1).vocabulary
        $ regard train bow train.txt --out m
        $ regard train bow train.txt --out m --k 0.1 --valid valid.txt
        $ regard train bow train.txt --out m --no-smoothing
    """
    return _count_ngrams(*args, order=1, smoothing="add", k=k if smoothing else 0.0, **named)


@verb
@counted
@extends(ngram)
def classes(
    *args: Any, order: Count = 3, classes: Count | None = None, share: Share = 0.3, **named: Any
) -> NgramRun:
    """Count n-grams of classes of words: a class from those before it, then a word of the class.

    Mixed with n-grams of words, as Brown (1992) has them: better than either on little text.

    Args:
        files: text files or folders, compressed or not.
        out: a new or empty folder.
        tokens: spaced, words, bpe, chars, graphemes, bytes; or a folder with a tokenizer.
        vocab: tokens at most (all).
        min_count: how often a word must stand in the texts to be known.
        lines: whether each line is a sentence with a beginning and an end (where tokens are words).
        valid: texts whose perplexity is measured.
        order: classes that a probability looks at, the predicted one counted.
        smoothing: how unseen classes get their share (kneser-ney: interpolated, modified).
        k: of add: what each count gets.
        classes: classes of words, by Brown's way (the root of how many words there are, at most
            100).
        share: of the probability that comes from classes, the rest from words; 1 is classes alone.

    Example:
        >>> regard.train.classes("train.txt", out="m", classes=200).ngrams
        $ regard train classes train.txt --out m --classes 200 --valid valid.txt
        $ regard train classes train.txt --out m --order 2 --min-count 2
        $ regard train classes train.txt --out m --smoothing witten-bell --json
    """
    return _count_ngrams(*args, order=order, classes=classes, share=share, **named)


@verb
@counted
def w2v(
    files: Files,
    *,
    out: str | Path,
    config: Annotated[Word2VecConfig, FLAT] = WORD2VEC,
    tokens: Literal["words", "spaced"] = "words",
    lower: bool = False,
    workers: Count = 2,
) -> VectorRun:
    """Learn vectors of words from the words around them (word2vec).

    Args:
        files: texts, a sentence on each line.
        out: a new or empty folder; or a file: .bin is word2vec's binary form, .txt or .vec its
            text.
        config: how vectors are learnt.
        tokens: words and marks apart, or what stands between blanks.
        lower: read the texts in lower case.
        workers: threads; the vectors are the same with any number.

    Example:
        >>> regard.train.w2v("tale.txt", out="vectors").words
        $ regard train w2v tale.txt --out vectors
        $ regard train w2v tale.txt --out vectors --mode cbow --window 5 --dim 300
        $ regard train w2v corpus.txt.xz more.txt --out vectors.bin --lower --seed 7
    """
    from regard.history.word2vec import read_texts
    from regard.history.word_vectors import train_vectors

    corpus = read_texts(files, tokens, lower, config.min_count)
    return train_vectors(corpus, config, workers, Path(out))


@verb
@counted
def bayes(files: Files, *, out: str | Path, k: Amount = 0.1) -> TranslatorRun:
    """Learn to translate by naive Bayes: which words a bag of source words has.

    Args:
        files: sentence pairs: source TAB target, compressed or not; folders; or two files.
        out: a new or empty folder.
        k: what each count gets, so that what was not seen is not ruled out.

    Example:
        >>> regard.train.bayes("pairs.tsv", out="m").weights
        $ regard train bayes pairs.tsv --out m
        $ regard train bayes train.fr train.en --out m --k 1
        $ regard train bayes pairs.tsv.xz --out m --json
    """
    return _count_pairs("bayes", **locals())


@verb
@counted
def logreg(
    files: Files, *, out: str | Path, l2: Amount = 1.0, top: Count = 30, steps: Count = 60
) -> TranslatorRun:
    """Learn to translate bags of words by multinomial logistic regression.

    Args:
        files: sentence pairs: source TAB target, compressed or not; folders; or two files.
        out: a new or empty folder.
        l2: pull to 0.
        top: target words that each source word has weights for, at most.
        steps: steps of L-BFGS at most; fewer if the slope is 0 before.

    Example:
        >>> regard.train.logreg("pairs.tsv", out="m", steps=200).weights
        $ regard train logreg pairs.tsv --out m
        $ regard train logreg pairs.tsv --out m --l2 0.1 --top 50
        $ regard train logreg pairs.tsv.xz --out m --steps 200 --json
    """
    return _count_pairs("logreg", **locals())


@verb
@counted
def ibm1(files: Files, *, out: str | Path, rounds: Count = 10) -> TranslatorRun:
    """Learn to translate word by word: IBM model 1 finds which word is a translation of which.

    Args:
        files: sentence pairs: source TAB target, compressed or not; folders; or two files.
        out: a new or empty folder.
        rounds: rounds of expectation and maximisation.

    Example:
        >>> regard.train.ibm1("pairs.tsv", out="m", rounds=20).weights
        $ regard train ibm1 pairs.tsv --out m
        $ regard train ibm1 train.fr train.en --out m --rounds 20
        $ regard train ibm1 pairs.tsv.xz --out m --json
    """
    return _count_pairs("ibm1", **locals())


def _count_ngrams(
    files: Files, *, out: str | Path, valid: Files | None = None, **named: Any
) -> NgramRun:
    """Count as a verb was told; what it was not told is as `ngram` has it."""
    from regard.history.ngram_model import NgramConfig, train_from_files

    return train_from_files(files, Path(out), NgramConfig(**named), valid or ())


def _count_pairs(name: str, files: Files, out: str | Path, **settings: Any) -> TranslatorRun:
    """Learn from sentence pairs as a verb was told."""
    from regard.history.word_translator import train_translator

    return train_translator(name, list_files(files), Path(out), **settings)


# For a translator -------------------------------------------------------------------------------


@verb
def shortlist(
    model: File, files: Files, *, top: Count = 20, always: Count = 4000, count: Count = 200_000
) -> LearntShortlist:
    """List the words that translations need: a CPU then scores a few thousand, not all.

    Args:
        model: the folder of a translator, where the list is written.
        files: sentence pairs: source TAB target, compressed or not; folders; or two files.
        top: translations of each source word, at most.
        always: frequent words that every source has.
        count: pairs that are learnt from, at most, evenly spaced.

    Example:
        >>> regard.train.shortlist("folder", "train.tsv").share
        0.99
        $ regard train shortlist folder train.tsv
        $ regard train shortlist folder train.tsv.xz more.tsv --always 2000
        $ regard train shortlist folder train.fr train.en --top 50 --count 500000 --json
    """
    from regard.data.pairs import all_pairs
    from regard.loading import open_kit
    from regard.translation.lexical_shortlist import learn_shortlist
    from regard.zoo import locate

    kit, folder = open_kit(str(model)), Path(locate(model))
    return learn_shortlist(kit, folder, all_pairs(list_files(files)), top, always, count)


@verb
def memory(model: File, files: Files, *, seen: Count = 10, each: Count = 3) -> LearntMemory:
    """Keep sentence pairs that show what rare words become, for translations to look up.

    Words are as rare as the folder's words.tsv says, else as they are in these files.

    Args:
        model: the folder of a translator, where the pairs are written; it aligns their words.
        files: sentence pairs: source TAB target, compressed or not; folders; or two files.
        seen: how often a word stands in training, at most.
        each: pairs of each word, at most; a long one only where no inflection of it has any.

    Example:
        >>> regard.train.memory("folder", "train.tsv", seen=50).words
        1200
        $ regard train memory folder train.tsv
        $ regard train memory folder train.tsv.xz more.tsv --seen 5
        $ regard train memory folder train.fr train.en --each 1 --json
    """
    from regard.loading import open_kit
    from regard.translation.memory import learn_memory
    from regard.zoo import locate

    return learn_memory(open_kit(str(model)), Path(locate(model)), list_files(files), seen, each)


# Again --------------------------------------------------------------------------------------------


@verb
def verify(
    what: Literal["resume"] = "resume",
    *,
    kind: Literal["lm", "mlm", "seq2seq", "lstm"] = "lm",
    kills: Count = 20,
) -> ResumeCheck:
    """Prove that a killed and resumed run ends with the same bits.

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
def replay(path: File) -> Replay:
    """Train again what a receipt tells of, and compare.

    Args:
        path: a receipt.json, or the folder of a run.

    Example:
        >>> regard.replay("run").match
        True
        $ regard replay run/receipt.json
        $ regard replay run --json
        $ regard replay circuit.json
    """
    from regard.train.reproduction import replay_receipt

    return replay_receipt(Path(path))
