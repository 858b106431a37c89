"""Parts of a token store, for holding out its end; nothing is copied."""

from __future__ import annotations

from copy import copy

from regard.data.store import Store
from regard.errors import DataError, UsageError


def part_of_stream(store: Store, start: int, stop: int) -> Store:
    """Tokens `start` to `stop` as one document, for `Windows`."""
    part = copy(store)
    part.stream, part.tokens = store.stream[start:stop], stop - start
    part.bounds = store.bounds[:1].copy()
    part.bounds = part.bounds.repeat(2)
    part.bounds[1], part.documents = part.tokens, 1
    return part


def part_of_documents(store: Store, start: int, stop: int) -> Store:
    """Examples `start` to `stop`: documents, or pairs in a store with two sides."""
    part = copy(store)
    part.documents = (stop - start) * store.sides
    part.bounds = store.bounds[start * store.sides : stop * store.sides + 1]
    return part


def hold_out(store: Store, share: float | None, by_tokens: bool) -> tuple[Store, Store | None]:
    """(training part, held-out end); share None: 10 %, of pairs 1 to 5 %, and 0: nothing."""
    if share is not None and not 0 <= share < 1:
        raise UsageError("holding out data", f"a share of {share}", "0 to below 1")
    if share == 0:
        return store, None
    count = store.tokens if by_tokens else len(store)
    if share is not None:
        held = round(count * share)
    elif store.sides == 2:  # 2,000 pairs say enough
        held = max(count // 100, min(count // 20, 2000))
    else:
        held = count - int(count * 0.9)
    held = max(held, 1)
    if held >= count:
        what = "tokens" if by_tokens else "pairs" if store.sides == 2 else "lines"
        raise DataError(
            f"holding out the end of {store.path.name}",
            f"{count} {what}",
            "at least 2",
            "give more data, or --valid, or --holdout 0",
        )
    part = part_of_stream if by_tokens else part_of_documents
    return part(store, 0, count - held), part(store, count - held, count)
