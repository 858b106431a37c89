"""A file of lines on all cores: `regard translate` beside CTranslate2 int8 running the same model.

    python bench/translate_lines.py FOLDER LINES [--count N] [--beams 1,4] [--batches 1,32]
        [--rounds N] [--json]

Sentences per second by the clock, start-up left out, the peers taking turns. regard runs one
process per core in int8, with the folder's shortlist where it has one and without; CTranslate2
(extra `ctranslate2`) one model on all cores (`intra`) and one worker per core (`inter`). Tokenizing
counts for regard, for CTranslate2 it does not.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # runs from the source tree

import torch

from regard.kit import Kit
from regard.loading import load_kit
from regard.translation.config import TranslateConfig
from regard.translation.translator import Translator
from regard.translation.worker_pool import start_workers
from tools.ctranslate2_folder import save_ctranslate2

Run = Callable[[], object]
Peer = Callable[[TranslateConfig], Run]
"""Opens all that a run needs, dictionaries too; what it gives is timed."""


def regard_peer(stack: ExitStack, kit: Kit, lines: list[str], cores: int, short: bool) -> Peer:
    """Lines in, lines out."""
    made: dict[TranslateConfig, Translator] = {}

    def open_all(how: TranslateConfig) -> Run:
        if how not in made:
            made[how] = Translator(kit, replace(how, shortlist=short))
            stack.enter_context(start_workers(made[how], cores))
        made[how].translate(["Il pleut."] * cores)
        return lambda: made[how].translate(lines)

    return open_all


def ctranslate2_peer(folder: str, kit: Kit, lines: list[str], cores: int, apart: bool) -> Peer:
    """The same lines, cut into pieces beforehand."""
    import ctranslate2  # type: ignore[import-not-found, unused-ignore]

    assert kit.tokenizer is not None
    inter, intra = (cores, 1) if apart else (1, cores)
    threads = {"inter_threads": inter, "intra_threads": intra}
    model = ctranslate2.Translator(folder, compute_type="int8", **threads)
    cut = kit.tokenizer.encode_batch(lines)
    pieces = [kit.tokenizer.pieces(ids, "source") for ids in cut]

    def open_all(how: TranslateConfig) -> Run:
        limit = {"max_batch_size": how.batch, "max_decoding_length": 256}
        return lambda: model.translate_batch(pieces, beam_size=how.beams, **limit)

    return open_all


def main() -> int:
    """Race over all settings."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("lines", type=Path)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    for name, text in (("--beams", "1,4"), ("--batches", "1,32")):
        parser.add_argument(name, default=text)
    args = parser.parse_args()
    lines = args.lines.read_text(encoding="utf-8").splitlines()[: args.count]
    cores = torch.get_num_threads()
    torch.set_num_threads(1)
    kit = load_kit(args.folder, precision="int8")
    with ExitStack() as stack:
        peers = {"regard, all words": regard_peer(stack, kit, lines, cores, short=False)}
        if kit.shortlist is not None:
            peers["regard, shortlist"] = regard_peer(stack, kit, lines, cores, short=True)
        made = str(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "ct2")
        save_ctranslate2(kit, Path(made))
        for name, apart in (("intra", False), ("inter", True)):
            peers[f"ctranslate2, {name}"] = ctranslate2_peer(made, kit, lines, cores, apart)
        for beams in map(int, args.beams.split(",")):
            for batch in map(int, args.batches.split(",")):
                how = TranslateConfig(beams=beams, batch=batch)
                times: dict[str, list[float]] = {name: [] for name in peers}
                for _ in range(args.rounds):
                    for name, peer in peers.items():
                        run = peer(how)
                        start = time.perf_counter()
                        run()
                        times[name].append(len(lines) / (time.perf_counter() - start))
                speeds = {name: round(statistics.median(t), 1) for name, t in times.items()}
                if args.json:
                    print(json.dumps({"beams": beams, "batch": batch, "per_second": speeds}))
                    continue
                best = max(v for name, v in speeds.items() if name.startswith("ctranslate2"))
                for name, speed in speeds.items():
                    ratio = f"{speed / best:6.2f}"
                    print(f"beams {beams} batch {batch:3} {name:20}{speed:8.1f}/s {ratio}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
