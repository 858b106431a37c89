"""Conversations: transformers' tokens, history that is read once, /commands."""

import json

import pytest
import torch
from safetensors.torch import save_file
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

import regard
from regard.cli.streams import ArrivingLines, typed_lines
from regard.decode.conversation import COMMANDS
from regard.errors import DataError, UsageError
from regard.model.model import Model
from tests.golden.run import call
from tests.tokens.small_tokenizers import byte_bpe
from tests.tokens.test_chat_template import SMOLLM2

QUESTIONS = ["the cat sat", "Hello world! <|im_end|>", "déjà vu?"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny random Llama that talks in ChatML, as transformers saves it."""
    place = tmp_path_factory.mktemp("chat")
    save_tokenizer(place)
    shape = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    config = LlamaConfig(
        vocab_size=350, intermediate_size=64, **shape, bos_token_id=1, eos_token_id=2
    )
    save_model(LlamaForCausalLM(config), place)
    return str(place)


def save_tokenizer(place):
    rust = byte_bpe(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    names = dict(bos_token="<|im_start|>", eos_token="<|im_end|>", pad_token="<|im_end|>")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=rust, **names)
    tokenizer.chat_template = SMOLLM2
    tokenizer.save_pretrained(place)


def save_model(model, place):
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    model.save_pretrained(place)


@pytest.fixture
def kit(folder):
    return regard.load(folder)


@pytest.fixture
def columns(monkeypatch):
    """How many tokens each call of a model reads."""
    counts, hidden = [], Model.hidden

    def count(self, batch, cache=None):
        counts.append(batch.ids.shape[1])
        return hidden(self, batch, cache)

    monkeypatch.setattr(Model, "hidden", count)
    return counts


def test_greedy_turns_are_transformers_token_by_token(folder, kit):
    model = LlamaForCausalLM.from_pretrained(folder).eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    chat, messages = regard.Chat(kit, system="Be brief.", max_new=20), []
    messages.append({"role": "system", "content": "Be brief."})
    for question in ("the cat sat", "Hello world!", "déjà vu?"):
        messages.append({"role": "user", "content": question})
        ids = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_tensors="pt"
        )["input_ids"]
        whole = model.generate(ids, do_sample=False, max_new_tokens=20)[0]
        reply = chat.say(question)
        assert reply.tokens == whole[ids.shape[1] :].tolist()
        assert reply.context == ids.shape[1]
        log = model(whole[None, :-1]).logits[0, ids.shape[1] - 1 :].log_softmax(-1)
        want = log.gather(-1, whole[ids.shape[1] :, None])[:, 0]
        torch.testing.assert_close(torch.tensor(reply.logprobs), want, rtol=0, atol=1e-5)
        assert reply.logprob == pytest.approx(sum(reply.logprobs))
        messages.append({"role": "assistant", "content": reply.reply})
    assert chat.messages == messages


def test_a_second_turn_reads_only_what_is_new_and_answers_alike(kit, columns):
    chat = regard.Chat(kit, max_new=12)
    replies = [chat.say(question) for question in QUESTIONS]
    for n, reply in enumerate(replies):
        columns.clear()
        anew = regard.chat(kit, chat.messages[: 2 * n + 1], max_new=12)
        assert columns[0] == anew.read == anew.context == reply.context
        assert anew.tokens == reply.tokens
        assert reply.logprobs == pytest.approx(anew.logprobs, abs=1e-5)
    assert all(0 < reply.read < reply.context - 12 for reply in replies[1:])
    columns.clear()
    again = regard.Chat(kit, max_new=12)
    reads = [(again.say(question).read, columns[0], columns.clear())[:2] for question in QUESTIONS]
    assert all(told == read for told, read in reads)


def test_history_that_changes_is_read_from_there(kit):
    chat = regard.Chat(kit, max_new=8)
    first = [chat.say(question).tokens for question in QUESTIONS]
    chat.undo()
    assert chat.say(QUESTIONS[2]).tokens == first[2]  # the same question once more
    chat.messages[2] = {"role": "user", "content": "another"}
    changed = chat.messages[:-1]
    chat.messages.pop()
    assert chat.reply().tokens == regard.chat(kit, changed, max_new=8).tokens
    chat.set_system("Shout.")
    assert chat.messages[0] == {"role": "system", "content": "Shout."}
    fresh = regard.Chat(kit, chat.messages, max_new=8)
    assert chat.say("so?").tokens == fresh.say("so?").tokens


def test_edits_and_captures_never_meet_an_old_cache(kit):
    edit = ["decoder.blocks.0.attn.z=zero"]
    chat = regard.Chat(kit, max_new=8)
    chat.say(QUESTIONS[0])
    chat.edit = edit
    edited = chat.say(QUESTIONS[1])
    assert edited.read == edited.context
    assert edited.tokens == regard.chat(kit, chat.messages[:3], max_new=8, edit=edit).tokens
    assert edited.tokens != regard.chat(kit, chat.messages[:3], max_new=8).tokens
    chat.edit = ()
    after = chat.say(QUESTIONS[2])
    assert after.tokens == regard.chat(kit, chat.messages[:5], max_new=8).tokens
    with kit.edit({"decoder.blocks.0.attn.z": regard.zero()}):
        outside = chat.say("and?")
        assert outside.tokens == regard.chat(kit, chat.messages[:7], max_new=8).tokens
    with kit.capture("decoder.blocks.0.resid_post") as seen:
        reply = chat.say("then?")
    assert seen[0].given == reply.context == reply.read
    assert len(seen[0].ids) == reply.context + len(reply.tokens) - 1


def test_a_steering_vector_steers_live(kit, tmp_path):
    vector = torch.zeros(32).index_fill(0, torch.arange(0, 32, 3), 9.0)
    save_file({"v": vector}, tmp_path / "v.safetensors")
    plain = regard.chat(kit, QUESTIONS[0], max_new=6)
    steered = regard.chat(
        kit, QUESTIONS[0], max_new=6, edit={"decoder.blocks.1.resid_post": regard.add(2 * vector)}
    )
    word = f"decoder.blocks.1.resid_post=add,file={tmp_path}/v.safetensors,scale=2"
    assert regard.chat(kit, QUESTIONS[0], max_new=6, edit=[word]).tokens == steered.tokens
    lines = [f"/edit {word}", QUESTIONS[0], "/edit", "/reset", QUESTIONS[0]]
    live = list(regard.chat(kit, lines, max_new=6))
    assert [reply.tokens for reply in live] == [steered.tokens, plain.tokens]
    assert steered.tokens != plain.tokens


def test_probabilities_of_tokens_and_of_others(kit):
    reply = regard.chat(kit, "the cat", max_new=5, probs=3)
    assert reply.tokens == regard.chat(kit, "the cat", max_new=5).tokens
    for choice, logprob in zip(reply.choices, reply.logprobs, strict=True):
        assert torch.tensor(choice.probability).log() == pytest.approx(logprob, abs=1e-5)
        assert len(choice.others) == 3 and max(choice.others.values()) <= choice.probability
    assert "probability" in str(reply) and reply.to_dict()["choices"][0]["token"]
    assert "choices" not in regard.chat(kit, "the cat", max_new=5).to_dict()


def test_draws_differ_by_turn_and_repeat_by_seed(kit):
    def talk(seed):
        with regard.settings(seed=seed):
            chat = regard.Chat(kit, max_new=8, temperature=1.5)
            return [chat.say("the cat").tokens, (chat.undo(), chat.say("the cat").tokens)[1]]

    one, other = talk(1), talk(2)
    assert one == talk(1) and one[0] == one[1] and one != other
    with regard.settings(seed=1):
        chat = regard.Chat(kit, max_new=8, temperature=1.5)
        assert chat.say("the cat").tokens != chat.say("the cat").tokens
    with pytest.raises(UsageError, match="top_p"):
        regard.chat(kit, "the cat", top_p=2.0)


def test_commands(kit, tmp_path, capsys):
    saved = tmp_path / "talk.json"
    lines = ["/help", "/system Be kind.", "/temperature 0.5", "hi", "/probs 2", "you?", "/undo"]
    lines += [f"/save {saved}", "/bogus", "/edit nose=zero", "/probs x", "/quit", "never"]
    replies = list(regard.chat(kit, lines, max_new=4))
    assert [type(reply).__name__ for reply in replies] == ["ChatReply"] * 2 + ["Failed"] * 3
    assert replies[0].choices is None and len(replies[1].choices) == len(replies[1].tokens)
    said = json.loads(saved.read_text())
    assert [message["role"] for message in said] == ["system", "user", "assistant"]
    listed = capsys.readouterr().err
    assert all(f"/{command}" in listed for command in COMMANDS)
    with pytest.raises(UsageError, match="none was asked"):
        regard.Chat(kit).undo()


def test_a_question_that_fails_leaves_no_trace(tmp_path):
    save_tokenizer(tmp_path)
    shape = dict(n_positions=120, n_embd=16, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=2)
    save_model(GPT2LMHeadModel(GPT2Config(vocab_size=350, **shape)), tmp_path)
    kit = regard.load(tmp_path)
    chat = regard.Chat(kit, system="x")
    reply = chat.say("the")
    assert reply.context + len(reply.tokens) <= 120
    before = list(chat.messages)
    with pytest.raises(DataError, match=r"conversation of \d+ tokens") as caught:
        chat.say("the cat sat on the mat " * 40)
    assert "/undo" in caught.value.fix and chat.messages == before


def test_models_that_do_not_talk(kit, tmp_path):
    kit.tokenizer.files.pop("chat_template.jinja")
    with pytest.raises(DataError, match="without a chat template"):
        regard.chat(kit, "hello")
    with pytest.raises(UsageError, match="an encoder-decoder"):
        regard.chat("fr-en", "hello")


def test_command_line_one_question_a_pipe_and_a_terminal(folder, kit, monkeypatch, capsys):
    want = regard.chat(kit, "the cat", max_new=6)
    code, out, _ = call(["chat", folder, "the cat", "--max-new", "6", "--json"])
    assert code == 0 and json.loads(out) == want.to_dict()
    talk = regard.Chat(kit, max_new=6)
    both = [talk.say("the cat").to_dict(), talk.say("and?").to_dict()]
    code, out, _ = call(["chat", folder, "--max-new", "6", "--json"], "the cat\n\nand?\n")
    assert code == 0 and [json.loads(line) for line in out.splitlines()] == both
    typed = iter(["the cat", "and?"])

    def type_line(prompt=""):
        if (line := next(typed, None)) is None:
            raise EOFError
        return line

    monkeypatch.setattr("builtins.input", type_line)
    told = []
    lines = ArrivingLines(typed_lines(), "the terminal")
    replies = list(regard.chat(kit, lines, max_new=6, watch=told.append))
    assert "".join(told) == "".join(reply["reply"] for reply in both)
    assert [str(reply) for reply in replies] == ["", ""]  # they were told already
    assert "/help" in capsys.readouterr().err


def test_an_interrupt_stops_the_answer_on_a_terminal_and_the_run_elsewhere(kit):
    def interrupt(text):
        raise KeyboardInterrupt

    assert list(regard.chat(kit, iter(["the cat"]), watch=interrupt)) == []
    chat = regard.Chat(kit, watch=interrupt, max_new=6)
    with pytest.raises(KeyboardInterrupt):
        chat.say("the cat")
    assert chat.messages == []
    chat.watch = None
    assert chat.say("the cat").tokens == regard.chat(kit, "the cat", max_new=6).tokens
