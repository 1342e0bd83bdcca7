"""The themes of the application: shipped ones, the user's above them, read again when their files change."""

from __future__ import annotations

from pathlib import Path

from textual.app import App

from kvchat.toml_file import ConfigError
from kvchat.tui.themes import shipped_themes, user_theme_files, user_themes

POLL_S = 1.0
"""A look at the folder takes some 20 µs."""


class ThemeWatch:
    """Registers themes with an application."""

    def __init__(self, app: App[None]) -> None:
        self._app = app
        self._seen = _snapshot()
        self.own: list[str] = []
        """The names of the shipped themes and of the user's."""
        self.problems: dict[Path, ConfigError] = {}
        """What is wrong with files of the user's."""
        self._register()

    @property
    def faulty(self) -> set[str]:
        """The themes that cannot be had because their files are not right, by the names of these."""
        return {file.stem for file in self.problems} - self._app.available_themes.keys()

    def reread(self) -> bool:
        """Read the user's themes if their files changed, and show the current one anew; whether they had changed."""
        seen = _snapshot()
        if seen == self._seen:
            return False
        self._seen = seen
        self._register()
        self._app.mutate_reactive(type(self._app).theme)
        return True

    def _register(self) -> None:
        themes, self.problems = user_themes()
        for theme in [*shipped_themes(), *themes]:
            self._app.register_theme(theme)
        self.own = sorted({theme.name for theme in [*shipped_themes(), *themes]})


def _snapshot() -> list[tuple[Path, int, int]]:
    """The files, with when they were changed and how long they are."""
    found = []
    for file in user_theme_files():
        try:
            status = file.stat()
        except OSError:  # gone since the look at the folder, or a link to nowhere, which reading the themes reports
            found.append((file, 0, 0))
        else:
            found.append((file, status.st_mtime_ns, status.st_size))
    return found
