"""A conversation with a model: history by its chat template, cached between turns, /commands.

Each turn encodes the whole history anew, so the ids are those of the template whatever the tokens
of the reply were; of these the model reads only what follows the part that its cache holds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from os.path import commonprefix
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.ambient import current, note
from regard.core.cache import Cache
from regard.decode.continuation import TextStream
from regard.decode.loop import watched
from regard.decode.results import ChatReply, TokenChoice
from regard.decode.sampling import Ends, SampleConfig, sample_config
from regard.errors import DataError, RegardError, UsageError, check_known
from regard.files import write_whole
from regard.model.batch import Batch
from regard.result import Failed
from regard.tokens.chat_template import Message, encode_chat
from regard.verbs import EditsLike

if TYPE_CHECKING:
    from regard.kit import Kit

DOING = "answering"
COMMANDS = {
    "help": "this list",
    "reset": "forget what was said, but the system prompt",
    "undo": "take the last question and its answer back",
    "system": "TEXT: the system prompt from now on; nothing: none",
    "temperature": "X: draw; nothing or 0: the likeliest token",
    "probs": "K: show the probability of each token beside K others; nothing: do not",
    "edit": "TAP=zero,head=3 …: change activations; add,file=F,scale=X steers; nothing: do not",
    "save": "FILE: write the conversation as JSON",
    "quit": "end",
}


class Chat:
    """A conversation that goes on: `say` asks and answers, `messages` is what was said.

    After weights were changed by hand, `forget` the cache.

    Example:
        >>> chat = regard.Chat(regard.load("folder"), system="Be brief.")
        >>> chat.say("What is the capital of France?").reply
        'Paris.'
    """

    def __init__(
        self,
        kit: Kit,
        messages: Iterable[Message] = (),
        *,
        system: str | None = None,
        max_new: int = 256,
        probs: int = 0,
        edit: EditsLike = (),
        watch: Callable[[str], None] | None = None,
        **draws: Any,
    ) -> None:
        self.kit, self.max_new, self.probs, self.edit = kit, max_new, probs, edit
        self.watch = watch
        self.draws = sample_config(draws | {"seed": current().seed}) if draws else None
        self.messages: list[Message] = list(messages)
        if system is not None:
            self.set_system(system)
        self.cache: Cache | None = None
        self.held: list[int] = []  # ids whose keys and values the cache has

    def forget(self) -> None:
        """Read all of the history anew at the next turn."""
        self.cache, self.held = None, []

    def set_system(self, text: str) -> None:
        """Put another system prompt before the conversation; the empty one is none."""
        said = [message for message in self.messages if message["role"] != "system"]
        self.messages = [{"role": "system", "content": text}, *said] if text else said

    def undo(self) -> None:
        """Take the last question back, and what was answered."""
        asked = [n for n, message in enumerate(self.messages) if message["role"] == "user"]
        if not asked:
            raise UsageError("taking a question back", "none was asked", "one")
        del self.messages[asked[-1] :]

    def say(self, text: str) -> ChatReply:
        """Ask, and answer; both become history. A question that cannot be answered does not."""
        before = len(self.messages)
        self.messages.append({"role": "user", "content": text})
        try:
            return self.reply()
        except BaseException:
            del self.messages[before:]
            raise

    def reply(self) -> ChatReply:
        """The answer to the conversation so far, which becomes history."""
        kit, tokenizer = self.kit, self.kit.text_tokenizer
        if not self.messages:
            raise UsageError(DOING, "no message", "one or more")
        ids = encode_chat(tokenizer, self.messages)
        limit = self.max_new if kit.room is None else min(self.max_new, kit.room - len(ids))
        if limit < 1:
            fix = "/undo or /reset, or shorter messages"
            expected = f"fewer than {kit.room}, the positions of this model"
            raise DataError(DOING, f"a conversation of {len(ids)} tokens", expected, fix)
        kit.check_room(len(ids) + limit)
        tops = list[list[tuple[int, float]]]()

        def look(logits: Tensor, _: Tensor) -> Tensor:
            best = logits.log_softmax(-1)[0, : tokenizer.size].topk(self.probs + 1)
            tops.append([*zip(best.indices.tolist(), best.values.exp().tolist(), strict=True)])
            return logits

        with kit.edit(self.edit):
            # Keys that somebody shaped or looks at are read anew; a capture wants the whole text.
            looked_at = watched(kit.model) or kit.hooked.keep is not None
            alone = kit.model.stacks and not (kit.strict or looked_at)
            if not alone:
                self.forget()
            cache = self.recall(ids, len(ids) + limit) if alone else None
            known = len(self.held)
            nothing = Batch(torch.zeros(1, 0, dtype=torch.long))  # the reply stands alone
            stream = self.watch and TextStream(kit, nothing, None, self.watch)
            draws = self.draws and replace(self.draws, first=len(self.messages))
            looks, ends = [look] if self.probs else [], Ends(kit.stops, watch=stream)
            how = draws, ends, looks
            ((best,),) = kit.search(kit.batch([ids[known:]]), limit, *how, cache=cache)
        if cache is not None:
            self.held = [*ids, *best.tokens][: cache.used]
        text = kit.text(best.tokens)
        if stream is not None:
            stream.show(text)
        self.messages.append({"role": "assistant", "content": text})
        choices = []
        for token, logprob, top in zip(best.tokens, best.logprobs, tops, strict=False):
            others = [(self.name(id), p) for id, p in top if id != token][: self.probs]
            choices.append(TokenChoice(self.name(token), math.exp(logprob), dict(others)))
        figures = best.tokens, best.logprobs, best.logprob, best.finished, len(ids) - known
        return ChatReply(text, *figures, len(ids), choices or None, stream is not None)

    def name(self, token: int) -> str:
        """A token as people read it, on one line."""
        tokenizer = self.kit.text_tokenizer
        return tokenizer.readable(tokenizer.pieces([token])[0]).replace("\n", "⏎")

    def recall(self, ids: list[int], size: int) -> Cache:
        """The cache, with what it holds of the beginning of `ids` but the last, and room."""
        same = len(commonprefix([self.held, ids[:-1]]))
        self.held = self.held[:same]
        if self.cache is None or self.cache.size < size:
            larger = self.kit.model.cache(1, 2 * size)
            old = [] if self.cache is None else [*self.cache.keys, *self.cache.values]
            for new, held in zip([*larger.keys, *larger.values], old, strict=False):
                new[:, :same] = held[:, :same]
            self.cache = larger
        self.cache.shorten(same)
        return self.cache


def converse(chat: Chat, lines: Iterable[str | RegardError]) -> Iterator[ChatReply | Failed]:
    """The answer to each line in turn; one that begins with / is a command."""
    if chat.watch is not None and not isinstance(lines, Sequence):
        note("/help lists the commands")
    for line in lines:
        try:
            if isinstance(line, RegardError):
                raise line
            if line.startswith("/"):
                if not obey(chat, *line[1:].split(maxsplit=1)):
                    return
            elif line.strip():
                yield chat.say(line)
        except RegardError as error:
            yield Failed(error)
        except KeyboardInterrupt:
            if chat.watch is None:
                raise
            note("\nstopped")  # the answer, not the conversation


def obey(chat: Chat, command: str = "help", words: str = "") -> bool:
    """Do what a /command says; False ends the conversation."""
    check_known(command, COMMANDS, "reading a command", f"/{command}")
    try:
        number = float(words) if command in ("temperature", "probs") and words else 0.0
    except ValueError:
        raise UsageError(f"/{command}", repr(words), "a number") from None
    if command == "help":
        note("\n".join(f"/{name:12}{what}" for name, what in COMMANDS.items()))
    elif command == "reset":
        chat.messages = [message for message in chat.messages if message["role"] == "system"]
    elif command == "undo":
        chat.undo()
    elif command == "system":
        chat.set_system(words)
    elif command == "temperature":
        chat.draws = replace(chat.draws or SampleConfig(seed=current().seed), temperature=number)
    elif command == "probs":
        chat.probs = max(0, int(number))
    elif command == "edit":
        with chat.kit.edit(words.split()):  # which stops at what cannot be edited
            chat.edit = words.split()
    elif command == "save":
        text = json.dumps(chat.messages, ensure_ascii=False, indent=2) + "\n"
        write_whole(Path(words), text.encode())
    return command != "quit"
