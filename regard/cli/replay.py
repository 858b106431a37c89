"""`regard replay receipt.json`: run again what a receipt says, and compare."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from regard.cli.flags import to_toml
from regard.cli.show import Show
from regard.errors import DataError, RegardError, UsageError
from regard.files import is_taken
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
        if "verb" in before["config"]:  # a model that counts: its command says all
            words = counting_command(before, args.path)
        else:
            config = Path(name) / "config.toml"
            lines = [f"{key} = {to_toml(value)}\n" for key, value in before["config"].items()]
            config.write_text("".join(lines), encoding="utf-8")
            words = ["train", "--config", str(config)]
        train_again(words, folder, before, show)
        now = read_receipt(folder)
    same, told = compare(before, now)
    if show.as_json:
        show.result({"match": same, "compared": told, "results": now["results"]})
    else:
        show.line(f"{'match' if same else 'DIFFERENT'}: {told}")
    return 0 if same else 1


def counting_command(before: dict[str, Any], path: str) -> list[str]:
    """The words of its command, which a foreign receipt must not use for anything but training."""
    words = before["command"][1:]
    if words[:1] != ["train"]:
        found = f"a command {' '.join(map(str, before['command']))!r}"
        raise DataError(f"replaying {path}", found, "a receipt of `regard train`")
    return [str(word) for word in words]


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
