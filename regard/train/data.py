"""A kind of run, a run that is decided upon, and what it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from regard.ambient import note
from regard.data.text_files import find_files
from regard.data.token_store import Say, silent
from regard.data.windows import Source
from regard.files import file_hash
from regard.model.config import ModelConfig
from regard.model.model import Model
from regard.train.config import Config, DataConfig, TrainConfig
from regard.train.distributed import World
from regard.train.results import Run, RunSettings

if TYPE_CHECKING:
    from regard.kit import Kit


class RunKind(Protocol):
    """A kind of run: how it reads its data, makes its model, and what it minimises and measures.

    `train_files` (runs.py) does the rest for all of them: settings with their origins, the folder,
    exact resuming, dry runs, several processes, `final` and the receipt.
    """

    name: str
    room: str = "train"
    """`regard ROOM NAME` is the command of a run."""
    config: type[Config]
    """The settings that only runs of this kind have: `plan.own`."""
    fixed: Mapping[str, Any] = {}
    """Settings that the name of the kind says already."""
    unit: str = "tokens"
    """What its labels are of, in words."""
    beside: tuple[str, ...] = ()
    """Patterns of weights that are trained beside an adapter: those that the base does not have."""

    def usual(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """Settings that differ from the defaults, given those that are said already."""
        return {}

    def decide(self, settings: RunSettings) -> None:
        """Decide what was left open, in place, and check all of it together, before any work."""

    def prepare(self, plan: RunPlan) -> RunData:
        """Read the data into the folder; what is there already is used again."""

    def shape(self, plan: RunPlan, data: RunData) -> tuple[ModelConfig, str | None]:
        """(shape of the model, architecture that it is saved as), for a dry run."""

    def make_kit(self, plan: RunPlan, data: RunData) -> Kit:
        """The model to be trained, with `requires_grad` False where it is frozen, on the CPU."""

    def job(self, plan: RunPlan, data: RunData, kit: Kit) -> dict[str, Any]:
        """Further fields of the TrainJob, such as `loss` and `score`."""
        return {}

    def samples(self, plan: RunPlan, data: RunData, kit: Kit, model: Model) -> list[str]:
        """Lines that show what the model says by now; written at each validation."""
        return []

    def save(self, kit: Kit, model: Model, folder: Path) -> None:
        """Write a checkpoint or `final`: a folder that `regard.load` opens."""
        replace(kit, model=model).save(folder)

    def restore(self, model: Model, folder: Path) -> Model:
        """The model of a checkpoint with what `save` wrote beside it."""
        return model

    def conclude(self, plan: RunPlan, data: RunData, kit: Kit, run: Run) -> Run:
        """The result of a run that is over, with what is measured at its end."""
        return run


@dataclass(frozen=True)
class RunPlan:
    """A run that is decided upon."""

    settings: RunSettings
    kind: RunKind
    files: tuple[str, ...]
    seed: int
    data: DataConfig
    own: Any
    """The settings of the kind, of its class `config`."""
    train: TrainConfig
    folder: Path
    device: str
    world: World = World()
    say: Say = note
    """Messages for the person and the log."""
    progress: Say = silent
    """How far the work is."""

    @property
    def tell(self) -> tuple[Say, Say]:
        """Both, as stores are told."""
        return self.say, self.progress

    @property
    def hashes(self) -> dict[str, str]:
        """SHA-256 of each file; data that regard ships is none."""
        there = [path for path in (*self.files, *self.data.valid) if Path(path).exists()]
        return {str(file): file_hash(file) for file in find_files(there)}


@dataclass(frozen=True)
class RunData:
    """What a run reads."""

    tokenizer: Any
    """A Tokenizer; None where the data is no text."""
    train: Source
    valid: Source | None
    identity: dict[str, Any]
    """What a resumed run must share beside its files: the tokenizer, the labels."""
    hashes: dict[str, str]
    """SHA-256 of each file."""
    sizes: dict[str, str | None]
    """How much there is to train and to validate on, in words."""
    held: Any = None
    """What else the kind wants to find again."""

    @property
    def about(self) -> str:
        """How much there is, in words."""
        classes = len(self.identity.get("labels", ()))
        many = f"{self.sizes['train']}"
        many += f", {self.tokenizer.size:,} ids" if self.tokenizer else ""
        many += f", {classes:,} classes" if classes > 1 else ""
        return f"{many}; validating on {self.sizes['valid'] or 'nothing'}"
