"""Fields to fill in."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, get_type_hints

import msgspec
from textual.app import ComposeResult
from textual.containers import HorizontalGroup, VerticalGroup
from textual.widgets import Input, Static

from engine.api import SamplingParams
from engine.errors import InvalidRequest
from kvchat.tui.format import printable, typed

HINTS = {
    "temperature": "0 greedy; higher is more varied",
    "top_k": "this many likely tokens; 0 all",
    "top_p": "those of this probability; 1 all",
    "min_p": "fraction of the likeliest; 0 all",
    "repetition_penalty": "above 1: fewer repetitions",
    "presence_penalty": "-2 to 2, for any occurrence",
    "frequency_penalty": "-2 to 2, for each occurrence",
    "seed": "the same seed, the same reply",
    "max_tokens": "the longest reply",
    "ignore_eos": "true: write until max_tokens",
}
"""What to say about a sampling parameter."""


class Field(HorizontalGroup):
    """One line of a form."""

    def __init__(self, label: str, value: str = "", placeholder: str = "", hint: str = "") -> None:
        super().__init__(classes="field")
        self._label, self._hint = label, hint
        self._input = Input(typed(value), placeholder=placeholder, compact=True, select_on_focus=False)

    def compose(self) -> ComposeResult:
        yield Static(self._label, classes="label", markup=False)
        yield self._input
        if self._hint:
            yield Static(self._hint, classes="about", markup=False)

    @property
    def value(self) -> str:
        return self._input.value.strip()

    def focus_input(self) -> None:
        self._input.focus()


class SamplingFields(VerticalGroup):
    """A field for each sampling parameter; an empty one is the default, which it shows."""

    def __init__(self, names: Sequence[str], given: Mapping[str, Any], defaults: SamplingParams) -> None:
        super().__init__()
        self._fields = {
            name: Field(name, _shown(given.get(name)), _shown(getattr(defaults, name)) or "none", HINTS[name])
            for name in names
        }

    def compose(self) -> ComposeResult:
        yield from self._fields.values()

    def values(self) -> dict[str, Any]:
        """What is filled in. Raises InvalidRequest, with one line that names the parameter, and focuses its field."""
        values: dict[str, Any] = {}
        for name, field in self._fields.items():
            if field.value:
                try:
                    values[name] = _parsed(name, field.value)
                except InvalidRequest:
                    field.focus_input()
                    raise
        return values


def _parsed(name: str, text: str) -> Any:
    try:
        value = msgspec.convert(text.lower(), _TYPES[name], strict=False)
    except msgspec.ValidationError:
        kind = {int: "a whole number", float: "a number", bool: "true or false"}.get(_TYPES[name], "a whole number")
        raise InvalidRequest(f"{name} must be {kind}, not '{printable(text)}'") from None
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidRequest(f"{name} must be finite, not {value}")
    SamplingParams(**{name: value})
    return value


def _shown(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


_TYPES = get_type_hints(SamplingParams)
