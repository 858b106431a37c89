"""`regard generate`: the fixed shape of its output, transformers' tokens, and bad input."""

from __future__ import annotations

import json
import re
import sys

import pytest
import torch

from regard import decode as module
from regard.decode import continuation
from regard.decode.scoring import score_rows
from regard.loading import load
from tests.cli.small_folders import pair, stdin, writer  # noqa: F401

PROMPT = "the cat"


def parsed(out):
    return [json.loads(line) for line in out.splitlines()]


@pytest.fixture(scope="module")
def reference(writer):  # noqa: F811
    import transformers

    return transformers.GPT2LMHeadModel.from_pretrained(writer).eval()


def test_tokens_text_and_logprob(here, writer, reference):  # noqa: F811
    code, out, err = here("generate", writer, PROMPT, "--max-new", 12, "--greedy", "--json", "-q")
    assert (code, err, len(out.splitlines())) == (0, "", 1)
    found = json.loads(out)
    tokenizer = load(writer).tokenizer
    ids = torch.tensor([tokenizer.encode(PROMPT)])
    made = reference.generate(ids, max_new_tokens=12, do_sample=False, pad_token_id=0)
    assert found["tokens"] == made[0, ids.shape[1] :].tolist()
    assert found["text"] == tokenizer.decode(made[0].tolist())[len(PROMPT) :]
    log = reference(made).logits[0].detach().log_softmax(-1)
    wanted = sum(float(log[n - 1, made[0, n]]) for n in range(ids.shape[1], made.shape[1]))
    assert found["logprob"] == pytest.approx(wanted, abs=1e-4)


def test_lines_of_stdin_are_answered_one_by_one(here, writer, stdin):  # noqa: F811
    lines = ["the cat", "Paris is", "", "Hello world! How", "x"] * 8  # more than one batch
    stdin("".join(f"{line}\n" for line in lines))
    code, out, _ = here("generate", writer, "--max-new", 5, "--json")
    together = parsed(out)
    assert code == 0 and len(together) == len(lines)
    for line, found in list(zip(lines, together, strict=True))[:5]:
        alone = parsed(here("generate", writer, line, "--max-new", 5, "--json")[1])[0]
        assert alone["tokens"] == found["tokens"] and alone["text"] == found["text"]
        assert alone["logprob"] == pytest.approx(found["logprob"], abs=1e-4)
    assert [f["tokens"] for f in together[:5]] == [f["tokens"] for f in together[35:]]


def test_draws_belong_to_the_line(here, writer, stdin, monkeypatch):  # noqa: F811
    flags = ("--max-new", 6, "--temperature", 1.5, "--seed", 4, "--json")
    stdin(f"{PROMPT}\n" * 6)
    first = here("generate", writer, *flags)[1]
    monkeypatch.setattr(module, "TOGETHER", 4)
    stdin(f"{PROMPT}\n" * 6)
    assert [f["tokens"] for f in parsed(here("generate", writer, *flags)[1])] == [
        f["tokens"] for f in parsed(first)
    ]
    assert len({str(f["tokens"]) for f in parsed(first)}) > 3
    other = here("generate", writer, PROMPT, *flags[:-2], 5, "--json")[1]
    assert parsed(other)[0]["tokens"] != parsed(first)[0]["tokens"]


def test_plain_text_and_stop(here, writer):  # noqa: F811
    _, out, _ = here("generate", writer, PROMPT, "--max-new", 9, "--json")
    text = json.loads(out)["text"]
    assert here("generate", writer, PROMPT, "--max-new", 9)[1] == text + "\n"
    stop = text[3:5]
    code, out, _ = here("generate", writer, PROMPT, "--max-new", 9, "--stop", stop, "--json")
    found = json.loads(out)
    assert code == 0 and found["text"] == text[: text.index(stop)] and found["finished"]
    assert len(found["tokens"]) < 9


def test_streaming_on_a_terminal(here, writer, monkeypatch, capsys):  # noqa: F811
    plain = here("generate", writer, PROMPT, "--max-new", 9)[1]
    parts = []
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    write = sys.stdout.write
    monkeypatch.setattr(sys.stdout, "write", lambda text: parts.append(text) or write(text))
    code, out, _ = here("generate", writer, PROMPT, "--max-new", 9)
    assert (code, out) == (0, plain) and len([part for part in parts if part]) > 3


def test_what_streams_holds_back(monkeypatch):
    class Stop:
        strings = ["b c"]

    text, told = "ab caf\ufffd", []
    monkeypatch.setattr(
        continuation, "continue_text", lambda kit, batch, row, tokens: text[: len(tokens)]
    )
    stream = continuation.TextStream(None, None, Stop(), told.append)
    for token in range(len(text)):
        stream(0, token)
    assert told == ["a", "", "", "", "b ca", "f", ""]  # b c may stop it, half a letter may change


def test_beams_are_capped_by_the_vocabulary(here, writer):  # noqa: F811
    size = load(writer).tokenizer.size
    code, out, err = here("generate", writer, PROMPT, "--beams", 999, "--max-new", 1, "--json")
    assert code == 0 and f"{size} beams" in err and len(json.loads(out)["tokens"]) == 1
    one = json.loads(here("generate", writer, PROMPT, "--beams", 1, "--max-new", 4, "--json")[1])
    greedy = json.loads(here("generate", writer, PROMPT, "--max-new", 4, "--json")[1])
    assert one["tokens"] == greedy["tokens"]


@pytest.mark.parametrize("name", ["writer", "pair"])
def test_no_sequence_is_likelier_than_the_exhaustive_one(here, request, name):
    folder, flags = request.getfixturevalue(name), ("--max-new", 2, "--json")
    given = ("generate", folder, PROMPT, *flags)
    size = load(folder).model.config.head.size
    best = json.loads(here(*given, "--search", "exhaustive")[1])
    widest = json.loads(here(*given, "--beams", size)[1])  # which prunes nothing
    assert best["tokens"] == widest["tokens"]
    assert best["logprob"] == pytest.approx(widest["logprob"], abs=1e-4)


def test_draws_beside_the_usual_ones(here, writer):  # noqa: F811
    given = ("generate", writer, PROMPT, "--max-new", 6, "--json")
    tokens = [
        json.loads(here(*given, *flags)[1])["tokens"]
        for flags in (
            ("--temperature", 0, "--presence", 1e6),
            ("--temperature", "inf", "--seed", 1),
            ("--temperature", "inf", "--seed", 2),
            ("--typical", 0.2, "--seed", 1),
        )
    ]
    assert len({*tokens[0]}) == len(tokens[0])  # none occurs twice
    assert tokens[1] != tokens[2] and tokens[3]


def test_an_encoder_decoder_writes_too(here, pair):  # noqa: F811
    code, out, _ = here("generate", pair, PROMPT, "--max-new", 4, "--json", "--strict")
    assert code == 0 and 1 <= len(json.loads(out)["tokens"]) <= 4


def test_a_position_table_ends_the_text(here, writer):  # noqa: F811
    code, out, err = here("generate", writer, PROMPT, "--max-new", 500, "--json")
    assert code == 0 and "of 40 positions in all" in err
    assert len(json.loads(out)["tokens"]) <= 40
    code, _, err = here("generate", writer, "the cat sat " * 30)
    assert code == 3 and "fewer than 40" in err


@pytest.mark.parametrize("beams", [1, 3])
def test_a_beam_stops_at_a_text(here, writer, beams):  # noqa: F811
    flags = ("generate", writer, PROMPT, "--max-new", 9, "--json")
    free = parsed(here(*flags, "--beams", beams)[1])[0]
    stop = free["text"][3:5]
    code, out, _ = here(*flags, "--beams", beams, "--stop", stop)
    (found,) = parsed(out)
    assert code == 0 and stop not in found["text"]
    kit = load(writer)
    ids = kit.tokenizer.encode(PROMPT)
    scored = score_rows(kit.model, [[*ids, *found["tokens"]]])[0][len(ids) - 1 :]
    assert found["logprob"] == pytest.approx(sum(scored), abs=1e-4)  # the stop itself is free
    assert found["finished"] or len(found["tokens"]) == 9
    if beams == 1:  # a beam of one is greedy, with a stop text too
        greedy = parsed(here(*flags, "--greedy", "--stop", stop)[1])[0]
        same = ("tokens", "text", "finished")
        assert [found[key] for key in same] == [greedy[key] for key in same]
        assert found["finished"]
    unheard = parsed(here(*flags, "--beams", beams, "--stop", "never written")[1])[0]
    assert unheard["tokens"] == free["tokens"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--max-new", 0), "max_new = 0\n  expected: a whole number from 1 up"),
        (("--top-k", 0), "top_k = 0"),
        (("--top-p", 0), "top_p = 0.0\n  expected: more than 0 and at most 1"),
        (("--top-p", 1.5), "more than 0 and at most 1"),
        (("--min-p", 2), "0 to 1"),
        (("--temperature", -1), "temperature = -1.0\n  expected: 0 or more"),
        (("--temperature", "warm"), "warm"),
        (("--temperature", "nan"), "temperature = nan"),
        (("--typical", 0), "typical = 0.0\n  expected: more than 0 and at most 1"),
        (("--repetition", 0), "repetition = 0.0\n  expected: more than 0"),
        (("--search", "exhaustive", "--beams", 2), "beams and search"),
        (("--search", "exhaustive", "--stop", "a"), "search and stop"),
        (("--search", "exhaustive", "--max-new", 9), " sequences\n  expected: at most 2,000,000"),
        (("--beams", 0), "beams = 0"),
        (("--greedy", "--top-k", 3), "greedy and top_k"),
        (("--beams", 2, "--temperature", 1), "beams and temperature"),
        (("--topp", 0.5), "--top-p"),
        (("--top", 3, "--beams", 2), "width = 2, count = 3"),
        (("--beams", 4, "--groups", 3), "3 groups of a beam of 4"),
        (("--top", 2, "--temperature", 1), "beams and temperature"),
        (("--min-new", 9, "--max-new", 4), "min_new = 9\n  expected: at most max_new = 4"),
        (("--no-repeat", 0), "no_repeat = 0"),
        (("--ban", " "), "the word ' '"),
        (("--search", "exhaustive", "--ban", "a"), "search and ban"),
        (("--beams", 2, "--alpha", -1), "alpha = -1.0"),
    ],
)
def test_wrong_calls(here, writer, flags, said):  # noqa: F811
    code, out, err = here("generate", writer, PROMPT, *flags)
    assert (code, out) == (2, "") and said in err


def test_wrong_folders(here, folders, tmp_path):
    code, _, err = here("generate", folders / "decoder", PROMPT)
    assert code == 3 and "no tokenizer" in err
    assert here("generate", tmp_path / "none", PROMPT)[0] == 3
    assert "a shape without weights" in here("generate", "gpt2", PROMPT)[2]


def test_a_prompt_that_is_too_long_is_named_and_the_others_are_answered(here, writer, stdin):  # noqa: F811
    stdin(f"{PROMPT}\n{'the cat ' * 40}\n{PROMPT}\n")
    code, out, err = here("generate", writer, "--max-new", 5, "--json")
    first, refused, last = parsed(out)
    assert code == 3 and "tokens in prompt 2" in err and "tokens in prompt 2" in refused["error"]
    assert first["tokens"] == last["tokens"] and len(first["tokens"]) == 5


# What a search can be asked for -------------------------------------------------------------------


def test_the_best_of_a_beam_are_those_of_transformers(writer, reference):  # noqa: F811
    kit = load(writer)
    found = kit.generate(PROMPT, max_new=5, beams=4, top=3, alpha=0.0)
    ids = torch.tensor([kit.tokenizer.encode(PROMPT)])
    same = dict(num_beams=4, num_return_sequences=3, length_penalty=0.0, early_stopping=False)
    made = reference.generate(
        ids, max_new_tokens=5, do_sample=False, pad_token_id=0, min_new_tokens=5, **same
    )
    longest = kit.generate(PROMPT, max_new=5, min_new=5, beams=4, top=3, alpha=0.0)
    assert [each.tokens for each in longest.top] == made[:, ids.shape[1] :].tolist()
    assert found.top[0].text == found.text and found.to_dict()["top"][0]["tokens"] == found.tokens
    assert [each.score for each in found.top] == [each.logprob for each in found.top]  # no penalty
    assert len({each.text for each in found.top}) == 3
    assert kit.generate(PROMPT, max_new=5, top=3, alpha=0.0).top == (
        kit.generate(PROMPT, max_new=5, beams=3, top=3, alpha=0.0).top
    )
    assert str(found).count("\n") == 2
    assert "top" not in kit.generate(PROMPT, max_new=5, beams=4).to_dict()


def test_a_longer_text_is_worth_more_with_a_penalty(writer):  # noqa: F811
    kit, scores = load(writer), []
    for alpha in (0.0, 1.0):
        best = kit.generate(PROMPT, max_new=6, beams=3, top=2, alpha=alpha).top[0]
        scores.append(best.score / best.logprob * ((5 + len(best.tokens)) / 6) ** alpha)
    assert scores == pytest.approx([1, 1])


def test_groups_of_beams_write_other_words(writer):  # noqa: F811
    kit = load(writer)
    plain = kit.generate(PROMPT, max_new=4, beams=4, top=4)
    diverse = kit.generate(PROMPT, max_new=4, beams=4, top=4, groups=4, diversity=50.0)
    assert len({each.tokens[0] for each in diverse.top}) == 4
    assert len({each.tokens[0] for each in plain.top}) < 4


def test_no_run_is_written_twice_and_no_end_too_early(writer):  # noqa: F811
    kit = load(writer)
    for how in ({}, {"beams": 3}, {"temperature": 1.0}):
        tokens = kit.generate(PROMPT, max_new=20, no_repeat=2, **how).tokens
        pairs = list(zip(tokens, tokens[1:], strict=False))
        assert len(pairs) == len(set(pairs))
        assert len(kit.generate(PROMPT, max_new=6, min_new=6, **how).tokens) == 6
    free = kit.generate(PROMPT, max_new=20).tokens
    assert len(set(zip(free, free[1:], strict=False))) < len(free) - 1  # it says things again


@pytest.mark.parametrize("how", [{}, {"beams": 3}, {"temperature": 1.5}])
def test_banned_words_are_not_written_however_they_are_cut(writer, how):  # noqa: F811
    kit = load(writer)
    texts = [PROMPT, "the dog"]
    free = [found.text for found in kit.generate(iter(texts), max_new=8, **how)]
    words = {word for text in free for word in re.findall(r"\w+", text)}
    assert words
    found = list(kit.generate(iter(texts), max_new=8, ban=sorted(words), **how))
    assert not words & {word for each in found for word in re.findall(r"\w+", each.text)}
    if "temperature" not in how:
        alone = [kit.generate(text, max_new=8, ban=sorted(words), **how).text for text in texts]
        assert alone == [each.text for each in found]


def test_what_an_answer_costs(here, writer, pair):  # noqa: F811
    kit = load(writer)
    found = json.loads(here("generate", writer, PROMPT, "--max-new", 6, "--json")[1])
    cost = found["cost"]
    assert cost["read"] == len(kit.tokenizer.encode(PROMPT))
    assert cost["written"] == len(found["tokens"]) and cost["seconds"] > 0
    texts = ["the cat sat", "the cat sat on the mat"]
    for text, found in zip(texts, load(pair).generate(iter(texts), max_new=4), strict=True):
        assert found.cost.read == len(load(pair).tokenizer.encode(text))


def test_a_search_of_everything_has_a_second_best(writer):  # noqa: F811
    kit = load(writer)
    found = kit.generate(PROMPT, max_new=2, search="exhaustive", top=3)
    scores = [each.score for each in found.top]
    assert len(scores) == 3 and scores == sorted(scores, reverse=True)
    assert found.tokens == found.top[0].tokens


def test_a_kit_scores_texts(writer):  # noqa: F811
    kit = load(writer)
    found = kit.score(PROMPT)
    assert found.tokens == kit.tokenizer.encode(PROMPT) and found.logprob < 0
    assert [each.logprob for each in kit.score([PROMPT, "the"])] == [found.logprob, 0]
