"""The keys of a message that the cursor is on. Each action is also in the command palette, and a click on its name does
the same; a capital word would be another key, so these are plain letters: no text is written while they count."""

from __future__ import annotations

from textual.binding import Binding


def _key(keys: str, action: str, name: str, about: str) -> Binding:
    return Binding(keys, f"screen.{action}", name, tooltip=about, show=False)


MOVES = [
    _key("up,k", "message_cursor(-1)", "Up", "Go to the message above"),
    _key("down,j", "message_cursor(1)", "Down", "Go to the message below; below the last one, back to the composer"),
    _key("left,h", "step_branch(-1)", "Left", "Show the message before it in its place, on another branch"),
    _key("right,l", "step_branch(1)", "Right", "Show the message after it in its place, on another branch"),
    _key("escape", "leave", "Esc", "Go back to the composer"),
]
ACTIONS = [
    _key("c", "copy_message", "Copy", "Copy the message"),
    _key("x", "copy_code", "Code", "Copy its code; of several blocks, one of your choice"),
    _key("e", "edit_message", "Edit", "Change the message and send it again, as a branch"),
    _key("r", "regenerate", "Regenerate", "Ask for another reply here, as a branch"),
    _key("g", "continue_reply", "Go on", "Let a reply that was stopped or cut go on"),
    _key("f", "fork", "Fork", "Go on from here in a new tab, which shares the KV"),
    _key("d,delete", "delete_message", "Delete", "Delete the message with all that follows it"),
    _key("u,ctrl+z", "undelete", "Undo", "Bring back what was deleted last"),
]
