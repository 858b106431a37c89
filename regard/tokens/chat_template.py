"""Chat templates: the Jinja text of a folder that turns a conversation into what the model reads.

A template comes with a checkpoint, from strangers: it runs in Jinja's immutable sandbox, with what
transformers puts there (`raise_exception`, `strftime_now`, `tojson`, generation tags).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from typing import Any

from regard.errors import DataError, UsageError, check_installed
from regard.files import parse_json
from regard.tokens.tokenizer import RustEngine, Tokenizer, control_tokens

DOING = "rendering the chat template"
TEMPLATE_FILE = "chat_template.jinja"
OPEN, CLOSE = "\ue000", "\ue001"  # around what looks like a control token in a message

Message = Mapping[str, Any]
"""{"role": "user", "content": "…"}; roles are system, user, assistant and what the template has."""


def find_template(tokenizer: Tokenizer) -> str | None:
    """The template of a tokenizer's folder or GGUF file; of several the one called default."""
    if TEMPLATE_FILE in tokenizer.files:
        return tokenizer.files[TEMPLATE_FILE].decode()
    name = "tokenizer_config.json"
    template = parse_json(tokenizer.files.get(name, b"{}"), name).get("chat_template")
    if isinstance(template, list):  # [{"name": …, "template": …}]
        template = {each["name"]: each["template"] for each in template}.get("default")
    return None if template is None else str(template)


def encode_chat(
    tokenizer: Tokenizer, messages: Sequence[Message], add_generation_prompt: bool = True
) -> list[int]:
    """The ids of a conversation by the folder's template, as the model was taught.

    Where a message spells a control token, such as <|im_end|>, it stays text.
    """
    template = find_template(tokenizer)
    if template is None:
        fix = f"put a {TEMPLATE_FILE} beside its tokenizer.json, or take an -Instruct model"
        raise DataError("reading a conversation", "a model without a chat template", "one", fix)
    specials = {role: tokenizer.pieces([id])[0] for role, id in tokenizer.specials.items()}
    controls = set(specials.values())
    if isinstance(tokenizer.engine, RustEngine):
        controls |= set(control_tokens(tokenizer.engine.rust))
    spelt = re.compile("|".join(map(re.escape, sorted(controls, key=len, reverse=True))) or "(?!)")

    def literal(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return spelt.sub(f"{OPEN}\\g<0>{CLOSE}", value.replace(OPEN, "").replace(CLOSE, ""))

    quoted = [{key: literal(value) for key, value in _checked(m).items()} for m in messages]
    named = {f"{role}_token": spelling for role, spelling in specials.items()}
    text = render(template, quoted, add_generation_prompt, **named)
    parts = re.split(f"{OPEN}(.*?){CLOSE}", text, flags=re.S)  # every second one was quoted
    ids = list[int]()
    for number, part in enumerate(parts):
        ids += tokenizer.encode(part, special=False, allow_special=number % 2 == 0)
    return ids


def _checked(message: Any) -> Message:
    if not isinstance(message, Mapping) or "role" not in message:
        expected = '{"role": "user", "content": "…"}'
        raise UsageError("reading a conversation", f"the message {message!r}", expected)
    return message


def render(
    template: str, messages: Sequence[Message], add_generation_prompt: bool = True, **specials: Any
) -> str:
    """The text of a conversation, as transformers' `apply_chat_template` writes it.

    add_generation_prompt: whether the words that begin the model's answer stand at the end.
    specials: what else the template asks for by name, such as bos_token.
    """
    names = {"tools": None, "documents": None, "add_generation_prompt": add_generation_prompt}
    chat = [dict(_checked(message)) for message in messages]
    compiled = _compile(template)
    try:
        return str(compiled.render(names, messages=chat, **specials))
    except Exception as error:  # a template may fail as any program does
        line, trace = 0, error.__traceback__
        while trace is not None:
            line = trace.tb_lineno if trace.tb_frame.f_code.co_filename == "<template>" else line
            trace = trace.tb_next
        raise _broken(template, line, error) from None


def _broken(template: str, line: int, error: Exception) -> DataError:
    lines = template.splitlines()
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    fault = f"line {line}: {text[:200]}: {error}" if line else str(error)
    return DataError(DOING, fault, "messages that it takes", f"check roles, or {TEMPLATE_FILE}")


@cache
def _compile(template: str) -> Any:
    """The template in a sandbox; line ends and blanks around tags are dropped."""
    check_installed("jinja2", "chat", DOING)
    import jinja2
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """{% generation %} … {% endgeneration %} around what the model says: what is inside."""

        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    sandbox = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    sandbox.filters["tojson"] = partial(json.dumps, ensure_ascii=False)  # its own writes HTML
    sandbox.globals["raise_exception"] = raise_exception
    sandbox.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    try:
        return sandbox.from_string(template)
    except jinja2.TemplateSyntaxError as error:
        raise _broken(template, error.lineno, error) from None
