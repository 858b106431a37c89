"""What a run is: TrainConfig says how it is trained, ShapeConfig which model, DataConfig on what.

Bounds and choices stand at the fields, once; the text under a field is the help of its flag.
No torch here: help is quick.
"""

from __future__ import annotations

import dataclasses
import math
import re
import typing
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from regard.core.config import StackConfig
from regard.errors import UsageError, check_known
from regard.model import presets
from regard.model.config import CELLS, ModelConfig, TextConfig
from regard.nvib.config import Latent, NVIBConfig
from regard.verbs import Amount, Bound, Count, FromZero, Natural, Share, check_fields

Side = Annotated[int, Bound(1, 4096, "1 to 4,096 pixels")]
FREE: tuple[str, ...] = ("steps", "minutes", "eval_every", "save_every", "keep", "log_every")
FREE += ("patience", "workers", "shard")
"""Fields that may change when a run is resumed: they say how long, how often and how quickly."""
FAMILIES = {
    "lm": ("llama", "gpt2", *CELLS),
    "mlm": ("bert",),
    "seq2seq": ("marian", "lstm", "gru", "rnn"),
}
"""The families of each kind of training, the usual one first."""
ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "bert": "BertForMaskedLM",
    "marian": "MarianMTModel",
}
OWN_FIELDS = {
    "kv_heads": ("llama",),
    "decoder_depth": ("marian",),
    "pre_norm": ("marian",),
    "encoder": ("marian",),
}
"""Fields of a shape that only these families have."""
BelowOne = Annotated[float, Bound(0, math.nextafter(1, 0), "a number from 0 to below 1")]


@dataclass(frozen=True)
class Config:
    """A config that knows which of its fields were given: a preset or a file may say the others."""

    given = frozenset[str]()  # names of fields

    def __new__(cls, *args: Any, **kwargs: Any) -> typing.Self:
        """Note the names of the arguments; the dataclass does the rest."""
        config = super().__new__(cls)
        names = [field.name for field in dataclasses.fields(cls)]
        object.__setattr__(config, "given", frozenset([*names[: len(args)], *kwargs]))
        return config

    def __post_init__(self) -> None:
        check_fields(type(self).__name__, self)


@dataclass(frozen=True)
class TrainConfig(Config):
    """How to train; what is not given may be said by a preset, or differ with the kind."""

    steps: Count = 1000
    """Optimizer steps."""
    minutes: Amount | None = None
    """Time to train: the learning rate falls with the clock; without steps, as many as fit."""
    batch_tokens: Count = 4096
    """Labelled tokens of a micro-batch, at most (sentence pairs: padding included)."""
    length: Count = 256
    """Tokens of a training window; longer sentences are left out, counted."""
    accumulate: Count = 1
    """Micro-batches per step; the loss is the same however a batch is split."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """AdamW, or Muon for the matrices of the blocks, which needs fewer steps and whole matrices."""
    lr: Amount = 1e-3
    """Peak learning rate."""
    schedule: Literal["constant", "inverse_sqrt", "cosine"] = "cosine"
    """Shape of the learning rate over the steps."""
    warm_up: Natural = 100
    """Steps to the peak."""
    floor: Share = 0.1
    """Last learning rate, as a share of the peak."""
    beta1: BelowOne = 0.9
    """AdamW: decay of the mean gradient."""
    beta2: BelowOne = 0.95
    """AdamW: decay of the mean square."""
    eps: Amount = 1e-8
    """AdamW: added to the root."""
    weight_decay: FromZero = 0.1
    """On matrices; not on norms, biases and embeddings."""
    clip: FromZero = 1.0
    """Largest norm of the gradient; 0 switches clipping off."""
    smoothing: BelowOne = 0.0
    """Label smoothing."""
    dropout: BelowOne = 0.0
    """Dropout on each part and on the embeddings."""
    r_drop: FromZero = 0.0
    """Weight of R-Drop: two draws of dropout should agree (5 is usual); takes twice the time."""
    precision: Literal["fp32", "bf16", "fp16", "fp8"] = "fp32"
    """Of the matrix products; weights and optimizer stay float32. fp8 needs a recent GPU."""
    compile: bool = False
    """Compile the step with torch.compile."""
    ema: BelowOne = 0.0
    """Decay of a running mean of the weights, saved as final; 0 switches it off."""
    average: Count = 1
    """Average the last this many checkpoints into final."""
    eval_every: Natural = 200
    """Steps between validations; 0 for none."""
    save_every: Count = 200
    """Steps between checkpoints."""
    keep: Count = 3
    """Checkpoints kept, beside the best."""
    log_every: Count = 10
    """Steps between lines of metrics.jsonl."""
    metric: Literal["loss", "bleu", "accuracy", "macro_f1"] = "loss"
    """What the best validation, and stopping early, go by: seq2seq has bleu, `tune` the others."""
    patience: Natural = 0
    """Stop after this many validations without a better one; 0 never stops early."""
    workers: Annotated[int, Bound(0, 256, "a whole number from 0 to 256")] = 1
    """Threads that prepare batches; the result does not depend on it."""
    shard: bool = False
    """Under torchrun: a part of weights and optimizer on each process (FSDP2), not all on each."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.optimizer == "muon" and self.shard:
            problem = "optimizer = muon with shard, which cuts the matrices up"
            raise UsageError("configuring a run", problem, "adamw, or no shard")


@dataclass(frozen=True)
class DataConfig(Config):
    """What a model is trained on, and what it begins with."""

    valid: tuple[str, ...] = ()
    """Validation files of the same form; without them the end of the data is held out."""
    holdout: BelowOne | None = None
    """Share held out without --valid: 0.1, of pairs 0.01 to 0.05; 0 for no validation."""
    init: str | None = None
    """A model to begin with, folder or name: its weights, shape and tokenizer."""
    preset: str | None = None
    """A shape by name, such as gpt2, llama-15m, bert-base, transformer-base."""
    tokens: str | None = None
    """bpe (lm), wordpiece (mlm), pieces (seq2seq), words, chars, graphemes, bytes; or a folder."""
    vocab: Count | None = None
    """Tokens at most (bpe, pieces and wordpiece 8000, else all)."""
    split: Literal["file", "line", "row"] = "file"
    """lm: what a document is; an end token follows it. row: a line, which is read by itself."""
    carry: bool = False
    """lm: rows go on from batch to batch, and a recurrent model keeps its state (its usual way)."""
    mask: Annotated[float, Bound(0, 1, "above 0, at most 1", above=True)] = 0.15
    """mlm: share of the tokens to be predicted."""
    prompts: tuple[str, ...] = ()
    """Texts that samples go on from; without them beginnings from the validation data."""


@dataclass(frozen=True)
class ShapeConfig(Config):
    """The size of a model; its vocabulary comes from the tokenizer, its length from the run."""

    family: Literal["auto", "llama", "gpt2", "bert", "marian", "rnn", "lstm", "gru", "mlp"] = "auto"
    """What it is saved as: lm is llama, mlm bert, seq2seq marian; or recurrent, by its cell."""
    dim: Count = 256
    """Width of the residual stream."""
    depth: Count = 4
    """Blocks, in each stack."""
    decoder_depth: Count | None = None
    """Blocks of an encoder-decoder's decoder (seq2seq); as many as depth when not given."""
    heads: Count = 4
    """Attention heads."""
    kv_heads: Count | None = None
    """Key-value heads (llama); as many as heads when not given."""
    hidden: Count | None = None
    """Width of the MLP, 4 dim or the llama family's 8/3 dim; of a recurrent state, dim."""
    pre_norm: bool = False
    """Norms before each part of an encoder-decoder; saved as regard's own, no family has it."""
    attention: Literal["multi-head", "additive", "none"] = "multi-head"
    """seq2seq: the Transformer's; or a recurrent model's, to all states or to one vector."""
    encoder: str | None = None
    """seq2seq: a model whose encoder reads the sources, frozen, with its tokenizer."""

    def resolve(self, kind: str) -> ShapeConfig:
        """A shape with everything that was left open decided, for a kind of training."""
        families = FAMILIES[kind]
        usual = "lstm" if self.attention != "multi-head" and kind == "seq2seq" else families[0]
        family: Any = usual if self.family == "auto" else self.family
        problem = f"family = {family!r} for `train {kind}`"
        check_known(family, families, "choosing a shape", problem)
        recurrent = family in CELLS
        for name, owners in OWN_FIELDS.items():
            if getattr(self, name) and family not in owners:
                raise UsageError("choosing a shape", f"{name} with {family}", " or ".join(owners))
        if self.attention != "multi-head" and not (recurrent and kind == "seq2seq"):
            problem = f"attention = {self.attention} with {family} for `train {kind}`"
            expected = f"seq2seq with a recurrent family: {', '.join(CELLS)}"
            raise UsageError("choosing a shape", problem, expected)
        if recurrent:
            told = kind != "seq2seq" or self.attention != "multi-head"
            seen = self.attention if told else "additive"  # to all states
            return replace(self, family=family, hidden=self.hidden or self.dim, attention=seen)
        wide = -(-8 * self.dim // 3 // 32) * 32 if family == "llama" else 4 * self.dim
        return replace(self, family=family, hidden=self.hidden or wide)

    def build(self, vocab: int, length: int) -> tuple[ModelConfig, str | None]:
        """(config, architecture; None for regard's own) of a resolved shape."""
        assert self.hidden is not None
        if self.family in CELLS:
            recurrent = (self.family, self.dim, self.hidden, self.depth, vocab)
            if self.attention == "multi-head":
                return presets.recurrent_lm(*recurrent), None
            return presets.recurrent_seq2seq(*recurrent, self.attention), None
        sizes = self.dim, self.depth, self.heads
        if self.family == "llama":
            groups = self.kv_heads or self.heads
            return presets.llama(*sizes, groups, self.hidden, vocab, length), ARCHITECTURES["llama"]
        if self.family == "marian":
            config = presets.transformer(*sizes, vocab, self.pre_norm)
            assert config.decoder is not None
            decoder = replace(config.decoder, depth=self.decoder_depth or self.depth)
            config = replace(config, decoder=decoder)
            if length > 1024:  # positions are computed: only what transformers is told changes
                assert isinstance(config.front, TextConfig)
                text = replace(config.front, length=length)
                config = replace(config, front=text, target=text)
        else:
            make = presets.gpt2 if self.family == "gpt2" else presets.bert
            config = make(*sizes, vocab, length)
        config = replace(
            config,
            encoder=with_hidden(config.encoder, self.hidden),
            decoder=with_hidden(config.decoder, self.hidden),
        )
        return config, None if self.pre_norm else ARCHITECTURES[self.family]


@dataclass(frozen=True)
class SizeConfig(Config):
    """The size of an encoder or a decoder, and how long it learns."""

    dim: Count = 128
    """Width of the residual stream."""
    depth: Count = 4
    """Blocks."""
    heads: Count = 4
    """Attention heads."""
    epochs: Amount | None = None
    """Times that the data is read, unless --steps says so (10, or what makes 300 steps)."""


@dataclass(frozen=True)
class PictureConfig(SizeConfig):
    """A vision Transformer, and the augmentation of what it reads."""

    size: Side = 32
    """Side of the square that pictures are resized to, whatever their form."""
    grey: bool = False
    """Read one channel instead of three."""
    patch: Count = 4
    """Side of a patch, which divides size."""
    stem: Literal["patch", "conv"] = "patch"
    """One linear map per patch, or 3 × 3 convolutions; conv is saved as regard's own."""
    position: Literal["learned", "2d", "none"] = "learned"
    """Where a patch is: a learned table, as in ViT, waves of row and column, or unknown."""
    pool: Literal["class", "mean"] = "class"
    """What the head reads: a class token, as ViT does, or the mean of the patches."""
    drop_path: BelowOne = 0.0
    """Stochastic depth: how often the last block is skipped; earlier ones less, in proportion."""
    crop: Natural = 4
    """Pixels that a random crop moves the picture by, at most."""
    flip: bool = False
    """Mirror half of the pictures, left and right; not for letters and digits."""
    randaugment: Natural = 0
    """Operations of RandAugment on each picture (2 is usual)."""
    magnitude: Annotated[float, Bound(0, 10, "a number from 0 to 10")] = 9.0
    """How strong they are at most."""
    mixup: FromZero = 0.0
    """α of mixup: two pictures and their labels are blended (0.8 is usual)."""
    cutmix: FromZero = 0.0
    """α of CutMix: a box of another picture, with as much of its label (1 is usual)."""
    erase: Share = 0.0
    """How often a box of a picture is erased (0.25 is usual)."""
    rows: Count = 128
    """Pictures of a batch."""


@dataclass(frozen=True)
class PixelConfig(SizeConfig):
    """A decoder over pictures as tokens, and how they become tokens."""

    size: Side = 32
    """Side of the square that pictures are resized to, whatever their form."""
    grey: bool = False
    """Read one channel instead of three."""
    tokens_of: Literal["pixels", "patches"] = "pixels"
    """A colour of a palette for each pixel (k-means), or a code for each patch (VQ-VAE)."""
    codes: Count = 512
    """Colours of the palette, or codes of the VQ-VAE."""
    patch: Count = 4
    """patches: their side, a power of two."""
    code_steps: Count = 3000
    """patches: steps that the VQ-VAE is trained before the decoder."""
    order: Literal["raster", "columns", "random"] = "raster"
    """In which tokens are written; random is one order for all pictures."""
    flip: bool = False
    """Mirror half of the pictures, left and right; pixels only."""
    rows: Count = 32
    """Pictures of a batch."""


@dataclass(frozen=True)
class SoundConfig(SizeConfig):
    """A Transformer over spectrograms, and the augmentation of what it reads."""

    seconds: Amount | None = None
    """Of a clip: longer ones are cut, shorter ones padded (what 19 of 20 have, at most 10)."""
    reads: Literal["frames", "patches"] = "frames"
    """A vector per 20 ms of Whisper's log-mel, by convolutions; or patches of Kaldi's, as AST."""
    transcripts: bool = False
    """Labels are texts, which are written letter by letter (frames, by CTC)."""
    mels: Count = 128
    """Mel channels."""
    patch: Count = 16
    """patches: their side, in channels and frames of 10 ms."""
    stride: Count = 10
    """patches: from one to the next."""
    drop_path: BelowOne = 0.0
    """Stochastic depth: how often the last block is skipped; earlier ones less, in proportion."""
    freeze: tuple[str, ...] = ()
    """Parameters that do not learn, by pattern, such as front or encoder."""
    shift: FromZero = 0.1
    """Seconds that a clip is moved by, at most."""
    stretch: BelowOne = 0.1
    """How much faster or slower it is made, at most, as a share."""
    pitch: Natural = 2
    """Mel channels that it is moved up or down by, at most."""
    mask_mels: Natural = 16
    """SpecAugment: mel channels that are hidden, at most."""
    mask_seconds: FromZero = 0.1
    """SpecAugment: how long everything is hidden, at most."""
    mixup: FromZero = 0.0
    """α of mixup: two clips and their labels are blended (0.5 is usual)."""
    rows: Count = 64
    """Clips of a batch."""
    cutmix, randaugment, body = 0.0, 0, "all"  # settings of others that sound does not have


@dataclass(frozen=True)
class NVAEConfig(ShapeConfig, NVIBConfig):
    """The size of an autoencoder of texts, and the bottleneck that they pass."""

    delta: Share = 0.25
    """Pseudo-counts of the prior for each vector (Δ): 1 keeps about all, 0 as few as it can."""
    latent: Latent = "nvib"
    """What texts pass: a mixture, a Gaussian for each vector, one for their mean, or nothing."""
    nvib_layers: Natural = 0
    """Upper encoder blocks whose self-attention has a bottleneck too."""
    noise: BelowOne = 0.0
    """Share of the tokens that training hides from the encoder."""


@dataclass(frozen=True)
class GraphShape(Config):
    """What is learnt of graphs, and the size of the model."""

    label: str | None = None
    """Column of the labels (label, labels, or the last one)."""
    attention: Literal["auto", "graphormer", "neighbours", "set"] = "auto"
    """Biases of degrees, paths and edges (usual for graphs); neighbours alone (for nodes); all."""
    dim: Count = 64
    """Width of the residual stream, and of the MLP (for nodes: 128, and of the MLP 16)."""
    depth: Count = 4
    """Blocks (for nodes: 2)."""
    heads: Count = 8
    """Attention heads."""
    rows: Count = 32
    """Graphs of a batch."""
    layer_rate, l2, weights, body = 1.0, 0.0, (), "all"  # of `tune`, which graphs do not have


def with_hidden(stack: StackConfig | None, hidden: int) -> StackConfig | None:
    """A stack with another width of its MLPs."""
    return stack and replace(stack, block=replace(stack.block, hidden=hidden))


READING_LORA = "reading the settings of LoRA"


@dataclass(frozen=True)
class LoRA(Config):
    """Low-rank adaptation (Hu 2021): W + scale · B A, of which only A and B are trained."""

    r: Count = 8
    """Rank: rows of A, columns of B."""
    alpha: Amount | None = None
    """The product is scaled by alpha / r (2r)."""
    targets: tuple[str, ...] = ("*.attn.q", "*.attn.v")
    """Names of linear maps, as patterns: `*.attn.{q,v}`, `decoder.*.mlp.*`."""
    dropout: BelowOne = 0.0
    """On what A reads, in training."""
    rslora: bool = False
    """Scale by alpha / √r, which keeps large ranks learning (Kalajdzievski 2023)."""
    dora: bool = False
    """Train the length of each row of W apart from its direction (DoRA, Liu 2024)."""

    def __post_init__(self) -> None:
        targets = (self.targets,) if isinstance(self.targets, str) else tuple(self.targets)
        object.__setattr__(self, "targets", targets)
        if not targets or not all(isinstance(target, str) and target for target in targets):
            expected = "names of linear maps, or patterns"
            raise UsageError(READING_LORA, f"targets = {targets!r}", expected)
        super().__post_init__()

    @property
    def scale(self) -> float:
        """What the product is multiplied by."""
        alpha = 2 * self.r if self.alpha is None else self.alpha
        return float(alpha / (self.r**0.5 if self.rslora else self.r))

    def __str__(self) -> str:
        """As `parse` reads it: what differs from the defaults, and the rank."""
        words = [f"r={self.r}"] + ([f"alpha={self.alpha:g}"] if self.alpha is not None else [])
        words += [f"dropout={self.dropout:g}"] if self.dropout else []
        words += [name for name in ("rslora", "dora") if getattr(self, name)]
        if self.targets != LoRA().targets:
            words.append("targets=" + ",".join(self.targets))
        return ",".join(words)

    @classmethod
    def parse(cls, text: str) -> LoRA:
        """`r=8,alpha=16,rslora,targets=*.attn.q,*.mlp.up` → its settings."""
        values: dict[str, Any] = {}
        names = [field.name for field in dataclasses.fields(cls)]
        for part in re.split(r",(?![^{]*\})", text):  # a comma inside of braces belongs to them
            name, equals, value = (word.strip() for word in part.partition("="))
            if not equals and "targets" in values and name not in names:
                values["targets"] += (name,)
                continue
            check_known(name, names, READING_LORA, f"{part!r} in {text!r}")
            kinds: dict[str, Any] = {"r": int, "targets": lambda word: (word,)}
            kinds["rslora"] = kinds["dora"] = {"": True, "true": True, "false": False}.__getitem__
            try:
                values[name] = kinds.get(name, float)(value)
            except (ValueError, KeyError):
                expected = "r=8,alpha=16,dropout=0.1,dora,targets=*.attn.q"
                raise UsageError(READING_LORA, f"{part!r} in {text!r}", expected) from None
        return cls(**values)
