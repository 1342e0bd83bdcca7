"""What the application writes into the user's config.toml."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kvchat.config import ConfigError, load_config
from kvchat.settings_file import change_setting

WRITTEN = """# mine
model = "x"  # small

[ui]
# by day
theme = "linen"
panel = "off"

[sampling]
top_k = 5
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "config.toml"
    file.write_text(WRITTEN)
    return file


def test_a_setting_is_changed_where_it_stands_and_nothing_else(file: Path) -> None:
    change_setting(file, "ui", "theme", "moss")
    change_setting(file, "", "model", "y")
    assert file.read_text() == WRITTEN.replace("linen", "moss").replace('"x"', '"y"')


def test_a_new_key_at_the_top_stays_above_the_tables(file: Path) -> None:
    file.write_text(WRITTEN.replace('model = "x"  # small\n', ""))
    change_setting(file, "", "model", "y")
    assert load_config(file).model == "y" and load_config(file).ui.panel == "off"


def test_a_file_and_its_folder_are_made(tmp_path: Path) -> None:
    file = tmp_path / "new" / "config.toml"
    change_setting(file, "ui", "theme", "moss")
    assert file.read_text() == '[ui]\ntheme = "moss"\n'


@pytest.mark.parametrize("broken", ["[ui", "[ui]\ntheem = 1\n"])
def test_a_file_with_mistakes_is_not_touched(file: Path, broken: str) -> None:
    file.write_text(broken)
    with pytest.raises(ConfigError, match=f"^{file}:"):
        change_setting(file, "ui", "theme", "moss")
    assert file.read_text() == broken


def test_a_link_keeps_leading_to_the_file_and_the_file_keeps_its_permissions(file: Path, tmp_path: Path) -> None:
    file.chmod(0o640)
    link = tmp_path / "link.toml"
    link.symlink_to(file)
    change_setting(link, "ui", "theme", "moss")
    assert link.is_symlink() and load_config(file).ui.theme == "moss"
    assert file.stat().st_mode & 0o777 == 0o640
    assert sorted(os.listdir(tmp_path)) == ["config.toml", "link.toml"]
