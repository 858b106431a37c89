"""One layer for all: one Block, one Attention, and no model family in the core."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "regard"
FAMILIES = {"gpt", "llama", "bert", "roberta", "t", "marian", "vit", "whisper", "wav", "mistral"}
FAMILIES |= {"qwen", "gemma", "phi", "bart", "deit", "graphormer", "neox", "falcon", "bloom", "opt"}
NUMBERED = {"t", "wav"}  # families only with their number: T5, wav2vec 2.0


def trees(folder):
    return {file: ast.parse(file.read_text(encoding="utf-8")) for file in folder.rglob("*.py")}


def classes(name):
    return [
        (file, node)
        for file, tree in trees(PACKAGE).items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.name == name
    ]


@pytest.mark.parametrize("name", ["Block", "Attention"])
def test_exactly_one_class(name):
    found = [str(file.relative_to(PACKAGE)) for file, _ in classes(name)]
    assert found == [f"core/{name.lower()}.py"]


def test_forward_of_the_block_is_at_most_15_lines():
    ((_, block),) = classes("Block")
    (forward,) = [n for n in block.body if isinstance(n, ast.FunctionDef) and n.name == "forward"]
    assert forward.end_lineno - forward.lineno + 1 <= 15


def words(tree):
    """Line and text of every name and string the code uses; prose in docstrings may cite."""
    prose = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for node in ast.walk(tree):
        for field in ("id", "attr", "name", "arg", "module"):
            if isinstance(text := getattr(node, field, None), str):
                yield getattr(node, "lineno", 0), text
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.lineno, node.value


def family(text):
    """The model family a name or string speaks of, or None: GPT2Block, is_t5, "llama3"."""
    for word, number in re.findall(r"([A-Z]?[a-z]+|[A-Z]+(?![a-z]))(\d*)", text):
        name = word.lower()
        if name in FAMILIES and (number or name not in NUMBERED):
            return name
    return None


def test_no_family_in_the_core():
    found = [
        f"{file.relative_to(PACKAGE)}:{line}: {text}"
        for file, tree in trees(PACKAGE / "core").items()
        for line, text in words(tree)
        if family(text)
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("text", ["is_t5", "GPT2Block", "llama3", "BertNorm", "wav2vec2", "vit"])
def test_a_family_is_recognised(text):
    assert family(text)


@pytest.mark.parametrize("text", ["t", "positions", "optional", "invite", "GELU", "k2t", "wave"])
def test_other_words_are_not(text):
    assert family(text) is None
