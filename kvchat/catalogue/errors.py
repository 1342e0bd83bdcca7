"""Errors of the catalogue beyond the engine's own."""

from __future__ import annotations

from engine.errors import ModelError


class Interrupted(ModelError):
    """A download stopped on the way; what arrived is kept, and the next pull continues."""
