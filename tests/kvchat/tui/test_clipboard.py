"""Copying where the terminal does not take text for the clipboard."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvchat.tui import clipboard


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the only one where programs are looked for."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}")
    for variable in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(variable, raising=False)
    return folder


def install(folder: Path, name: str, script: str) -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_text_goes_to_the_desktops_program(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(programs, "xclip", f'echo "$@" > {tmp_path}/arguments; /bin/cat > {tmp_path}/copied')
    assert not clipboard.copy("nobody looks"), "there is no display"
    monkeypatch.setenv("DISPLAY", ":0")
    assert clipboard.copy("é [b]x[/b]\n")
    assert (tmp_path / "copied").read_text() == "é [b]x[/b]\n"
    assert (tmp_path / "arguments").read_text() == "-selection clipboard\n"


def test_a_program_that_fails_is_no_error(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    install(programs, "wl-copy", "exit 1")
    assert not clipboard.copy("text")


def test_without_a_program_nothing_happens(programs: Path) -> None:
    assert not clipboard.copy("text")
