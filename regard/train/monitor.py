"""What is seen of a run: progress on stderr and log.txt."""

from __future__ import annotations

import resource
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from regard.ambient import Progress, note
from regard.result import human_bytes, human_time
from regard.train.config import TrainConfig

VALID = ("valid_nll", "valid_tokens", "valid_bleu")
SMOOTH = 0.98  # share of the smoothed loss that a step keeps


class Monitor:
    """Tells a person and log.txt how a run goes; of several processes the first."""

    def __init__(self, folder: Path, config: TrainConfig, leads: bool, unit: str) -> None:
        self.folder, self.config, self.leads, self.unit = folder, config, leads, unit
        self.progress = Progress("training")
        self.smooth: float | None = None
        self.clock = time.monotonic()
        self.step = 0
        self.pace: float | None = None
        self.reports = 0

    def say(self, text: str) -> None:
        """A message for the person and for the log."""
        self.log(text)
        note(text)

    def log(self, text: str) -> None:
        """One line of log.txt, with the time."""
        if self.leads:
            with (self.folder / "log.txt").open("a", encoding="utf-8") as file:
                file.write(f"{datetime.now():%Y-%m-%d %H:%M:%S} {text}\n")

    def begin(self, step: int) -> None:
        """The first step is about to be taken."""
        self.step, self.clock = step, time.monotonic()
        text = "compiling and first batch" if self.config.compile else "first batch"
        self.log(f"{text}, from step {step}")
        self.progress(text)

    def report(self, line: dict[str, Any]) -> None:
        """One line of metrics, as the trainer gives it."""
        if "valid_nll" in line:
            text = f"step {line['step']}: validation {line['valid_nll']:.4f}"
            text += f" over {line['valid_tokens']:,} {self.unit}"
            text += f", BLEU {line['valid_bleu']:.2f}" if "valid_bleu" in line else ""
            others = [n for n in line if n.startswith("valid_") and n not in VALID]
            text += "".join(f", {n.removeprefix('valid_')} {line[n]:.4g}" for n in others)
            self.say(f"{text}, best {line['best']:.4f}")
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
        self.progress(text)

    def line(self, line: dict[str, Any]) -> str:
        """Step, losses, speed, memory and times to come."""
        step, steps, every = line["step"], self.config.steps, self.config.save_every
        budget = self.config.minutes
        parts = [
            f"step {step}" if budget else f"step {step}/{steps}",
            f"loss {line['loss']:.4f} ({self.smooth:.4f})",
        ]
        parts.append(f"{line['tokens_per_s']:,.0f} {self.unit}/s")
        parts.append(human_bytes(line.get("memory") or resident()))
        if kept := [line[name] for name in line if name.startswith("kept_share.")]:
            parts.append(f"{sum(kept) / len(kept):.0%} of vectors kept")
        if self.pace is not None and self.reports > 1 and step < steps:
            left = human_time(self.pace * (steps - step))
            left = f"{budget:g} min from the start, or {left}" if budget else left
            save = human_time(self.pace * (min(every - step % every, steps - step)))
            parts.append(f"end in {left}, checkpoint in {save}")
        return ", ".join(parts)

    def stop(self) -> None:
        """Take the live line away."""
        self.progress.stop()


def resident() -> int:
    """Most memory this process has held, in bytes."""
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return held if sys.platform == "darwin" else held * 1024
