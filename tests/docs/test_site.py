"""The site: every page is in its menu, every public name in its reference, its code can be read."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml

import regard
from regard.cli.commands import TABLE

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
REFERENCE = set(
    re.findall(
        r"^::: regard\.([\w.]+)$", "".join(p.read_text() for p in DOCS.glob("api/*.md")), re.M
    )
)
ROOMS = {"data", "evaluate", "formal", "history", "look", "nvib", "tokens", "train", "tune"}


def pages(menu):
    """The files that a menu names."""
    for entry in menu:
        for target in entry.values() if isinstance(entry, dict) else [entry]:
            yield from pages(target) if isinstance(target, list) else [target]


def test_every_page_is_in_the_menu_once():
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = sorted(pages(yaml.safe_load(settings)["nav"]))
    assert named == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def test_every_command_and_public_name_is_in_the_reference():
    assert {name.replace(" ", ".") for name in TABLE} <= REFERENCE
    assert set(regard.__all__) - ROOMS <= {name.split(".")[-1] for name in REFERENCE}


@pytest.mark.parametrize("page", sorted(DOCS.glob("*/*.md")), ids=lambda page: page.name)
def test_the_code_shown_is_python_and_the_commands_exist(page):
    text = page.read_text(encoding="utf-8")
    for code in re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S):
        ast.parse(code)
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.M | re.S):
        for line in re.findall(r"^\$ regard (.*)$", block, re.M):
            words = line.split()
            assert words[0] in TABLE or " ".join(words[:2]) in TABLE, line


@pytest.mark.slow
def test_the_site_builds(tmp_path):
    """`make docs`: runs the code of all pages, checks links and anchors, minutes."""
    build = pytest.importorskip("mkdocs.commands.build")
    config = pytest.importorskip("mkdocs.config")
    settings = config.load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path / "site"))
    settings.plugins.on_startup(command="build", dirty=False)
    build.build(settings)
    assert (tmp_path / "site" / "guide" / "why.html").exists()
