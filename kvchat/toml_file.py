"""TOML files that users write, read strictly: errors name the file, the line, the key and what was expected."""

from __future__ import annotations

import codecs
import difflib
import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from importlib.resources.abc import Traversable
from typing import Any, Literal, NewType, TypeVar, get_args, get_origin

import msgspec
import tomli

from engine.errors import EngineError

T = TypeVar("T")


class ConfigError(Exception):
    """A file of settings cannot be used; str(error) is one line fit to show."""


Size = NewType("Size", int)
"""A number of bytes, written as an integer or like "512MiB" or "2 GB"."""

MAX_INTEGER = (1 << 63) - 1
"""The range that TOML promises."""

_UNITS = {"": 1, "b": 1} | {
    prefix + unit: base**power for power, prefix in enumerate("kmgt", 1) for unit, base in (("b", 1000), ("ib", 1024))
}
_EXPECTED: dict[object, str] = {
    str: "a string",
    bool: "true or false",
    int: "an integer",
    float: "a number",
    dict: "a table",
    tuple[str, ...]: "a list of strings",
    Size: 'a number of bytes or a size such as "512MiB"',
}


class TomlFile:
    """A parsed file that checks its own keys."""

    def __init__(self, path: Traversable) -> None:
        """Raises ConfigError when the file cannot be read or is not TOML in UTF-8."""
        self._path = path
        try:
            raw = path.read_bytes().removeprefix(codecs.BOM_UTF8)
            self._text = raw.decode()
            self._data = tomli.loads(self._text)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            before = raw[: error.start].decode()
            line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
            raise ConfigError(f"{path}:{line}:{column}: not valid UTF-8: save the file as UTF-8") from error
        except tomli.TOMLDecodeError as error:
            problem = error.msg[:1].lower() + error.msg[1:]
            raise ConfigError(f"{path}:{error.lineno}:{error.colno}: not valid TOML: {problem}") from error
        except ValueError as error:  # Python's limit of digits
            raise ConfigError(f"{path}: not valid TOML: it holds a number with thousands of digits") from error

    def table(self, name: str, keys: Mapping[str, Any]) -> dict[str, Any]:
        """The values of one table, "" for the top of the file, empty when it is absent.

        `keys` are the keys it may have and the types of their values. Raises ConfigError at the first that is wrong.
        """
        table = self._data.get(name, {}) if name else self._data
        values = {}
        for key, value in table.items():
            if key not in keys:
                raise self.error(name, key, f"unknown{_suggestion(key, keys)}")
            try:
                values[key] = parse_size(value) if keys[key] is Size else msgspec.convert(value, keys[key])
            except (msgspec.ValidationError, ValueError) as error:
                problem = f"expected {_expected(keys[key])}, got {_describe(value)}"
                raise self.error(name, key, problem) from error
            if isinstance(values[key], int) and not -MAX_INTEGER <= values[key] <= MAX_INTEGER:
                raise self.error(name, key, "is a number of more than 64 bits")
            if isinstance(values[key], float) and not math.isfinite(values[key]):
                raise self.error(name, key, f"expected a finite number, got {values[key]}")
        return values

    def build(self, kind: type[T], name: str, values: Mapping[str, Any]) -> T:
        """Make a `kind`, which checks ranges, of the values of table `name`."""
        try:
            return kind(**values)
        except EngineError as error:  # "top_p must be above 0 ..."
            key, _, problem = str(error).partition(" ")
            raise self.error(name, key, problem) from error

    def error(self, table: str, key: str, problem: str) -> ConfigError:
        """The error that `problem` is with a key, at its place."""
        line = self._line(table, key)
        where = f"{self._path}:{line}" if line else str(self._path)
        return ConfigError(f"{where}: key '{table}.{key}': {problem}" if table else f"{where}: key '{key}': {problem}")

    def _line(self, table: str, key: str) -> int | None:
        """Where a key stands, as far as it is written plainly; tomli does not say."""
        assignment = re.compile(rf"""\s*["']?{re.escape(key)}["']?\s*=""")
        current = ""
        for number, line in enumerate(self._text.splitlines(), 1):
            if header := re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line):
                current = header[1]
                if not table and current == key:
                    return number
            elif current == table and assignment.match(line):
                return number
        return None


def parse_size(value: object) -> int:
    """Bytes of "512MiB", "1.5 GB" or an integer. Raises ValueError."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", value.strip().lower()) if isinstance(value, str) else None
    if match is None or match[2] not in _UNITS:
        raise ValueError(f"expected {_EXPECTED[Size]}, got {_describe(value)}")
    return int(Decimal(match[1]) * _UNITS[match[2]])


def _expected(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(json.dumps(choice) for choice in get_args(kind))
    return _EXPECTED.get(kind) or _EXPECTED[get_args(kind)[0]]  # the second form is `kind | None`


def _describe(value: object) -> str:
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    return json.dumps(value, ensure_ascii=False, default=str)


def _suggestion(key: str, known: Mapping[str, Any]) -> str:
    alike = difflib.get_close_matches(key, known, n=1)
    return f", did you mean '{alike[0]}'?" if alike else f"; known here: {', '.join(known)}"
