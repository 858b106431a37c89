"""The `>>>` example of every public command runs as it stands, on tiny files of the names it uses.

Runs are cut to a few steps of a tiny model; what an example shows is compared where it does not
depend on such a file, and its type everywhere.
"""

from __future__ import annotations

import ast
import random
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import regard
from regard.cli.commands import COMMANDS
from regard.train import runs

NAMES = {  # what an example calls it: what stands there
    "valid.txt": "test",
    "test.txt": "test",
    "corpus.txt": "corpus",
    "pairs.tsv": "pairs",
    "train.tsv": "pairs",
    "test.tsv": "pairs_test",
    "dev.conllu": "treebank",
    "train.conllu": "treebank",
    "reviews.tsv": "reviews",
    "grades.tsv": "grades",
    "schemas.tsv": "schemas",
    "blimp.jsonl": "minimal_pairs",
    "questions.jsonl": "choices",
    "questions-words.txt": "questions",
    "wordsim353.tsv": "similar",
    "titles.txt": "sources",
    "answers.jsonl": "answers",
    "pairs.jsonl": "answers",
    "prompts.txt": "sources",
    "molecules.csv": "molecules",
    "vectors": "vectors",
    "m": "ngram",
    "run": "run",
    "folder": "gpt2",
    "gpt2": "gpt2",
}
OTHERS = {  # where a command needs another one
    "chat": {"folder": "chat"},
    "evaluate ioi": {"folder": "names"},
    "fill": {"folder": "bert"},
    "look circuit": {"pairs.tsv": "prompts"},
    "look patch": {"pairs.tsv": "prompts"},
    "look explain": {"folder": "names"},
    "train shortlist": {"folder": "t5"},
    "train memory": {"folder": "t5"},
    "tune merge": {"run": "adapter"},
    "tune classify": {"folder": "bert"},
    "tune tag": {"folder": "bert"},
    "tune regress": {"folder": "bert"},
    "evaluate classify": {"run": "classifier", "test.tsv": "reviews"},
    "evaluate image": {"run": "seer", "test.npz": "pictures"},
    "evaluate pixels": {"run": "drawer", "test.npz": "pictures"},
    "draw": {"run": "drawer"},
    "evaluate sound": {"run": "hearer"},
    "evaluate tag": {"run": "tagger"},
    "evaluate regress": {"run": "grader", "test.tsv": "grades"},
    "transcribe": {"folder": "whisper", "talk.flac": "sound"},
    "evaluate graph": {"run": "graphs"},
    "evaluate nvae": {"run": "sayer"},
    "nvib reconstruct": {"run": "sayer"},
    "nvib sample": {"run": "sayer"},
    "nvib interpolate": {"run": "sayer"},
    "predict": {"run": "classifier", "test.tsv": "reviews"},
    "info": {"gpt2": None},
    "plan": {"gpt2": None},
}
SLOW = {"verify", "ladder", "formal learn"}  # minutes
TALE = ("tale.txt", "train.txt")  # more words than classes
ENDS = "a ell ing o und aw est ish ub ock ar en ip oft uck".split()
WORDS = [first + end for first in "bdfgklmnprstvw" for end in ENDS]


@pytest.fixture(autouse=True)
def short_runs(monkeypatch):
    """Training as examples call it, for a few steps."""
    train_files = runs.train_files

    def short(word, files, configs, **rest):
        config, own, data = configs
        config = replace(config, steps=4, length=80, batch_tokens=160, warm_up=1)
        if isinstance(own, regard.ShapeConfig):
            own, data = replace(own, dim=16, depth=1, heads=2), replace(data, vocab=270)
        else:  # what an example begins with has 40 positions
            config = replace(config, length=40)
        if isinstance(own, regard.PolicyConfig):
            own = replace(own, answers=16, max_new=8, best_of=2)
        return train_files(word, files, configs=(config, own, data), **rest)

    monkeypatch.setattr(runs, "train_files", short)


def examples(command):
    """Each `>>>` line and what is shown below it."""
    lines = command.load().__doc__.partition("Example:\n")[2].splitlines()
    pairs = []
    for line in (line.strip() for line in lines):
        if line.startswith(">>> "):
            pairs.append([line[4:], None])
        elif line.startswith("... "):
            pairs[-1][0] += "\n" + line[4:]
        elif not line or line.startswith("$"):
            break
        else:
            pairs[-1][1] = line
    return pairs


def lay_out(command, lines, places, base):
    """Put what the lines name into the folder."""
    called = {**NAMES, **OTHERS.get(command.name, {})}
    written = set(re.findall(r'out="([^"]+)"', lines))
    used = re.findall(r'"([^"]+)"', lines)
    for name in {word.removesuffix("/final") for word in used} - written:
        if called.get(name) is not None:
            source, place = Path(places[called[name]]), base / name
            shutil.copytree(source, place) if source.is_dir() else shutil.copy(source, place)
    dice = random.Random(0)
    for name in set(TALE) & set(used):
        rows = (" ".join(dice.choices([*WORDS, "the", "king", "of"], k=9)) for _ in range(300))
        (base / name).write_text("".join(f"{row}\n" for row in rows))
    if "judge:short" in used:
        code = "def short(texts, prompts):\n    return [-len(text) for text in texts]\n"
        (base / "judge.py").write_text(code)
    return set(used) & {*called, *TALE}


COMMAND_PARAMETERS = [
    pytest.param(c, id=c.name, marks=[pytest.mark.slow] if c.name in SLOW else []) for c in COMMANDS
]


@pytest.mark.parametrize("command", COMMAND_PARAMETERS)
def test_example_runs(command, places, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pairs, names = examples(command), {"regard": regard}
    assert pairs
    depends = lay_out(command, "\n".join(code for code, _ in pairs), places, tmp_path)
    with regard.settings(seed=0, device="cpu", progress=False):
        for code, shown in pairs:
            tree = ast.parse(code)
            if not isinstance(tree.body[0], ast.Expr):
                exec(code, names)
                continue
            value = eval(code, names)
            if shown is not None:
                expected = ast.literal_eval(shown)
                assert type(value) is type(expected), f"{code} gives {value!r}"
                assert depends or value == expected, f"{code} gives {value!r}"
