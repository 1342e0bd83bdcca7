"""Real English that every Python has."""

from __future__ import annotations

from pydoc_data.topics import topics


def english() -> str:
    """The language reference that `help()` shows: half a megabyte, in the order of its topics."""
    return "\n\n".join(topics[name] for name in sorted(topics))
