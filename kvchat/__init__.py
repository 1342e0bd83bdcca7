"""A terminal chat with its own local inference engine."""

__version__ = "2026.12.0"
