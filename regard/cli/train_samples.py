"""What the model says while it trains: greedy texts from a few beginnings, into samples/."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from regard.cli.train_data import Data
from regard.cli.train_flags import RunConfig
from regard.kit import Kit
from regard.model.batch import Batch
from regard.model.model import Model

COUNT, NEW, LEAD = 3, 48, 12  # samples, new tokens of each, tokens of a beginning


def make_sampler(
    kit: Kit, run: RunConfig, data: Data, length: int, folder: Path, log: Callable[[str], None]
) -> Callable[[int, Model], None]:
    """A function of the step and the model that writes samples/step-….txt."""
    prompts = list(run.prompts) or beginnings(run, data, length)

    def sample(step: int, model: Model) -> None:
        now = replace(kit, model=model)
        made = fill(now, prompts) if run.kind == "mlm" else go_on(now, prompts, length)
        lines = [f"{prompt!r} → {text!r}" for prompt, text in zip(prompts, made, strict=True)]
        folder.mkdir(exist_ok=True)
        (folder / f"step-{step:06d}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        for line in lines:
            log(f"sample at step {step}: {line}")

    return sample


def beginnings(run: RunConfig, data: Data, length: int) -> list[str]:
    """A few texts of the validation data: beginnings, whole sources, or lines."""
    store, decode = data.store, data.tokenizer.decode
    if run.kind == "lm":
        lead = max(1, min(LEAD, length // 4))
        starts = [n * max(store.tokens - lead, 0) // COUNT for n in range(COUNT)]
        found = [decode(store.read(start, start + lead).tolist()) for start in starts]
    else:
        numbers = range(min(len(store) * store.sides, 50 * store.sides))[:: store.sides]
        rows = [store[n].tolist() for n in numbers]
        fitting = [row for row in rows if len(row) < length - 1]
        found = [decode(row, side="source") for row in fitting[:COUNT]]
    return [text for text in found if text.strip()] or ["a"]


def go_on(kit: Kit, prompts: list[str], length: int) -> list[str]:
    """Greedy continuations, or translations; each alone, since lengths differ."""
    made = []
    for prompt in prompts:
        pair = kit.model.config.target is not None
        size = 0 if pair else len(kit.encode([prompt])[0][0])
        room = min(NEW, max(length - size, 1))
        text = kit.generate(prompt, room)
        made.append(str(text))
    return made


@torch.no_grad()
def fill(kit: Kit, prompts: list[str]) -> list[str]:
    """Each seventh token hidden and guessed."""
    made = []
    for prompt in prompts:
        ids = torch.tensor([kit.text_tokenizer.encode(prompt)], device=kit.device)
        hidden = torch.arange(ids.shape[1], device=ids.device) % 7 == 3
        shown = torch.where(hidden, kit.text_tokenizer.specials["mask"], ids)
        best = kit.model(Batch(shown)).argmax(-1)
        made.append(kit.text_tokenizer.decode(torch.where(hidden, best, ids)[0].tolist()))
    return made
