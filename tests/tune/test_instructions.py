"""Reading prompts with answers: forms of files, templates, what is cut, which tokens are learnt."""

import json
from pathlib import Path

import pytest
import torch

from regard.data.packing import Packed
from regard.data.windows import IGNORED
from regard.errors import DataError
from regard.tokens.tokenizer import Tokenizer
from regard.tokens.trainers import train_tokenizer
from regard.tune.instructions import (
    Comparisons,
    Instruction,
    encode_instruction,
    instruction_store,
    read_instructions,
)

TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture(scope="module")
def letters() -> Tokenizer:
    text = "abcdefghijklmnopqrstuvwxyz <>.?!:#\nIRS"
    return train_tokenizer(iter([text]), "chars", None, specials=("pad", "eos"), wrap="none")


@pytest.fixture(scope="module")
def chatty(letters) -> Tokenizer:
    files = letters.files | {"chat_template.jinja": TEMPLATE.encode()}
    return Tokenizer(letters.engine, letters.specials, files)


@pytest.fixture
def write(tmp_path):
    def write(*rows, name="rows.jsonl"):
        path = tmp_path / name
        path.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
        return str(path)

    return write


def store(path, tokenizer, kind, length=100, say=lambda text: None):
    place, tell = Path(path).with_suffix(".store"), (say, lambda text: None)
    return instruction_store(place, [path], tokenizer, kind, length, tell)


def test_every_turn_of_the_assistant_is_an_answer(write, chatty):
    turns = [("user", "hi"), ("assistant", "hello"), ("user", "more"), ("assistant", "end")]
    path = write({"messages": [{"role": r, "content": c} for r, c in turns]})
    rows = list(read_instructions([path], "sft", True))
    assert [row.answers for row in rows] == [["hello"], ["end"]]
    prompt, answer = encode_instruction(chatty, rows[1], True)
    assert chatty.decode(prompt) == "<user>hi\n<assistant>hello\n<user>more\n<assistant>"
    assert chatty.decode(answer) == "end\n"


def test_forms_of_prompts_and_answers(write):
    def only(kind, chat, row):
        (read,) = read_instructions([write(row)], kind, chat)
        return read.prompt, read.answers

    assert only("sft", False, {"prompt": "a?", "answer": "b"}) == ("a?", ["b"])
    alpaca = {"instruction": "add", "input": "one", "output": "two"}
    worded = "### Instruction:\nadd\n\n### Input:\none\n\n### Response:\n"
    assert only("sft", False, alpaca) == (worded, ["two"])
    assert only("sft", True, alpaca) == ("add\n\none", ["two"])
    pair = {"prompt": "a?", "chosen": "b", "rejected": "c"}
    assert only("dpo", False, pair) == ("a?", ["b", "c"])
    assert only("reward", False, pair) == ("a?", ["b", "c"])
    ranked = {"prompt": "a?", "answers": ["b", "c", "d"]}
    assert only("reward", False, ranked) == ("a?", ["b", "c", "d"])
    user, said = {"role": "user", "content": "a?"}, [{"role": "assistant", "content": "b"}]
    whole = {"chosen": [user, *said], "rejected": [user, {"role": "assistant", "content": "c"}]}
    assert only("dpo", True, whole) == ([user], ["b", "c"])


def test_a_missing_column_is_named_with_those_that_are_there(write):
    with pytest.raises(DataError, match="no column 'chosen' in line 1") as error:
        list(read_instructions([write({"prompt": "a", "rejected": "b"})], "dpo", False))
    assert "prompt, rejected" in error.value.expected
    with pytest.raises(DataError, match="line 2: 7, a int"):
        rows = {"prompt": "a", "answer": "b"}, {"prompt": "a", "answer": 7}
        list(read_instructions([write(*rows)], "sft", False))


def test_an_answer_ends_and_a_prompt_does_not(letters):
    prompt, answer = encode_instruction(letters, Instruction("", "ab", ["cd"]), False)
    assert letters.decode(prompt) == "ab" and letters.decode(answer) == "cd"
    assert answer[-1] == letters.specials["eos"] and letters.specials["eos"] not in prompt


def test_what_is_cut_or_left_out_is_named(write, letters):
    path = write(
        {"prompt": "abcdefgh", "answer": "xyz"},
        {"prompt": "a", "answer": " "},
        {"prompt": "a", "answer": "bcdefghijk"},
        {"prompt": "a", "answer": "b"},
    )
    said = []
    cut = store(path, letters, "sft", 6, said.append)
    texts = [letters.decode(cut[n].tolist()) for n in range(2 * len(cut))]
    assert texts == ["fgh", "xyz", "a", "bcdefg", "a", "b"]
    assert any(f"cut to 6 tokens: {path}:1, {path}:3" in line for line in said)
    assert any(f"left out, an empty answer: {path}:2" in line for line in said)


def test_packed_rows_learn_answers_only(write, letters):
    path = write(*({"prompt": "ab" * n, "answer": "xy" * n} for n in range(1, 6)))
    packed = Packed(store(path, letters, "sft"), 30, 4, seed=3)
    learnt = []
    for index in range(packed.count(0)):
        batch = packed.batch(0, index)
        for row in range(len(batch.labels)):
            for document in range(int(batch.documents[row].max()) + 1):
                here = batch.documents[row] == document
                labels = batch.labels[row][here]
                kept = labels != IGNORED
                answer = letters.decode(labels[kept].tolist())
                prompt = letters.decode(batch.inputs[row][here].tolist())
                assert prompt == answer.replace("xy", "ab") + answer
                assert labels[kept][-1] == letters.specials["eos"]
                learnt.append(answer)
        assert batch.tokens == int((batch.labels != IGNORED).sum())
    assert sorted(learnt) == [("xy" * n) for n in range(1, 6)]


def test_a_row_of_comparisons_holds_each_answer_as_a_document(write, letters):
    rows = {"prompt": "ab", "answers": ["c", "def"]}, {"prompt": "g", "answers": ["h", "i", "j"]}
    ranked = store(write(*rows), letters, "reward")
    source = Comparisons(ranked, 2, None)
    batch = source.batch(0, 0)
    assert batch.tokens == 2
    for number, row in enumerate(rows):
        for document, answer in enumerate(row["answers"]):
            here = batch.documents[number] == document
            assert letters.decode(batch.inputs[number][here].tolist()) == row["prompt"] + answer
            labels = batch.labels[number][here]
            assert letters.decode(labels[labels != IGNORED].tolist()) == answer
    ends = Comparisons(ranked, 2, None, ends=True).batch(0, 0)
    marked = ends.inputs[ends.labels == 0].tolist()
    assert marked == [letters.specials["eos"]] * 5
    source.reference = torch.arange(6.0).view(2, 3)
    assert source.batch(0, 0).extra["reference"].tolist() == [[0, 1, 2], [3, 4, 5]]
