"""`regard train nvae`: a kind of run that learns to say texts again through a bottleneck."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from regard.ambient import note
from regard.data.text_files import find_files
from regard.data.token_store import Store, pair_store
from regard.errors import DataError
from regard.kit import Kit
from regard.model.config import ModelConfig
from regard.nvib.autoencoder import Autoencoder, LatentConfig, make_autoencoder
from regard.nvib.config import NVIBConfig
from regard.nvib.denoising import attach, bottlenecks
from regard.nvib.elbo import elbo
from regard.nvib.latent_texts import measure_latents
from regard.tokens.tokenizer import Tokenizer
from regard.train.config import NVAEConfig
from regard.train.data import RunData, RunPlan, Say
from regard.train.kinds import Seq2Seq, Tell, TextKind
from regard.train.results import Run, RunSettings
from regard.train.settings import begin_with

JUDGED = 256  # validation texts that the end of a run measures


class NVAE(Seq2Seq):
    """Says each text again, from latents."""

    name, form, rows = "nvae", "seq2seq", "texts"
    model = "the folder `final` of `regard train nvae`"
    config = NVAEConfig
    texts, leaks = TextKind.texts, TextKind.leaks  # of lines

    def decide(self, settings: RunSettings) -> None:
        """Whoever begins with a model takes its bottleneck too."""
        super().decide(settings)
        if settings.values["init"] is not None:
            begin_with(settings, [field.name for field in fields(NVAEConfig)], NVAEConfig)

    def store(
        self, plan: RunPlan, tokenizer: Tokenizer, path: Path, files: Sequence[str], tell: Tell
    ) -> Store:
        """Each line as a pair of itself."""
        return pair_store(path, [(file, file) for file in find_files(files)], tokenizer, tell)

    def shape(self, plan: RunPlan, data: RunData) -> tuple[ModelConfig, str | None]:
        """Of an encoder-decoder; no family has a bottleneck."""
        return super().shape(plan, data)[0], None

    def make_kit(self, plan: RunPlan, data: RunData, say: Say) -> Kit:
        """An encoder-decoder with bottlenecks where the settings want them."""
        kit, own = super().make_kit(plan, data, say), plan.own
        if plan.data.init is not None:
            if not isinstance(kit.model, Autoencoder):
                doing = f"beginning `train nvae` with {plan.data.init}"
                raise DataError(doing, "a model without latents", self.model)
            for part in bottlenecks(kit.model).values():
                part.batches.requires_grad_(False)
            return kit
        config = NVIBConfig(
            **{field.name: getattr(own, field.name) for field in fields(NVIBConfig)}
        )
        depth = len(kit.model.encoder.blocks)  # type: ignore[union-attr]
        for number in range(max(depth - own.nvib_layers, 0), depth):
            attach(kit.model, f"encoder.blocks.{number}.attn", config)
        if own.latent in ("gaussian", "pooled"):
            config = replace(config, alpha_map="one", delta=1.0)
        sizes = np.quantile(data.train.sizes[:, 0], np.linspace(0, 1, 101))  # type: ignore[attr-defined]
        lengths = tuple(int(size) for size in sizes)
        make_autoencoder(kit.model, LatentConfig(own.latent, own.noise, lengths), config)
        return kit

    def job(self, plan: RunPlan, data: RunData, kit: Kit) -> dict[str, Any]:
        """What is minimised."""
        return {"loss": elbo}

    def conclude(self, plan: RunPlan, data: RunData, kit: Kit, run: Run) -> Run:
        """Say so where the decoder does not listen to the latents."""
        held: Store = data.held
        numbers = range(0, 2 * min(len(held), JUDGED), 2)
        texts = [data.tokenizer.decode(held[number].tolist()) for number in numbers]
        if measure_latents(run.kit, texts).collapsed:
            note("warning: posterior collapse: texts are said without their latents; lower --kl-…")
        return run


NVAE_RUN = NVAE()
