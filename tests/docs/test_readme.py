"""README: its code runs, its links lead somewhere, its commands exist."""

import re
from pathlib import Path

import pytest

import regard
from regard.cli.commands import TABLE
from regard.interop.families import bind
from regard.model.model import Model
from regard.model.presets import llama
from regard.tokens.tokenizer import Tokenizer
from tests.tokens.small_tokenizers import byte_bpe

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_shown_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rust = byte_bpe(["<pad>", "</s>"])
    tokenizer = Tokenizer.from_rust(rust, {"pad": 0, "eos": 1})
    config = llama(16, 4, 4, 2, 32, vocab=tokenizer.size)
    regard.Kit(Model.fresh(config), tokenizer, bind("LlamaForCausalLM")).save("folder")
    for code in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        exec(compile(code, "README.md", "exec"), {})
    assert (tmp_path / "copy" / "model.safetensors").exists()


def test_the_tree_shown_is_the_tree() -> None:
    table = README[README.index("## The tree") : README.index("## Translate")]
    shown = []
    for panel in re.findall(r"^\| [\w ]+ \| (.*) \|$", table, re.MULTILINE)[1:]:
        for name, inside in re.findall(r"`(\w+)`(?: \{([\w ]+)\})?", panel):
            shown += [f"{name} {word}" for word in inside.split()] or [name]
    assert sorted(shown) == sorted(TABLE)


@pytest.mark.parametrize("page", sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")]))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
