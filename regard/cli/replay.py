"""`regard replay receipt.json`: run again what a receipt says, and compare."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from regard import train
from regard.ambient import settings
from regard.cli.flags import to_toml
from regard.cli.show import Show
from regard.errors import DataError, RegardError, UsageError
from regard.files import is_taken
from regard.history.config import Word2VecConfig
from regard.receipt import changed_files, compare, read_receipt


def run(args: argparse.Namespace, show: Show) -> int:
    """Train again into another folder; 0 when it agrees, 1 when not."""
    before = read_receipt(Path(args.path))
    wrong = changed_files(before["data"])
    if wrong:
        found = "; ".join(f"{name}: {why}" for name, why in wrong.items())
        raise DataError(f"replaying {args.path}", found, "the data of the receipt")
    if args.keep and is_taken(Path(args.keep)):
        raise UsageError(f"replaying {args.path}", f"{args.keep} is there already", "a new folder")
    with TemporaryDirectory(prefix="regard-replay-") as name:
        folder = Path(args.keep) if args.keep else Path(name) / "run"
        if "function" in before:  # a model that counts: its call says all
            count_again(before, folder, args.path)
        else:
            config = Path(name) / "config.toml"
            lines = [f"{key} = {to_toml(value)}\n" for key, value in before["config"].items()]
            config.write_text("".join(lines), encoding="utf-8")
            train_again(["train", "--config", str(config)], folder, before, show)
        now = read_receipt(folder)
    same, told = compare(before, now)
    if show.as_json:
        show.result({"match": same, "compared": told, "results": now["results"]})
    else:
        show.line(f"{'match' if same else 'DIFFERENT'}: {told}")
    return 0 if same else 1


def count_again(before: dict[str, Any], folder: Path, path: str) -> None:
    """Call the function of a receipt, which must be one of training."""
    name = str(before["function"])
    function = getattr(train, name.removeprefix("regard.train."), None)
    if not name.startswith("regard.train.") or function is None:
        raise DataError(f"replaying {path}", f"a call of {name}", "a receipt of `regard train`")
    config = dict(before["config"])
    if name == "regard.train.w2v":
        config["config"] = Word2VecConfig(**config["config"])
    with settings(seed=before["seed"]):
        function(**config | {"out": folder})


def train_again(words: list[str], folder: Path, before: dict[str, Any], show: Show) -> None:
    """The run in a process of its own, with as many threads as the first had."""
    command = [sys.executable, "-m", "regard", *words, "--out", str(folder)]
    command += [] if show.moving else ["--quiet"]
    threads = str(before.get("threads", 1))
    environment = os.environ | {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    done = subprocess.run(command, stdout=subprocess.DEVNULL, env=environment)
    if done.returncode:
        found = f"the run ended with exit code {done.returncode}"
        raise RegardError("replaying a receipt", found, "a run to its end")
