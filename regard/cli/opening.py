"""The model that a command names, as `regard.loading` opens it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from regard import loading
from regard.ambient import Device, settings
from regard.kit import Kit
from regard.look.edits import parse_edits


def open_kit(
    path: str, device: str, precision: str | None, strict: bool = False, edits: Sequence[str] = ()
) -> Kit:
    """The model and tokenizer in a folder, on the device and in the precision asked for.

    None is plain maps in float32, for gradients and for patching without rounding. Edits stay.
    """
    changes = parse_edits(edits)
    with settings(device=cast(Device, device)):
        kit = loading.open_kit(path, precision, strict)
    kit.hooked.attach(changes)
    return kit
