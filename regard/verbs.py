"""What public functions share: the types of their arguments, the check of them, the noted call.

Bounds and choices are written once, in a signature; a call from Python and the command line check
them alike. Neither torch nor cyclopts is loaded here.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, ParamSpec, TypeAlias, TypeVar

from regard.errors import DataError, RegardError, UsageError, did_you_mean
from regard.result import Call, Failed, Result

if TYPE_CHECKING:
    from regard.kit import Kit

P = ParamSpec("P")
R = TypeVar("R")
Item = TypeVar("Item")
MOST = (1 << 31) - 1  # of any count
SEVERAL = (list, tuple, Sequence)  # types whose items are checked one by one


@dataclass(frozen=True)
class Bound:
    """The smallest and the largest value of a number; `above` leaves out the smallest itself."""

    least: float
    most: float
    says: str
    above: bool = False

    def holds(self, value: Any) -> bool:
        """Whether a number is within."""
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            return False
        return self.least <= value <= self.most and not (self.above and value == self.least)


Count = Annotated[int, Bound(1, MOST, "a whole number from 1 up")]
Natural = Annotated[int, Bound(0, MOST, "a whole number from 0 up")]
Share = Annotated[float, Bound(0, 1, "a number from 0 to 1")]
FromZero = Annotated[float, Bound(0, 1e300, "a number from 0 up")]
Amount = Annotated[float, Bound(0, 1e300, "a number above 0", above=True)]


@dataclass(frozen=True)
class Alias:
    """Another name of a flag, such as --n for --length."""

    name: str


@dataclass(frozen=True)
class Words:
    """How the words of a command become a text argument.

    each: every word is a text, and so is every line of `--file` or stdin; joined: the words are one
    text, every line is a text; whole: the words, or the whole file, are one text. A file that ends
    with one of `documents`, or any with `--out`, is given as its Path where these are named.
    """

    how: Literal["each", "joined", "whole"]
    documents: tuple[str, ...] = ()


Texts = Annotated[str | Iterable[str | RegardError], Words("each")]
"""One text, which gives one result, or several, which give an iterator of results.

In a stream, a line that could not be read stands as its error, and gives a `Failed` result."""
Text = Annotated[str, Words("whole")]
FLAT = "a dataclass whose fields are flags of their own"
"""`Annotated[TrainConfig, FLAT]`: on the command line `--steps`, in Python `config=`."""


@dataclass(frozen=True)
class Flag:
    """The name of an argument's flag, where it is not the argument's own."""

    name: str


FILES = "paths whose files belong into a receipt"
File = Annotated[str | Path, FILES]
Files = Annotated[str | Path | list[str | Path], FILES]
"""A file or several, also folders and compressed ones."""
if TYPE_CHECKING:
    ModelLike: TypeAlias = str | Path | Kit
else:
    ModelLike = Annotated[str, FILES]
"""A folder, a .gguf file, the name of a model in the box, or an opened Kit."""
Precision = Literal["auto", "fp32", "bf16", "int8"]
"""Of the matrix products; less is faster. auto: int8 for weights stored so, else float32."""
EditsLike = Sequence[str] | Mapping[str, Any]
"""Changes of activations: words such as `TAP=zero,head=3`, or {tap: regard.zero(head=3)}.

`Kit.edit` reads both."""


def verb(function: Callable[P, R]) -> Callable[P, R]:
    """A public function: checks its arguments, and notes the call in its result."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        arguments = signature.bind(*args, **kwargs).arguments
        check_arguments(function, arguments)
        return note_call(function, arguments, function(*args, **kwargs))

    return call


def extends(
    pattern: Callable[..., Any], *without: str
) -> Callable[[Callable[P, R]], Callable[..., R]]:
    """Give a function the arguments of another one, but for some, beside or instead of its own."""

    def give(function: Callable[P, R]) -> Callable[..., R]:
        whole, every = inspect.signature(pattern), inspect.signature(function)
        named = inspect.Parameter.KEYWORD_ONLY
        own = {n: p for n, p in every.parameters.items() if p.kind is named}
        taken = {n: p for n, p in whole.parameters.items() if n not in without} | own
        hints = inspect.unwrap(pattern).__annotations__ | function.__annotations__
        function.__annotations__ = {n: hints[n] for n in (*taken, "return")}
        function.__signature__ = every.replace(parameters=[*taken.values()])  # type: ignore[attr-defined]
        return function

    return give


def check_arguments(function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Stop at the first argument that its type does not allow."""
    for name, value in arguments.items():
        check_value(function.__name__, name, value, hints_of(function)[name])


def note_call(function: Callable[..., Any], arguments: Mapping[str, Any], result: R) -> R:
    """The result, which knows from now on which call made it."""
    if isinstance(result, Result):
        hints = hints_of(function)
        files = [value for name, value in arguments.items() if FILES in marks(hints[name])]
        name = f"{function.__module__}.{function.__qualname__}"
        object.__setattr__(result, "call", Call(name, dict(arguments), files))
    return result


@functools.cache
def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The types of a function's arguments, with their marks."""
    return typing.get_type_hints(function, include_extras=True)


def marks(hint: Any) -> list[Any]:
    """What stands beside a type in `Annotated`, also inside of a union with None."""
    if typing.get_origin(hint) is Annotated:
        return list(hint.__metadata__)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return [mark for part in typing.get_args(hint) for mark in marks(part)]
    return []


def check_fields(verb: str, config: Any) -> None:
    """Stop at the first field of a dataclass that its type does not allow."""
    hints = typing.get_type_hints(type(config), include_extras=True)
    for field in dataclasses.fields(config):
        check_value(verb, field.name, getattr(config, field.name), hints[field.name])


def check_value(verb: str, name: str, value: Any, hint: Any) -> None:
    """Stop at a number out of bounds, a word that is none of the choices, and what is no path."""
    needed = FILES in marks(hint) and type(None) not in typing.get_args(hint)
    if (value is None or isinstance(value, int | float)) and needed:
        raise UsageError(f"calling {verb}", f"{name} = {value!r}", "a path")
    if value is None:
        return
    if typing.get_origin(hint) is Annotated:
        for mark in hint.__metadata__:
            part = hint.__origin__ is int and isinstance(value, float)
            if isinstance(mark, Bound) and (part or not mark.holds(value)):
                raise UsageError(f"calling {verb}", f"{name} = {value!r}", mark.says)
            if mark is FLAT:
                if not isinstance(value, hint.__origin__):
                    expected = f"a {hint.__origin__.__name__}"
                    raise UsageError(f"calling {verb}", f"{name} = {value!r}", expected)
                check_fields(verb, value)
        hint = hint.__origin__
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        for part in typing.get_args(hint):
            if typing.get_origin(part) in (Annotated, Literal, *SEVERAL):
                check_value(verb, name, value, part)
    elif typing.get_origin(hint) in SEVERAL and isinstance(value, list | tuple):
        for inside in value:
            check_value(verb, name, inside, typing.get_args(hint)[0])
    elif typing.get_origin(hint) is Literal and value not in (choices := typing.get_args(hint)):
        expected = f"one of {', '.join(map(str, choices))}"
        fix = did_you_mean(str(value), map(str, choices), 1)
        raise UsageError(f"calling {verb}", f"{name} = {value!r}", expected, fix)


def list_files(files: Files) -> list[str]:
    """One file or several as texts."""
    return [str(file) for file in ([files] if isinstance(files, str | Path) else files)]


def fields_of(kind: type[Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a verb's arguments that are fields of a dataclass."""
    return {name: arguments[name] for name in kind.__dataclass_fields__ if name in arguments}


def one_or_several(texts: str | Iterable[Item]) -> Iterable[str | Item]:
    """Texts as a verb was given them: one is a list of one."""
    if isinstance(texts, str):
        return [texts]
    if isinstance(texts, bytes | bytearray | Mapping) or not isinstance(texts, Iterable):
        raise UsageError("reading texts", type(texts).__name__, "a text (str), or several")
    return texts


def group_texts(texts: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Texts in lists of at most `size`; of a stream that can tell, as many as are there."""
    rest = iter(texts)
    take = getattr(rest, "take", None)
    while group := list(islice(rest, size)) if take is None else take(size):
        yield group


def answer_texts(
    texts: Texts,
    inside: Callable[[], AbstractContextManager[Any]],
    work: Callable[[list[str], int], Iterable[R]],
    together: int = 1,
) -> R | Iterator[R | Failed]:
    """What `work` makes of texts, so many at a time, and of the number of those done before.

    Of one text the one result, or its error; else an iterator, where a text that cannot be done
    gives a `Failed` and the others are done without it. All happens inside a context.
    """

    def answer_group(group: list[str | RegardError], done: int) -> Iterator[R | Failed]:
        try:
            for text in group:
                if isinstance(text, RegardError):
                    raise text
            results = list(work([str(text) for text in group], done))
        except DataError as error:
            if len(group) == 1:
                yield Failed(error)
                return
            for number, text in enumerate(group, done):
                yield from answer_group([text], number)
            return
        yield from results

    def answer_all() -> Iterator[R | Failed]:
        done = 0
        with inside():
            for group in group_texts(several, together):
                yield from answer_group(group, done)
                done += len(group)

    several = one_or_several(texts)
    if not isinstance(texts, str):
        return answer_all()
    (result,) = answer_all()
    if isinstance(result, Failed):
        raise result.error
    return result
