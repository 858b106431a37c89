"""Runs that learn the classes of pictures, and what their models say of pictures.

Whatever is a stack of planes (C, H, W) learns so: another modality is a kind of `PictureKind` with
its own reader (`find`, `read`), shape (`settle`), statistics (`describe`) and augmentation.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.ambient import current, note
from regard.data.example_store import ExampleRows, ExampleStore, open_examples
from regard.data.labelled_texts import sort_classes
from regard.data.text_files import find_files
from regard.data.windows import IGNORED
from regard.errors import DataError, UsageError
from regard.evaluate.classification_scores import class_figures, score_classes
from regard.evaluate.results import ClassScores
from regard.files import file_hash
from regard.interop.families import bind
from regard.interop.side import parse
from regard.kit import Kit
from regard.loading import load_kit, wrong_network
from regard.model.batch import Batch
from regard.model.config import HeadConfig, ImageConfig, ModelConfig
from regard.model.fronts import resize_positions
from regard.model.model import Model, empty_model
from regard.model.presets import preset, vit
from regard.train.data import RunData, RunKind, RunPlan, Say
from regard.train.objectives import Compiling, Loss
from regard.train.results import RunSettings
from regard.train.settings import find_data, find_model, make_config, put
from regard.tune.classification import held_out
from regard.tune.prediction import read_task
from regard.tune.results import Prediction
from regard.verbs import group_texts
from regard.vision.augmentation import Augmentation, Preparation
from regard.vision.config import MOST_PIXELS, PictureConfig
from regard.vision.picture_files import (
    BILINEAR,
    MADE,
    Frame,
    decode_all,
    find_pictures,
    frame_picture,
)

USUAL = {"weight_decay": 0.05, "floor": 0.01, "smoothing": 0.1, "metric": "accuracy"}
FIXED = ("dim", "depth", "heads", "hidden", "stem", "position", "pool")
"""Settings that a model to begin with has already."""
PROCESSOR = "preprocessor_config.json"
GROUP = 256  # pictures that are read at once
Example = tuple[str, str, Any]
"""Name, class, and planes (C, H, W)."""


# The objective ------------------------------------------------------------------------------------


def soft_loss(
    model: Model,
    prepare: Preparation,
    stored: Tensor,
    labels: Tensor,
    smoothing: float,
    dice: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Cross-entropy of a batch whose labels may be mixed: (sum, sum without smoothing, count)."""
    x, share = prepare(stored, dice)
    logs = model(Batch(x)).float().log_softmax(-1)  # (B, C)
    real, known = labels != IGNORED, labels.clamp(min=0)
    plain = -logs.gather(1, known[:, None])[:, 0]
    if share is not None:
        other = -logs.gather(1, known.flip(0)[:, None])[:, 0]
        plain = share * plain + (1 - share) * other
    total = (1 - smoothing) * plain - smoothing * logs.mean(-1)
    return (total * real).sum(), (plain.detach() * real).sum(), real.sum()


@cache
def compiled_loss(how: Compiling) -> Any:
    """`soft_loss` with its augmentation as one graph."""
    return torch.compile(soft_loss, mode="reduce-overhead" if how == "recorded" else None)


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
    """Loss of stored examples; they are augmented where the batch has dice."""
    run = soft_loss if compiled == "no" else compiled_loss(compiled)
    dice = extra["dice"] if extra else None
    return Loss(*run(model, prepare, batch.inputs, labels, smoothing, dice))


# The kind -----------------------------------------------------------------------------------------


class PictureKind(RunKind):
    """Learns the classes of pictures."""

    name, unit, config = "image", "pictures", PictureConfig

    # What a modality does in its own way ------------------------------------------------------

    def find(self, files: Sequence[str]) -> Iterator[Any]:
        """The examples of files, not decoded."""
        return find_pictures(files)

    def read(self, own: Any, files: Sequence[str], say: Say) -> Iterator[Example]:
        """All examples that can be read."""
        return read_pictures(files, Frame(own.size, own.size, own.channels), say)

    def settle(self, settings: RunSettings) -> None:
        """Size, channels and patch from the first picture, or from the model to begin with."""
        values, sizes = settings.values, dict[str, Any]()
        if values["init"] is not None:
            front = open_classifier(values["init"])[0].model.config.front
            sizes = {"patch": front.patch, "channels": front.channels, "size": front.height}
        elif values["size"] is None or values["channels"] is None:
            _, image = next(decode_all(find_pictures(values["files"])), (None, None))
            if image is None:
                problem = f"no picture in {', '.join(values['files'])}"
                raise DataError("reading pictures", problem, "pictures in folders, one a class")
            sizes = {"channels": 1 if image.mode == "L" else 3}
            sizes["size"] = min(max(image.size), MOST_PIXELS)
        size = values["size"] or sizes["size"]
        patch = values["patch"] or sizes.get("patch") or max(4, 1 << round(np.log2(size / 14)))
        if values["size"] is None:
            sizes["size"] = -(-size // patch) * patch
        for name, value in (sizes | {"patch": patch, "crop": size // 8}).items():
            if values[name] is None:
                put(settings, name, value, "init" if values["init"] else "the first picture")

    def build(self, own: Any, classes: int) -> tuple[ModelConfig, str | None]:
        """(shape of a new model, architecture that it is saved as)."""
        config = vit(own.dim, own.depth, own.heads, own.patch, own.size, classes, own.hidden)
        token, held = own.pool == "class", own.stem == "patch" and own.position == "learned"
        parts: dict[str, Any] = {"stem": own.stem, "position": own.position, "cls": token}
        front = replace(config.front, channels=own.channels, **parts)
        head = replace(config.head, take="first" if token else "mean")
        family = "ViTForImageClassification" if token and held else None
        return replace(config, front=front, head=head), family

    def augmentation(self, own: Any) -> Augmentation:
        """What is done to the examples."""
        steps = own.crop, own.flip, own.randaugment, own.magnitude
        return Augmentation(*steps, own.erase, own.mixup, own.cutmix)

    def describe(self, own: Any, mean: list[float], std: list[float]) -> dict[str, bytes]:
        """The file that says what the model reads, as transformers writes it."""
        said = {"do_normalize": True, "do_rescale": True, "do_resize": True, "image_mean": mean}
        said |= {"image_processor_type": "ViTImageProcessor", "image_std": std}
        said |= {"resample": BILINEAR, "rescale_factor": 1 / 255}
        said |= {"size": {"height": own.size, "width": own.size}}
        return {PROCESSOR: json.dumps(said, indent=2).encode()}

    # Settings -----------------------------------------------------------------------------------

    def usual(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """Of classes, and the shape of a preset."""
        if said.get("preset") is None:
            return USUAL
        config = preset(said["preset"])
        front, block = config.front, config.last.block
        if not isinstance(front, ImageConfig):
            problem = f"{said['preset']}, which reads {front.kind}"
            raise UsageError("choosing a preset", problem, "one that reads pictures")
        shape = {"dim": block.dim, "depth": config.last.depth, "heads": block.heads}
        shape |= {"hidden": block.hidden, "size": front.height, "patch": front.patch}
        return USUAL | shape

    def decide(self, settings: RunSettings) -> None:
        """Sizes, and steps from epochs; files and model must be there."""
        values, origins, doing = settings.values, settings.origins, f"training `{self.name}`"
        find_data(settings, f"train {self.name}")
        if values["init"] is not None:
            find_model(values, "init")
            for name in FIXED:
                if values[name] != getattr(self.config(), name):
                    problem = f"{name} = {values[name]} with init"
                    raise UsageError(doing, problem, f"the {name} of {values['init']}")
        self.settle(settings)
        own: Any = make_config(settings, self.config)
        empty_model(self.build(own, 2)[0])  # a shape that cannot be, before any work
        for wrong, problem, expected in (
            (values["metric"] == "bleu", "metric = bleu", "loss, accuracy or macro_f1"),
            (values["r_drop"], "r_drop", "0: only text is read twice"),
            (own.channels not in (1, 3), f"channels = {own.channels}", "1 or 3"),
        ):
            if wrong:
                raise UsageError(doing, problem, expected)
        count = sum(1 for _ in self.find(values["files"]))
        if not values["valid"]:
            count -= len(held_out(count, values["holdout"], values["seed"]))
        each = max(1, count // own.rows // values["accumulate"])  # steps of an epoch
        steps = values["steps"] if origins["steps"] != "default" else round(each * own.epochs)
        often = {"steps": max(1, steps), "eval_every": max(each, steps // 20)}
        often |= {"save_every": max(each, steps // 10)}
        for name, value in often.items():
            if origins[name] == "default":
                put(settings, name, value, "epochs")
        if origins["warm_up"] == "default" and values["minutes"] is None:
            put(settings, "warm_up", round(0.1 * values["steps"]), "a tenth of the steps")

    # Data ---------------------------------------------------------------------------------------

    def prepare(self, plan: RunPlan, folder: Path, say: Say, progress: Say) -> RunData:
        """Decode everything into stores, and name the classes."""
        own, seed = plan.own, plan.seed
        hashes, stores = dict[str, str](), list[ExampleStore]()
        for name, files in (("train", plan.files), ("valid", plan.data.valid)):
            there = [file for file in files if not MADE.fullmatch(Path(file).name)]
            digests = {str(file): file_hash(file) for file in find_files(there)} if there else {}
            if again := set(hashes.values()) & set(digests.values()):
                say(f"warning: {len(again):,} files are validated on and trained on too")
            hashes |= digests
            if files:
                recipe = {"files": digests, "size": [own.size, own.channels], "named": files}
                rows = ((label, planes) for _, label, planes in self.read(own, files, say))
                plain = json.loads(json.dumps(recipe))
                stores.append(open_examples(folder / f"data/{name}.store", plain, rows, progress))
        whole, checked = stores[0], stores[-1]
        names = sort_classes(whole.names)
        if len(names) < 2:
            problem = f"one class only, {names[0]!r}"
            raise DataError(f"reading {', '.join(plan.files)}", problem, "2 classes or more")
        known = {name: number for number, name in enumerate(names)}
        if new := [name for name in checked.names if name not in known]:
            problem = f"the class {new[0]!r}"
            expected = f"one of the training classes: {', '.join(names[:20])}"
            raise DataError(f"reading {', '.join(plan.data.valid)}", problem, expected)
        held = np.arange(len(checked))
        kept = np.arange(len(whole))
        if not plan.data.valid:
            held = held_out(len(whole), plan.data.holdout, seed)
            kept = np.setdiff1d(kept, held)
            if len(held):
                say(f"held out for validation: {len(held):,} {self.unit}, drawn at random")

        def rows_of(store: ExampleStore, numbers: Any, *training: Any) -> ExampleRows:
            labels = np.array([known[name] for name in store.names])[store.labels]
            return ExampleRows(store.examples, labels, numbers, own.rows, *training)

        say(f"training on {len(kept):,} {self.unit}, {len(names):,} classes")
        scale = self.scale
        mean, std = (np.array(whole.header[part]) / scale for part in ("mean", "std"))
        return RunData(
            None,
            rows_of(whole, kept, seed, self.augmentation(own).draw),
            rows_of(checked, held) if len(held) else None,
            {"data": [store.header["digest"][:12] for store in stores], "labels": names},
            hashes,
            {"train": f"{len(kept):,} {self.unit}", "valid": f"{len(held):,} {self.unit}"},
            (names, mean.tolist(), std.tolist()),
        )

    # Model --------------------------------------------------------------------------------------

    scale = 255.0
    """What stored numbers are divided by."""

    def shape(self, plan: RunPlan, data: RunData) -> tuple[ModelConfig, str | None]:
        """As the settings say, or that of the model to begin with, with a head for the classes."""
        classes = len(data.held[0])
        if plan.data.init is None:
            return self.build(plan.own, classes)
        kit = open_classifier(plan.data.init)[0]
        size, front = plan.own.size, kit.model.config.front
        head = HeadConfig(classes, "first" if front.cls else "mean", bias=True)
        config = replace(kit.model.config, front=replace(front, height=size, width=size), head=head)
        named = kit.binding and kit.binding.architecture.removesuffix("Model")
        named = named if named is None or "For" in named else f"{named}ForImageClassification"
        return config, named

    def make_kit(self, plan: RunPlan, data: RunData, say: Say) -> Kit:
        """A new model, or one that begins with the weights of another, positions resized."""
        (names, mean, std), own = data.held, plan.own
        config, family = self.shape(plan, data)
        model = Model.fresh(config, plan.seed)
        if plan.data.init is not None:
            say(f"beginning with the weights of {plan.data.init}")
            base, _, prepare = open_classifier(plan.data.init)
            mean, std = prepare.mean.flatten().tolist(), prepare.std.flatten().tolist()
            old, known = dict(base.model.named_parameters()), base.config.get("id2label") or {}
            fronts: Any = base.model.front, model.front
            with torch.no_grad():
                for path, parameter in model.named_parameters():
                    if path.startswith("head.") and list(known.values()) != names:
                        continue
                    value = old[path]
                    if path == "front.positions.weight":
                        value = resize_positions(value, fronts[0].grid, fronts[1].grid)
                    parameter.copy_(value)
        kit = Kit(model, None, bind(family) if family else None)
        kit.files = self.describe(own, mean, std)
        kit.config = kit.fresh_config() | {"label2id": {name: n for n, name in enumerate(names)}}
        kit.config["id2label"] = {str(n): name for n, name in enumerate(names)}
        blocks: Any = model.stacks[0].blocks
        for number, block in enumerate(blocks):
            block.drop_path = own.drop_path * number / max(1, len(blocks) - 1)
        return kit

    def job(self, plan: RunPlan, data: RunData, kit: Kit) -> dict[str, Any]:
        """Its loss, and figures at validations."""
        prepare = preparation(kit, self.scale, self.augmentation(plan.own))
        score = {} if data.valid is None else {"score": partial(self.figures, data, prepare)}
        return {"loss": partial(example_loss, prepare=prepare), **score}

    @torch.no_grad()
    def figures(self, data: RunData, prepare: Preparation, model: Model) -> dict[str, float]:
        """Accuracy and macro F1 on the validation examples."""
        source, said, gold = data.valid, list[Tensor](), list[Tensor]()
        assert source is not None
        for index in range(source.count(0)):
            examples = source.batch(0, index)
            said.append(model(Batch(prepare(examples.inputs.to(model.device))[0])).argmax(-1).cpu())
            gold.append(examples.labels)
        right, told = (
            F.one_hot(torch.cat(part), len(data.held[0])).bool() for part in (gold, said)
        )
        scores = class_figures(right, told, False)
        return {name: scores[name] for name in ("accuracy", "macro_f1")}


IMAGE_RUN = PictureKind()


# Answers ------------------------------------------------------------------------------------------


def read_pictures(files: Sequence[str], frame: Frame, say: Say = note) -> Iterator[Example]:
    """(name, class, pixels) of all pictures of files that can be read."""
    for picture, image in decode_all(find_pictures(files), say):
        yield picture.name, picture.label, frame_picture(image, frame)


def preparation(kit: Kit, scale: float, *augmentation: Augmentation) -> Preparation:
    """How stored examples become what a model reads, by the file beside it; else as ViT's did."""
    said = parse(kit.files, PROCESSOR)
    usual = [0.5] * getattr(kit.model.config.front, "channels", 1)
    parts = (said.get(name) or usual for name in ("image_mean", "image_std"))
    mean, std = (torch.tensor(part, device=kit.device)[:, None, None] for part in parts)
    return Preparation(mean, std, scale, *augmentation)


def open_classifier(model: Any) -> tuple[Any, Frame, Preparation]:
    """A model that reads pictures, the pixels that it reads, and how they are normalised."""
    kit = model if isinstance(model, Kit) else load_kit(model, precision=None)
    front, said = kit.model.config.front, parse(kit.files, PROCESSOR)
    if not isinstance(front, ImageConfig):
        raise wrong_network("reading pictures", kit, "a model that reads them")
    size = said.get("size") if said.get("do_center_crop") else None
    if isinstance(size, dict):
        size = size.get("shortest_edge") or (size["height"], size["width"])
    frame = Frame(front.height, front.width, front.channels, said.get("resample", BILINEAR), size)
    return kit, frame, preparation(kit, PictureKind.scale)


@torch.no_grad()
def answer_examples(
    kit: Kit, examples: Iterable[Example], prepare: Preparation
) -> Iterator[tuple[str, str, Tensor]]:
    """(name, class as it is written, probabilities (C,)) of each example."""
    for group in group_texts(examples, GROUP):
        names, labels, planes = zip(*group, strict=True)
        x, _ = prepare(torch.from_numpy(np.stack(planes)).to(kit.device))
        chances = kit.run_batch(Batch(x.to(kit.dtype))).float().softmax(-1).cpu()
        yield from zip(names, labels, chances, strict=True)


def score_examples(kit: Kit, examples: Iterable[Example], prepare: Preparation) -> ClassScores:
    """How right a model is; on a class that it never saw it is always wrong."""
    task = read_task(kit, "evaluating classes")
    answers = list(answer_examples(kit, examples, prepare))
    labels = [label for _, label, _ in answers]
    new = sort_classes([label for label in labels if label not in task.names])
    if len(new) == len(set(labels)):
        problem = f"no class of its own among {', '.join(new[:10]) or 'none'}"
        raise DataError("evaluating classes", problem, f"some of {', '.join(task.names[:20])}")
    if new:
        note(f"{len(new):,} classes that the model does not know: {', '.join(new[:10])}")
    names = task.names + new
    gold = torch.tensor([names.index(label) for label in labels])
    chances = F.pad(torch.stack([part for *_, part in answers]), (0, len(new)))
    return score_classes(gold, chances, names, torch.arange(len(gold)), current().seed)


def score_pictures(model: Any, files: Sequence[str]) -> ClassScores:
    """How right a model is on pictures."""
    kit, frame, prepare = open_classifier(model)
    return score_examples(kit, read_pictures(files, frame), prepare)


def predict_pictures(model: Any, files: Sequence[str]) -> Iterator[Prediction]:
    """What a model says of each picture."""
    kit, frame, prepare = open_classifier(model)
    names = read_task(kit, "predicting classes").names
    for name, _, chances in answer_examples(kit, read_pictures(files, frame), prepare):
        best = int(chances.argmax())
        yield Prediction(name, names[best], float(chances[best]))
