"""Tokenizers beside the bare library: BPE training and encoding speed, and memory on large files.

    python bench/tokens.py --text FILE [--megabytes 50] [--size 8000] [--rounds 3] [--json]

The corpus is the text given by --text, repeated to the size wanted. Ours and theirs take turns, so
that a neighbour on the machine disturbs both. Memory is the peak of a process of its own that
trains on, or encodes, the whole file.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # runs from the source tree

ROLES = ["<pad>", "<s>", "</s>"]


def write_corpus(source: Path, target: Path, megabytes: int) -> None:
    """The source's text again and again, each time with some words of its own."""
    raw = lzma.open(source).read() if source.suffix == ".xz" else source.read_bytes()
    text, round, left = raw.decode(), 0, megabytes * 10**6
    if not text:
        raise SystemExit(f"{source}: an empty file; expected: a text to repeat")
    with target.open("wb") as file:
        while left > 0:
            data = text.replace(" the ", f" the{round} " if round % 7 == 6 else " the ").encode()
            file.write(data[:left].decode(errors="ignore").encode())
            left, round = left - len(data), round + 1


def train_ours(file: Path, size: int) -> Any:
    """Our training."""
    from regard.data.text_files import read_parts
    from regard.tokens.trainers import train_tokenizer

    return train_tokenizer(read_parts(file), "bpe", size)


def train_bare(file: Path, size: int) -> Any:
    """The library's own training on the same file."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    rust = Tokenizer(models.BPE())
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rust.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    options: dict[str, Any] = {"special_tokens": ROLES, "initial_alphabet": alphabet}
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, **options)
    rust.train([str(file)], trainer)
    return rust


def timed(work: Callable[[], Any]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def race(ours: Callable[[], Any], bare: Callable[[], Any], rounds: int) -> dict[str, float]:
    """The quickest of each, taking turns, and the median of the ratios of the rounds."""
    rows = []
    for number in range(rounds):
        pair = [timed(ours), timed(bare)] if number % 2 else [timed(bare), timed(ours)][::-1]
        rows.append(pair)
    ratio = statistics.median(a / b for a, b in rows)
    return {"ours": min(a for a, _ in rows), "bare": min(b for _, b in rows), "ratio": ratio}


def measure_speed(file: Path, size: int, rounds: int) -> dict[str, Any]:
    """Training and encoding, ours and theirs."""
    from regard.data.text_files import read_lines

    ours, bare = train_ours(file, size), train_bare(file, size)
    model = json.loads(ours.files["tokenizer.json"])["model"]
    same = bool(model == json.loads(bare.to_str())["model"])
    lines = list(read_lines(file))[:200_000]  # held, so that both see the same work
    groups = [lines[at : at + 1000] for at in range(0, len(lines), 1000)]

    def encode_ours() -> None:
        for group in groups:
            ours.encode_batch(group)

    def encode_bare() -> None:
        for group in groups:
            [encoding.ids for encoding in bare.encode_batch(group)]

    training = race(lambda: train_ours(file, size), lambda: train_bare(file, size), rounds)
    return {"same": same, "train": training, "encode": race(encode_ours, encode_bare, rounds)}


def peak(work: str, file: Path, folder: Path, size: int) -> dict[str, float]:
    """Seconds and peak memory in MB of one command, in a process of its own."""
    commands = {
        "train": ["tok", "train", str(file), "--out", str(folder), "--size", str(size), "--force"],
        "encode": ["tok", "encode", "--tokenizer", str(folder), "--file", str(file)],
    }
    code = "import sys; from regard.cli.main import main; code = main(sys.argv[1:]);"
    code += "print(open('/proc/self/status').read(), file=sys.stderr); sys.exit(code)"
    command = [sys.executable, "-c", code, *commands[work]]
    start = time.perf_counter()
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True
    )
    found = re.search(r"VmHWM:\s+(\d+)", done.stderr)
    assert found is not None
    return {"seconds": time.perf_counter() - start, "megabytes": int(found[1]) * 1024 / 1e6}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--text", type=Path, required=True, help="the text to repeat")
    parser.add_argument("--dir", help="where the corpus is made (a temporary folder)")
    parser.add_argument("--megabytes", type=int, default=50, help="of the corpus")
    parser.add_argument("--size", type=int, default=8000, help="ids to learn")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory-only", action="store_true", help="no race; for gigabytes")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    with tempfile.TemporaryDirectory(dir=args.dir) as name:
        file, folder = Path(name) / "corpus.txt", Path(name) / "tokenizer"
        write_corpus(args.text, file, args.megabytes)
        result: dict[str, Any] = {"megabytes": args.megabytes, "size": args.size}
        if not args.memory_only:
            result |= measure_speed(file, args.size, args.rounds)
        result["memory"] = {
            work: peak(work, file, folder, args.size) for work in ("train", "encode")
        }
    if args.json:
        print(json.dumps(result))
        return 0
    if "same" in result:
        print(f"{args.megabytes} MB, {args.size} ids, same merges: {result['same']}")
        for work in ("train", "encode"):
            row = result[work]
            print(f"{work:8} ours {row['ours']:7.2f} s   bare {row['bare']:7.2f} s", end="")
            print(f"   ratio {row['ratio']:.3f} (bar 1.1)")
    for work, row in result["memory"].items():
        print(
            f"{work:8} {args.megabytes} MB: peak {row['megabytes']:.0f} MB, {row['seconds']:.0f} s"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
