"""The keys of the chat screen, by topic: what the footer, the help and the command palette are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual.binding import Binding, BindingType


def _key(keys: str, action: str, name: str, about: str, footer: bool = False) -> Binding:
    """A key that works wherever the focus is; the composer has its own use for some of them."""
    return Binding(keys, action, name, tooltip=about, show=footer, priority=True, id=name.lower().replace(" ", "_"))


TABS = [
    _key("ctrl+t", "new_tab", "New tab", "Start a conversation with the default persona", footer=True),
    _key("ctrl+n,f4", "pick_persona", "Persona", "Start a conversation with a persona of your choice", footer=True),
    _key("ctrl+w", "close_tab", "Close tab", "Close the tab; the conversation stays in the history"),
    _key("ctrl+o", "open_conversation", "Open conversation", "Open any conversation of the history"),
    _key("alt+s", "toggle_sidebar", "Sidebar", "List all conversations at the left; again closes it"),
    _key("alt+t", "reopen_tab", "Reopen tab", "Open the tab closed last again"),
    _key("f2", "rename_tab", "Rename tab", "Give the conversation a title"),
    _key("ctrl+pagedown", "step_tab(1)", "Next tab", "Show the tab to the right"),
    _key("ctrl+pageup", "step_tab(-1)", "Previous tab", "Show the tab to the left"),
    _key("ctrl+shift+pagedown", "move_tab(1)", "Move tab right", "Change the order of the tabs"),
    _key("ctrl+shift+pageup", "move_tab(-1)", "Move tab left", "Change the order of the tabs"),
]
NUMBERED_TABS = [_key(f"alt+{n}", f"show_tab({n})", f"Tab {n}", "Show a tab by its number") for n in range(1, 10)]
_ALL_NUMBERS = replace(NUMBERED_TABS[0], key_display="alt+1…9")
MESSAGES = [
    _key("alt+up,ctrl+up", "message_cursor(-1)", "Message above", "Go to the message above, to do something with it"),
    _key("alt+down,ctrl+down", "message_cursor(1)", "Message below", "Go to the message below, or back to writing"),
    _key("alt+e", "edit_message", "Edit message", "Change your message and send it again, as a branch"),
    _key("alt+y", "fork", "Fork", "Go on from here in a new tab that shares the KV"),
    _key("alt+k", "copy_code", "Copy code", "Copy the code of the message, or one block of it"),
    _key("alt+z", "undelete", "Undelete", "Bring back the message that was deleted last"),
]
"""Those that mean a message mean the one that the cursor is on, else the last."""
REPLY = [
    _key("ctrl+g", "edit_outside", "Edit outside", "Write the message in $EDITOR"),
    _key("escape", "stop", "Stop", "Stop the reply and keep what arrived", footer=True),
    _key("f5", "retry", "Try again", "Ask again for a reply that failed or was stopped", footer=True),
    _key("alt+c", "continue_reply", "Continue", "Let a reply that was stopped or cut go on"),
    _key("alt+r", "regenerate", "Regenerate", "Ask for another reply, as a branch"),
    _key("alt+p", "step_branch(-1)", "Previous branch", "Show the branch before this one"),
    _key("alt+n", "step_branch(1)", "Next branch", "Show the branch after this one"),
    _key("alt+w", "show_cost", "Why so slow", "Show where the time of the last reply went, and why"),
    _key("f6", "copy_reply", "Copy reply", "Copy the last reply to the clipboard"),
]
VIEW = [
    _key("f1", "help", "Help", "Show all keys", footer=True),
    _key("f3", "cycle_panel", "Panel", "Change the panel: full, two lines, none, debug", footer=True),
    _key("alt+m", "visit_blocks", "KV blocks", "Walk over the KV blocks; Enter goes to their tab"),
    _key("pageup", "scroll(-1)", "Page up", "Scroll the conversation up"),
    _key("pagedown", "scroll(1)", "Page down", "Scroll the conversation down"),
    _key("ctrl+home", "to_start", "To the start", "Go to the start of the conversation"),
    _key("ctrl+end", "to_end", "To the end", "Go to the end and follow the reply"),
]
PROGRAM = [
    _key("ctrl+p", "command_palette", "Commands", "Search everything that can be done", footer=True),
    _key("f9", "restart_engine", "Restart engine", "Start the engine again after it failed", footer=True),
    _key("ctrl+q", "quit", "Quit", "Leave; the tabs come back the next time"),
]


# Textual takes ESC 1 for the "¡" that one macOS terminal means by it; from any other terminal it is Alt+1.
for digit in range(10):
    cast(dict[str, object], ANSI_SEQUENCES_KEYS).pop(f"\x1b{digit}", None)


def rebindable() -> list[Binding]:
    """What the settings can give another key, by `id`."""
    return [*TABS, *NUMBERED_TABS, *MESSAGES, *REPLY, *VIEW, *PROGRAM]


def sections(keymap: Mapping[str, str]) -> dict[str, Sequence[BindingType]]:
    """Every key by topic, for the help; `keymap` is what the settings change."""
    from kvchat.tui.keymap import rebound
    from kvchat.tui.message_keys import ACTIONS, MOVES
    from kvchat.tui.widgets.composer import Editor

    numbered = rebound(NUMBERED_TABS, keymap) if any(tab.id in keymap for tab in NUMBERED_TABS) else [_ALL_NUMBERS]
    return {
        "Writing": Editor.BINDINGS,
        "Tabs": [*rebound(TABS, keymap), *numbered],
        "Messages": rebound(MESSAGES, keymap),
        "On a message": [*MOVES, *ACTIONS],
        "Replies": rebound(REPLY, keymap),
        "View": rebound(VIEW, keymap),
        "Program": rebound(PROGRAM, keymap),
    }
