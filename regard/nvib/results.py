"""What NVIB says of models. No torch here."""

from __future__ import annotations

from regard.result import Result, Row


class Site(Row):
    """One attention of a model."""

    name: str
    state: str
    """"regularised", "plain", or why it cannot be regularised."""


class Sites(Result):
    """Attention of {model}"""

    sites: list[Site]
