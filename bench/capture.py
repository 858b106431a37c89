"""What capture costs: one head's z, and all residual streams, beside TransformerLens and nnsight.

    python bench/capture.py [--device cpu|cuda] [--dtype float32|bfloat16] [--narrow] [--json]

GPT-2 124M with random weights, one folder for all. Each tool is compared with its own forward pass
without capture. They take turns, in another order each round, so that a neighbour on the machine
disturbs all; what capture adds is the median of the differences within a round. Seconds are CPU
time on one thread, else of the clock. Tools that are not installed are left out.

One head means that only its part (B, T, K) of one block's z outlives the run; the streams are the
input of each of the 12 blocks and the output of the last, kept as the tool keeps them: here, by
reference. TransformerLens has two rows: its cache, and hooks that keep nothing but what is asked
for. On a CPU a pass takes half a minute and the tools' own work milliseconds or less: `--narrow`
shows it on a model of the same depth and heads, heads of width 4, and 4 tokens, without the noise
of the products and without the memory that kept tensors take, the same for all.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # runs from the source tree
os.environ["HF_HUB_OFFLINE"] = "1"

import regard
from bench.taps import idle_call
from regard.kit import Kit

LAYER, HEAD, HEADS, DEPTH = 5, 3, 12, 12
PLAIN = "no capture"
BARS = {"one head's z": 0.05, "all residual streams": 0.15}
"""Case → largest share of a pass without capture that it may add."""
RATIO = 1 / 3  # of what a peer adds

Call = Callable[[], list[Tensor]]
"""One pass: the scores, then what was captured."""


class Row(NamedTuple):
    """One tool and one case."""

    peer: str
    case: str
    plain_s: float
    seconds: float
    added_s: float
    spread_s: float
    """95 % interval of that median: 1.57 · quartile range / √rounds (McGill 1978)."""
    least_added_s: float
    """The fastest pass with capture less the fastest without."""
    share: float
    peak_mb: float | None


# The tools --------------------------------------------------------------------------------------


def ours(kit: Kit, ids: Tensor) -> list[Call]:
    """Taps, by the names of the places."""
    z = f"decoder.blocks.{LAYER}.attn.z"
    streams = ["decoder.blocks.*.resid_pre", f"decoder.blocks.{DEPTH - 1}.resid_post"]

    def head() -> list[Tensor]:
        out, seen = kit.run(ids, taps=z)
        return [out.logits, seen[z][:, :, HEAD].clone()]

    def all_streams() -> list[Tensor]:
        out, seen = kit.run(ids, taps=streams)
        return [out.logits, *seen.values()]

    return [lambda: [kit.logits(ids)], head, all_streams]


def open_bridge(folder: str, ids: Tensor, dtype: torch.dtype) -> Any:
    """The folder in TransformerLens, which asks for a tokenizer that nothing here needs."""
    from tokenizers import Tokenizer, models
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"end": 0}, unk_token="end"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="end")
    return TransformerBridge.boot_transformers(
        folder, device=str(ids.device), dtype=dtype, tokenizer=tokenizer
    )


def lens_calls(bridge: Any, ids: Tensor, cached: bool) -> list[Call]:
    """TransformerLens: its cache with a filter, or hooks of one's own."""
    z = f"blocks.{LAYER}.attn.hook_z"
    names = [f"blocks.{n}.hook_resid_pre" for n in range(DEPTH)]
    names.append(f"blocks.{DEPTH - 1}.hook_resid_post")

    def head() -> list[Tensor]:
        if cached:
            logits, cache = bridge.run_with_cache(ids, names_filter=z)
            return [logits, cache[z][:, :, HEAD].clone()]
        kept = []
        hook = lambda x, hook: kept.append(x[:, :, HEAD].clone())  # noqa: E731
        logits = bridge.run_with_hooks(ids, fwd_hooks=[(z, hook)])
        return [logits, *kept]

    def all_streams() -> list[Tensor]:
        if cached:
            logits, cache = bridge.run_with_cache(ids, names_filter=names)
            return [logits, *(cache[name] for name in names)]
        kept = []
        hook = lambda x, hook: kept.append(x)  # noqa: E731
        logits = bridge.run_with_hooks(ids, fwd_hooks=[(name, hook) for name in names])
        return [logits, *kept]

    return [lambda: [bridge(ids)], head, all_streams]


def nnsight_calls(folder: str, ids: Tensor, dtype: torch.dtype) -> list[Call]:
    """nnsight around the model of transformers; without capture that model is called as it is."""
    import nnsight
    from transformers import AutoModelForCausalLM

    inner = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(ids.device).eval()
    model = nnsight.NNsight(inner)
    width = inner.config.n_embd // HEADS
    part = slice(HEAD * width, (HEAD + 1) * width)

    def head() -> list[Tensor]:
        with model.trace(ids):
            z = model.transformer.h[LAYER].attn.c_proj.input[..., part].clone().save()
            logits = model.output.logits.save()
        return [logits, z]

    def all_streams() -> list[Tensor]:
        with model.trace(ids):
            kept = nnsight.save([])
            for block in model.transformer.h:
                kept.append(block.input)
            kept.append(model.transformer.h[DEPTH - 1].output)
            logits = model.output.logits.save()
        return [logits, *kept]

    return [lambda: [inner(ids).logits], head, all_streams]


def open_peers(folder: str, ids: Tensor, dtype: torch.dtype) -> dict[str, list[Call]]:
    """Each other tool that is installed: its calls, in the order of the cases."""
    peers: dict[str, list[Call]] = {}
    if installed("transformer_lens"):
        bridge = open_bridge(folder, ids, dtype)
        peers["TransformerLens, cache"] = lens_calls(bridge, ids, cached=True)
        peers["TransformerLens, hooks"] = lens_calls(bridge, ids, cached=False)
    if installed("nnsight"):
        peers["nnsight"] = nnsight_calls(folder, ids, dtype)
    return peers


def installed(name: str) -> bool:
    """Whether a tool is there; says so if not."""
    found = find_spec(name) is not None
    if not found:
        print(f"{name} is not installed: left out", file=sys.stderr)
    return found


def make_folder(folder: str, width: int, vocab: int) -> None:
    """GPT-2's depth with random weights, as transformers saves it; no peer keeps keys for later."""
    from transformers import GPT2Config, GPT2LMHeadModel
    from transformers.utils import logging as their_logging

    their_logging.disable_progress_bar()
    torch.manual_seed(0)
    shape = GPT2Config(vocab_size=vocab, n_embd=width, n_layer=DEPTH, n_head=HEADS, use_cache=False)
    GPT2LMHeadModel(shape).save_pretrained(folder)


# Time -------------------------------------------------------------------------------------------


def timed(call: Call, cuda: bool) -> float:
    """Seconds of one pass; what it captured is freed afterwards."""
    alone = not cuda and torch.get_num_threads() == 1
    clock, wait = time.process_time if alone else time.perf_counter, torch.cuda.synchronize
    if cuda:
        wait()
    start = clock()
    kept = call()
    if cuda:
        wait()
    seconds = clock() - start
    del kept
    return seconds


def peak(call: Call, cuda: bool) -> float | None:
    """Megabytes on the device that a pass holds at most beyond what was there; None on a CPU."""
    if not cuda:
        return None
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    return (torch.cuda.max_memory_allocated() - before) / 1e6


def farthest(peers: Mapping[str, Sequence[Call]]) -> dict[str, float]:
    """Largest difference of each peer's scores and captured values from regard's."""
    found = dict.fromkeys(list(peers)[1:], 0.0)
    for case in range(1, len(BARS) + 1):
        mine = peers["regard"][case]()
        for name in found:
            for a, b in zip(mine, peers[name][case](), strict=True):
                found[name] = max(found[name], float((a - b).abs().max()))
    return found


def measure(peers: Mapping[str, Sequence[Call]], rounds: int, cuda: bool, short: bool) -> list[Row]:
    """Passes in turns, and what came out for each tool and case.

    Where passes are short, who comes after another tool finds the processor's caches full of it:
    each is timed after a pass of its own without capture. Their first round is for warming up.
    """
    order, cases = random.Random(0), [PLAIN, *BARS]
    entries = [(name, case) for name in peers for case in range(len(cases))]
    times: dict[tuple[str, int], list[float]] = {entry: [] for entry in entries}
    for turn in range(rounds + short):  # long ones are warm from the comparison of values
        for name, case in order.sample(entries, len(entries)):
            if short:
                peers[name][0]()
            seconds = timed(peers[name][case], cuda)
            if turn or not short:
                times[name, case].append(seconds)
    return [
        row(name, cases[case], times[name, 0], times[name, case], peak(peers[name][case], cuda))
        for name, case in entries
        if case
    ]


def row(
    name: str, case: str, plain: list[float], seconds: list[float], peak_mb: float | None
) -> Row:
    """Medians, and the differences within a round."""
    added = [b - a for a, b in zip(plain, seconds, strict=True)]
    low, middle, high = statistics.quantiles(added, n=4, method="inclusive")
    spread, least = 1.57 * (high - low) / len(added) ** 0.5, min(seconds) - min(plain)
    base, whole = statistics.median(plain), statistics.median(seconds)
    return Row(name, case, base, whole, middle, spread, least, middle / base, peak_mb)


def compare(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """regard beside each peer; no ratio where what either adds drowns in noise."""
    mine = {r.case: r for r in rows if r.peer == "regard"}
    found = []
    for r in rows:
        if r.peer == "regard":
            continue
        own = mine[r.case]
        clear = r.added_s > max(r.spread_s, own.spread_s)
        found.append(
            {
                "peer": r.peer,
                "case": r.case,
                "added_ratio": own.added_s / r.added_s if clear else None,
                "total_ratio": own.seconds / r.seconds,
            }
        )
    return found


# Output -----------------------------------------------------------------------------------------


def show(found: Mapping[str, Any], rows: Sequence[Row]) -> None:
    """A short table for people."""
    print(f"{found['device']}, {found['dtype']}, {found['batch']} × {found['length']} tokens")
    print(f"{'':24}{'case':22}{'plain ms':>10}{'with ms':>10}{'added ms':>10}")
    for r in rows:
        figures = "".join(f"{1e3 * value:10.2f}" for value in (r.plain_s, r.seconds, r.added_s))
        memory = "" if r.peak_mb is None else f", peak {r.peak_mb:,.0f} MB"
        bar = f" (bar {BARS[r.case]:.0%})" if r.peer == "regard" and found["width"] > 700 else ""
        print(
            f"{r.peer:24}{r.case:22}{figures} ± {1e3 * r.spread_s:.2f}, {r.share:.2%}{bar}{memory}"
        )
    print(f"regard, idle taps: {found['idle_share']:.5%} of a pass")
    for item in found["beside"]:
        ratio = item["added_ratio"]
        added = "in the noise" if ratio is None else f"{ratio:.2f} ×"
        print(
            f"{item['case']}: regard adds {added} (bar {RATIO:.2f}), takes "
            f"{item['total_ratio']:.3f} × (bar 1) of {item['peer']}, "
            f"which differs by {found['difference'][item['peer']]:.1e}"
        )


@torch.no_grad()
def main() -> None:
    """Make the folder, race, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--narrow", action="store_true")
    parser.add_argument("--json", action="store_true")
    for name, value in (("batch", 32), ("length", 256), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=value, metavar="N")
    parser.add_argument(
        "--rounds", type=int, metavar="N", help="at least 2; 3, on a GPU 60, if narrow 300"
    )
    args = parser.parse_args()
    if args.narrow:
        args.batch, args.length = 1, 4
    torch.set_num_threads(args.threads)
    logging.disable()
    cuda, dtype = args.device == "cuda", getattr(torch, args.dtype)
    width, vocab = (HEADS * 4, 64) if args.narrow else (HEADS * 64, 50257)
    ids = torch.randint(vocab, (args.batch, args.length)).to(args.device)
    with tempfile.TemporaryDirectory() as folder:
        make_folder(folder, width, vocab)
        kit = regard.load(folder, dtype, args.device)
        peers = {"regard": ours(kit, ids)} | open_peers(folder, ids, dtype)
    differences = farthest(peers)
    rounds = args.rounds or (300 if args.narrow else 60 if cuda else 3)
    rows = measure(peers, rounds, cuda, short=cuda or args.narrow)
    names = [n for n in ("torch", "transformers", "transformer_lens", "nnsight") if find_spec(n)]
    found = {
        "device": torch.cuda.get_device_name() if cuda else f"CPU, {args.threads} thread(s)",
        **{key: getattr(args, key) for key in ("dtype", "batch", "length")},
        "width": width,
        "rounds": rounds,
        "versions": {name: version(name) for name in names},
        "rows": [r._asdict() for r in rows],
        "idle_share": idle_call() * len(kit.taps) / rows[0].plain_s,
        "beside": compare(rows),
        "difference": differences,
    }
    if args.json:
        print(json.dumps(found))
    else:
        show(found, rows)


if __name__ == "__main__":
    main()
