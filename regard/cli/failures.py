"""Any exception as an error of ours: what was being done, found, expected, and what to do."""

from __future__ import annotations

from pathlib import Path

from regard.errors import DataError, RegardError, ResourceError, is_out_of_memory
from regard.files import FULL, cannot_write


def explain(error: Exception) -> RegardError:
    """Any exception as one of ours."""
    if isinstance(error, RegardError):
        return error
    if is_out_of_memory(error):
        fix = "`regard plan` says what fits: a smaller batch, a shorter length"
        return ResourceError("running", "not enough memory", fix=fix)
    if isinstance(error, ModuleNotFoundError) and error.name:
        fix = "`regard doctor` says what is missing"
        return RegardError("running", f"the package {error.name} is not installed", fix=fix)
    if isinstance(error, OSError) and error.strerror:
        return explain_system(error)
    problem = f"{type(error).__name__}: {error}"
    return RegardError("running", problem, fix="run again with -v to see where it happened")


def explain_system(error: OSError) -> RegardError:
    """What the system would not do, most often to a file."""
    if error.errno not in FULL:
        doing = "running" if error.filename is None else f"opening {error.filename}"
        return DataError(doing, str(error.strerror), "a path that can be read or written")
    if error.filename is None:  # stdout has no name
        return ResourceError("writing the output", str(error.strerror), "room for it on the disk")
    return cannot_write(Path(error.filename), error, "room on the disk")
