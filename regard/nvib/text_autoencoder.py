"""Autoencoders of texts at work: taught by the loop, and texts through their latents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from regard.ambient import current, note, track
from regard.data.statistics import perplexity
from regard.data.text_files import Paths, read_lines
from regard.data.token_store import Store, pair_store
from regard.data.windows import IGNORED
from regard.decode.loop import search_kit
from regard.decode.sampling import SampleConfig
from regard.errors import DataError, UsageError
from regard.evaluate.bleu import bleu_chrf
from regard.evaluate.results import AutoencoderScores
from regard.history.ngram_model import NgramModel, encode_lines, joined
from regard.history.smoothing import train_ngrams
from regard.kit import Kit
from regard.loading import load_kit, open_kit
from regard.model.batch import Batch
from regard.model.config import ModelConfig
from regard.model.model import Memory
from regard.nvib.autoencoder import HOLDER, NOTED, Autoencoder, LatentConfig, as_autoencoder
from regard.nvib.config import NVIBConfig
from regard.nvib.denoising import attach
from regard.nvib.elbo import elbo
from regard.nvib.results import Reconstruction, SampledText, Step
from regard.tokens.tokenizer import Tokenizer
from regard.tokens.trainers import train_tokenizer
from regard.train.config import NVAEConfig
from regard.train.data import RunData, RunPlan
from regard.train.kinds import Seq2Seq, TextKind
from regard.train.objectives import token_logprobs
from regard.train.results import Run, RunSettings
from regard.train.settings import decide_text
from regard.verbs import ModelLike

ROWS = 64  # texts that are read and written at once
JUDGED = 256  # validation texts that the end of a run measures
LEAST = 0.01  # share of a token's nats that latents must tell
ORDER, VOCABULARY = 3, 2000  # of the n-grams that judge samples


# A run --------------------------------------------------------------------------------------------


class NVAEKind(Seq2Seq):
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
        return pair_store(path, files, tokenizer, plan.tell, same=True)

    def shape(self, plan: RunPlan, data: RunData) -> tuple[ModelConfig, str | None]:
        """Of an encoder-decoder; no family has a bottleneck."""
        return super().shape(plan, data)[0], None

    def make_kit(self, plan: RunPlan, data: RunData) -> Kit:
        """An encoder-decoder with bottlenecks where the settings want them."""
        kit, own = super().make_kit(plan, data), plan.own
        assert kit.model.encoder is not None
        config = NVIBConfig(**{each.name: getattr(own, each.name) for each in fields(NVIBConfig)})
        depth = len(kit.model.encoder.blocks)
        for number in range(max(depth - own.nvib_layers, 0), depth):
            attach(kit.model, f"encoder.blocks.{number}.attn", config)
        if own.latent in ("gaussian", "pooled"):
            config = replace(config, alpha_map="one", delta=1.0)
        if own.latent != "none":
            attach(kit.model, HOLDER, config)
        sizes = np.quantile(data.train.sizes[:, 0], np.linspace(0, 1, 101))  # type: ignore[attr-defined]
        latent = LatentConfig(own.latent, own.noise, [int(size) for size in sizes])
        as_autoencoder(kit.model, latent)
        kit.config[NOTED] = asdict(latent)
        return kit

    def job(self, plan: RunPlan, data: RunData, kit: Kit) -> dict[str, Any]:
        """What is minimised."""
        return {"loss": elbo}

    def conclude(self, plan: RunPlan, data: RunData, kit: Kit, run: Run) -> Run:
        """Say so where the decoder does not listen to the latents."""
        numbers = range(0, 2 * min(len(data.held), JUDGED), 2)
        texts = [data.tokenizer.decode(data.held[number].tolist()) for number in numbers]
        if plan.own.latent != "none" and measure_latents(load_kit(run.path), texts)["collapsed"]:
            note("warning: posterior collapse: texts are said without their latents; lower --kl-…")
        return run


NVAE_RUN = NVAEKind()


# Texts through latents ----------------------------------------------------------------------------


def open_autoencoder(model: ModelLike) -> tuple[Kit, Autoencoder]:
    """The folder `final` of a run, and what is in it."""
    kit = open_kit(model)
    if not isinstance(kit.model, Autoencoder):
        fix = "`regard train nvae` makes one"
        raise DataError(f"opening {kit.path or kit}", "a model without latents", "one", fix)
    return kit, kit.model


@torch.inference_mode()
def read_latents(kit: Kit, texts: Sequence[str]) -> tuple[Memory, Batch]:
    """The latents of texts, as the decoder looks at them."""
    batch = kit.batch(list(texts), list(texts))
    return kit.model.encode(batch), batch


def write_latents(
    kit: Kit, model: Autoencoder, memory: Memory, how: SampleConfig | None = None
) -> list[str]:
    """The texts that latents become, greedily or drawn."""
    batch, size = kit.batch([[0]] * len(memory.x)), model.latent.lengths[-1] + 10
    found = search_kit(kit, batch, size, how, memory=memory, strict=False)
    return [kit.text(row[0].tokens) for row in found]


def reconstruct(kit: Kit, model: Autoencoder, texts: Sequence[str]) -> Iterator[Reconstruction]:
    """Each text, said again from its own latents."""
    memory, batch = read_latents(kit, texts)
    real = batch.inputs.ne(-1) if batch.source_mask is None else batch.source_mask
    said, kept = write_latents(kit, model, memory), model.counts(memory)
    yield from map(Reconstruction, texts, said, kept, real.sum(-1).tolist())


def sample(kit: Kit, model: Autoencoder, count: int, temperature: float) -> list[SampledText]:
    """Texts of latents of the prior."""
    torch.manual_seed(current().seed)
    texts: list[SampledText] = []
    for start in track(range(0, count, ROWS), "drawing texts"):
        how = SampleConfig(temperature, seed=current().seed, first=start)
        with torch.inference_mode():
            memory = model.draw_memory(min(ROWS, count - start))
        said = write_latents(kit, model, memory, how)
        texts += map(SampledText, said, model.counts(memory))
    return texts


def interpolate(kit: Kit, model: Autoencoder, first: str, second: str, steps: int) -> list[Step]:
    """Texts on the way from one to another."""
    (start, _), (end, _) = (read_latents(kit, [text]) for text in (first, second))
    shares = np.linspace(0, 1, steps + 2).tolist()
    with torch.inference_mode():
        return [
            Step(share, *write_latents(kit, model, model.mix(start, end, share)))
            for share in shares
        ]


# How good they are --------------------------------------------------------------------------------


@torch.inference_mode()
def measure_latents(kit: Kit, texts: Sequence[str]) -> dict[str, Any]:
    """What the latents of texts are worth, by the names of `AutoencoderScores`.

    That is, nats of a token given the latents of its text and of another one, and divergences.
    """
    model: Any = kit.model
    nats, tokens = [0.0, 0.0], 0
    kl, rows = torch.zeros(2, dtype=torch.float64), 0
    if len(texts) < 2:
        raise DataError("measuring latents", f"{len(texts)} texts", "at least 2 to compare")
    for start in range(0, len(texts) - 1, ROWS):
        memory, batch = read_latents(kit, texts[start : start + ROWS])
        assert batch.target is not None
        labels = batch.target
        labels = labels if batch.mask is None else labels.masked_fill(~batch.mask, IGNORED)
        shown = Batch(F.pad(batch.target[:, :-1], (1, 0), value=kit.start), mask=batch.mask)
        for n in (0, 1):  # its own latents, those of the text before
            given = Memory(*(part if part is None else part.roll(n, 0) for part in memory))  # type: ignore[arg-type]
            nats[n] -= token_logprobs(model, model.decode(shown, given), labels).sum().item()
        tokens += int((labels != IGNORED).sum())
        rows += len(labels)
        if (held := model.bottleneck) is not None:
            kl += held.divergence(held.last).sum(0).cpu()
    own, other = (each / tokens for each in nats)
    worth = {"nats_per_token": own, "told": other - own, "collapsed": other - own < LEAST * other}
    return worth | dict(zip(("kl_vectors", "kl_weights"), (kl / rows).tolist(), strict=True))


def score_autoencoder(
    kit: Kit, model: Autoencoder, texts: Sequence[str], train: Paths | None, samples: int
) -> AutoencoderScores:
    """Texts said again, vectors kept, and with training texts, samples against texts."""
    worth, said = measure_latents(kit, texts), list[Reconstruction]()
    for start in track(range(0, len(texts), ROWS), "saying texts again"):
        said += reconstruct(kit, model, texts[start : start + ROWS])
    scores = AutoencoderScores(
        texts=len(texts),
        bleu=bleu_chrf([row.said for row in said], texts).bleu,
        exact=sum(row.said == row.text for row in said) / len(said),
        kept=sum(row.kept for row in said) / len(said),
        kept_share=sum(row.kept for row in said) / sum(row.of for row in said),
        **worth,
        histogram=dict(sorted(Counter(row.kept for row in said).items())),
    )
    if train is None:
        return scores
    drawn = [each.text or " " for each in sample(kit, model, samples, 1.0)]
    forward, reverse, most = judge_samples(drawn, texts, list(read_lines(train)))
    return replace(scores, forward=forward, reverse=reverse, reverse_of_texts=most)


def judge_samples(samples: list[str], test: Sequence[str], train: list[str]) -> list[float]:
    """Perplexities by n-grams: of samples by texts, of the test by samples, of it by texts."""
    roles = ["bos", "eos"]
    tokenizer = train_tokenizer(train, "bpe", VOCABULARY, specials=roles, wrap="bos-eos")
    pairs = (train, samples), (samples, test), (train[: len(samples)], test)
    judged = []
    for read, asked in pairs:
        ids, first = joined(encode_lines(tokenizer, read, True)), tokenizer.specials["bos"]
        tables = train_ngrams(ids, tokenizer.size, ORDER, "witten-bell", start=first)
        logs = np.concatenate([*NgramModel(tables, tokenizer).logprobs(asked)])
        judged.append(perplexity(-float(logs.mean())))
    return judged
