"""Runs over pictures as tokens (ImageGPT, Chen 2020): the decoder of texts, over colours or codes.

A picture is a start token and its codes in one order, so that log-likelihoods, sampling and the
rest are those of texts. `preprocessor_config.json` says what the tokens are: `clusters`, a palette
between −1 and 1 as transformers has it, or codebook.safetensors, and the order where it is another.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors.torch import load, save
from torch import Tensor

from regard.ambient import note, track
from regard.data.example_store import ExampleRows, leave_out
from regard.data.token_store import Store, write_store
from regard.data.windows import Examples
from regard.decode.loop import run_search
from regard.decode.sampling import SampleConfig
from regard.errors import DataError, UsageError
from regard.evaluate.results import PixelScores
from regard.files import write_whole
from regard.interop.side import parse
from regard.kit import Kit
from regard.loading import load_kit, wrong_network
from regard.model.batch import Batch
from regard.model.config import HeadConfig, TextConfig
from regard.model.presets import gpt2
from regard.train.config import PixelConfig
from regard.train.data import RunData, RunPlan
from regard.train.results import RunSettings
from regard.train.settings import make_config, put
from regard.verbs import group_texts
from regard.vision.codebook import VQVAE, Palette, learn_codes, learn_palette
from regard.vision.picture_classes import PROCESSOR, PictureKind
from regard.vision.results import Drawing

FAMILY, BOOK = "ImageGPTForCausalImageModeling", "codebook.safetensors"
GROUP, SCORED = 1024, 32  # pictures that are encoded, and that are scored, at once


@dataclass(frozen=True)
class Coding:
    """How pictures become tokens and back."""

    book: Palette | VQVAE
    sizes: tuple[int, int, int]
    """Channels, height and width that are read."""
    order: Tensor
    """(T,): the place in raster order of each token."""

    @property
    def start(self) -> int:
        """The token that a picture begins with: the one after the last code."""
        return len(self.book.book.codes)

    @torch.no_grad()
    def encode(self, pixels: Tensor) -> Tensor:
        """(B, C, H, W) in 0 to 255 → tokens (B, T)."""
        return self.book.encode(pixels.to(self.book.book.codes.device))[:, self.order]

    @torch.no_grad()
    def decode(self, tokens: Tensor) -> Tensor:
        """Tokens (B, T) → (B, C, H, W) in 0 to 255."""
        raster = torch.empty_like(tokens)
        raster[:, self.order] = tokens
        return self.book.decode(raster, self.sizes[1])

    def shift(self, tokens: Tensor) -> Tensor:
        """What a model reads to predict tokens (B, T): the start, and all but the last."""
        return F.pad(tokens[:, :-1], (1, 0), value=self.start)


def make_order(name: str, side: int, seed: int) -> list[int]:
    """Places of a square grid in an order; random is the same for all pictures."""
    places = np.arange(side * side).reshape(side, side)
    if name == "random":
        places = np.random.default_rng(seed).permutation(places.ravel())
    return (places.T if name == "columns" else places).ravel().tolist()


@dataclass(frozen=True)
class CodeRows(ExampleRows):
    """Batches of stored codes (N, T) in raster order: each token predicts the next."""

    coding: Any = None

    def batch(self, epoch: int, index: int) -> Examples:
        """Inputs and labels (B, T); mirrored where the dice say so."""
        examples, coding = super().batch(epoch, index), self.coding
        codes = examples.inputs.long()
        if (dice := examples.extra.get("dice")) is not None:
            mirrored = codes.unflatten(1, (coding.sizes[1], -1)).flip(2).flatten(1)
            codes = torch.where(dice < 0.5, mirrored, codes)
        codes = codes[:, coding.order.cpu()]
        return Examples(coding.shift(codes), codes, codes.numel())


class PixelKind(PictureKind):
    """Learns pictures, token by token."""

    name, unit = "pixels", "tokens"
    config = PixelConfig
    fields = ("dim", "depth", "heads", "tokens_of", "codes", "patch", "order", "grey")
    defaults = {"weight_decay": 0.1, "floor": 0.01}

    def build(self, own: Any, init: str | None, classes: int) -> tuple[Any, str | None]:
        """(shape of the model, architecture that it is saved as)."""
        if init is not None:
            return self.open(init)[0].model.config, FAMILY
        patch, least = (1, 1) if own.tokens_of == "pixels" else (own.patch, 2)
        if own.size % patch or patch & (patch - 1) or patch < least:
            problem = f"{own.size} × {own.size} pixels, patches of {patch}"
            expected = f"a power of two from {least} up that divides the size"
            raise UsageError("cutting pictures", problem, expected)
        config = gpt2(own.dim, own.depth, own.heads, own.codes + 1, (own.size // patch) ** 2)
        block = replace(config.last.block, norm="rms", act="gelu_sigmoid")
        stack = replace(config.last, block=block)
        return replace(config, head=HeadConfig(own.codes), decoder=stack), FAMILY

    def decide(self, settings: RunSettings) -> None:
        """A window is a picture."""
        super().decide(settings)
        own: Any = make_config(settings, PixelConfig)
        patches = own.tokens_of == "patches"
        if init := settings.values["init"]:
            _, sizes, coding = self.open(init)
            patches = coding.book.patch > 1
            if own.size != sizes[1]:
                problem = f"size = {own.size} with init"
                raise UsageError("choosing a size", problem, f"{sizes[1]}, which it draws")
        if own.flip and patches:
            expected = "pixels: a patch's code says nothing of its mirror image"
            raise UsageError("mirroring pictures", "flip with patches", expected)
        length = self.build(own, settings.values["init"], 2)[0].front.length
        put(settings, "length", length, "size")
        put(settings, "batch_tokens", length * own.rows, "rows")

    def open(self, model: Any) -> tuple[Kit, tuple[int, int, int], Any]:
        """(model, sizes that it reads, its coding) of a folder or a Kit."""
        kit = model if isinstance(model, Kit) else load_kit(model, precision=None)
        front = kit.model.config.front
        if not isinstance(front, TextConfig) or not has_codes(kit):
            expected = "a model of pictures as tokens: `regard train pixels` makes one"
            raise wrong_network("reading pictures as tokens", kit, expected)
        coding = read_coding(kit.files, front.length or 0, str(kit.device))
        if coding.start != (scored := kit.model.config.head.size):
            fault, expected = f"{coding.start} codes", f"{scored}, as many as the model scores"
            raise DataError("reading codes of pictures", fault, expected)
        return kit, coding.sizes, coding

    def learn(self, plan: RunPlan, path: Path, planes: Any, kept: Any) -> dict[str, bytes]:
        """The files that say what the tokens are: a palette as transformers has it, or a VQ-VAE."""
        own, plain = plan.own, plan.own.tokens_of == "pixels"
        if not path.exists():
            plan.progress("learning codes")
            some = planes[kept], own, plan.seed
            new = learn_palette(*some) if plain else learn_codes(*some, plan.device, plan.progress)
            write_whole(path, save({name: x.cpu() for name, x in new.state_dict().items()}))
        said: dict[str, Any] = {"size": {"height": own.size, "width": own.size}}
        said |= {"image_processor_type": "ImageGPTImageProcessor", "do_color_quantize": True}
        side, book = own.size // (1 if plain else own.patch), path.read_bytes()
        if own.order != "raster":
            said["order"] = make_order(own.order, side, plan.seed)
        if plain:
            said["clusters"] = (load(book)["book.codes"].double() / 127.5 - 1).tolist()
        else:
            said |= {"patch": own.patch, "channels": 1 if own.grey else 3}
        return {PROCESSOR: json.dumps(said).encode()} | ({} if plain else {BOOK: book})

    def prepare(self, plan: RunPlan) -> RunData:
        """Decode pictures, learn what their tokens are, and write those into a store."""
        own, init, path = plan.own, plan.data.init, plan.folder / "data/codes.store"
        sizes = self.open(init)[1] if init else (1 if own.grey else 3, own.size, own.size)
        store, kept, held = self.store(plan, sizes)
        planes, book = store.records["planes"], path.with_name(BOOK)
        files = self.open(init)[0].files if init else self.learn(plan, book, planes, kept)
        coding = read_coding(files, plan.train.length)
        if not path.exists():
            coder = read_coding(files, plan.train.length, plan.device).book.encode
            groups = (planes[n : n + GROUP].copy() for n in range(0, len(planes), GROUP))
            with torch.no_grad():
                parts = (coder(torch.from_numpy(part).to(plan.device)) for part in groups)
                rows = ((part.tolist(), False) for part in parts)
                write_store(path, coding.start, {}, rows, plan.progress)
        codes: NDArray[Any] = Store(path).stream.reshape(-1, plan.train.length)
        draw, blank = draw_mirrors if own.flip else None, np.zeros(len(codes), np.int64)
        train = CodeRows(codes, blank, kept, own.rows, plan.seed, draw, coding)
        valid = CodeRows(codes, blank, held, own.rows, coding=coding) if len(held) else None
        many: Any = {"train": f"{len(kept):,} pictures", "valid": f"{len(held):,} pictures"}
        identity = {"data": store.header["digest"][:12]}
        return RunData(None, train, valid, identity, plan.hashes, many, ((), files))

    def make_kit(self, plan: RunPlan, data: RunData) -> Kit:
        """A new model, which finds all codes equally likely at first; or the one to begin with."""
        if plan.data.init is not None:
            return self.open(plan.data.init)[0]
        kit = Kit.fresh(*self.shape(plan, data), plan.seed)
        kit.config, kit.files = kit.fresh_config(), data.held[1]
        torch.nn.init.zeros_(kit.model.head.out.weight)  # type: ignore[union-attr]
        return kit

    def job(self, plan: RunPlan, data: RunData, kit: Kit) -> dict[str, Any]:
        """The loss of a language model."""
        return {}

    # Answers ------------------------------------------------------------------------------------

    def batch(self, kit: Kit, stored: Tensor) -> Batch:
        """What a model reads of pictures: the start, and all tokens but the last."""
        coding = self.open(kit)[2]
        return Batch(coding.shift(coding.encode(stored)))

    def places(self, kit: Kit) -> tuple[tuple[int, int], Any, int]:
        """The start token comes before those of the picture."""
        order = self.open(kit)[2].order.cpu().numpy()
        side = math.isqrt(len(order))
        return (side, side), order[:-1], 1

    def read_tokens(self, kit: Kit, files: Sequence[str]) -> Iterator[tuple[Tensor, Tensor]]:
        """Pictures (B, C, H, W) of files and their tokens (B, T), some at a time."""
        _, sizes, coding = self.open(kit)
        for group in group_texts(leave_out(self.read(files, sizes), note), SCORED):
            pixels = torch.from_numpy(np.stack([planes for *_, planes in group])).to(kit.device)
            yield pixels, coding.encode(pixels)

    @torch.no_grad()
    def score_tokens(self, kit: Kit, files: Sequence[str]) -> PixelScores:
        """How likely pictures are, beside counts of their own tokens and of neighbours."""
        _, sizes, coding = self.open(kit)
        count, nats, error, seen = coding.start, 0.0, 0.0, 0
        single, pair = torch.zeros(count), torch.zeros(count * count)
        for pixels, tokens in track(self.read_tokens(kit, files), "scoring pictures"):
            logits = kit.run_batch(Batch(coding.shift(tokens))).float()
            nats += float(F.cross_entropy(logits.mT, tokens, reduction="none").double().sum())
            error += float((coding.decode(tokens) - pixels).double().square().mean((1, 2, 3)).sum())
            after = (tokens[:, :-1] * count + tokens[:, 1:]).flatten().cpu()
            single += torch.bincount(tokens.flatten().cpu(), minlength=count)
            pair += torch.bincount(after, minlength=count**2)
            seen += len(tokens)
        if not seen:
            raise DataError(f"evaluating on {', '.join(files)}", "no pictures", "one or more")
        total, bits = seen * len(coding.order), nats / math.log(2) / (seen * math.prod(sizes))
        bigram = entropy(pair) - entropy(pair.view(count, count).sum(1))
        psnr, used = 10 * math.log10(255**2 * seen / max(error, 1e-9)), int((single > 0).sum())
        figures = nats / total, bits, entropy(single), bigram, psnr
        return PixelScores(*figures, used, count, total, seen)

    def draw(
        self, kit: Kit, files: Sequence[str], count: int, keep: float, how: SampleConfig
    ) -> Drawing:
        """New pictures, or pictures of files of which a first part is kept."""
        coding = self.open(kit)[2]
        length, begun, whole = len(coding.order), torch.empty(count, 0).long(), list[Tensor]()
        if files:
            groups = [tokens for _, tokens in self.read_tokens(kit, files)]
            whole = [torch.cat(groups or [begun])[:count].cpu()]
            begun = whole[0][:, : round(keep * length)]
            if not groups:
                raise DataError(f"reading {', '.join(files)}", "no pictures", "one or more")
        batch = kit.batch(F.pad(begun, (1, 0), value=coding.start))
        # The last token is written, not read: one more than there are positions.
        rows = run_search(kit.model, batch, length - begun.shape[1], how, driver=kit.driver)
        new = torch.tensor([row[0].tokens for row in rows]).view(len(begun), -1)
        pictures = [coding.decode(x.to(kit.device)) for x in (torch.cat((begun, new), 1), *whole)]
        planes = torch.stack(pictures, 1).round().to(torch.uint8)  # (N, columns, C, H, W)
        names, nats = ("drawn", "as it was")[: len(pictures)], [-row[0].logprob for row in rows]
        return Drawing(names, nats, planes.movedim(2, -1).cpu().numpy())


def entropy(counts: Tensor) -> float:
    """Nats of a distribution by its counts."""
    return float(torch.special.entr(counts.double() / counts.sum()).sum())


def draw_mirrors(dice: np.random.Generator, rows: int) -> NDArray[np.float32]:
    """A number in [0, 1) for each row (B, 1)."""
    return dice.random((rows, 1), np.float32)


def has_codes(kit: Kit) -> bool:
    """Whether a model reads pictures as tokens."""
    return BOOK in kit.files or "clusters" in parse(kit.files, PROCESSOR)


def read_coding(files: dict[str, bytes], length: int, device: str = "cpu") -> Coding:
    """What the tokens of a model's pictures are, by its side files."""
    said: dict[str, Any] = parse(files, PROCESSOR)
    book: Palette | VQVAE
    try:
        if BOOK in files:
            held = load(files[BOOK])
            book = VQVAE(said["channels"], said["patch"], len(held["book.codes"]))
            book.load_state_dict(held)
        else:
            book = Palette(torch.from_numpy((np.array(said["clusters"]) + 1) * 127.5).float())
        channels = said.get("channels") or book.book.codes.shape[1]
        order = torch.tensor(said.get("order") or range(length), device=device)
        if sorted(order.tolist()) != list(range(length)):
            raise ValueError(f"an order of other places than 0 to {length - 1}")
    except Exception as error:  # safetensors, torch and missing keys have no class in common
        fault = (str(error) or repr(error)).splitlines()[0]
        raise DataError("reading codes of pictures", fault, f"a whole {PROCESSOR}") from None
    size = math.isqrt(length) * book.patch
    return Coding(book.to(device).eval(), (channels, size, size), order)


PIXEL_RUN = PixelKind()
