"""Few-shot prompts, multiple choice and minimal pairs, beside transformers and closed forms."""

import json
import random
from math import comb

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

import regard
from regard.data.statistics import share_interval
from regard.decode.scoring import score_endings, score_rows
from regard.errors import DataError, UsageError
from regard.evaluate import multiple_choice
from regard.evaluate.multiple_choice import bootstrap, read_questions, score_options
from tests.decode.test_conversation import columns, folder  # noqa: F401

HEAD = "the cat sat on the mat: yes\n\nHello world: no\n\n"
PROMPTS = [f"{HEAD}{text}:" for text in ("the dog", "déjà vu", "a")]
OPTIONS = [(" yes", " no"), (" yes", " perhaps not"), ("x", " naïve café")]


@pytest.fixture
def kit(folder):  # noqa: F811
    return regard.load(folder)


@pytest.fixture(scope="module")
def score(folder):  # noqa: F811
    """The log-probability of an answer by transformers, its prompt cut apart."""
    model = LlamaForCausalLM.from_pretrained(folder).double().eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)

    def by_transformers(prompt, option):
        before = tokenizer(prompt)["input_ids"] if prompt else [tokenizer.bos_token_id]
        ids = [*([] if prompt else before), *tokenizer(prompt + option)["input_ids"]]
        with torch.no_grad():
            log = model(torch.tensor([ids])).logits[0].log_softmax(-1)
        return [float(log[n - 1, ids[n]]) for n in range(len(before), len(ids))]

    return by_transformers


def test_answers_score_as_in_transformers_and_examples_are_read_once(kit, score, columns):  # noqa: F811
    pairs = list(zip(PROMPTS, OPTIONS, strict=True))
    for mean in (False, True):
        columns.clear()
        ours = score_options(kit, PROMPTS, OPTIONS, mean)
        shared = len(kit.tokenizer.encode(HEAD)) - 2  # the last may be cut otherwise before a text
        assert columns[0] >= shared and all(count < 40 for count in columns[1:])
        want = [[score(prompt, text) for text in texts] for prompt, texts in pairs]
        totals = [[sum(each) / (len(each) if mean else 1) for each in row] for row in want]
        np.testing.assert_allclose(ours, totals, rtol=0, atol=1e-5)
    sentences = [("the cat sat", "cat the sat"), ("Paris", "naïve café")]
    want = [[sum(score("", text)) for text in pair] for pair in sentences]
    np.testing.assert_allclose(score_options(kit, ["", ""], sentences), want, rtol=0, atol=1e-5)


def test_the_blank_before_an_answer_counts_with_every_answer(kit):
    joined = score_options(kit, ["the cat: "], [("sat", "yes")])
    assert np.allclose(joined, score_options(kit, ["the cat:"], [(" sat", " yes")]))


def test_endings_of_a_batch_are_those_of_rows_alone(kit):
    dice = random.Random(0)
    rows = [[7, 8, 9, *dice.choices(range(350), k=dice.randint(1, 30))] for _ in range(90)]
    begins = [dice.randint(1, len(row) - 1) for row in rows]
    for begin in (begins, [max(3, begin) for begin in begins]):  # without and with a shared part
        scores = score_endings(kit.model, rows, begin)
        for row, first, line in zip(rows, begin, scores, strict=True):
            alone = score_rows(kit.model, [row])[0][first - 1 :]
            assert line == pytest.approx(alone, abs=1e-4)
    assert score_endings(kit.model, [[1, 5]], [1])[0] == pytest.approx(
        score_rows(kit.model, [[1, 5]])[0]
    )


def write(path, rows):
    path.write_text(
        "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)
    )
    return path


def test_files_of_questions(tmp_path):
    test = write(tmp_path / "test.tsv", ["good film\t1", "bad film\t0"])
    train = write(tmp_path / "train.csv", ["label,text", "2,so so", "1,nice"])
    asked, pool = read_questions([test, train], {"1": "positive"})
    assert asked[0].options == pool[0].options == ("0", "positive", "2")
    assert [each.answer for each in asked] == [1, 0] and [each.answer for each in pool] == [2, 1]
    choices = {"question": "2 + 2?", "choices": ["3", "4"]}
    file = write(tmp_path / "q.jsonl", [choices | {"answer": 1}, choices | {"answer": "4"}])
    assert [each.answer for each in read_questions([file], {})[0]] == [1, 1]
    for bad in (2, -1, "5", None):
        file = write(tmp_path / "q.jsonl", [choices | {"answer": 1}, choices | {"answer": bad}])
        with pytest.raises(DataError, match="line 2: the answer"):
            read_questions([file], {})
    with pytest.raises(DataError, match="of 1:"):  # one class only
        read_questions([write(tmp_path / "one.tsv", ["a\tx", "b\tx"])], {})
    with pytest.raises(DataError, match="no column 'label'") as caught:
        read_questions([write(tmp_path / "none.csv", ["text,mark", "a,b"])], {})
    assert "text, mark" in caught.value.expected


def labelled(tmp_path, count=40):
    """Texts of two labels, the test set and others to draw examples from."""
    rows = [f"{'abcde'[n % 5] * 3} {n}\t{n % 2}" for n in range(count)]
    return write(tmp_path / "test.tsv", rows[:10]), write(tmp_path / "train.tsv", rows)


def test_examples_stand_in_the_prompt_in_other_orders_and_never_the_question(
    kit, tmp_path, monkeypatch
):
    test, train = labelled(tmp_path)
    seen = []

    def follow(kit, prompts, options, mean=False):
        seen.append((prompts, options))
        return [[0.0, 1.0] for _ in prompts]

    monkeypatch.setattr(multiple_choice, "score_options", follow)
    template = r"T: {text}\nL: {answer}!"
    result = regard.evaluate.fewshot(
        kit, test, train=train, k=[0, 3], orders=2, template=template, labels=["1=yes", "0=no"]
    )
    none, one, other = (prompts for prompts, _ in seen)
    assert none[0] == "T: aaa 0\nL: " and none[-3:] == ["T: N/A\nL: ", "T: \nL: ", "T: [MASK]\nL: "]
    assert seen[0][1][0] == ("no", "yes") and len(none) == 10 + 3
    assert one[0].endswith("!\n\nT: aaa 0\nL: ") and one[0].count("!\n\n") == 3
    assert one[0] != other[0] and one[0][:-9] == one[1][: len(one[0]) - 9]
    questions = {f"{row.split(chr(9))[0]}\n" for row in test.read_text().splitlines()}
    assert not any(text in one[0][:-20] for text in questions)
    assert [row.accuracy for row in result.by_k] == [0.5, 0.5] and result.majority == 0.5
    again = [seen.pop(0)[0] for _ in range(3)]
    regard.evaluate.fewshot(
        kit, test, train=train, k=[0, 3], orders=2, template=template, labels=["1=yes", "0=no"]
    )
    assert [prompts for prompts, _ in seen] == again  # of the seed alone
    assert "50.0%" in str(result)


def test_calibration_divides_by_what_is_said_to_nothing(kit, tmp_path, monkeypatch):
    """A model that prefers yes by 0.9 to 0.1, and by 0.8 where it is right."""
    test, _ = labelled(tmp_path)
    answers = [int(row.split("\t")[1]) for row in test.read_text().splitlines()]
    shares = [[0.2, 0.8] if not answer else [0.05, 0.95] for answer in answers]

    def biased(kit, prompts, options, mean=False):
        rows = shares + [[0.1, 0.9], [0.05, 0.95], [0.15, 0.85]]
        return (np.log(rows) - 700).tolist()  # no probability underflows

    monkeypatch.setattr(multiple_choice, "score_options", biased)
    (row,) = regard.evaluate.fewshot(kit, test).by_k
    assert (row.accuracy, row.calibrated) == (0.5, 1.0)
    assert (row.calibrated_low, row.calibrated_high) == (1.0, 1.0)


def test_interval_of_one_order_is_that_of_a_share_and_orders_widen_it():
    dice = np.random.default_rng(0)
    one = dice.random((1, 400, 1)) < 0.7
    low, high = bootstrap(one, 1)[:, 0]
    assert share_interval(50, 100) == pytest.approx((0.4038, 0.5962), abs=1e-4)  # Wilson, by hand
    want = share_interval(int(one.sum()), 400)
    assert (low, high) == pytest.approx(want, abs=0.015)
    apart = np.stack([np.ones((400, 1)), np.zeros((400, 1))]).astype(bool)  # one order right
    assert bootstrap(apart, 1)[:, 0] == pytest.approx([0, 1])


def test_a_gain_is_of_the_same_questions(kit, tmp_path, monkeypatch):
    """None is right without examples, each with them: there is nothing to be unsure of."""
    test, train = labelled(tmp_path)

    def follow(kit, prompts, options, mean=False):
        right = [name == "yes" for name in options[0]]
        wrong = [not one for one in right]
        return [right if "!" in prompt else wrong for prompt in prompts]

    monkeypatch.setattr(multiple_choice, "score_options", follow)
    lines = [line.replace("\t0", "\t1") for line in test.read_text().splitlines()]
    test.write_text("\n".join(lines) + "\n")
    result = regard.evaluate.fewshot(
        kit, test, train=train, k=[3, 0], template="{text} {answer}!", labels=["1=yes", "0=no"]
    )
    none, three = result.by_k
    assert (none.k, none.gain, none.gain_low, none.gain_high) == (0, 0, 0, 0)
    assert (three.gain, three.gain_low, three.gain_high) == (1, 1, 1)


def test_own_choices_need_no_examples(kit, score, tmp_path):
    rows = [
        {"question": "the cat", "choices": [" sat", " on the mat", "x"], "answer": n % 3}
        for n in range(6)
    ]
    result = regard.evaluate.fewshot(
        kit, write(tmp_path / "q.jsonl", rows), template="{question}{answer}", score="mean"
    )
    means = [np.mean(score("the cat", text)) for text in rows[0]["choices"]]
    assert result.by_k[0].accuracy == pytest.approx(1 / 3) and result.score == "mean"
    assert result.majority == pytest.approx(1 / 3) and len(result.by_k) == 1
    rows = [row | {"answer": int(np.argmax(means))} for row in rows]
    file = write(tmp_path / "q.jsonl", rows)
    scored = regard.evaluate.fewshot(kit, file, template="{question}{answer}", score="mean")
    assert scored.by_k[0].accuracy == 1


def test_minimal_pairs_by_paradigm_and_phenomenon(kit, score, tmp_path):
    texts = ["the cat sat", "cat the sat", "Hello world!", "world Hello!", "a", "the"]
    rows = [
        {"sentence_good": good, "sentence_bad": bad, "UID": f"u{n % 3}", "linguistics_term": "t"}
        for n, (good, bad) in enumerate(zip(texts, texts[1:], strict=False))
    ]
    rows.append(rows[0] | {"sentence_bad": rows[0]["sentence_good"]})  # a tie is not right
    file = write(tmp_path / "pairs.jsonl", rows)
    result = regard.evaluate.blimp(kit, file)
    right = [
        sum(score("", row["sentence_good"])) > sum(score("", row["sentence_bad"])) for row in rows
    ]
    assert not right[-1] and result.right == sum(right) and result.asked == 6
    assert result.paradigms["u0"].asked == 3 and result.phenomena["t"].right == sum(right)
    assert (result.low, result.high) == share_interval(sum(right), 6)
    assert "u0" in str(result) and "u0" in repr(result)  # the whole of it, no cell of a table
    assert regard.evaluate.blimp(kit, file, count=1).asked == 3
    edited = regard.evaluate.blimp(kit, file, edit=["decoder.blocks.*.mlp.out=zero"])
    assert edited.asked == 6
    with pytest.raises(DataError, match="no column 'sentence_good'"):
        regard.evaluate.blimp(kit, write(tmp_path / "x.jsonl", [{"good": "a"}]))


def test_what_cannot_be_asked(kit, tmp_path):
    test, train = labelled(tmp_path)
    with pytest.raises(UsageError, match="0 others to draw 4 examples from"):
        regard.evaluate.fewshot(kit, test, k=[4])
    with pytest.raises(UsageError, match="others to draw 40 examples from"):
        regard.evaluate.fewshot(kit, test, train=train, k=[40])
    with pytest.raises(UsageError, match="columns: text, label"):
        regard.evaluate.fewshot(kit, test, template="{tekst} {answer}")
    with pytest.raises(DataError, match="before the answer"):
        regard.evaluate.fewshot(kit, test, labels=["1=", "0=no"])
    with pytest.raises(UsageError, match="an encoder-decoder"):
        regard.evaluate.fewshot("fr-en", test)


@pytest.mark.slow  # a minute: trains a tiny decoder
def test_a_model_of_planted_episodes_rises_with_the_examples_as_bayes_would(tmp_path):
    """An episode means x or y by all it shows, and says so in nine of ten examples."""
    dice = random.Random(0)

    def example(mark, sure):
        return dice.choice("ab"), mark if dice.random() < sure else "xy".replace(mark, "")

    def episode(mark):
        return "#" + "".join(f"{''.join(example(mark, 0.9))}\n\n" for _ in range(16))

    text = "".join(episode(dice.choice("xy")) for _ in range(6000))
    (tmp_path / "episodes.txt").write_text(text)
    run = regard.train.lm(
        tmp_path / "episodes.txt",
        out=tmp_path / "run",
        config=regard.TrainConfig(steps=500, lr=5e-3, warm_up=20, length=65, batch_tokens=2600),
        shape=regard.ShapeConfig(dim=32, depth=2, heads=2),
        data=regard.DataConfig(tokens="chars"),
    )
    counts, curves = [0, 1, 3, 9], []
    for mark in "xy":
        files = []
        for name, count, sure in (("test", 10, 1), ("train", 200, 0.9)):
            rows = ["\t".join([*example(mark, sure), f"{name}{n}"]) for n in range(count)]
            files.append(write(tmp_path / f"{name}-{mark}.tsv", ["text\tlabel\tid", *rows]))
        result = regard.evaluate.fewshot(
            run.kit, files[0], train=files[1], k=counts, orders=40, template="{text}{answer}"
        )
        curves.append([row.accuracy for row in result.by_k])
    measured = np.mean(curves, 0)
    shares = [[comb(k, n) * 0.9**n * 0.1 ** (k - n) for n in range(k + 1)] for k in counts[1:]]
    bayes = [0.5, *(sum(share[len(share) // 2 :]) for share in shares)]  # the majority is right
    assert measured == pytest.approx(bayes, abs=0.1) and all(np.diff(measured) >= 0)
