"""`regard demo`: something to see in a minute, on any machine and without data of one's own."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import cast

from regard.ambient import current, note
from regard.files import check_new
from regard.result import Grid, Result, Row, shown
from regard.verbs import Count, verb

KNOWN, ASKED = 6000, 200  # pairs that are read, and others to be answered


class DateAnswer(Row):
    """One date that was not in the data."""

    date: str
    answer: str
    right: bool


class DateDemo(Result):
    """A Transformer of {parameters:,} weights learnt to write dates in {seconds:.0f} s."""

    pairs: int = shown(title="pairs it read")
    parameters: int = shown(table=False)
    steps: int = shown()
    seconds: float = shown(table=False)
    right: int = shown(title="unseen dates right")
    asked: int = shown(title="of")
    answers: list[DateAnswer] = shown()
    folder: str = shown()
    next: list[str] = shown(table=False)
    """Commands to go on with."""

    def parts(self) -> Iterator[str | Grid]:
        """The fields, and what to try next."""
        yield from super().parts()
        yield "\n".join(["try next:", *(f"  {line}" for line in self.next)])


def make_dates(count: int, seed: int) -> list[tuple[str, str]]:
    """Pairs such as ("Sunday 3 May 1998", "1998-05-03"), no day twice."""
    dice, first = random.Random(seed), date(1900, 1, 1).toordinal()
    pairs = []
    for number in dice.sample(range(first, date(2050, 1, 1).toordinal()), count):
        day = date.fromordinal(number)
        forms = ("{0:%A} {0.day} {0:%B %Y}", "{0.day} {0:%B %Y}", "{0:%B} {0.day}, {0:%Y}")
        form = dice.choice(forms)
        pairs.append((form.format(day), day.isoformat()))
    return pairs


@verb
def demo(*, steps: Count = 600, out: str | Path = "regard-demo") -> DateDemo:
    """Train a Transformer that reads dates, in half a minute.

    It says how many unseen dates are right, and what to try next.

    Args:
        steps: of training.
        out: the folder it writes, new or empty.

    Example:
        >>> regard.demo(steps=2, out="demo").asked
        200
        $ regard demo
        $ regard demo --out dates
        $ regard demo --seed 3 --json
    """
    from regard.train import seq2seq
    from regard.train.config import DataConfig, ShapeConfig, TrainConfig
    from regard.train.results import Run

    out = Path(out)
    check_new(out, "running the demonstration")
    pairs = make_dates(KNOWN + ASKED, current().seed)
    known, asked = pairs[:KNOWN], pairs[KNOWN:]
    out.mkdir(parents=True, exist_ok=True)
    file = out / "dates.tsv"
    file.write_text("".join(f"{source}\t{target}\n" for source, target in known))
    note(f"training a Transformer on {KNOWN:,} dates such as {known[0][0]!r}: half a minute")
    began = time.perf_counter()
    config = TrainConfig(
        steps=steps,
        batch_tokens=1024,
        optimizer="muon",
        lr=0.01,
        warm_up=30,
        smoothing=0.1,
        eval_every=0,
        save_every=steps,
        log_every=max(steps // 5, 1),
    )
    shape = ShapeConfig(dim=64, depth=1, heads=4, pre_norm=True)
    data = DataConfig(tokens="chars", holdout=0.0)
    run = cast(Run, seq2seq(file, out=out / "run", config=config, shape=shape, data=data))
    seconds, kit = time.perf_counter() - began, run.kit
    rows = kit.search(kit.batch([source for source, _ in asked]), 16)
    answers = [
        DateAnswer(source, text := kit.text(row[0].tokens), text == target)
        for (source, target), row in zip(asked, rows, strict=True)
    ]
    model, example = out / "run" / "final", asked[0][0]
    return DateDemo(
        pairs=KNOWN,
        parameters=sum(parameter.numel() for parameter in kit.model.parameters()),
        steps=steps,
        seconds=seconds,
        right=sum(answer.right for answer in answers),
        asked=ASKED,
        answers=answers[:8],
        folder=str(out),
        next=[
            f'regard translate "{example}" --model {model} --alternatives 3',
            f'regard look attention {model} "{example}" --save attention.html',
            'regard translate "Il m\'a entarté" --alternatives 4',
            "regard ladder --help",
        ],
    )
