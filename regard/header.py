"""Check the header of a safetensors file before anything is loaded from it."""

from __future__ import annotations

import json
import math
from pathlib import Path

from regard.disk import corrupt, parse_json

HEADER_LIMIT = 100_000_000  # bytes of header, the safetensors library's own limit
ITEM_BYTES = (
    dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2"), 1)
    | dict.fromkeys(("U16", "I16", "F16", "BF16"), 2)
    | dict.fromkeys(("U32", "I32", "F32"), 4)
    | dict.fromkeys(("U64", "I64", "F64"), 8)
)
ENTRY = f"shape and data_offsets that agree, and a dtype of {', '.join(ITEM_BYTES)}"


def read_header(path: Path) -> dict[str, tuple[int, ...]]:
    """Check the header of a safetensors file against its length; tensor name -> shape.

    Format: 8 bytes of header length, JSON {name: {dtype, shape, data_offsets}}, then the data,
    without holes, to the end of the file (github.com/huggingface/safetensors).
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(HEADER_LIMIT, size - 8):
            found = f"the header is said to have {length:,} bytes and the file has {size:,} in all"
            raise corrupt(path, min(size, 8), found, "the header to lie inside the file")
        raw = file.read(length)
    shapes: dict[str, tuple[int, ...]] = {}
    spans: list[tuple[int, int, str]] = []
    for name, entry in parse_json(raw, path, start=8).items():
        if name == "__metadata__":
            continue
        try:
            begin, end = entry["data_offsets"]
            shape, item = entry["shape"], ITEM_BYTES[entry["dtype"]]
            numbers = [begin, end, *shape]
            whole = all(type(n) is int and 0 <= n < 2**63 for n in numbers)
            if not whole or end - begin != item * math.prod(shape):
                raise ValueError
        except (KeyError, TypeError, ValueError):
            at = 8 + max(raw.find(json.dumps(name).encode()), 0)
            raise corrupt(path, at, f"tensor {name!r} is described as {entry}", ENTRY) from None
        shapes[name] = tuple(shape)
        spans.append((begin, end, name))
    reached = 0
    for begin, end, name in sorted(spans):
        if begin != reached:
            found = f"tensor {name!r} starts at byte {begin:,} of the data, the one before ends at"
            raise corrupt(path, 8 + length + begin, f"{found} {reached:,}", "tensors without holes")
        reached = end
    if 8 + length + reached != size:
        found = f"the file has {size:,} bytes and its header describes {8 + length + reached:,}"
        raise corrupt(path, min(size, 8 + length + reached), found, "the two to be equal")
    return shapes
