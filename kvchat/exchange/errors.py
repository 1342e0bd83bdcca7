"""What can go wrong with a file of conversations."""

from __future__ import annotations


class ExchangeError(Exception):
    """A file cannot be read or written; str(error) is one line with the place, fit to show."""
