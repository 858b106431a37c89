"""Texts through latents: said again, drawn from the prior, between two others, and how good."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import torch

from regard.ambient import current, track
from regard.data.text_files import Paths, read_lines
from regard.data.windows import IGNORED
from regard.decode.loop import search_kit
from regard.decode.sampling import SampleConfig
from regard.errors import DataError, UsageError
from regard.evaluate.bleu import bleu_chrf
from regard.evaluate.results import AutoencoderScores, KeptCount
from regard.history.ngram_model import NgramConfig, count_texts
from regard.interop.side import start_id
from regard.kit import Kit
from regard.model.batch import Batch
from regard.model.model import Memory
from regard.nvib import results
from regard.nvib.autoencoder import Autoencoder
from regard.tokens.trainers import train_tokenizer
from regard.train.objectives import token_logprobs

ROWS = 64  # texts that are read and written at once
LEAST = 0.01  # share of a token's nats that latents must tell
ORDER, VOCABULARY = 3, 2000  # of the n-grams that judge samples


def model_of(kit: Kit) -> Autoencoder:
    """The autoencoder of a kit; another model is refused."""
    if not isinstance(kit.model, Autoencoder):
        expected, fix = "an autoencoder", "`regard train nvae` makes one"
        raise UsageError(f"reading latents with {kit.path or kit}", "another model", expected, fix)
    return kit.model


@torch.inference_mode()
def read_latents(kit: Kit, texts: Sequence[str]) -> tuple[Memory, Batch]:
    """The latents of texts, as the decoder looks at them."""
    model, batch = model_of(kit), kit.batch(list(texts), list(texts))
    return model.encode(batch.inputs, batch.source_mask), batch


def counts(model: Autoencoder, memory: Memory) -> list[int]:
    """How many vectors each text keeps, without that of the prior."""
    assert memory.real is not None
    return (memory.real.sum(-1) - int(model.latent.latent == "nvib")).tolist()


def say(kit: Kit, memory: Memory, how: SampleConfig | None = None) -> list[str]:
    """The texts that latents become, greedily or drawn."""
    size = model_of(kit).latent.lengths[-1] + 10
    batch = kit.batch([[0]] * len(memory.x))
    found = search_kit(kit, batch, size, how, memory=memory, strict=False)
    return [kit.text(row[0].tokens) for row in found]


def say_again(kit: Kit, texts: Sequence[str]) -> Iterator[results.Said]:
    """Each text, from its own latents."""
    for start in range(0, len(texts), ROWS):
        some = texts[start : start + ROWS]
        memory, batch = read_latents(kit, some)
        ids = batch.inputs
        lengths = ids.ne(-1) if batch.source_mask is None else batch.source_mask
        rows = zip(
            some, say(kit, memory), counts(model_of(kit), memory), lengths.sum(-1), strict=True
        )
        yield from (results.Said(text, said, kept, int(of)) for text, said, kept, of in rows)


def draw_texts(kit: Kit, count: int, temperature: float) -> Iterator[results.Drawn]:
    """Texts from latents of the prior."""
    torch.manual_seed(current().seed)
    how = SampleConfig(temperature, seed=current().seed)
    model = model_of(kit)
    for start in track(range(0, count, ROWS), "drawing texts"):
        with torch.inference_mode():
            memory = model.draw_memory(min(ROWS, count - start))
        rows = zip(say(kit, memory, how), counts(model, memory), strict=True)
        yield from (results.Drawn(*row) for row in rows)


def walk(kit: Kit, first: str, second: str, steps: int) -> Iterator[results.Step]:
    """Texts from one to another."""
    (start, _), (end, _) = (read_latents(kit, [text]) for text in (first, second))
    for share in np.linspace(0, 1, steps + 2).tolist():
        with torch.inference_mode():
            memory = model_of(kit).mix(start, end, share)
        yield results.Step(share, say(kit, memory)[0])


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
    model, nats, tokens = model_of(kit), [0.0, 0.0], 0
    kl, rows = torch.zeros(2, dtype=torch.float64), 0
    if len(texts) < 2:
        raise DataError("measuring latents", f"{len(texts)} texts", "at least 2 to compare")
    for start in range(0, len(texts) - 1, ROWS):
        memory, batch = read_latents(kit, texts[start : start + ROWS])
        assert batch.target is not None
        real = torch.ones_like(batch.target) > 0 if batch.mask is None else batch.mask
        first = batch.target.new_full((len(real), 1), start_id(kit.files, kit.config))
        labels = batch.target.masked_fill(~real, IGNORED)
        shown = torch.cat([first, batch.target[:, :-1]], 1)
        assert memory.real is not None
        for n in (0, 1):  # its own latents, those of the text before
            given = Memory(memory.x.roll(n, 0), memory.real.roll(n, 0))
            hidden = model.decode(shown, given, batch.mask)
            nats[n] -= token_logprobs(model, hidden, labels).sum().item()
        tokens += int(real.sum())
        if (held := model.bottleneck) is not None and held.last is not None:
            kl, rows = kl + held.divergence(held.last).sum(0).cpu(), rows + len(real)
    vectors, weights = (kl / max(rows, 1)).tolist()
    return Told(nats[0] / tokens, nats[1] / tokens, (vectors, weights))


def score_autoencoder(
    kit: Kit, test: Paths, train: Paths | None, count: int, samples: int, temperature: float
) -> AutoencoderScores:
    """Texts said again, vectors kept, and samples against texts."""
    texts = [line for line in islice(read_lines(test), 100 * count) if line.strip()][:count]
    told = measure_latents(kit, texts)
    said = list(track(say_again(kit, texts), "saying texts again", len(texts)))
    kept = Counter(row.kept for row in said)
    forward = reverse = fair = None
    if train is not None:
        drawn = [row.text or " " for row in draw_texts(kit, samples, temperature)]
        forward, reverse, fair = judge_samples(drawn, texts, [*islice(read_lines(train), 10**6)])
    return AutoencoderScores(
        texts=len(texts),
        nats_per_token=told.nats,
        told=told.other - told.nats,
        collapsed=told.collapsed,
        bleu=bleu_chrf([row.said for row in said], texts).bleu,
        exact=sum(row.said == row.text for row in said) / len(said),
        kept=sum(row.kept for row in said) / len(said),
        kept_share=sum(row.kept for row in said) / sum(row.of for row in said),
        kl_vectors=told.kl[0],
        kl_weights=told.kl[1],
        forward=forward,
        reverse=reverse,
        reverse_of_texts=fair,
        histogram=[KeptCount(*pair) for pair in sorted(kept.items())],
    )


def judge_samples(
    samples: list[str], test: list[str], train: list[str]
) -> tuple[float, float, float]:
    """Perplexities of n-grams: of samples by texts, of the test by samples, of it by texts."""
    with TemporaryDirectory(prefix="regard-nvae-") as name:
        place = Path(name)
        learnt = train_tokenizer(train, "bpe", VOCABULARY, specials=["bos", "eos"], wrap="bos-eos")
        learnt.save(place / "tokens")
        parts = {"samples": samples, "test": test, "train": train, "few": train[: len(samples)]}
        for part, lines in parts.items():
            (place / part).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        how = NgramConfig(str(place / "tokens"), None, 1, True, ORDER, "witten-bell", 1.0)

        def perplexity(model: str, text: str) -> float:
            return count_texts([place / model], how)[0].measure(place / text).perplexity

        pairs = ("train", "samples"), ("samples", "test"), ("few", "test")
        forward, reverse, fair = (perplexity(*pair) for pair in pairs)
    return forward, reverse, fair
