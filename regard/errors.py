"""Errors a user can mend, in four parts: doing, found, expected, fix (MISSION section 4)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec


class RegardError(Exception):
    """A run failed; the message says what was being done, found, expected, and what to do."""

    exit_code = 1

    def __init__(self, doing: str, found: str, expected: str = "", fix: str = "") -> None:
        self.doing, self.found, self.expected, self.fix = doing, found, expected, fix
        parts = [f"{doing}: {found}"]
        parts += [f"  expected: {expected}"] if expected else []
        parts += [f"  to fix: {fix}"] if fix else []
        super().__init__("\n".join(parts))

    def __reduce__(self) -> tuple[type[RegardError], tuple[str, str, str, str]]:
        """From one process to another."""
        return type(self), (self.doing, self.found, self.expected, self.fix)


class UsageError(RegardError):
    """The call itself is wrong: an unknown name, a value out of range."""

    exit_code = 2


class DataError(RegardError):
    """The input data is wrong: a file, a tensor, an id."""

    exit_code = 3


class ResourceError(RegardError):
    """Not enough memory or disk."""

    exit_code = 4


class RegardWarning(UserWarning):
    """Something a user can act on; the code in brackets names it for `warnings.filterwarnings`."""


@contextmanager
def expecting(doing: str, expected: str, fix: str = "") -> Iterator[None]:
    """Inside, data of another form than expected is an error that says so."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, re.error) as error:
        problem = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise DataError(doing, problem, expected, fix) from None


def check_names(given: Iterable[str], known: Iterable[str], doing: str, expected: str) -> None:
    """Stop at the first argument whose name is not known, with the nearest that is."""
    names = list(known)
    for name in given:
        if name not in names:
            fix = did_you_mean(name, names, otherwise=f"one of {', '.join(names)}")
            raise UsageError(doing, f"unknown {name}=", expected, fix)


OTHER_NAMES = {"rope": "rotary", "t5": "relative", "sin": "sinusoidal"}
OTHER_NAMES |= {"swish": "silu", "gelu_new": "gelu_tanh"}
"""What others call a thing: no spelling leads from one to the other."""


def nearest(name: str, names: Iterable[str], count: int = 3) -> str:
    """The names most like `name`, for "did you mean": 'a, b' or '' when none is close."""
    known, other = list(names), OTHER_NAMES.get(name.lower())
    if other in known:
        return other
    return ", ".join(difflib.get_close_matches(name, known, n=count, cutoff=0.5))


def did_you_mean(name: str, names: Iterable[str], count: int = 3, otherwise: str = "") -> str:
    """`nearest` as a question, or something else where none is close."""
    close = nearest(name, names, count)
    return f"did you mean {close}?" if close else otherwise


def check_known(name: str, known: Iterable[str], doing: str, found: str = "") -> None:
    """Refuse a name that is not among the known ones, with the nearest that is."""
    names = list(known)
    if name not in names:
        listed = f"one of {', '.join(names)}"
        raise UsageError(doing, found or repr(name), listed, did_you_mean(name, names, 1))


def check_installed(package: str, extra: str, doing: str) -> None:
    """Stop where a package is missing that one of regard's extras brings."""
    if find_spec(package) is None:
        fix = f"pip install 'regard[{extra}]'"
        raise RegardError(doing, f"{package} is not installed", f"the extra {extra}", fix)


def bad_byte(error: UnicodeDecodeError, before: int = 0) -> str:
    """The byte that is not UTF-8 and its offset from 0, when `before` bytes were read already."""
    return f"byte {before + error.start:,} (0x{error.object[error.start]:02x}) is not UTF-8"


def is_out_of_memory(error: Exception) -> bool:
    """Whether Python or torch ran out of memory."""
    named = type(error).__name__ == "OutOfMemoryError"
    return named or isinstance(error, MemoryError) or "can't allocate memory" in str(error)
