"""Changes of the user's config.toml that are made in the application.

They go into the file itself and not into a state of its own: what the program does stays readable in one place, and the
file looks as its owner wrote it.
"""

from __future__ import annotations

from pathlib import Path

import tomlkit

from kvchat.config import ConfigError, load_config
from kvchat.files import replace_file


def change_setting(path: Path, table: str, key: str, value: str | bool) -> None:
    """Set one key, in a table or with "" at the top, and create the file if there is none. Raises ConfigError; a file
    that has mistakes is not touched."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            load_config(path)
            document = tomlkit.parse(path.read_text("utf-8-sig"))
        else:
            document = tomlkit.document()
        place = document.setdefault(table, tomlkit.table()) if table else document
        place[key] = value
        replace_file(path, tomlkit.dumps(document))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from error
