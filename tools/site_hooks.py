"""Run what the pages of the site show, while it is built; what fails stops the build.

A fence that begins with ```python is run, and the value of its last line stands below it as a
notebook would show it: a result as a table, a figure as a picture, a text as it is. The fences of
a page share their names and a folder of their own. In a fence that begins with ```console each
line `$ regard …` is run in that folder, and what it prints follows it. Anything that is only to
be read stands in a fence of another kind (```py, ```text).
"""

from __future__ import annotations

import ast
import base64
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

import griffe
from mkdocs.exceptions import PluginError

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLE = re.compile(r"^Example:\n((?:    .*\n?|\n)+)", re.MULTILINE)
MOST_LINES = 40  # of what a command prints
ELSEWHERE = re.compile(r"<(?:script|img|iframe)[^>]* src=\"https?:|<link[^>]* href=\"https?:")


class FencedExamples(griffe.Extension):
    """Lines below `Example:` in docstrings are code: Python first, then commands.

    A function that takes its signature from another one is shown with it.
    """

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Put fences around them, and find the signature."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(fence_example, obj.docstring.value)
        for decorator in getattr(obj, "decorators", ()):  # @extends(lm, "lora"): lm's but lora
            if named := re.fullmatch(r"(?:takes|extends)\((\w+)(.*)\)", str(decorator.value)):
                model, gone = obj.parent[named[1]], re.findall(r"\w+", named[2])
                own = [p for p in obj.parameters if p.kind is griffe.ParameterKind.keyword_only]
                gone += [p.name for p in own]
                kept = [p for p in model.parameters if p.name not in gone]
                obj.parameters, obj.returns = griffe.Parameters(*kept, *own), model.returns


def fence_example(found: re.Match[str]) -> str:
    """`>>>` lines with their answers as Python, `$` lines as console."""
    lines = textwrap.dedent(found.group(1)).splitlines()
    split = next((n for n, line in enumerate(lines) if line.startswith("$")), len(lines))
    parts = ("pycon", lines[:split]), ("console", lines[split:])
    blocks = [f"```{kind}\n" + "\n".join(part) + "\n```" for kind, part in parts if part]
    return "**Example**\n\n" + "\n\n".join(blocks)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put what each fence gives below it."""
    if not FENCE.search(markdown):
        return markdown
    names: dict[str, Any] = {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as folder, chdir(folder):

        def run(fence: re.Match[str]) -> str:
            kind, code = fence.groups()
            try:
                return run_python(code, names) if kind == "python" else run_console(code)
            except Exception as error:
                raise PluginError(f"{page.file.src_path}: {error!r} in\n{code}") from error

        return FENCE.sub(run, markdown)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Refuse a page that loads something from elsewhere."""
    if fault := ELSEWHERE.search(output):
        raise PluginError(f"{page.file.src_path} loads from elsewhere: {fault.group()}")
    return output


def run_python(code: str, names: dict[str, Any]) -> str:
    """The fence, and the value of its last line."""
    tree, printed = ast.parse(code), io.StringIO()
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with redirect_stdout(printed):
        exec(compile(tree, "page", "exec"), names)
        value = (
            None
            if last is None
            else eval(compile(ast.Expression(last.value), "page", "eval"), names)
        )
    shown = f"```python\n{code}```\n"
    if printed.getvalue():
        shown += f"\n```text\n{printed.getvalue().rstrip()}\n```\n"
    return shown + show(value)


def show(value: Any) -> str:
    """A value as a notebook shows it."""
    if value is None:
        return ""
    if hasattr(value, "savefig"):
        picture = io.BytesIO()
        value.savefig(picture, format="png", dpi=100, bbox_inches="tight")
        data = base64.b64encode(picture.getvalue()).decode()
        body = f'<img alt="picture" src="data:image/png;base64,{data}">'
    elif hasattr(value, "_repr_html_"):
        body = re.sub(r"\n\s*\n", "\n", value._repr_html_())  # a blank line would end the block
    else:
        text = value if isinstance(value, str) else repr(value)
        return f"\n```text\n{text}\n```\n"
    return f'\n<div class="result">\n{body}\n</div>\n'


def run_console(code: str) -> str:
    """Each command with what it prints."""
    shown = []
    for line in code.splitlines():
        shown.append(line)
        if line.startswith("$ regard "):
            command = [sys.executable, "-m", "regard", *shlex.split(line[9:], comments=True)]
            settings = {"PYTHONPATH": str(ROOT), "COLUMNS": "100", "NO_COLOR": "1"}
            run = subprocess.run(
                command, capture_output=True, text=True, env=os.environ | settings, check=False
            )
            if run.returncode != 0:
                raise RuntimeError(f"{line} ended with {run.returncode}:\n{run.stderr}")
            printed = run.stdout.rstrip().splitlines()
            cut = printed[:MOST_LINES] + (["…"] if len(printed) > MOST_LINES else [])
            shown += [each.rstrip() for each in cut]
    return "```console\n" + "\n".join(shown) + "\n```"
