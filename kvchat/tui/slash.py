"""The commands that can be written in the composer: what completion, the help and the command palette are made of."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec

from engine.api import SamplingParams
from engine.errors import InvalidRequest
from kvchat.toml_file import ConfigError
from kvchat.tui.attachments import AttachmentError, read_attachment
from kvchat.tui.format import hashtags

if TYPE_CHECKING:
    from kvchat.tui.app import KvChatApp
    from kvchat.tui.screens.chat import ChatScreen

SETTINGS = tuple(name for name in SamplingParams.__struct_fields__ if name not in ("stop", "logit_bias"))
"""What /set changes: the sampling parameters that are one value."""

Choice = tuple[str, str]
"""An argument, and what to say about it."""


class CommandError(Exception):
    """A command cannot be obeyed; one line fit to show."""


def _no_choices(chat: ChatScreen) -> Sequence[Choice]:
    return ()


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """One command. `run(chat, argument)` obeys it and raises CommandError or StoreError."""

    name: str
    argument: str
    """What stands for it in the help; empty when the command takes none."""
    about: str
    run: Callable[[ChatScreen, str], Awaitable[None]]
    choices: Callable[[ChatScreen], Sequence[Choice]] = _no_choices

    @property
    def usage(self) -> str:
        return f"/{self.name} {self.argument}".rstrip()


def takes_pastes(text: str) -> bool:
    """Whether a command as it was typed still wants the argument that it takes."""
    name, argument = _parts(text)
    command = _named(name)
    return bool(command and command.argument and not argument)


def _parts(text: str) -> tuple[str, str]:
    """The name and the argument of a command."""
    name, *argument = text[1:].split(maxsplit=1) if text[1:2].strip() else ["", text[1:]]
    return name, "".join(argument).strip()


def _named(name: str) -> SlashCommand | None:
    return next((each for each in COMMANDS if each.name == name), None)


async def run(chat: ChatScreen, text: str) -> None:
    """Obey a command. Raises CommandError, StoreError."""
    name, argument = _parts(text)
    command = _named(name)
    if command is None:
        raise CommandError(f"unknown command /{name}: /help lists all; a message begins with two slashes: //{name}")
    if argument and not command.argument:
        raise CommandError(f"/{name} takes nothing after it")
    if command.argument and not argument:
        raise CommandError(f"write {command.usage}")
    await command.run(chat, argument)


async def _help(chat: ChatScreen, _: str) -> None:
    chat.action_help()


async def _persona(chat: ChatScreen, name: str) -> None:
    try:
        persona = chat.personas.named(name)
    except ConfigError as error:
        raise CommandError(str(error)) from error
    await chat.open_tab(persona)


async def _system(chat: ChatScreen, text: str) -> None:
    tab = chat.workspace.active
    if tab.messages:
        raise CommandError("the conversation has begun under another system prompt: /new, then /system")
    tab.set_system_prompt(text)
    chat.notify("The system prompt of this tab is set", timeout=2)


async def _temp(chat: ChatScreen, value: str) -> None:
    _change_sampling(chat, "temperature", value)


async def _set(chat: ChatScreen, argument: str) -> None:
    key, _, value = argument.partition(" ")
    if key not in SETTINGS:
        raise CommandError(f"unknown setting '{key}': there are {', '.join(SETTINGS)}")
    if not value.strip():
        raise CommandError(f"write /set {key} VALUE")
    _change_sampling(chat, key, value.strip())


def _change_sampling(chat: ChatScreen, key: str, value: str) -> None:
    tab = chat.workspace.active
    given = msgspec.to_builtins(tab.conversation.sampling, str_keys=True) | {key: value}
    if value == "none":
        given[key] = None
    try:
        sampling = msgspec.convert(given, SamplingParams, strict=False)
    except InvalidRequest as error:
        raise CommandError(str(error)) from error
    except msgspec.ValidationError as error:
        expected = re.search(r"Expected `(\w+)", str(error))
        kind = {"int": "a whole number", "float": "a number", "bool": "true or false"}[
            expected[1] if expected else "float"
        ]
        raise CommandError(f"{key} must be {kind}, not '{value}'") from error
    tab.set_sampling(sampling)
    chat.notify(f"{key} is {getattr(sampling, key)} in this tab, from the next reply on", timeout=3, markup=False)


async def _sampling(chat: ChatScreen, _: str) -> None:
    chat.pick_sampling()


async def _model(chat: ChatScreen, _: str) -> None:
    cast("KvChatApp", chat.app).pick_model()


async def _theme(chat: ChatScreen, _: str) -> None:
    chat.app.action_change_theme()


async def _title(chat: ChatScreen, title: str) -> None:
    chat.workspace.active.rename(" ".join(title.split()))


async def _tag(chat: ChatScreen, names: str) -> None:
    tags = [name.strip("#").lower() for name in names.split()]
    if not all(tags):
        raise CommandError("write /tag NAME: a word, which # may precede")
    tab = chat.workspace.active
    tab.toggle_tags(tags)
    chat.sidebar.renew()
    chat.notify(hashtags(tab.conversation.tags) or "No tag is left", timeout=3)


async def _attach(chat: ChatScreen, path: str) -> None:
    try:
        text = read_attachment(Path(os.path.expanduser(path)))
    except AttachmentError as error:
        raise CommandError(str(error)) from error
    await chat.active_pane.composer.add_chip(text)


async def _retry(chat: ChatScreen, _: str) -> None:
    if not chat.workspace.active.can_retry:
        raise CommandError("no reply failed or was stopped here: nothing to try again")
    chat.action_retry()


async def _regenerate(chat: ChatScreen, _: str) -> None:
    if not chat.workspace.active.can_regenerate:
        raise CommandError("there is no reply here that could be made again")
    await chat.action_regenerate()


async def _continue(chat: ChatScreen, _: str) -> None:
    if not chat.workspace.active.can_continue:
        raise CommandError("no reply was stopped or cut here: nothing to continue")
    await chat.action_continue_reply()


async def _edit(chat: ChatScreen, _: str) -> None:
    if not chat.editable:
        raise CommandError("there is no message of yours here")
    await chat.action_edit_message()


async def _fork(chat: ChatScreen, _: str) -> None:
    if not chat.check_action("fork", ()):
        raise CommandError("there is no complete message here to fork at")
    await chat.action_fork()


async def _delete(chat: ChatScreen, _: str) -> None:
    if not chat.check_action("delete_message", ()):
        raise CommandError("there is no message here to delete, or a reply is running")
    chat.action_delete_message()


async def _undelete(chat: ChatScreen, _: str) -> None:
    if not chat.workspace.active.can_undelete:
        raise CommandError("nothing was deleted here that could come back")
    chat.action_undelete()


async def _code(chat: ChatScreen, _: str) -> None:
    chat.action_copy_code()


async def _reopen(chat: ChatScreen, _: str) -> None:
    await chat.action_reopen_tab()


async def _stop(chat: ChatScreen, _: str) -> None:
    if not chat.workspace.active.reply:
        raise CommandError("no reply is running here")
    chat.workspace.active.stop()


async def _new(chat: ChatScreen, _: str) -> None:
    await chat.action_new_tab()


async def _close(chat: ChatScreen, _: str) -> None:
    chat.action_close_tab()


async def _clear(chat: ChatScreen, _: str) -> None:
    old = chat.workspace.active
    await chat.open_tab(chat.workspace.persona_of(old) or chat.workspace.default_persona)
    chat.close_tab(old)


async def _copy(chat: ChatScreen, _: str) -> None:
    if not chat.workspace.active.last_reply:
        raise CommandError("there is no reply to copy")
    chat.action_copy_reply()


async def _stats(chat: ChatScreen, _: str) -> None:
    tab = chat.workspace.active
    if not any(message.metrics for message in tab.measured_messages):
        raise CommandError("there is no reply yet to tell about")
    chat.action_show_cost()


async def _find(chat: ChatScreen, words: str) -> None:
    chat.find(words)


async def _export(chat: ChatScreen, path: str) -> None:
    from kvchat.exchange import ExchangeError

    try:
        chat.export_to(Path(os.path.expanduser(path)), chat.workspace.active)
    except ExchangeError as error:
        raise CommandError(str(error)) from error


async def _quit(chat: ChatScreen, _: str) -> None:
    await chat.app.action_quit()


def _persona_choices(chat: ChatScreen) -> Sequence[Choice]:
    return [(persona.name, persona.description) for persona in chat.personas.all]


def _tag_choices(chat: ChatScreen) -> Sequence[Choice]:
    has = chat.workspace.active.conversation.tags
    return [(tag, "takes it off" if tag in has else "") for tag in chat.workspace.tags()]


def _setting_choices(chat: ChatScreen) -> Sequence[Choice]:
    sampling = chat.workspace.active.conversation.sampling
    return [(f"{name} ", f"now {getattr(sampling, name)}") for name in SETTINGS]


COMMANDS = (
    SlashCommand("help", "", "Show all keys and commands", _help),
    SlashCommand("persona", "NAME", "Start a conversation with a persona", _persona, _persona_choices),
    SlashCommand("system", "TEXT", "Set the system prompt, before the first message", _system),
    SlashCommand("temp", "X", "Set the temperature of this tab; 0 is greedy", _temp),
    SlashCommand("set", "KEY VALUE", "Set a sampling parameter of this tab", _set, _setting_choices),
    SlashCommand("sampling", "", "Change all sampling parameters of this tab in a form", _sampling),
    SlashCommand("model", "", "Choose or install a model", _model),
    SlashCommand("theme", "", "Choose the colours", _theme),
    SlashCommand("title", "TEXT", "Give the conversation a title", _title),
    SlashCommand("tag", "NAME", "Tag the conversation, or take the tag off", _tag, _tag_choices),
    SlashCommand("attach", "PATH", "Attach a text file, as @ before its path does", _attach),
    SlashCommand("retry", "", "Ask again for a reply that failed or was stopped", _retry),
    SlashCommand("regenerate", "", "Ask for another reply; the old one stays as a branch", _regenerate),
    SlashCommand("continue", "", "Let a reply that was stopped or cut go on", _continue),
    SlashCommand("edit", "", "Change your last message and send it again, as a branch", _edit),
    SlashCommand("fork", "", "Go on in a new tab that shares the KV of this one", _fork),
    SlashCommand("delete", "", "Delete the last message, or the one you went to", _delete),
    SlashCommand("undelete", "", "Bring back what was deleted last", _undelete),
    SlashCommand("stop", "", "Stop the reply and keep what arrived", _stop),
    SlashCommand("new", "", "Start a conversation with the default persona", _new),
    SlashCommand("close", "", "Close the tab; the conversation stays in the history", _close),
    SlashCommand("reopen", "", "Open the tab closed last again", _reopen),
    SlashCommand("clear", "", "Start over with the same persona", _clear),
    SlashCommand("code", "", "Copy the code of the last reply, or one block of it", _code),
    SlashCommand("copy", "", "Copy the last reply to the clipboard", _copy),
    SlashCommand("stats", "", "Show where the time of the last reply went, and why", _stats),
    SlashCommand("find", "TEXT", "Search all conversations", _find),
    SlashCommand("export", "FILE", "Write the conversation to a .md, .txt or .json file", _export),
    SlashCommand("quit", "", "Leave; the tabs come back the next time", _quit),
)
