"""The parsers of grammar files and of regular expressions, by lark, which is an extra."""

from __future__ import annotations

from regard.errors import ResourceError

try:
    from lark import Lark, Token, Tree, UnexpectedInput
except ModuleNotFoundError:
    fix = "pip install 'regard[formal]'"
    raise ResourceError("reading a language", "lark is not installed", fix=fix) from None

__all__ = ["Lark", "Token", "Tree", "UnexpectedInput", "make_parser"]


def make_parser(syntax: str, start: str) -> Lark:
    """An LALR parser; its errors know where they are and what was open."""
    return Lark(syntax, start=start, parser="lalr")
