"""Runs that learn the classes of pictures, and what their models say of pictures.

Whatever is a stack of planes (C, H, W) learns so: another modality is a kind of `PictureKind` with
its own reader (`find`, `read`), sizes, statistics (`describe`, `open`), shape (`build`) and
augmentation; its config has `rows`, `epochs` and `drop_path`. `speech/sound_classes.py` is one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.example_store import ExampleRows, ExampleStore, leave_out, open_examples
from regard.data.labelled_texts import sort_classes
from regard.data.order import Counts
from regard.data.windows import IGNORED
from regard.errors import DataError, UsageError, check_known
from regard.interop.side import parse
from regard.interop.weights import OWN
from regard.kit import Kit
from regard.loading import find_source, load_kit, wrong_network
from regard.model.batch import Batch
from regard.model.config import HeadConfig, ImageConfig, ModelConfig
from regard.model.fronts import resize_positions
from regard.model.model import Model, empty_model
from regard.model.presets import PRESETS, preset, vit
from regard.result import Failed
from regard.train.config import PictureConfig
from regard.train.data import RunData, RunKind, RunPlan
from regard.train.objectives import Compiling, Loss, compiled_once
from regard.train.results import RunSettings
from regard.train.settings import MUON, begin_with, decide_steps, make_config, put
from regard.tune.classification import split_examples
from regard.tune.config import HeadTuning
from regard.tune.prediction import Answer, Task, read_task, score_answers
from regard.verbs import group_texts
from regard.vision.augmentation import Augmentation, Preparation
from regard.vision.picture_files import find_pictures, read_pictures

USUAL = {"weight_decay": 0.05, "floor": 0.01, "smoothing": 0.1, "metric": "accuracy"}
PROCESSOR, POSITIONS = "preprocessor_config.json", "front.positions.weight"
FINE_TUNING = 1e-4  # learning rate of a model that knows something already


def example_loss(
    model: Model,
    batch: Batch,
    labels: Tensor,
    smoothing: float = 0.0,
    compiled: Compiling = "no",
    *_: Any,
    prepare: Preparation,
    extra: Mapping[str, Tensor] | None = None,
) -> Loss:
    """Cross-entropy of stored examples, augmented where the batch has dice; labels may be mixed."""
    if compiled != "no":
        run = compiled_once(example_loss, compiled)
        return Loss(*run(model, batch, labels, smoothing, prepare=prepare, extra=extra))
    x, share = prepare(batch.inputs, extra["dice"] if extra else None)
    scores = model(Batch(x)).float()  # (B, C)
    gold, parts = torch.cat((labels, labels.flip(0))), torch.cat((share, 1 - share))
    loss = partial(F.cross_entropy, scores.repeat(2, 1), gold, reduction="none")
    total, plain = ((parts * loss(label_smoothing=s)).sum() for s in (smoothing, 0.0))
    right = (scores.argmax(-1) == labels).sum()
    return Loss(total, plain.detach(), (labels != IGNORED).sum(), {"accuracy": right})


class PictureKind(RunKind):
    """Learns the classes of pictures."""

    name, unit = "image", "pictures"
    config: Any = PictureConfig
    fields: tuple[str, ...] = ("dim", "depth", "heads", "stem", "position", "pool", "patch", "grey")
    """What a model to begin with has already."""
    find: Any = staticmethod(find_pictures)
    read: Any = staticmethod(read_pictures)
    """Of files: (name, class, …) of examples; and (name, class, planes or why there are none)."""
    augmentation: Any = Augmentation
    defaults: dict[str, Any] = USUAL
    """Settings that differ from those of all runs."""
    presets = "vit"
    """How the names of its shapes begin."""
    group = 256
    """Examples that are answered at once."""

    def sizes(self, own: Any, front: Any, init: str | None = None) -> Any:
        """What `read` is told of the model's front, and of a model to begin with."""
        return front.channels, front.height, front.width

    def complete(self, settings: RunSettings) -> None:
        """Decide what the files, or a model to begin with, say of the sizes."""
        if settings.values["init"] is not None and settings.origins["size"] == "default":
            put(settings, "size", self.open(settings.values["init"])[1][1], "init")

    def build(self, own: Any, init: str | None, classes: int) -> tuple[Any, str | None]:
        """(shape of the model, architecture that it is saved as), new or as that of a folder."""
        if init is None:
            config: Any = vit(own.dim, own.depth, own.heads, own.patch, own.size)
            form = {"stem": own.stem, "position": own.position, "cls": own.pool == "class"}
            front = replace(config.front, channels=1 if own.grey else 3, **form)
            as_in_vit = [*form.values()] == ["patch", "learned", True]
            family = "ViTForImageClassification" if as_in_vit else None
        else:
            kit = self.open(init)[0]
            config, family = kit.model.config, kit.binding and kit.binding.architecture
            family = family and family.replace("Model", "ForImageClassification")
            front = replace(config.front, height=own.size, width=own.size)
        head = HeadConfig(classes, "first" if front.cls else "mean", bias=True)
        return replace(config, front=front, head=head), family

    def describe(self, sizes: Any, mean: Any, std: Any) -> dict[str, Any]:
        """What the file beside the weights says that the model reads, as transformers writes it."""
        said = {"image_mean": (mean / 255).tolist(), "image_std": (std / 255).tolist()}
        said |= {"size": {"height": sizes[1], "width": sizes[2]}}
        return said | {"image_processor_type": "ViTImageProcessor", "resample": 2}

    def open(self, model: Any) -> tuple[Any, Any, Preparation]:
        """(model, sizes that it reads, how stored examples are normalised) of a folder or a Kit."""
        kit = model if isinstance(model, Kit) else load_kit(model, precision=None)
        front, said = kit.model.config.front, parse(kit.files, PROCESSOR)
        if not isinstance(front, ImageConfig):
            raise wrong_network("reading pictures", kit, "a model that reads them")
        parts = [said.get(name, [0.5] * front.channels) for name in ("image_mean", "image_std")]
        mean, std = 255 * torch.tensor(parts, device=kit.device)[..., None, None]
        return kit, self.sizes(None, front), Preparation(mean, std)

    # Settings -----------------------------------------------------------------------------------

    def usual(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """Of classes, and the shape of a preset."""
        others = said.get("init") or said.get("shard") or said.get("optimizer") == "adamw"
        values = self.defaults | ({} if others else MUON)
        values |= {"lr": FINE_TUNING} if said.get("init") else {}
        if (name := said.get("preset")) is None:
            return values
        known = [name for name in PRESETS if name.startswith(self.presets)]
        check_known(name, known, "choosing a preset")
        config: Any = preset(name)
        front, block = config.front, config.last.block
        sizes = {"dim": block.dim, "heads": block.heads, "depth": config.last.depth}
        own = {"size": "height", "patch": "patch"} if front.kind == "image" else {"mels": "mels"}
        return values | sizes | {field: getattr(front, name) for field, name in own.items()}

    def decide(self, settings: RunSettings) -> None:
        """Steps from epochs; files and model must be there."""
        values = settings.values
        if values["init"] is not None:
            begin_with(settings, self.fields, self.config)
        self.complete(settings)
        own: Any = make_config(settings, self.config)
        empty_model(self.build(own, values["init"], 2)[0])  # what cannot be, before any work
        asked = "r_drop" if values["r_drop"] else values["metric"]
        check_known(asked, ("loss", "accuracy"), f"choosing what `train {self.name}` goes by")
        count = sum(1 for _ in self.find(values["files"]))
        count = count if values["valid"] else len(split_examples(count, values["holdout"], 0)[0])
        each = max(1, count // own.rows // values["accumulate"])  # steps of an epoch
        steps = max(1, round(each * own.epochs)) if own.epochs else max(10 * each, 300)
        decide_steps(settings, steps, max(each, steps // 20))

    # Data and model -----------------------------------------------------------------------------

    def store(self, plan: RunPlan, sizes: Sequence[int]) -> tuple[ExampleStore, Counts, Counts]:
        """(all examples, decoded; numbers of those to train and to validate on)"""
        parts = plan.files, plan.data.valid
        examples = [leave_out(self.read(files, sizes), plan.say) for files in parts]
        store = open_examples(plan.folder / "data/examples.store", examples, plan.progress)
        part = store.records["part"]
        kept, held = np.flatnonzero(part == 0), np.flatnonzero(part)
        if not plan.data.valid:
            kept, held = split_examples(len(kept), plan.data.holdout, plan.seed)
        return store, kept, held

    def prepare(self, plan: RunPlan) -> RunData:
        """Decode everything into stores, and name the classes."""
        own, init = plan.own, plan.data.init
        sizes = self.sizes(own, self.build(own, init, 2)[0].front, init)
        store, kept, held = self.store(plan, sizes)
        planes, part, label = (store.records[name] for name in ("planes", "part", "label"))
        names, labels = self.number(plan, store, np.unique(label[part == 0]))
        draw = self.augmentation(own).draw
        train = ExampleRows(planes, labels, kept, own.rows, plan.seed, draw)
        valid = ExampleRows(planes, labels, held, own.rows) if len(held) else None
        many: Any = {"train": f"{len(kept):,} {self.unit}", "valid": f"{len(held):,} {self.unit}"}
        identity = {"data": store.header["digest"][:12], "labels": names}
        known = names, np.array(store.header["mean"]), np.array(store.header["std"])
        return RunData(None, train, valid, identity, plan.hashes, many, known)

    def number(self, plan: RunPlan, store: ExampleStore, used: Counts) -> tuple[list[str], Counts]:
        """(names of the classes that are trained on, class of each example)."""
        names = sort_classes([store.header["names"][n] for n in used])
        if len(names) < 2:
            raise DataError("reading classes", f"one class only, {names[0]!r}", "2 or more")
        return names, store.number(names)

    def shape(self, plan: RunPlan, data: RunData) -> tuple[ModelConfig, str | None]:
        """With a head for the classes."""
        return self.build(plan.own, plan.data.init, len(data.held[0]))

    def make_kit(self, plan: RunPlan, data: RunData) -> Kit:
        """A new model, or one that begins with the weights of another, positions resized."""
        (names, mean, std), kit = data.held, Kit.fresh(*self.shape(plan, data), plan.seed)
        model: Any = kit.model
        config = model.config
        said = Task("tag" if config.head.take == "all" else "classify", names).describe()
        if plan.data.init is not None:
            base, _, prepare = self.open(plan.data.init)
            mean, std, old = prepare.mean.flatten(), prepare.std.flatten(), base.model.state_dict()
            if POSITIONS in old and isinstance(config.front, ImageConfig):
                grids = base.model.front.grid, model.front.grid
                old[POSITIONS] = resize_positions(old[POSITIONS], *grids)
            if base.config.get("id2label") != said["id2label"]:
                old = {name: x for name, x in old.items() if not name.startswith("head.")}
            model.load_state_dict(old, strict=False)
        reads = self.describe(self.sizes(plan.own, config.front, plan.data.init), mean, std)
        kit.files = {PROCESSOR: json.dumps(reads, indent=2).encode()}
        kit.config = kit.fresh_config() | said
        for number, block in enumerate(model.encoder.blocks):
            block.drop_path = plan.own.drop_path * number / max(1, config.last.depth - 1)
        return kit

    def job(self, plan: RunPlan, data: RunData, kit: Kit) -> dict[str, Any]:
        """Its loss."""
        prepare = replace(self.open(kit)[2], augmentation=self.augmentation(plan.own))
        return {"loss": partial(example_loss, prepare=prepare)}

    # Answers ------------------------------------------------------------------------------------

    def batch(self, kit: Kit, stored: Tensor) -> Batch:
        """What a model reads of stored examples (B, C, H, W)."""
        return Batch(self.open(kit)[2](stored.to(kit.device))[0].to(kit.dtype))

    def places(self, kit: Kit) -> tuple[tuple[int, int], Counts, int]:
        """(grid of patches, where on it each token lies, how many tokens come before those)."""
        front: Any = kit.model.front
        grid, config = front.grid, front.config
        return grid, np.arange(grid[0] * grid[1]), config.cls + config.distilled

    @torch.no_grad()
    def predict(self, kit: Kit, files: Sequence[str]) -> Iterator[Answer]:
        """What a model says of each example of files."""
        sizes, task = self.open(kit)[1], read_task(kit, f"reading {', '.join(files)}")
        for group in group_texts(self.read(files, sizes), self.group):
            stored = [planes for *_, planes in group if not isinstance(planes, Failed)]
            batch = stored and self.batch(kit, torch.from_numpy(np.stack(stored)))
            chances = iter(task.chances(kit.run_batch(batch).float().cpu()) if batch else ())
            for name, label, planes in group:
                failed = isinstance(planes, Failed)
                row = torch.empty(0) if failed else next(chances)
                yield row, [label], planes if failed else task.answer(name, row)

    def score(self, kit: Kit, files: Sequence[str]) -> Any:
        """How right a model is on files."""
        doing = f"evaluating on {', '.join(files)}"
        return score_answers(kit, doing, self.predict(kit, files))


def head_of_pictures(model: str, head: HeadTuning, lora: Any = None) -> PictureConfig | None:
    """Settings of `tune classify` as those of pictures; None for a model that reads no pictures."""
    source = find_source(model)
    said: dict[str, Any] = {} if source is None else source.config
    if "image_size" not in said and said.get(OWN, {}).get("front", {}).get("kind") != "image":
        return None
    if texts := {*(head.given - {"rows", "epochs"}), *["lora"] * (lora is not None)}:
        problem, fix = f"{min(texts)} with a model of pictures", "`regard train image --init`"
        raise UsageError("tuning for `classify`", problem, "rows or epochs", fix)
    return PictureConfig(**{name: getattr(head, name) for name in head.given})


IMAGE_RUN = PictureKind()
