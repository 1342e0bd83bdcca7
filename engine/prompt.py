"""The messages of a conversation to the token ids of a prompt, by the model's chat template.

Ids that were fed or generated before are the truth and stay as they are; only what the template writes behind them
is tokenized. The only control tokens in a prompt are those that the template writes and those that the model
generated: in a message their text is masked while the template runs, and is ordinary text again in its output.
Tags in a reply that are not special tokens (`<think>`) stay what they are, since templates look for them.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import takewhile
from typing import Any, NamedTuple, NoReturn

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.api import Divergence, Message
from engine.detokenizer import Detokenizer
from engine.errors import InvalidRequest, ModelError
from engine.tokenizer import Piece, Tokenizer

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\n' ~ m.content ~ '<|im_end|>\n' }}{% endfor %}"
    "{{ '<|im_start|>assistant\n' }}"
)
"""For a model that has the ChatML tokens but no template."""

PLAIN = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'system' %}{{ m.content ~ '\n\n' }}"
    "{% elif m.role == 'user' %}{{ 'User: ' ~ m.content ~ '\n' }}"
    "{% else %}{{ 'Assistant: ' ~ m.content.lstrip() ~ eos_token ~ '\n' }}{% endif %}"
    "{% endfor %}Assistant:"
)
"""For any other model without a template: names before the turns, as a base model can continue them."""

SHOWN_TOKENS, SHOWN_CHARACTERS = 8, 32
"""How much of the two sides a Divergence shows."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The ids to feed. `new_token_ids` and `divergence` are those of api.Accepted."""

    ids: tuple[int, ...]
    new_token_ids: tuple[int, ...]
    divergence: Divergence | None
    system_tokens: int
    """Leading ids that every conversation with this system message begins with; 0 without one."""
    open_reply: tuple[int, ...] = ()
    """The ids at the end that are the beginning of the reply."""


class _Place(NamedTuple):
    """How many of the known ids the rendering confirms, and where in it they end: byte `offset` of a piece."""

    token: int
    piece: int
    offset: int


class PromptBuilder:
    """Builds the prompts of one model. Raises ModelError when its chat template is broken."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._template = ChatTemplate(_template_source(tokenizer), tokenizer.special_tokens)
        self._system_prefixes: dict[str, list[int]] = {}

    def build(self, messages: Sequence[Message]) -> Prompt:
        """The prompt for a reply to the last message; or for the rest of a reply, when the last message is one that has
        its ids. Those follow what it answers as they are, with no end token behind them.

        Raises InvalidRequest when the last message is neither the user's nor such a reply, when what is to be answered
        is empty, and when the template refuses the conversation.
        """
        if len(messages) > 1 and messages[-1].role == "assistant" and (begun := messages[-1].token_ids):
            asked = self.build(messages[:-1])
            return replace(asked, ids=asked.ids + begun, open_reply=begun)
        if not messages or messages[-1].role != "user":
            raise InvalidRequest("a prompt must end with a message of the user, or with a reply that has its token ids")
        if not messages[-1].text.strip():
            raise InvalidRequest("the message is empty")
        pieces = self._render(messages)
        known = [i for message in messages for i in message.token_ids]
        place = self._follow(messages, pieces)
        new = self._encode(pieces, place)
        ids = known[: place.token] + new
        divergence = self._explain(messages, known, pieces, place) if place.token < len(known) else None
        return Prompt(tuple(ids), tuple(new), divergence, self._count_system_tokens(messages, ids))

    def _render(self, messages: Sequence[Message]) -> list[Piece]:
        """The conversation as the template writes it, with the messages as ordinary text."""
        texts = [self._text(message) for message in messages]
        controls = {found for text in texts for found in self._tokenizer.control_pattern.findall(text)}
        taken = set().union(*texts) if controls else set()
        private_use = (chr(code) for code in range(0xF0000, 0xFFFFE))
        masks = dict(zip(controls, (char for char in private_use if char not in taken), strict=False))

        def mask(message: Message, text: str) -> str:
            kept = {control for control in controls if self._is_tag(control, message)}
            return self._tokenizer.control_pattern.sub(lambda m: m[0] if m[0] in kept else masks[m[0]], text)

        turns = [{"role": m.role, "content": mask(m, text)} for m, text in zip(messages, texts, strict=True)]
        pieces = self._tokenizer.split(self._template.render(turns))
        unmask = {ord(char): control for control, char in masks.items()}
        return [Piece(piece.text.translate(unmask), piece.id) for piece in pieces] if masks else pieces

    def _is_tag(self, control: str, message: Message) -> bool:
        """Whether a control token in the text of `message` stays one: it is not special and is in a reply, whose ids do
        not show that the model spelled it with ordinary tokens."""
        token_id = self._tokenizer.controls[control]
        if message.role != "assistant" or token_id in self._tokenizer.special_ids:
            return False
        return token_id in message.token_ids or self._reply_text(message) != message.text

    def _reply_text(self, reply: Message) -> str:
        detokenizer = Detokenizer(self._tokenizer)
        return "".join(map(detokenizer.push, reply.token_ids)) + detokenizer.finish()

    def _text(self, message: Message) -> str:
        """The text of a message as its tokens spell it; a reply's ids already do."""
        try:
            message.text.encode()
        except UnicodeEncodeError as exc:
            raise InvalidRequest(f"character {exc.start + 1} of a {message.role} message is not valid Unicode") from exc
        generated = message.role == "assistant" and message.token_ids
        return message.text if generated else self._tokenizer.canonical(message.text)

    def _follow(self, messages: Sequence[Message], pieces: Sequence[Piece]) -> _Place:
        """Walk along the rendering with the known ids until one does not spell what stands there."""
        spelled = [piece.text.encode() for piece in pieces]
        known = [
            (i, m.role == "assistant" and n == 0, n == len(m.token_ids) - 1)
            for m in messages
            for n, i in enumerate(m.token_ids)
        ]
        # As in the texts, bytes that are no character are U+FFFD, at the end of a message an unfinished one too.
        utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        followed = _Place(0, 0, 0)
        piece, offset = 0, 0
        for count, (token_id, starts_reply, ends_message) in enumerate(known, 1):
            control = token_id in self._tokenizer.control_ids
            token = b"" if control else self._tokenizer.token_bytes(token_id)
            if text := utf8.decode(token, final=control or ends_message).encode():
                if piece == len(pieces) or pieces[piece].id is not None:
                    break
                if (offset := self._end_of(text, spelled[piece], offset, starts_reply)) < 0:
                    break
                piece, offset = (piece + 1, 0) if offset == len(spelled[piece]) else (piece, offset)
            if control:
                if piece == len(pieces) or offset or pieces[piece].id != token_id:
                    break
                piece += 1
            if not utf8.getstate()[0]:
                followed = _Place(count, piece, offset)
        return followed

    def _end_of(self, token: bytes, text: bytes, offset: int, starts_reply: bool) -> int:
        """Where in `text` a token that is spelled at `offset` ends; -1 when it is not. At the start of a reply the
        leading space, of which the reply's text says nothing, may be missing from either."""
        if text.startswith(token, offset):
            return offset + len(token)
        if starts_reply and self._tokenizer.leading_space:
            if text.startswith(b" " + token, offset):
                return offset + len(token) + 1
            if token.startswith(b" ") and text.startswith(token[1:], offset):
                return offset + len(token) - 1
        return -1

    def _encode(self, pieces: Sequence[Piece], place: _Place) -> list[int]:
        ids: list[int] = []
        for n, (text, control) in enumerate(pieces[place.piece :]):
            if control is not None:
                ids.append(control)
            else:
                ids += self._tokenizer.encode_plain(text if n else text.encode()[place.offset :].decode())
        return ids

    def _explain(
        self, messages: Sequence[Message], known: list[int], pieces: Sequence[Piece], place: _Place
    ) -> Divergence:
        owners = [(n, message) for n, message in enumerate(messages, 1) for _ in message.token_ids]
        number, message = owners[place.token]
        reason = f"the chat template writes message {number} ({message.role}) differently from what was fed"
        if message.role == "assistant" and self._reply_text(message) != message.text:
            reason = f"the text of message {number} is not what its token ids spell: cut at a stop string, or edited"
        rendered = "".join(piece.text for piece in pieces[place.piece :]).encode()[place.offset :].decode()
        expected = self._tokenizer.text(known[place.token : place.token + SHOWN_TOKENS])
        return Divergence(place.token, expected, rendered[:SHOWN_CHARACTERS], reason)

    def _count_system_tokens(self, messages: Sequence[Message], ids: list[int]) -> int:
        """Length of what `ids` share with two conversations that have nothing but the system message in common."""
        if messages[0].role != "system":
            return 0
        system = messages[0].text
        if system not in self._system_prefixes:
            one, other = (
                self._encode(self._render([Message("system", system), Message("user", text)]), _Place(0, 0, 0))
                for text in ("0", "?")
            )
            self._system_prefixes[system] = one[: _common(one, other)]
        return _common(self._system_prefixes[system], ids)


class ChatTemplate:
    """A chat template in the environment that Hugging Face templates are written for.

    Raises ModelError when it does not compile; an error while it renders is InvalidRequest, with its message.
    """

    def __init__(self, source: str, special_tokens: dict[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now, **special_tokens}
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as exc:
            raise ModelError(f"the model's chat template is broken at line {exc.lineno}: {exc.message}") from exc

    def render(self, turns: Sequence[dict[str, str]]) -> str:
        """The conversation up to where the reply begins. When the template refuses or ignores a system message, its
        text is put in front of the first message of the user."""
        if turns[0]["role"] == "system":
            with suppress(InvalidRequest):
                rendered = self._render(turns)
                if turns[0]["content"].strip() in rendered:
                    return rendered
            turns = _fold_system(turns)
        return self._render(turns)

    def _render(self, turns: Sequence[dict[str, str]]) -> str:
        try:
            return self._template.render(messages=turns, tools=None, documents=None, add_generation_prompt=True)
        except Exception as exc:  # a template is foreign code and may raise anything
            reason = " ".join(str(exc).split()) or type(exc).__name__
            raise InvalidRequest(f"the model's chat template refuses this conversation: {reason}") from exc


class _GenerationTag(Extension):
    """{% generation %} marks replies for training; what is in it renders as usual."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _tojson(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    """Unlike jinja's own, without HTML escapes."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _template_source(tokenizer: Tokenizer) -> str:
    if tokenizer.chat_template is not None:
        return tokenizer.chat_template
    return CHATML if {"<|im_start|>", "<|im_end|>"} <= tokenizer.controls.keys() else PLAIN


def _fold_system(turns: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    system, *rest = turns
    first = next(n for n, turn in enumerate(rest) if turn["role"] == "user")
    text = f"{system['content']}\n\n{rest[first]['content']}".lstrip()
    return [*rest[:first], {"role": "user", "content": text}, *rest[first + 1 :]]


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
