"""`regard embed`: a word's vectors by hand from single runs, lines as `Kit.embed`, bad input."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import regard
from regard.loading import load
from tests.cli.small_folders import masker, pair, stdin, writer  # noqa: F401

A = "the cat sat on the mat\n\na dog and a naïve cat\nthe mat\n"
B = "Hello cat, how are you\nthe capital of the cat sat on the cat\n"
USES = [("a.txt", 1), ("a.txt", 3), ("b.txt", 1), ("b.txt", 2), ("b.txt", 2)]


@pytest.fixture
def files(tmp_path):
    (tmp_path / "a.txt").write_text(A)
    (tmp_path / "b.txt").write_text(B)
    return tmp_path / "a.txt", tmp_path / "b.txt"


def by_hand(kit, tap, word):
    """For each word of each line alone: its letters, and the mean of its tokens' vectors."""
    made = []
    for name, text in (("a", A), ("b", B)):
        for line in filter(lambda line: word in line, text.splitlines()):
            tokens, at = kit.tokenizer.offsets(line), 0
            seen = kit.run(line, taps=tap)[1][tap][0] if tap else None
            table = kit.model.front.tokens.weight[kit.tokenizer.encode(line)]
            for each in line.replace(",", " ").split():
                at = line.index(each, at)
                own = [n for n, (s, e) in enumerate(tokens) if max(s, at) < min(e, at + len(each))]
                vector = (table if seen is None else seen)[own].mean(0).detach().numpy()
                made.append((name, each.lower(), vector))
                at += len(each)
    return made


def cosine(a, b):
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


@pytest.mark.parametrize("which", ["writer", "masker", "pair"])
def test_cosines_and_neighbours_by_hand(here, request, files, which):
    folder = request.getfixturevalue(which)
    code, out, _ = here(
        "embed", folder, "--word", "cat", "--layer", "all", "--json", "--files", *files
    )
    found, kit = json.loads(out), load(folder)
    assert code == 0 and found["files"] == [str(file) for file in files]
    assert [(use["file"][-5:], use["line"]) for use in found["uses"]] == USES
    assert [row["line"] for row in found["left_out"]] == [4]
    assert [row["layer"] for row in found["layers"]][0] == "static" and len(found["layers"]) == 4
    for layer in found["layers"]:
        tap = None if layer["layer"] == "static" else layer["layer"]
        every = by_hand(kit, tap, "cat")
        uses = [(name, x) for name, each, x in every if each == "cat"]
        means = {n: np.mean([x for name, x in uses if name == n], 0) for n in "ab"}
        for n, (mine, x) in enumerate(uses):
            for k, name in enumerate("ab"):
                others = [y for j, (f, y) in enumerate(uses) if f == name and j != n]
                wanted = np.mean([cosine(x, y) for y in others])
                assert layer["by_use"][n][k] == pytest.approx(wanted, abs=1e-5), (mine, name)
        by_use = np.array(layer["by_use"])
        wanted = [by_use[:2].mean(0), by_use[2:].mean(0)]
        assert np.allclose(layer["cosines"], wanted, atol=1e-9)
        types = {each for _, each, _ in every} - {"cat"}
        of = {t: np.mean([x for _, each, x in every if each == t], 0) for t in types}
        scores = [{t: cosine(of[t], means[name]) for t in types} for name in "ab"]
        for k in (0, 1):
            near = layer["nearest"][k]
            best = sorted(scores[k].values(), reverse=True)[:6]
            assert [n["score"] for n in near] == pytest.approx(best, abs=1e-5)
            assert all(scores[k][n["word"]] == pytest.approx(n["score"], abs=1e-5) for n in near)
    last = found["layers"][-1]
    assert min(map(min, last["by_use"])) < 0.99
    static = found["layers"][0]
    if which == "masker":  # its tokens do not hold the blank before a word
        assert np.allclose(static["by_use"], 1)
    one = json.loads(here("embed", folder, "--files", *files, "--word", "CAT", "--json")[1])[
        "layers"
    ]
    assert one == [static, last]


def test_tables_for_people(here, masker, files):  # noqa: F811
    code, out, err = here("embed", masker, "--files", *files, "--word", "cat", "--top", 2)
    rows = [line.split() for line in out.splitlines()]
    assert code == 0 and [row[2:] for row in rows if row[0] == "static"][0] == [*("1.000", "1.000")]
    assert "encoder.blocks.1.resid_post" in out and "blocks.0" not in out
    assert f"left out: {files[0]}:4: no 'cat'" in err and ":2" not in err  # a blank line
    code, out, err = here("embed", masker, "--files", *files, "--word", "dog")
    assert code == 0 and f"'dog' stands in {files[0]} only" in err and "–" in out
    (files[0].parent / "c.txt").write_text("cat\n")
    assert here("embed", masker, "--files", files[0].parent / "c.txt", "--word", "cat")[0] == 0


def test_lines_as_the_kit_embeds_them(here, masker, files, stdin):  # noqa: F811
    wanted = load(masker).embed_batch([*A.splitlines(), *B.splitlines()]).numpy()
    rows = [
        json.loads(line)
        for line in here("embed", masker, "--file", *files, "--json")[1].splitlines()
    ]
    assert [row["line"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert np.allclose([row["vector"] for row in rows], wanted, atol=1e-5)
    stdin(A)
    printed = here("embed", masker)[1].splitlines()
    assert np.allclose([list(map(float, line.split())) for line in printed], wanted[:4], atol=1e-5)


def test_lines_that_cannot_be_done_are_named(here, writer, tmp_path):  # noqa: F811
    file = tmp_path / "a.txt"
    file.write_bytes(b"the cat\n\nthe \xff cat\n" + b"cat " * 50 + b"\nthe dog\n")
    code, out, err = here("embed", writer, "--file", file, "--json")
    rows = [json.loads(row) for row in out.splitlines()]
    assert code == 3 and [row.get("line") for row in rows] == [1, None, None, None, 5]
    assert "text 2" in err and "line 3" in err and "text 4" in err
    file.write_text("the cat\n\n" + "cat " * 50 + "\nthe dog\n")
    found = json.loads(here("embed", writer, "--files", file, "--word", "cat", "--json")[1])
    assert [use["line"] for use in found["uses"]] == [1]
    left = [(row["line"], row["why"]) for row in found["left_out"]]
    assert left == [(4, "no 'cat'"), (3, "more than 40 tokens")]


def test_bad_input(here, writer, folders, files, tmp_path):  # noqa: F811
    def said(*arguments):
        code, out, err = here("embed", *arguments)
        assert out == "" and "Traceback" not in err
        return code, err

    code, err = said(writer, "--files", *files, "--word", "catt")
    assert code == 3 and "5 lines, none with it" in err and "did you mean cat" in err
    assert said(writer, "--files", *files, "--word", " ")[0] == 2
    assert said(writer, "--file", *files, "--layer", 0)[0] == 2
    code, err = said(writer, "--files", *files, "--word", "cat", "--layer", 2)
    assert code == 2 and "0 to 1" in err
    assert said(writer, "--files", tmp_path / "none.txt", "--word", "cat")[0] == 3
    (tmp_path / "long.txt").write_text("cat " * 50)
    code, err = said(writer, "--files", tmp_path / "long.txt", "--word", "cat")
    assert code == 3 and "at most 40 tokens" in err
    assert said(folders / "decoder", "--files", *files, "--word", "cat")[0] == 3


def test_an_edit_changes_the_vectors(here, writer, files):  # noqa: F811
    """As the same edit in Python does."""
    command = (
        "embed",
        writer,
        "--files",
        *files,
        "--word",
        "cat",
        "--json",
        "--edit",
        "*.attn.out=zero",
    )
    kit, found = load(writer), json.loads(here(*command)[1])
    taps = {"decoder.blocks.*.attn.out": regard.zero()}
    with kit.edit(taps), torch.no_grad():
        every = by_hand(kit, "decoder.blocks.1.resid_post", "cat")
    uses = [x for _, each, x in every if each == "cat"]
    assert found["layers"][1]["by_use"][0][0] == pytest.approx(cosine(*uses[:2]), abs=1e-5)
