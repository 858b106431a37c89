"""This machine: kernels of our own in C and Triton, their build, and what the machine has."""

from __future__ import annotations

from regard.ambient import note, progress
from regard.native.results import Machine
from regard.verbs import verb


@verb
def doctor() -> Machine:
    """Versions, devices, memory and a speed figure of this machine.

    Example:
        >>> regard.doctor().ok
        True
        $ regard doctor
        $ regard doctor --json
        $ regard doctor --device cpu
    """
    from regard.native.machine import examine_machine

    with progress("looking at the machine") as say:
        say("importing torch")
        machine = examine_machine()
    missing = [name for name, number in machine.packages.items() if number is None]
    if missing:
        note(f"missing: {', '.join(missing)}\n  to fix: pip install {' '.join(missing)}")
    return machine
