"""Two doors to one tree: each command is a public function, typed and documented."""

from __future__ import annotations

import inspect
import subprocess
import sys
import typing
from functools import reduce
from pathlib import Path

import docstring_parser
import pytest

import regard
from regard.cli.commands import COMMANDS, GROUPS, PANELS
from regard.cli.main import main
from regard.errors import UsageError
from regard.look import activation_cache, activations
from regard.look import results as look_results
from regard.tune import adapter_folder
from regard.verbs import FLAT, Count, marks

ROOT = Path(__file__).resolve().parents[2]
NAMES = [command.name for command in COMMANDS]


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_each_command_is_a_public_function(command):
    function = reduce(getattr, command.name.split(), regard)
    assert function is command.load()
    hints = typing.get_type_hints(inspect.unwrap(function), include_extras=True)
    parameters = inspect.signature(function).parameters
    assert set(hints) == {*parameters, "return"}
    doc = docstring_parser.parse(function.__doc__)
    assert {p.arg_name for p in doc.params} == set(parameters), "one line for each argument"
    assert ">>> " in function.__doc__
    assert len(command.examples()) == 3
    assert all(f"regard {command.name}" in example for example in command.examples())


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_its_help_shows_its_arguments_and_examples(command, capsys):
    assert main([*command.name.split(), "--help"]) == 0
    text = capsys.readouterr().out
    assert all(" ".join(example.split()[:3]) in text for example in command.examples())
    assert "--json" in text and "--receipt" in text


def test_names_occur_once_and_every_group_and_panel_has_its_commands():
    assert len(set(NAMES)) == len(NAMES)
    first = {name.split()[0] for name in NAMES}
    assert {name.rpartition(" ")[0] for name in NAMES} - {""} == set(GROUPS)
    panels = [word for words in PANELS.values() for word in words]
    assert len(set(panels)) == len(panels) and first <= set(panels)


def test_no_help_loads_torch():
    """All faces and all doors: so every help page is quick."""
    code = "from regard.cli.app import build_tree; build_tree(doors=True); import sys; "
    code += "print(sorted({'torch', 'numpy', 'transformers', 'tokenizers'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_no_function_has_the_name_of_a_module_beside_it():
    """Python would hand out whichever was imported last."""
    for command in COMMANDS:
        function = command.load()
        name, folder = function.__name__, ROOT / function.__module__.replace(".", "/")
        assert not (folder / f"{name}.py").exists() and not (folder / name).exists(), command.name


def test_what_is_no_path_and_no_config_is_refused():
    with pytest.raises(UsageError, match="calling fill: model = 3"):
        regard.fill(3, "a [MASK]")
    with pytest.raises(UsageError, match="calling ladder: data = None"):
        regard.ladder(None)
    with pytest.raises(UsageError, match="expected: a TrainConfig"):
        regard.train.lm("tale.txt", config={"steps": 3})


def is_number(hint):
    """Whether a whole number or a float can be given."""
    inside = [part for part in typing.get_args(hint) if part is not type(None)]
    return hint in (int, float) or any(map(is_number, inside))


LATE = {**vars(activation_cache), **vars(activations), **vars(look_results), **vars(adapter_folder)}
"""Names that annotations of a Kit use and that are imported when they are needed."""


def public_functions():
    """Commands, other public names, and the methods of a Kit."""
    yield from ((command.name, command.load()) for command in COMMANDS)
    yield from ((name, getattr(regard, name)) for name in regard.__all__)
    yield from ((f"Kit.{name}", value) for name, value in vars(regard.Kit).items())


def test_one_word_for_how_many():
    """top: kept of a ranking; count: drawn or made; max_new: written (issue 23, 21)."""
    assert is_number(Count | None) and not is_number(str | None)
    for name, function in public_functions():
        if not inspect.isfunction(function) or name.startswith("Kit._"):
            continue
        hints = typing.get_type_hints(inspect.unwrap(function), None, LATE, include_extras=True)
        for hint in list(hints.values()):
            if FLAT in marks(hint):  # its fields are flags
                hints |= typing.get_type_hints(hint.__origin__, include_extras=True)
        assert not {"limit", "best"} & set(hints), name
        assert not is_number(hints.get("words")), name
