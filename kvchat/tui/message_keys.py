"""The keys of the message that the cursor is on: plain letters, as nothing is written meanwhile."""

from __future__ import annotations

from textual.binding import Binding


def _key(keys: str, action: str, name: str, about: str) -> Binding:
    return Binding(keys, f"screen.{action}", name, tooltip=about, show=False)


MOVES = [
    _key("up,k", "message_cursor(-1)", "Up", "Go to the message above"),
    _key("down,j", "message_cursor(1)", "Down", "Go to the message below, or back to writing"),
    _key("left,h", "step_branch(-1)", "Left", "Show the branch before this one, at this message"),
    _key("right,l", "step_branch(1)", "Right", "Show the branch after this one, at this message"),
    _key("escape", "leave", "Esc", "Go back to the composer"),
]
ACTIONS = [
    _key("c", "copy_message", "Copy", "Copy the message"),
    _key("x", "copy_code", "Code", "Copy the code of the message, or one block of it"),
    _key("e", "edit_message", "Edit", "Change the message and send it again, as a branch"),
    _key("r", "regenerate", "Regenerate", "Ask for another reply here, as a branch"),
    _key("g", "continue_reply", "Go on", "Let a reply that was stopped or cut go on"),
    _key("w", "show_cost", "Why so slow", "Show where the time of the reply went, and why"),
    _key("f", "fork", "Fork", "Go on from here in a new tab that shares the KV"),
    _key("d,delete", "delete_message", "Delete", "Delete the message with all that follows it"),
    _key("u,ctrl+z", "undelete", "Undo", "Bring back what was deleted last"),
]
