"""Keys of the user's choice."""

from __future__ import annotations

from pathlib import Path

import pytest
from chat_driver import Open

from kvchat.config import Config, ConfigError, load_config
from kvchat.tui import keys


def load(tmp_path: Path, table: str) -> Config:
    (tmp_path / "config.toml").write_text(f"[keys]\n{table}\n")
    return load_config(tmp_path / "config.toml")


async def test_another_key_does_what_the_usual_one_did_and_that_one_no_more(open_chat: Open, tmp_path: Path) -> None:
    config = load(tmp_path, 'new_tab = "Ctrl+Y"\nhelp = "f7, f8"')
    async with open_chat(size=(120, 100), config=config) as chat:
        await chat.shows("Ctrl+Y  new tab", "F7  all keys", "^y New tab")
        await chat.press("ctrl+t")
        await chat.press("ctrl+y")
        await chat.until(lambda: len(chat.app.workspace.tabs) == 2)
        await chat.press("f8")
        await chat.shows("Start a conversation with the default persona", "^y", "F7, F8")
        assert "^t" not in chat.text.split("Esc closes this page")[0]
        assert len(chat.app.workspace.tabs) == 2


async def test_two_actions_can_swap_their_keys(open_chat: Open, tmp_path: Path) -> None:
    config = load(tmp_path, 'new_tab = "f1"\nhelp = "ctrl+t"')
    async with open_chat(config=config) as chat:
        await chat.press("f1")
        await chat.until(lambda: len(chat.app.workspace.tabs) == 2)
        await chat.press("ctrl+t")
        await chat.shows("Esc closes this page")


async def test_the_banner_names_the_key_that_restarts_the_engine(open_chat: Open, tmp_path: Path) -> None:
    async with open_chat(config=load(tmp_path, 'restart_engine = "f12"'), ready=False) as chat:
        chat.client.fail("no memory")
        await chat.shows("F12 tries again")


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ('new_tba = "f7"', ":2: key 'keys.new_tba': unknown, did you mean 'new_tab'?"),
        ("new_tab = 7", ":2: key 'keys.new_tab': expected a string, got 7"),
        (
            'new_tab = "hyper+t"',
            ':2: key \'keys.new_tab\': expected a key such as "ctrl+t", "alt+r" or "f7", got "hyper+t"',
        ),
        ('new_tab = ""', ':2: key \'keys.new_tab\': expected a key such as "ctrl+t", "alt+r" or "f7", got ""'),
        ('new_tab = "t"', ":2: key 'keys.new_tab': 't' could not be written any more: add ctrl or alt"),
        ('new_tab = "enter"', ":2: key 'keys.new_tab': 'enter' is needed to write a message"),
        ('new_tab = "ctrl+m"', ":2: key 'keys.new_tab': 'ctrl+m' is needed to write a message"),
        ('new_tab = "f1"', ":2: key 'keys.new_tab': 'f1' is the key of help already: give that one another key"),
        (
            'help = "f7"\nnew_tab = "f7"',
            ":3: key 'keys.new_tab': 'f7' is the key of help already: give that one another key",
        ),
    ],
)
def test_a_key_that_cannot_be_had_says_why_and_where(tmp_path: Path, table: str, problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(tmp_path, table)
    assert str(error.value) == f"{tmp_path / 'config.toml'}{problem}"


@pytest.mark.parametrize("key", ["f12", "ctrl+y", "alt+r,ctrl+r", "ctrl+shift+t", "alt+1,f12", "ctrl+shift+up"])
def test_usual_keys_are_taken(tmp_path: Path, key: str) -> None:
    others = 'regenerate = "f10"\ntab_1 = "f11"\n'
    assert load(tmp_path, f'{others}new_tab = "{key}"').keys["new_tab"] == key


def test_every_action_has_a_name_of_its_own() -> None:
    names = [binding.id for binding in keys.rebindable()]
    assert len(names) == len(set(names)) and all(name and name.replace("_", "").isalnum() for name in names)
