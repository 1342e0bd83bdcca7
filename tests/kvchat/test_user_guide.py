"""The user guide says what the program does."""

from __future__ import annotations

import runpy
from pathlib import Path

import click
import tomli

from kvchat.cli.root import root
from kvchat.personas import load_persona
from kvchat.tui import keys
from kvchat.tui.slash import COMMANDS

DOCS = Path(__file__).parents[2] / "docs"
GUIDE = (DOCS / "USER_GUIDE.md").read_text()


def test_the_lists_of_the_guide_are_up_to_date() -> None:
    assert runpy.run_path(str(DOCS / "make_user_guide.py"))["renewed"](GUIDE) == GUIDE, "run: make guide"


def test_every_key_command_and_option_is_in_it() -> None:
    for binding in keys.rebindable():
        assert binding.id and (f"`{binding.id}`" in GUIDE or binding.id.startswith("tab_")), binding.id
    for command in COMMANDS:
        assert f"`{command.usage}`" in GUIDE
    for name, command in root.commands.items():
        assert f"**`kvchat {name} " in GUIDE
        for parameter in command.params:
            assert not isinstance(parameter, click.Option) or parameter.opts[-1] in GUIDE


def test_its_examples_are_right(tmp_path: Path) -> None:
    blocks = [block.partition("```")[0] for block in GUIDE.split("```toml\n")[1:]]
    assert len(blocks) == 2
    for block in blocks:
        tomli.loads(block)
    (tmp_path / "pirate.toml").write_text(blocks[0])
    assert load_persona(tmp_path / "pirate.toml").pin
