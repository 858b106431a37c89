"""Tables of vectors: files in and out, gensim's too, neighbours, analogies, sets of questions."""

from __future__ import annotations

import gzip
import json
import struct

import numpy as np
import pytest

import regard
from regard.cli.main import main
from regard.errors import DataError, UsageError
from regard.history.analogies import (
    OWN,
    agree,
    read_questions,
    read_similarity,
    solve,
    spearman,
)
from regard.history.config import Word2VecConfig
from regard.history.results import NearWord
from regard.history.word_vectors import (
    WordVectors,
    is_vectors,
    read_vectors,
    save_folder,
    write_vectors,
)

WORDS = ["the", "Ärger", "猫", "naïve", "x"]


def table(seed=0, dim=7, words=WORDS):
    dice = np.random.default_rng(seed)
    return WordVectors(words, dice.normal(size=(len(words), dim)).astype(np.float32))


def same(a, b):
    return a.words == b.words and (a.matrix == b.matrix).all()


FORMS = pytest.mark.parametrize("binary", [False, True])


@FORMS
def test_files_bring_back_every_bit(binary, tmp_path):
    made = table()
    made.matrix[0, :3] = 1e-38, -3.4e38, 0
    write_vectors(made, tmp_path / "a", binary)
    assert same(read_vectors(tmp_path / "a"), made)
    assert is_vectors(tmp_path / "a")
    (tmp_path / "a.vec.gz").write_bytes(gzip.compress((tmp_path / "a").read_bytes()))
    assert same(regard.load(tmp_path / "a.vec.gz"), made)


@FORMS
@pytest.mark.filterwarnings("ignore")
def test_gensim_reads_what_we_write_and_we_what_it_writes(binary, tmp_path):
    keyed = pytest.importorskip("gensim.models").KeyedVectors
    made = table()
    write_vectors(made, tmp_path / "a", binary)
    theirs = keyed.load_word2vec_format(tmp_path / "a", binary=binary)
    assert theirs.index_to_key == WORDS and (theirs.vectors == made.matrix).all()
    theirs.save_word2vec_format(tmp_path / "b", binary=binary)
    back = read_vectors(tmp_path / "b")
    assert back.words == WORDS
    np.testing.assert_allclose(back.matrix, made.matrix, rtol=0 if binary else 1e-6)


@pytest.mark.filterwarnings("ignore")
def test_answers_are_gensims(tmp_path):
    keyed = pytest.importorskip("gensim.models").KeyedVectors
    made = table(dim=9, words=[f"w{n}" for n in range(60)])
    theirs = keyed(9)
    theirs.add_vectors(made.words, made.matrix)
    for ours, wanted in (
        (made.neighbours("w3", 5), theirs.most_similar("w3", topn=5)),
        (made.analogy("w1", "w2", "w3", 5), theirs.most_similar(["w2", "w3"], ["w1"], topn=5)),
    ):
        assert [near.word for near in ours] == [word for word, _ in wanted]
        scores = [near.score for near in ours]
        np.testing.assert_allclose(scores, [s for _, s in wanted], rtol=1e-5)
    rows = [[f"w{n}" for n in row] for row in np.random.default_rng(0).integers(60, size=(200, 4))]
    rows = [row for row in rows if len(set(row)) == 4]
    rows += [[*q, made.analogy(*q, 1)[0].word] for *q, _ in rows[:20]]
    file = tmp_path / "q.txt"
    file.write_text(": all\n" + "\n".join(map(" ".join, rows)))
    score, _ = theirs.evaluate_word_analogies(file)
    right, asked, _ = solve(made, read_questions(file))["all"]
    assert right / asked == pytest.approx(score)


def test_neighbours_and_analogies_by_hand():
    made = WordVectors(
        ["man", "woman", "king", "queen", "apple"],
        np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1], [0, 0, -1]], np.float32),
    )
    assert made.neighbours("man", 2)[0].word == "woman"
    assert made.unit[2] @ made.unit[4] == pytest.approx(-(0.5**0.5))
    best = made.analogy("man", "woman", "king", 9)
    assert [near.word for near in best] == ["queen", "apple"]  # the three are left out
    assert made.analogy("man", "man", "man", 1)[0].word != "man"
    zero = WordVectors(["a", "b"], np.zeros((2, 3), np.float32))
    assert zero.neighbours("a") == [NearWord("b", 0.0)]


def test_large_numbers_have_a_direction_too():
    table = WordVectors(["a", "b", "c"], np.array([[3e30, 4e30], [0.6, 0.8], [0, 0]], np.float32))
    assert table.unit[0] @ table.unit[1] == pytest.approx(1)
    assert table.unit[0] @ table.unit[2] == 0


def test_unknown_words_get_spellings():
    made = table(words=["queen", "Paris", "king", "kings", "kind"])
    with pytest.raises(DataError, match=r"did you mean king, kings, kind\?") as error:
        made.neighbours("kingg")
    assert error.value.exit_code == 3
    assert made.spellings("paris") == ["Paris"]
    with pytest.raises(DataError, match="frequent in the text"):
        made.row("zzzzzzzz")


def test_text_without_a_first_line_is_glove(tmp_path):
    (tmp_path / "a.txt").write_text("the 1 2.5\n. 4\n")
    with pytest.raises(DataError, match="byte 10: row 1"):
        read_vectors(tmp_path / "a.txt")
    (tmp_path / "a.txt").write_text("the 1 2.5\n. -1e-3 4\n")
    made = read_vectors(tmp_path / "a.txt")
    assert made.words == ["the", "."] and made.matrix.tolist() == [[1, 2.5], [np.float32(-1e-3), 4]]


def test_of_a_word_that_stands_twice_the_first_row_counts(tmp_path):
    (tmp_path / "a.txt").write_text("3 2\na 1 2\na 3 4\nb . 5 6\n")
    made = read_vectors(tmp_path / "a.txt")
    assert made.words == ["a", "a", "b ."] and made["a"].tolist() == [1, 2]


def test_a_row_without_line_feeds_is_read_too(tmp_path):
    rows = b"".join(w.encode() + b" " + struct.pack("<2f", n, -n) for n, w in enumerate("ab"))
    (tmp_path / "a.bin").write_bytes(b"2 2\n" + rows)
    assert read_vectors(tmp_path / "a.bin").matrix.tolist() == [[0, 0], [1, -1]]


def damaged(made):
    """A good binary file, and each way to break it with what should be said: byte and row."""
    head, step = len(b"5 7\n"), 4 * 7
    ends, at = [], head
    for word in WORDS:
        at += len(word.encode()) + 1 + step + 1
        ends.append(at)
    return {
        "cut": (made[: ends[3] + 5], f"byte {ends[3]:,}: row 4"),
        "cut a lot": (made[: ends[0] - 1], f"byte {ends[0] - 1:,}: row 1"),
        "long": (made + b"more", f"byte {ends[4] - 1:,}: row 5: 5 bytes more"),
        "no utf-8": (made[: ends[0]] + b"\xff" + made[ends[0] + 1 :], f"byte {ends[0]:,}: row 1"),
        "nan": (
            made[: ends[1] - step - 1]
            + struct.pack("<f", float("nan"))
            + made[ends[1] - step + 3 :],
            f"byte {ends[1] - step - 1:,}: row 1",
        ),
        "many rows": (b"9" + made, f"byte {ends[4] + 1:,}: row 5"),
        "fewer dims": (made.replace(b"5 7", b"5 6"), "row 1"),
        "no header": (b"\x00\x01\x02" * 50, "byte 0"),
        "empty": (b"", "byte 0"),
        "no rows": (b"0 7\n", "no vectors"),
        "no dims": (made.replace(b"5 7", b"5 0"), "byte 0"),
        "dims below 0": (made.replace(b"5 7", b"5 -7"), "byte 0: b'5 -7'"),
        "a count of 5000 digits": (b"9" * 5000 + made, "byte 0"),
        "no word": (made[: ends[0]] + made[ends[0] + len(WORDS[1].encode()) :], "row 1: nothing"),
    }


@pytest.mark.parametrize("way", list(damaged(b"")))
def test_damaged_binary_files_say_byte_and_row(way, tmp_path):
    write_vectors(table(), tmp_path / "good.bin", True)
    data, said = damaged((tmp_path / "good.bin").read_bytes())[way]
    (tmp_path / "bad.bin").write_bytes(data)
    with pytest.raises(DataError) as error:
        read_vectors(tmp_path / "bad.bin")
    assert said in str(error.value)


def test_damaged_text_and_folders(tmp_path):
    for text, said in (
        ("2 2\na 1 2\nb 1\n", "byte 10: row 1"),
        ("2 2\na 1 2\n", "row 1: the end"),
        ("1 2\na 1 nan\n", "byte 4: row 0: not a number"),
        ("2 2\na 1 2\nb 1 1e39\n", "byte 10: row 1: not a number"),
        ("2 2\na 1 2\nb 1 2 3\n", "byte 10: row 1: b'b 1 2 3'"),
        ("2 3\na 1.5 2\nb 1 2\n", "byte 4: row 0: b'a 1.5 2'"),
        ("2 -2\na 1 2\nb 1 2\n", "byte 0: b'2 -2'"),
        ("2 2\na 1 2\n 1 2\n", "byte 10: row 1: nothing before the numbers"),
    ):
        (tmp_path / "a.txt").write_text(text)
        with pytest.raises(DataError, match=said):
            read_vectors(tmp_path / "a.txt")
    with pytest.raises(DataError, match="no such file"):
        read_vectors(tmp_path / "none")
    with pytest.raises(DataError, match="without word vectors"):
        read_vectors(tmp_path)
    with pytest.raises(DataError, match="'a b'"):
        write_vectors(table(words=["a b"]), tmp_path / "b", False)
    save_folder(tmp_path / "m", ["a"], [3], {"in": np.ones((1, 2), np.float32)}, {})
    (tmp_path / "m" / "words.tsv").write_text("")
    with pytest.raises(DataError, match=r"m: 0 words, vectors of shape \(1, 2\)"):
        read_vectors(tmp_path / "m")
    (tmp_path / "m" / "vectors.safetensors").write_bytes(b"\x08")
    with pytest.raises(DataError, match=r"vectors\.safetensors"):
        read_vectors(tmp_path / "m")


def test_a_folder_keeps_both_matrices(tmp_path):
    a, b = table(0), table(1)
    save_folder(tmp_path / "m", WORDS, range(5), {"in": a.matrix, "out": b.matrix}, {"dim": 7})
    assert same(read_vectors(tmp_path / "m"), a)
    assert same(read_vectors(tmp_path / "m", "out"), b)


# Sets of questions --------------------------------------------------------------------------------


def test_questions(tmp_path):
    file = tmp_path / "q.txt"
    file.write_text("# remark\n: one\na b c d\n\n: two\na b\nc d\ne f\n")
    assert read_questions(file)["one"] == [["a", "b", "c", "d"]]
    two = read_questions(file)["two"]
    assert len(two) == 6 and two[0] == ["a", "b", "c", "d"] and ["e", "f", "a", "b"] in two
    for text, said in (
        (": x\na b c\n", "line 2"),
        ("a b\na b c d\n", "line 2"),
        ("", "no questions"),
        ("a b\n", "no questions"),
    ):
        file.write_text(text)
        with pytest.raises(DataError, match=said):
            read_questions(file)
    assert all(len(set(map(tuple, rows))) == len(rows) for rows in read_questions(OWN).values())


def test_solving_counts_and_skips():
    made = WordVectors(
        ["man", "woman", "king", "queen"],
        np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1]], np.float32),
    )
    questions = {
        "right": [["man", "woman", "KING", "queen"], ["Man", "king", "woman", "queen"]],
        "wrong": [["man", "woman", "king", "man"], ["man", "woman", "emperor", "empress"]],
    }
    found = solve(made, questions)
    assert found == {"right": (2, 2, 0), "wrong": (0, 1, 1)}


def test_similarity(tmp_path):
    file = tmp_path / "s.tsv"
    file.write_text("word1,word2,mean\n# remark\na,b,9.5\nA\tc\t1\nb c 2\nb z 3\n")
    pairs = read_similarity(file)
    assert pairs[0] == ("a", "b", 9.5) and len(pairs) == 4
    made = WordVectors(["a", "b", "c"], np.array([[1, 0], [1, 0.1], [0, 1]], np.float32))
    assert agree(made, pairs) == (1.0, 3, 1)
    for text, said in (("a b 1\na b\n", "line 2: 'a b'"), ("a b nan\n", "line 1: 'a b nan'")):
        file.write_text(text)
        with pytest.raises(DataError, match=said):
            read_similarity(file)
    with pytest.raises(DataError, match="0 of 1 pairs"):
        agree(made, [("y", "z", 1.0)])
    with pytest.raises(DataError, match="3 for each of 2 pairs"):
        agree(made, [("a", "b", 3.0), ("a", "c", 3.0)])


def test_ranks_share_ties():
    assert spearman([1, 2, 2, 4], [1, 2, 3, 4]) == pytest.approx(0.9486833)  # by hand: 4.5 / √22.5
    assert spearman([1, 2, 3], [3, 2, 1]) == -1 and spearman([1, 1], [1, 2]) == 0


# From files ---------------------------------------------------------------------------------------

SMALL = {"config": Word2VecConfig(dim=8, epochs=2), "workers": 1}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A text and the vectors of it."""
    folder = tmp_path_factory.mktemp("words")
    dice = np.random.default_rng(0)
    words = [f"w{n}" for n in range(20)]
    rows = [" ".join(dice.choice(words, 8)) + " ." for _ in range(200)]
    (folder / "a.txt").write_text("\n".join(rows))
    regard.train.w2v(folder / "a.txt", out=folder / "m", **SMALL)
    return folder


def call(capsys, *arguments):
    code = main([str(word) for word in arguments])
    caught = capsys.readouterr()
    return code, caught.out, caught.err


def test_training_asking_and_evaluating(trained, capsys):
    model = trained / "m"
    held = regard.load(model)
    assert set(held.words) == {".", *(f"w{n}" for n in range(20))} and held.dim == 8
    answers = regard.history.analogy(model, "w1", "w2", "w3").answers
    assert len(answers) == 10 and not {"w1", "w2", "w3"} & {near.word for near in answers}
    assert regard.history.analogy(held, "w1", "w2", "w3").answers == answers
    near = regard.history.neighbours(model, "w1", top=3, matrix="out")
    assert len(near.neighbours) == 3 and len(str(near).splitlines()) == 6
    (trained / "q.txt").write_text("w1 w2 w3 w4\nw1 w2 w3 never\n")
    code, out, _ = call(capsys, "evaluate", "analogies", model, trained / "q.txt", "--json")
    assert code == 0 and json.loads(out)["asked"] == 1 and json.loads(out)["skipped"] == 1
    (trained / "s.txt").write_text("w1 w2 3\nw3 w4 5\nw5 w6 1\n")
    code, out, _ = call(capsys, "evaluate", "similarity", model, trained / "s.txt", "--json")
    assert code == 0 and json.loads(out)["pairs"] == 3


def test_a_receipt_makes_the_same_vectors_again(trained, capsys):
    receipt = json.loads((trained / "m" / "receipt.json").read_text())
    assert receipt["results"]["words"] == 21 and receipt["seed"] == 0
    code, out, _ = call(capsys, "replay", trained / "m")
    assert code == 0 and f"same bits: {receipt['results']['weights']}" in out
    receipt["function"] = "regard.list"
    (trained / "other.json").write_text(json.dumps(receipt))
    assert call(capsys, "replay", trained / "other.json")[0] == 3


@pytest.mark.parametrize("name", ["a.bin", "a.vec"])
def test_training_into_a_file(trained, name, tmp_path):
    regard.train.w2v(trained / "a.txt", out=tmp_path / name, **SMALL)
    assert same(read_vectors(tmp_path / name), read_vectors(trained / "m"))


def test_clustering(trained):
    found = regard.history.cluster(trained / "a.txt", k=4)
    assert len(found.classes) == 4 and sum(len(row.words) for row in found.classes) == 21
    assert all(row.label in str(found) for row in found.classes)


@pytest.mark.parametrize(
    ("verb", "arguments", "kind", "said"),
    [
        ("history.analogy", ["M", "w1", "w2", "w33"], DataError, "did you mean w3"),
        ("history.neighbours", ["M", "w111"], DataError, "did you mean w11"),
        ("history.neighbours", ["T", "w1"], DataError, "word2vec's first line"),
        ("train.w2v", ["T", Word2VecConfig(window=0)], UsageError, "window = 0"),
        ("train.w2v", ["T", Word2VecConfig(min_count=9999)], DataError, "lower --min-count"),
        ("history.cluster", ["T", 22], UsageError, "1 to 21, the vocabulary"),
    ],
)
def test_wrong_calls(trained, verb, arguments, kind, said):
    places = {"M": trained / "m", "T": trained / "a.txt"}
    room, name = verb.split(".")
    more = {}
    if name == "w2v":
        more = {"out": trained / "new", "config": arguments.pop()}
    elif name == "cluster":
        more = {"k": arguments.pop()}
    with pytest.raises(kind) as found:
        getattr(getattr(regard, room), name)(*(places.get(w, w) for w in arguments), **more)
    assert said in str(found.value) and not (trained / "new").exists()


def test_what_is_there_stays(trained):
    with pytest.raises(UsageError, match="a new or empty folder"):
        regard.train.w2v(trained / "a.txt", out=trained / "m", **SMALL)


def test_the_command_line_names_what_is_near(trained, capsys):
    words = ["train", "w2v", trained / "a.txt", "--out", trained / "new"]
    assert "did you mean" in call(capsys, *words, "--windows", "2")[2].lower()
    assert call(capsys, "evaluate", "analogies", trained / "m")[0] == 3
    assert call(capsys, "evaluate", "similarity", trained / "m")[0] == 2


def test_an_empty_file_and_words_that_are_not_utf8(tmp_path):
    (tmp_path / "v.bin").touch()
    with pytest.raises(DataError, match="an empty file"):
        read_vectors(tmp_path / "v.bin")
    some = np.ones((1, 2), np.float32)
    save_folder(tmp_path / "m", ["word"], [1], {"in": some, "out": some}, {})
    (tmp_path / "m/words.tsv").write_bytes(b"w\xffrd\t1\n")
    with pytest.raises(DataError, match="words.tsv: line 1, byte 1 .0xff. is not UTF-8"):
        read_vectors(tmp_path / "m")
