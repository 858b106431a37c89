"""What is seen of a run: a live line on a terminal, plain lines otherwise, and the run's log."""

from __future__ import annotations

import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from regard.cli.show import INTERVAL, Show, human_bytes, human_time, is_fancy
from regard.errors import RegardError
from regard.train.config import TrainConfig

SMOOTH = 0.98  # share of the smoothed loss that a step keeps


class Watcher:
    """Tells a person, log.txt and TensorBoard how a run goes; of several processes the first."""

    def __init__(self, show: Show, folder: Path, config: TrainConfig, leads: bool = True) -> None:
        self.show, self.folder, self.config, self.leads = show, folder, config, leads
        self.smooth: float | None = None
        self.clock = self.shown = time.monotonic()
        self.step = 0
        self.pace: float | None = None
        self.reports = 0
        self.status: Any = None
        self.hooked: Any = None

    def say(self, text: str) -> None:
        """A message for the person and for the log."""
        self.log(text)
        if self.status is not None:
            self.status.console.print(text, markup=False, highlight=False)
        else:
            self.show.note(text)

    def log(self, text: str) -> None:
        """One line of log.txt, with the time."""
        if not self.leads:
            return
        with (self.folder / "log.txt").open("a", encoding="utf-8") as file:
            file.write(f"{datetime.now():%Y-%m-%d %H:%M:%S} {text}\n")

    def phase(self, text: str) -> None:
        """What is being done before the first step: reading, compiling."""
        self.tell(text, time.monotonic() - self.shown >= INTERVAL)

    def tell(self, text: str, due: bool) -> None:
        """Where a run is now: on the live line, or in a plain line where one is due."""
        if self.show.moving and is_fancy(sys.stderr):
            self.move(text)
        elif self.show.moving and due:
            print(text, file=sys.stderr, flush=True)
            self.shown = time.monotonic()

    def begin(self, step: int) -> None:
        """The first step is about to be taken."""
        self.step, self.clock = step, time.monotonic()
        text = "compiling and first batch" if self.config.compile else "first batch"
        self.log(f"{text}, from step {step}")
        if self.show.moving and (self.config.compile or is_fancy(sys.stderr)):
            self.move(text) if is_fancy(sys.stderr) else print(text, file=sys.stderr, flush=True)

    def report(self, line: dict[str, Any]) -> None:
        """One line of metrics, as the trainer gives it."""
        if self.hooked is not None:
            for name in ("loss", "nll", "lr", "norm", "tokens_per_s", "valid_nll"):
                if name in line:
                    self.hooked.add_scalar(name, line[name], line["step"])
        if "valid_nll" in line:
            text = f"step {line['step']}: validation {line['valid_nll']:.4f}"
            self.say(f"{text} over {line['valid_tokens']:,} tokens, best {line['best']:.4f}")
            self.clock = time.monotonic()  # validation is not a step
            return
        now, loss = time.monotonic(), line["loss"]
        taken = line["step"] - self.step
        kept = SMOOTH ** max(taken, 1)
        self.smooth = loss if self.smooth is None else kept * self.smooth + (1 - kept) * loss
        if taken > 0:
            pace = (now - self.clock) / taken
            # The first interval holds compiling and the first batch: it is soon forgotten.
            self.pace = pace if self.reports < 2 else 0.7 * (self.pace or pace) + 0.3 * pace
            self.reports += 1
        self.step, self.clock = line["step"], now
        text = self.line(line)
        self.log(text)
        self.tell(text, now - self.shown >= INTERVAL or line["step"] == self.config.steps)

    def line(self, line: dict[str, Any]) -> str:
        """Step, losses, speed, memory and times to come."""
        step, steps, every = line["step"], self.config.steps, self.config.save_every
        parts = [f"step {step}/{steps}", f"loss {line['loss']:.4f} ({self.smooth:.4f})"]
        parts.append(f"{line['tokens_per_s']:,.0f} tokens/s")
        parts.append(human_bytes(line.get("memory") or resident()))
        if self.pace is not None and self.reports > 1 and step < steps:
            left = human_time(self.pace * (steps - step))
            save = human_time(self.pace * (min(every - step % every, steps - step)))
            parts.append(f"end in {left}, checkpoint in {save}")
        return ", ".join(parts)

    def move(self, text: str) -> None:
        """Start or change the live line."""
        if self.status is None:
            from rich.console import Console

            self.status = Console(stderr=True).status("")
            self.status.start()
        from rich.text import Text

        self.status.update(Text(text))

    def stop(self) -> None:
        """Take the live line away."""
        if self.status is not None:
            self.status.stop()
            self.status = None
        if self.hooked is not None:
            self.hooked.close()

    def open_board(self) -> None:
        """Write for TensorBoard too."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            found, fix = "tensorboard is not installed", "pip install tensorboard"
            raise RegardError("opening TensorBoard", found, "the package", fix) from None
        self.hooked = SummaryWriter(str(self.folder / "tensorboard"))


def resident() -> int:
    """Most memory this process has held, in bytes."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return held if sys.platform == "darwin" else held * 1024
