"""Memory while a checkpoint is opened: load_memory.py [--gigabytes 1.1].

Writes a random Llama folder, opens it with regard.load in a fresh process and compares the rise of
anonymous memory (RssAnon, so pages mapped from the file do not count) with the bytes of the loaded
tensors. Exits with 1 when a rise is over the bar.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from regard.interop.folder import write_folder
from regard.loading import load

BAR = 1.15
DIM, HEADS = 1024, 16
CASES = {  # name: (dtype of the file, dtype asked for)
    "float32": (torch.float32, "float32"),
    "bfloat16 as it is": (torch.bfloat16, "auto"),
    "bfloat16 to float32": (torch.bfloat16, "float32"),
}


def sizes(dim: int) -> tuple[int, int]:
    """Choose the width of the MLP and the vocabulary."""
    return 11 * dim // 4, 8 * dim


def config(depth: int, dim: int = DIM) -> dict[str, Any]:
    """Write the config.json of the random model."""
    hidden, vocab = sizes(dim)
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": dim,
        "intermediate_size": hidden,
        "num_hidden_layers": depth,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS // 2,
        "vocab_size": vocab,
        "tie_word_embeddings": False,
    }


def tensors(depth: int, dtype: torch.dtype, dim: int = DIM) -> Iterator[tuple[str, torch.Tensor]]:
    """Draw the tensors of the random model one by one."""
    half, (hidden, vocab) = dim // 2, sizes(dim)
    layer = {
        "self_attn.q_proj": (dim, dim),
        "self_attn.k_proj": (half, dim),
        "self_attn.v_proj": (half, dim),
        "self_attn.o_proj": (dim, dim),
        "mlp.gate_proj": (hidden, dim),
        "mlp.up_proj": (hidden, dim),
        "mlp.down_proj": (dim, hidden),
        "input_layernorm": (dim,),
        "post_attention_layernorm": (dim,),
    }
    shapes = {"model.embed_tokens": (vocab, dim), "model.norm": (dim,), "lm_head": (vocab, dim)}
    shapes |= {f"model.layers.{i}.{n}": shape for i in range(depth) for n, shape in layer.items()}
    for name, shape in shapes.items():
        yield f"{name}.weight", torch.randn(shape).to(dtype)


def depth_for(size: float, dtype: torch.dtype) -> int:
    """Choose the number of layers so that the file has at least `size` bytes."""
    hidden, vocab = sizes(DIM)
    layer = 3 * DIM * DIM + 3 * DIM * hidden + 2 * DIM
    return max(1, -(-int(size / dtype.itemsize - 2 * vocab * DIM) // layer))


def anonymous() -> int:
    """Read this process's anonymous memory in bytes."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


def measure(folder: str, dtype: str) -> dict[str, float]:
    """Open a folder while a thread watches the memory every 2 ms."""
    warm_up(dtype)
    seen, stop = [0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.002):
            seen.append(anonymous())

    before, start = anonymous(), time.perf_counter()
    thread = threading.Thread(target=watch)
    thread.start()
    kit = load(folder, dtype)
    seconds = time.perf_counter() - start
    stop.set()
    thread.join()
    held = sum(p.nbytes for p in kit.model.parameters())
    after = anonymous()
    rises = {"peak": max(*seen, after) - before, "final": after - before}
    return {"bytes": held, "seconds": seconds, "samples": len(seen), **rises}


def warm_up(dtype: str) -> None:
    """Open a tiny folder: libraries that start on first use are not the checkpoint's."""
    with tempfile.TemporaryDirectory() as folder:
        # Tiny, since memory that is freed again and used for the checkpoint would not be counted.
        write_folder(Path(folder), config(1, HEADS * 2), tensors(1, torch.float32, HEADS * 2))
        load(folder, dtype)
    gc.collect()


def run(name: str, gigabytes: float, root: Path) -> bool:
    """Measure one case in a process of its own; True when it keeps to the bar."""
    stored, asked = CASES[name]
    folder = root / name.replace(" ", "-").replace(",", "")
    depth = depth_for(gigabytes * 1e9, stored)
    write_folder(folder, config(depth), tensors(depth, stored))
    command = [sys.executable, __file__, "--measure", str(folder), asked]
    made = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    peak, final = made["peak"] / made["bytes"], made["final"] / made["bytes"]
    print(
        f"{name:26} {made['bytes'] / 1e9:.2f} GB: peak {peak:.3f} x, "
        f"final {final:.3f} x, {made['seconds']:.1f} s, {made['samples']} samples",
        flush=True,
    )
    return bool(0.98 <= final <= peak <= BAR)  # a rise far below 1 would be a wrong measure


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gigabytes", type=float, default=1.1, help="size of the file")
    parser.add_argument("--measure", nargs=2, metavar=("FOLDER", "DTYPE"), help="open one folder")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(*options.measure)))
        return 0
    kept = True
    for name in CASES:
        with tempfile.TemporaryDirectory() as root:
            kept = run(name, options.gigabytes, Path(root)) and kept
    print(
        f"bar: peak at most {BAR} x the bytes of the loaded tensors: {'met' if kept else 'MISSED'}"
    )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
