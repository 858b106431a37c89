"""Teach a variational autoencoder of texts (NVAE), and look at its latents.

    python examples/text_autoencoder.py train TEXTS --out RUN [--dim 128 --delta 0.5 …]
    python examples/text_autoencoder.py evaluate RUN/final TEST [--train TEXTS]
    python examples/text_autoencoder.py reconstruct RUN/final "I like cats."
    python examples/text_autoencoder.py sample RUN/final --count 10
    python examples/text_autoencoder.py interpolate RUN/final "I like cats." "You saw a dog."

TEXTS and TEST have a text on each line. Between encoder and decoder stands a bottleneck of
`regard.nvib`: a mixture of Gaussians, one for each vector of the text, which training draws from
and pays for (Henderson and Fehr 2023). `--latent gaussian` and `pooled` are the usual VAEs, with a
Gaussian for each vector or one for their mean; `none` is a plain autoencoder, of which
`--nvib-layers 3` puts bottlenecks before the self-attention of the three upper encoder blocks.

You will see, while it trains, texts said again; at the end, whether the decoder listens to the
latents at all (else the posterior has collapsed). `evaluate` says how well texts are said again,
from how many vectors, what latents are worth, and with `--train` how good samples are.

It is also an example of a kind of run with a loss of its own: `NVAE` says how data is read, how the
model is made and what is minimised, and the training loop of the package does the rest.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

import regard
from regard.ambient import current, note, track
from regard.core.attention import Attention, View
from regard.data.text_files import read_lines
from regard.data.token_store import Store, pair_store
from regard.data.windows import IGNORED
from regard.decode.loop import search_kit
from regard.decode.sampling import SampleConfig
from regard.errors import DataError, RegardError, UsageError
from regard.evaluate.bleu import bleu_chrf
from regard.history.ngram_model import NgramConfig, count_texts
from regard.interop.side import start_id
from regard.kit import Kit
from regard.model import fronts
from regard.model.batch import Batch
from regard.model.config import ModelConfig
from regard.model.model import Memory, Model
from regard.nvib.bottleneck import Bottleneck, Mixture, Reading, draw, read_mean
from regard.nvib.config import NVIBConfig
from regard.nvib.denoising import Denoising, attach, bottlenecks
from regard.nvib.elbo import elbo
from regard.tokens.tokenizer import Tokenizer
from regard.tokens.trainers import train_tokenizer
from regard.train.config import BelowOne, DataConfig, Natural, ShapeConfig, TrainConfig
from regard.train.data import RunData, RunPlan
from regard.train.kinds import Seq2Seq, TextKind
from regard.train.objectives import token_logprobs
from regard.train.results import Run, RunSettings
from regard.train.runs import train_files
from regard.train.settings import decide_text

NOTED = "latent"  # the key of config.json
HOLDER = "decoder.blocks.0.cross"  # the attention that has the bottleneck, which all of them read
ROWS = 64  # texts that are read and written at once
JUDGED = 256  # validation texts that the end of a run measures
LEAST = 0.01  # share of a token's nats that latents must tell
ORDER, VOCABULARY = 3, 2000  # of the n-grams that judge samples


# The model ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LatentConfig:
    """What stands between encoder and decoder."""

    latent: Literal["nvib", "gaussian", "pooled", "none"] = "nvib"
    noise: float = 0.0
    """Share of the tokens that training hides from the encoder."""
    lengths: tuple[int, ...] = (8,)
    """How many tokens texts have: quantiles, for texts that are drawn from the prior."""


class Reader(Denoising):
    """Cross-attention over a memory that is a packed mixture."""

    def read(self, source: Tensor, ctx: View) -> Reading:
        """The inverse of `pack`."""
        dim = self.k.in_features
        vectors, *share, bias = source.split([dim] * ((source.shape[-1] - 1) // dim) + [1], -1)
        return Reading(vectors, bias[..., 0], share[0] if share else None)


def pack(reading: Reading) -> Memory:
    """A mixture as one tensor (B, N, D + 1 or 2 D + 1); its bias says what is padding."""
    parts = [reading.vectors, *([] if reading.share is None else [reading.share])]
    return Memory(torch.cat([*parts, reading.bias[..., None]], -1))


class Autoencoder(Model):
    """An encoder-decoder whose memory passes a bottleneck."""

    latent: LatentConfig

    @property
    def bottleneck(self) -> Bottleneck | None:
        """What every cross-attention reads through."""
        return bottlenecks(self).get(HOLDER)

    @property
    def noise(self) -> float:
        """The variance that cross-attention believes its queries to have."""
        return 1 / self.get_submodule(HOLDER).scale

    def encode(self, batch: Batch) -> Memory:
        """Texts → memory; in training some tokens are deleted first."""
        source = batch.source
        if self.training and self.latent.noise:
            kept = torch.rand(source.inputs.shape, device=source.inputs.device) >= self.latent.noise
            kept[:, 0] = True
            source = replace(source, mask=kept if source.mask is None else source.mask & kept)
        return super().encode(source)

    def read(self, source: fronts.Sequence) -> Memory:
        """Run the encoder on what its front made, and the bottleneck on what that made."""
        memory, held = super().read(source), self.bottleneck
        x, real = memory.x, memory.real
        real = x.new_ones(x.shape[:2], dtype=torch.bool) if real is None else real
        if held is None:  # the bottleneck of the last layer, if any, says what is left
            parts = list(bottlenecks(self).values())
            if parts and not self.training:
                real = parts[-1].last.kept(parts[-1].config.threshold)[:, 1:]
            return Memory(x, real)
        if self.latent.latent == "pooled":
            x = x.masked_fill(~real[..., None], 0.0).sum(1, True) / real.sum(1)[:, None, None]
            real = real[:, :1]
        mixture = held(x, real)
        if self.latent.latent == "nvib":
            return pack(held.read(mixture, self.noise))
        z = mixture.mean
        if self.training:
            z = z + (mixture.log_variance / 2).exp() * torch.randn_like(z)
        return Memory(z[:, 1:], mixture.real[:, 1:])

    def counts(self, memory: Memory) -> list[int]:
        """How many vectors each text keeps, without that of the prior."""
        kept = memory.x[:, 1:, -1].isfinite() if memory.real is None else memory.real
        return kept.sum(-1).tolist()

    def draw_memory(self, count: int) -> Memory:
        """Latents from the prior, for texts of usual lengths."""
        held, kind = self.bottleneck, self.latent.latent
        if held is None:
            doing, fix = "drawing from the prior", "train one with another --latent"
            raise UsageError(doing, "a model without latents", "an NVAE or VAE", fix)
        lengths = torch.tensor([1] if kind == "pooled" else self.latent.lengths, device=self.device)
        lengths = lengths[torch.randint(len(lengths), (count,), device=self.device)]
        mixture = draw_prior(lengths, held.mean.in_features, held.config.delta)
        if kind == "nvib":
            return pack(read_mean(mixture, self.noise))
        return Memory(mixture.mean[:, 1:], mixture.real[:, 1:])

    def mix(self, first: Memory, second: Memory, share: float) -> Memory:
        """Latents of two texts (1, N, D) in one; of mixtures all components, by `share`."""
        if self.latent.latent == "nvib":
            parts = [memory.x.clone() for memory in (first, second)]
            for part, weight in zip(parts, (1 - share, share), strict=True):
                part[..., -1] += torch.tensor(weight).log()
            return Memory(torch.cat(parts, 1))
        sizes = first.x.shape[1], second.x.shape[1]
        size, common = round((1 - share) * sizes[0] + share * sizes[1]), min(sizes)
        x = torch.lerp(first.x[:, :common], second.x[:, :common], share)
        longer = first if sizes[0] > sizes[1] else second
        return Memory(torch.cat([x, longer.x[:, common:]], 1)[:, : max(size, 1)])


def draw_prior(lengths: Tensor, dim: int, delta: float) -> Mixture:
    """Mixtures of points from the prior for texts of these lengths (B,): their α are weights."""
    rows, count = len(lengths), int(lengths.max()) + 1
    real = torch.arange(count, device=lengths.device) <= lengths[:, None]
    z = torch.randn(rows, count, dim, device=lengths.device)
    alpha = ((1 + delta * lengths) / (lengths + 1)).log()[:, None].expand(rows, count)
    none = torch.full_like(z, -torch.inf)
    z, weights = draw(Mixture(z, none, alpha, real))
    return Mixture(z, none, weights, real)


def make_autoencoder(model: Model, latent: LatentConfig, config: NVIBConfig) -> Autoencoder:
    """Put the bottleneck on an encoder-decoder, in place."""
    if latent.latent != "none":
        attach(model, HOLDER, config)
    return as_autoencoder(model, latent)


def as_autoencoder(model: Model, latent: LatentConfig) -> Autoencoder:
    """An encoder-decoder that has the bottleneck already, such as an opened one, in place."""
    if not all((model.encoder, model.decoder, model.config.target)):
        raise UsageError("making an autoencoder", "a model of another kind", "an encoder-decoder")
    model.__class__, model.latent = Autoencoder, latent
    for block in model.decoder.blocks:
        block.cross.__class__ = Reader if latent.latent == "nvib" else Attention
    return model


def load(path: str | Path) -> Kit:
    """The folder `final` of a run; `regard.load` puts bottlenecks on, config.json says the rest."""
    kit = regard.load(path)
    if NOTED not in kit.config:
        fix = "`text_autoencoder.py train` makes one"
        raise DataError(f"opening {path}", "a model without latents", "an autoencoder", fix)
    noted = kit.config[NOTED]
    as_autoencoder(kit.model, LatentConfig(**noted | {"lengths": tuple(noted["lengths"])}))
    return kit


# The run ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NVAEConfig(ShapeConfig, NVIBConfig):
    """The size of an autoencoder, and the bottleneck that its texts pass."""

    latent: Literal["nvib", "gaussian", "pooled", "none"] = "nvib"
    """What is between encoder and decoder: a mixture, a Gaussian for each vector or one in all."""
    nvib_layers: Natural = 0
    """Upper encoder blocks whose self-attention has a bottleneck too."""
    noise: BelowOne = 0.0
    """Share of the tokens that training hides from the encoder."""


class NVAE(Seq2Seq):
    """Says each text again, from latents."""

    name, rows = "nvae", "texts"
    config = NVAEConfig
    texts, leaks = TextKind.texts, TextKind.leaks  # of lines

    def usual(self, said: Any) -> dict[str, Any]:
        """Training settings that differ from the defaults."""
        return {"beta2": 0.98, "weight_decay": 0.0, "length": 64}

    def decide(self, settings: RunSettings) -> None:
        """As of pairs."""
        if settings.values["init"] is not None or settings.values["encoder"] is not None:
            raise UsageError("training an autoencoder", "a model to begin with", "a new one")
        decide_text(settings, "seq2seq")

    def store(self, plan: RunPlan, tokenizer: Tokenizer, path: Path, files: Sequence[str]) -> Store:
        """Each line as a pair of itself."""
        pairs = path.with_name(f"{path.name}.tsv")
        pairs.parent.mkdir(parents=True, exist_ok=True)
        with pairs.open("w", encoding="utf-8") as file:
            lines = (" ".join(line.split("\t")) for line in read_lines(files))
            file.writelines(f"{line}\t{line}\n" for line in lines)
        return pair_store(path, [pairs], tokenizer, plan.tell)

    def shape(self, plan: RunPlan, data: RunData) -> tuple[ModelConfig, str | None]:
        """Of an encoder-decoder; no family has a bottleneck."""
        return super().shape(plan, data)[0], None

    def make_kit(self, plan: RunPlan, data: RunData) -> Kit:
        """An encoder-decoder with bottlenecks where the settings want them."""
        kit, own = super().make_kit(plan, data), plan.own
        names = [field.name for field in fields(NVIBConfig)]
        config = NVIBConfig(**{name: getattr(own, name) for name in names})
        depth = len(kit.model.encoder.blocks)
        for number in range(max(depth - own.nvib_layers, 0), depth):
            attach(kit.model, f"encoder.blocks.{number}.attn", config)
        if own.latent in ("gaussian", "pooled"):
            config = replace(config, alpha_map="one", delta=1.0)
        sizes = np.quantile(data.train.sizes[:, 0], np.linspace(0, 1, 101))
        latent = LatentConfig(own.latent, own.noise, tuple(map(int, sizes)))
        make_autoencoder(kit.model, latent, config)
        kit.config[NOTED] = asdict(latent)
        return kit

    def job(self, plan: RunPlan, data: RunData, kit: Kit) -> dict[str, Any]:
        """What is minimised."""
        return {"loss": elbo}

    def conclude(self, plan: RunPlan, data: RunData, kit: Kit, run: Run) -> Run:
        """Say so where the decoder does not listen to the latents."""
        numbers = range(0, 2 * min(len(data.held), JUDGED), 2)
        texts = [data.tokenizer.decode(data.held[number].tolist()) for number in numbers]
        if plan.own.latent != "none" and measure_latents(load(run.path), texts).collapsed:
            note("warning: posterior collapse: texts are said without their latents; lower --kl-…")
        return run


def train(
    files: Any,
    out: str | Path | None = None,
    config: TrainConfig | None = None,
    shape: NVAEConfig | None = None,
    data: DataConfig | None = None,
    **how: Any,
) -> Run:
    """Train an autoencoder; `resume` and `toml` are as in `regard.train.seq2seq`."""
    configs = config or TrainConfig(), shape or NVAEConfig(), data or DataConfig()
    return train_files(NVAE(), files, configs=configs, out=out, **how)


# Texts through latents ----------------------------------------------------------------------------


class Said(NamedTuple):
    """A text, what was made of it, the vectors that it was said from, and how many there were."""

    text: str
    said: str
    kept: int
    of: int


@torch.inference_mode()
def read_latents(kit: Kit, texts: Sequence[str]) -> tuple[Memory, Batch]:
    """The latents of texts, as the decoder looks at them."""
    batch = kit.batch(list(texts), list(texts))
    return kit.model.encode(batch), batch


def say(kit: Kit, memory: Memory, how: SampleConfig | None = None) -> list[str]:
    """The texts that latents become, greedily or drawn."""
    size = kit.model.latent.lengths[-1] + 10
    batch = kit.batch([[0]] * len(memory.x))
    found = search_kit(kit, batch, size, how, memory=memory, strict=False)
    return [kit.text(row[0].tokens) for row in found]


def reconstruct(kit: Kit, texts: Sequence[str]) -> Iterator[Said]:
    """Each text, said again from its own latents."""
    for start in range(0, len(texts), ROWS):
        some = texts[start : start + ROWS]
        memory, batch = read_latents(kit, some)
        real = batch.inputs.ne(-1) if batch.source_mask is None else batch.source_mask
        of = real.sum(-1).tolist()
        rows = zip(some, say(kit, memory), kit.model.counts(memory), of, strict=True)
        yield from (Said(*row) for row in rows)


def sample(kit: Kit, count: int, temperature: float = 1.0) -> Iterator[tuple[str, int]]:
    """(text, vectors) of latents of the prior."""
    torch.manual_seed(current().seed)
    how = SampleConfig(temperature, seed=current().seed)
    for start in track(range(0, count, ROWS), "drawing texts"):
        with torch.inference_mode():
            memory = kit.model.draw_memory(min(ROWS, count - start))
        yield from zip(say(kit, memory, how), kit.model.counts(memory), strict=True)


def interpolate(kit: Kit, first: str, second: str, steps: int) -> Iterator[tuple[float, str]]:
    """(share of the second, text), from one text to another."""
    (start, _), (end, _) = (read_latents(kit, [text]) for text in (first, second))
    for share in np.linspace(0, 1, steps + 2).tolist():
        with torch.inference_mode():
            memory = kit.model.mix(start, end, share)
        yield share, say(kit, memory)[0]


# How good they are --------------------------------------------------------------------------------


class Told(NamedTuple):
    """What the latents of texts are worth."""

    nats: float
    """Of a token, given the latents of its text."""
    other: float
    """Of a token, given those of another text."""
    kl: tuple[float, float]
    """Of the vectors, of their weights."""

    @property
    def collapsed(self) -> bool:
        """Whether the decoder says as much without them."""
        return self.other - self.nats < LEAST * self.other


@torch.inference_mode()
def measure_latents(kit: Kit, texts: Sequence[str]) -> Told:
    """Nats of a token given the latents of its text and of another one, and divergences."""
    model, nats, tokens = kit.model, [0.0, 0.0], 0
    kl, rows = torch.zeros(2, dtype=torch.float64), 0
    if len(texts) < 2:
        raise DataError("measuring latents", f"{len(texts)} texts", "at least 2 to compare")
    for start in range(0, len(texts) - 1, ROWS):
        memory, batch = read_latents(kit, texts[start : start + ROWS])
        real = torch.ones_like(batch.target) > 0 if batch.mask is None else batch.mask
        first = batch.target.new_full((len(real), 1), start_id(kit.files, kit.config))
        labels = batch.target.masked_fill(~real, IGNORED)
        shown = torch.cat([first, batch.target[:, :-1]], 1)
        for n in (0, 1):  # its own latents, those of the text before
            given = Memory(*(None if part is None else part.roll(n, 0) for part in memory))
            hidden = model.decode(Batch(shown, mask=batch.mask), given)
            nats[n] -= token_logprobs(model, hidden, labels).sum().item()
        tokens += int(real.sum())
        if (held := model.bottleneck) is not None:
            kl, rows = kl + held.divergence(held.last).sum(0).cpu(), rows + len(real)
    vectors, weights = (kl / max(rows, 1)).tolist()
    return Told(nats[0] / tokens, nats[1] / tokens, (vectors, weights))


@dataclass(frozen=True)
class Scores:
    """An autoencoder on texts."""

    texts: int
    nats_per_token: float
    """Mean negative log-likelihood of a token, given the latents of its text."""
    told: float
    """How many more nats a token takes, given the latents of another text."""
    collapsed: bool
    """Whether that is less than a hundredth of them: the latents are not listened to."""
    bleu: float
    """Of texts said again."""
    exact: float
    """Share of them that are said again without a mistake."""
    kept: float
    """Vectors that a text keeps, on average."""
    kept_share: float
    kl_vectors: float
    """Divergence of the vectors of a text from the prior, in nats (a mean over their numbers)."""
    kl_weights: float
    """Divergence of their weights."""
    histogram: dict[int, int]
    """How many texts keep so many vectors."""
    forward: float | None = None
    """Perplexity of its samples, by n-grams of the training texts."""
    reverse: float | None = None
    """Perplexity of the test texts, by n-grams of its samples."""
    reverse_of_texts: float | None = None
    """The same by n-grams of as many training texts: what samples can hope for."""


def evaluate(
    kit: Kit, test: Any, train: Any = None, count: int = 500, samples: int = 1000
) -> Scores:
    """Texts said again, vectors kept, and with training texts, samples against texts."""
    texts = [line for line in islice(read_lines(test), 100 * count) if line.strip()][:count]
    told = measure_latents(kit, texts)
    said = list(track(reconstruct(kit, texts), "saying texts again", len(texts)))
    judged = []
    if train is not None:
        drawn = [text or " " for text, _ in sample(kit, samples)]
        judged = judge_samples(drawn, texts, [*islice(read_lines(train), 10**6)])
    return Scores(
        len(texts),
        told.nats,
        told.other - told.nats,
        told.collapsed,
        bleu_chrf([row.said for row in said], texts).bleu,
        sum(row.said == row.text for row in said) / len(said),
        sum(row.kept for row in said) / len(said),
        sum(row.kept for row in said) / sum(row.of for row in said),
        *told.kl,
        dict(sorted(Counter(row.kept for row in said).items())),
        *judged,
    )


def judge_samples(samples: list[str], test: list[str], train: list[str]) -> list[float]:
    """Perplexities of n-grams: of samples by texts, of the test by samples, of it by texts."""
    with TemporaryDirectory(prefix="text-autoencoder-") as name:
        place = Path(name)
        learnt = train_tokenizer(train, "bpe", VOCABULARY, specials=["bos", "eos"], wrap="bos-eos")
        learnt.save(place / "tokens")
        parts = {"samples": samples, "test": test, "train": train, "few": train[: len(samples)]}
        for part, lines in parts.items():
            (place / part).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        how = NgramConfig(str(place / "tokens"), None, 1, True, ORDER, "witten-bell", 1.0)
        pairs = ("train", "samples"), ("samples", "test"), ("few", "test")
        return [
            count_texts([place / model], how)[0].measure(place / text).perplexity
            for model, text in pairs
        ]


# The command line ---------------------------------------------------------------------------------

SETTINGS: dict[type, dict[str, Any]] = {
    TrainConfig: {"steps": int, "lr": float, "batch_tokens": int, "length": int, "dropout": float}
    | {"eval_every": int, "save_every": int, "log_every": int, "keep": int, "precision": str},
    NVAEConfig: {"dim": int, "depth": int, "heads": int, "latent": str, "delta": float}
    | {"kappa": int, "kl_gaussian": float, "kl_dirichlet": float, "anneal": int}
    | {"threshold": float, "alpha_map": str, "nvib_layers": int, "noise": float},
    DataConfig: {"tokens": str, "vocab": int, "valid": str},
}
"""Flags of `train`; a TOML file may say any setting."""


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    verbs = parser.add_subparsers(dest="verb", required=True)
    part = verbs.add_parser("train", help="train an autoencoder")
    part.add_argument("files", nargs="*")
    for name in ("--out", "--resume", "--toml"):
        part.add_argument(name)
    for settings in SETTINGS.values():
        for name, kind in settings.items():
            part.add_argument(f"--{name.replace('_', '-')}", type=kind, default=argparse.SUPPRESS)
    part = verbs.add_parser("evaluate", help="how good texts and samples are")
    part.add_argument("model")
    part.add_argument("test")
    part.add_argument("--train")
    part.add_argument("--count", type=int, default=500)
    part.add_argument("--samples", type=int, default=1000)
    part = verbs.add_parser("reconstruct", help="say texts again")
    part.add_argument("model")
    part.add_argument("texts", nargs="+")
    part = verbs.add_parser("sample", help="say what the prior becomes")
    part.add_argument("model")
    part.add_argument("--count", type=int, default=10)
    part.add_argument("--temperature", type=float, default=1.0)
    part = verbs.add_parser("interpolate", help="go from one text to another")
    part.add_argument("model")
    part.add_argument("first")
    part.add_argument("second")
    part.add_argument("--steps", type=int, default=5)
    return parser.parse_args(words)


def answer(args: argparse.Namespace) -> Iterator[str]:
    """The lines that a command prints."""
    if args.verb == "train":
        given = [
            kind(**{name: getattr(args, name) for name in settings if name in args})
            for kind, settings in SETTINGS.items()
        ]
        run = train(args.files, args.out, *given, resume=args.resume, toml=args.toml)
        yield f"{run.final}: {run.path}"
        return
    kit = load(args.model)
    if args.verb == "evaluate":
        scores = evaluate(kit, args.test, args.train, args.count, args.samples)
        for name, value in asdict(scores).items():
            if value is not None:
                yield f"{name}: {value:.4f}" if isinstance(value, float) else f"{name}: {value}"
    elif args.verb == "reconstruct":
        for row in reconstruct(kit, args.texts):
            yield f"{row.said}  ({row.kept} of {row.of} vectors)"
    elif args.verb == "sample":
        for text, vectors in sample(kit, args.count, args.temperature):
            yield f"{text}  ({vectors} vectors)"
    else:
        for share, text in interpolate(kit, args.first, args.second, args.steps):
            yield f"{share:.2f}  {text}"


def main(words: Sequence[str] | None = None) -> int:
    """Do what the command line says."""
    args = parse(words)
    try:
        with regard.settings(device=args.device, seed=args.seed):
            for line in answer(args):
                print(line)
    except RegardError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
