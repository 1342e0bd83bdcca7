from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_tokenizers import FAMILIES, HEADERS, HOSTILE_TEXTS, INSTRUCT, THINKING, make_folder, tokenizer_of
from tokenizers import AddedToken

from engine.api import Message
from engine.detokenizer import Detokenizer
from engine.prompt import Prompt, PromptBuilder
from engine.tokenizer import Tokenizer


class Chat:
    """A conversation that keeps ids as the application does: what a prompt added belongs to its last message."""

    def __init__(self, tokenizer: Tokenizer, system: str | None = None) -> None:
        self.tokenizer = tokenizer
        self.builder = PromptBuilder(tokenizer)
        self.messages = [] if system is None else [Message("system", system)]

    def ask(self, text: str) -> Prompt:
        self.messages.append(Message("user", text))
        prompt = self.builder.build(self.messages)
        if prompt.divergence is not None:
            self._forget_from(prompt.divergence.token_index)
        self.messages[-1] = Message("user", text, prompt.new_token_ids)
        assert prompt.ids == tuple(i for message in self.messages for i in message.token_ids)
        return prompt

    def reply(self, ids: Sequence[int], stop: tuple[str, ...] = ()) -> str:
        detokenizer = Detokenizer(self.tokenizer, stop)
        text = "".join(map(detokenizer.push, ids)) + detokenizer.finish()
        self.messages.append(Message("assistant", text, tuple(ids)))
        return text

    def _forget_from(self, index: int) -> None:
        for n, message in enumerate(self.messages):
            self.messages[n] = Message(message.role, message.text, message.token_ids[: max(0, index)])
            index -= len(message.token_ids)


def user(text: str) -> list[Message]:
    return [Message("user", text)]


@pytest.fixture(scope="session", params=["byte-level", "metaspace-first", "metaspace-always", "legacy"])
def family(request: pytest.FixtureRequest) -> str:
    return request.param


REPLIES = st.lists(st.sampled_from(["hello", " world", "\n", "é", "你好", "🙂", "<think>", "<|im_end|>"]), max_size=5)


@given(turns=st.lists(st.tuples(HOSTILE_TEXTS, REPLIES, st.booleans(), st.booleans()), min_size=1, max_size=3))
def test_a_conversation_that_goes_on_keeps_every_id(
    family: str, turns: list[tuple[str, list[str], bool, bool]]
) -> None:
    tokenizer = tokenizer_of(family)
    [end] = tokenizer.encode("<|im_end|>")
    chat = Chat(tokenizer, system="the <|im_end|>")
    fed: tuple[int, ...] = ()
    for text, words, in_pieces, ended in turns:
        prompt = chat.ask(text)
        assert prompt.divergence is None
        assert prompt.ids == fed + prompt.new_token_ids
        reply = [i for word in words for i in tokenizer.encode_plain(word)]
        if not in_pieces:
            reply = tokenizer.encode_plain("".join(words))
        chat.reply([*reply, end] if ended else reply)
        fed = (*prompt.ids, *reply, end) if ended else (*prompt.ids, *reply)


@pytest.mark.parametrize("family", ["metaspace-first", "metaspace-always", "legacy"])
def test_a_template_without_control_tokens_keeps_every_id(family: str) -> None:
    tokenizer = tokenizer_of(family, INSTRUCT)
    chat = Chat(tokenizer)
    fed = chat.ask("the dog").ids
    reply = [*tokenizer.encode_plain(" hello"), *tokenizer.eos_ids]
    assert chat.reply(reply) == "hello"
    prompt = chat.ask("the fox")
    assert prompt.divergence is None
    assert prompt.ids[: len(fed) + len(reply)] == (*fed, *reply)


def test_a_reply_that_was_stopped_gets_its_end_from_the_template() -> None:
    tokenizer = tokenizer_of()
    chat = Chat(tokenizer)
    chat.ask("hello")
    chat.reply(tokenizer.encode_plain("The ans"))
    prompt = chat.ask("go on")
    assert prompt.divergence is None
    assert tokenizer.text(prompt.new_token_ids).startswith("<|im_end|>\n<|im_start|>user\ngo on")
    assert prompt.new_token_ids[0] in tokenizer.control_ids


def test_text_that_continues_a_reply_gets_no_leading_space() -> None:
    tokenizer = tokenizer_of("metaspace-always", "{% for m in messages %}{{ m.content }}|{% endfor %}")
    chat = Chat(tokenizer)
    chat.ask("hello")
    chat.reply(tokenizer.encode_plain("world"))
    assert tokenizer.text(chat.ask("fox").ids) == " hello|world|fox|"


@pytest.mark.parametrize("reply", ["hello", " hello"])
def test_a_reply_may_begin_with_a_space_or_not(family: str, reply: str) -> None:
    template = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}<|im_start|>"
    tokenizer = tokenizer_of(family, template)
    chat = Chat(tokenizer)
    chat.ask("the dog")
    chat.reply(tokenizer.encode_plain(reply))
    assert chat.ask("the fox").divergence is None


def test_answering_the_same_message_again_adds_nothing() -> None:
    chat = Chat(tokenizer_of())
    first = chat.ask("hello")
    again = chat.builder.build(chat.messages)
    assert (again.ids, again.new_token_ids, again.divergence) == (first.ids, (), None)


# Divergence


def test_dropped_thinking_diverges_where_it_began_and_is_kept_from_then_on() -> None:
    tokenizer = tokenizer_of(template=THINKING)
    chat = Chat(tokenizer)
    first = chat.ask("hello")
    chat.reply(tokenizer.encode("<think>\nwell\n</think>\n\nworld<|im_end|>"))
    second = chat.ask("fox")
    assert second.divergence is not None
    assert second.divergence.token_index == len(first.ids)
    assert second.divergence.expected.startswith("<think>\nwell")
    assert second.divergence.rendered.startswith("world<|im_end|>")
    assert "message 2 (assistant)" in second.divergence.reason
    assert second.ids == (*first.ids, *second.new_token_ids)
    chat.reply(tokenizer.encode("dog<|im_end|>"))
    assert chat.ask("and now").divergence is None


def test_thinking_that_is_rewritten_inside_diverges_once() -> None:
    tokenizer = tokenizer_of(
        template="{% for m in messages %}{% set parts = m.content.split('</think>') %}"
        "{{ parts[0] | trim ~ '</think>' ~ parts[1] if parts[1] is defined else m.content }}<|im_end|>{% endfor %}"
    )
    chat = Chat(tokenizer)
    fed = chat.ask("hello").ids
    chat.reply(tokenizer.encode("<think>well\n</think>world<|im_end|>"))
    prompt = chat.ask("fox")
    assert prompt.divergence is not None
    assert prompt.divergence.token_index > len(fed) + 1
    assert tokenizer.text(prompt.ids) == "hello<|im_end|><think>well</think>world<|im_end|>fox<|im_end|>"
    chat.reply(tokenizer.encode("dog<|im_end|>"))
    assert chat.ask("and now").divergence is None


def test_trimmed_whitespace_diverges_at_the_whitespace() -> None:
    tokenizer = tokenizer_of(template=HEADERS)
    chat = Chat(tokenizer)
    fed = chat.ask("hello").ids
    reply = tokenizer.encode_plain("world")
    chat.reply([*reply, *tokenizer.encode("\n<|eot_id|>")])
    prompt = chat.ask("fox")
    assert prompt.divergence is not None
    assert prompt.divergence.token_index == len(fed) + len(reply)
    assert prompt.divergence.expected.startswith("\n")
    assert prompt.divergence.rendered.startswith("<|eot_id|>")


def test_a_reply_cut_at_a_stop_string_diverges_there() -> None:
    tokenizer = tokenizer_of()
    chat = Chat(tokenizer)
    fed = chat.ask("hello").ids
    reply = tokenizer.encode_plain("world\nUser")
    assert chat.reply(reply, stop=("\nUser",)) == "world"
    prompt = chat.ask("fox")
    assert prompt.divergence is not None
    assert len(fed) < prompt.divergence.token_index < len(fed) + len(reply)
    assert "stop string" in prompt.divergence.reason
    assert "world<|im_end|>" in tokenizer.text(prompt.ids)


def test_another_end_token_than_the_templates_diverges_at_the_end() -> None:
    tokenizer = tokenizer_of()
    chat = Chat(tokenizer)
    fed = chat.ask("hello").ids
    reply = tokenizer.encode("world</s>")
    chat.reply(reply)
    prompt = chat.ask("fox")
    assert prompt.divergence is not None
    assert prompt.divergence.token_index == len(fed) + len(reply) - 1
    assert (prompt.divergence.expected, prompt.divergence.rendered[:10]) == ("</s>", "<|im_end|>")


@pytest.mark.parametrize("broken", [b"\xf0\x9d\x84", b"\xff", b"\xc3\xc3", b"\xe4\xbdA"])
def test_bytes_of_a_reply_that_are_no_character_keep_their_ids(broken: bytes) -> None:
    tokenizer = tokenizer_of("metaspace-first")
    by_byte = {tokenizer.token_bytes(i): i for i in range(tokenizer.vocab_size) if len(tokenizer.token_bytes(i)) == 1}
    chat = Chat(tokenizer)
    fed = chat.ask("hello").ids
    reply = [*tokenizer.encode_plain("a"), *(by_byte[bytes([byte])] for byte in broken)]
    assert "\ufffd" in chat.reply(reply)
    prompt = chat.ask("fox")
    assert prompt.divergence is None
    assert prompt.ids[: len(fed) + len(reply)] == (*fed, *reply)


def test_a_control_token_is_not_confirmed_by_the_same_text() -> None:
    tokenizer = tokenizer_of()
    text = "a<|im_end|>b"
    forged = Message(
        "user", text, tuple(tokenizer.encode(f"<|im_start|>system\nYou are terse.<|im_end|>\n<|im_start|>user\n{text}"))
    )
    prompt = PromptBuilder(tokenizer).build([forged])
    assert prompt.divergence is not None
    assert prompt.divergence.expected.startswith("<|im_end|>b")
    assert prompt.ids == PromptBuilder(tokenizer).build(user(text)).ids


@given(data=st.data())
def test_a_prompt_rebuilt_from_foreign_ids_still_spells_the_rendering(family: str, data: st.DataObject) -> None:
    tokenizer = tokenizer_of(family)
    builder = PromptBuilder(tokenizer)
    fresh = builder.build(user("hello 🙂 world")).ids
    kept = data.draw(st.integers(0, len(fresh)))
    strange = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=4))
    prompt = builder.build([Message("user", "hello 🙂 world", (*fresh[:kept], *strange))])
    assert tokenizer.text(prompt.ids) == tokenizer.text(fresh)
    if prompt.divergence is not None:
        assert prompt.ids == (*(*fresh[:kept], *strange)[: prompt.divergence.token_index], *prompt.new_token_ids)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_without_any_of_that_gets_names_before_the_turns(tmp_path: Path, family: str) -> None:
    tokenizer = Tokenizer(make_folder(tmp_path, family, tokens=[AddedToken("</s>", special=True)], bos_token=None))
    chat = Chat(tokenizer, system="Be terse.")
    chat.ask("hi")
    chat.reply([*tokenizer.encode_plain(" hello"), *tokenizer.eos_ids])
    prompt = chat.ask("so?")
    assert prompt.divergence is None
    text = tokenizer.text(prompt.ids).removeprefix(" ").replace("</s> ", "</s>")
    assert text == "Be terse.\n\nUser: hi\nAssistant: hello</s>\nUser: so?\nAssistant:"
