"""How long a text may be for `regard extract`: positions, memory, and the size of a shard."""

from __future__ import annotations

import argparse
from functools import cached_property

from regard.cli.lengths import free_bytes, most_that, room_of, run_bytes
from regard.cli.show import human_bytes
from regard.errors import DataError
from regard.kit import Kit
from regard.look.extract import Item, Shards
from regard.model.fronts import TextFront

DOING = "extracting"
CPU, GPU = 1024, 16_384  # tokens of a batch


class Room:
    """What fits; a text that does not is refused with what would."""

    def __init__(self, kit: Kit, shards: Shards) -> None:
        self.kit, self.shards = kit, shards
        self.positions, self.written = (
            room_of(front) if isinstance(front, TextFront) else 0
            for front in (kit.model.front, kit.model.reader)
        )

    def tokens(self, args: argparse.Namespace) -> int:
        """Tokens of a batch."""
        usual = CPU if self.kit.device.type == "cpu" else GPU
        return int(args.batch_tokens or usual)

    def check(self, item: Item) -> int:
        """The rows of a text; one that is too long is refused, by its number from 1."""
        number, target = item.number + 1, item.target or ()
        rooms = [(len(item.ids), self.positions), (len(target), self.written)]
        for length, room in rooms:
            if length > room:
                found = f"{length:,} tokens in text {number}"
                expected = f"at most {room:,}, which this model reads at once"
                raise DataError(DOING, found, expected, "cut it into shorter lines")
        self.kit.warn_long(max(len(item.ids), len(target)))
        rows = self.shards.check(item)
        longest = max(len(item.ids), len(target))
        if longest > CPU and self.needed(longest) > self.free:
            found = f"{longest:,} tokens in text {number}"
            most = most_that(longest, self.needed, self.free)
            wanted = f"at most {most:,}, which fit into {human_bytes(self.free)}"
            raise DataError(DOING, found, wanted, "cut it into shorter lines")
        return rows

    @cached_property
    def free(self) -> int:
        """Bytes that a run may take, beside the weights and the shards."""
        shards = 2 * self.shards.capacity * self.shards.row_bytes
        return max(free_bytes(self.kit) - (shards if self.kit.device.type == "cpu" else 0), 0)

    def needed(self, length: int) -> int:
        """Bytes of one text of so many tokens, by formula: what lives, and what the taps keep."""
        kept = sum(self.shards.widths.values()) * length * (4 + self.shards.choice.dtype.itemsize)
        return kept + run_bytes(self.kit, length)
