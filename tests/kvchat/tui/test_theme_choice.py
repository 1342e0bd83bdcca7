"""Themes chosen in the application, themes of the user, and terminals without colours."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from chat_driver import Chat, Open

from kvchat import paths
from kvchat.config import Config, ConfigError, UiConfig, load_config
from kvchat.tui.themes import shipped_themes

HARBOR = (Path(__file__).parents[3] / "themes" / "harbor.toml").read_text()


@pytest.fixture
def mine(home: Path) -> Path:
    """A theme of the user."""
    file = paths.config_dir() / "themes" / "mine.toml"
    file.parent.mkdir(parents=True)
    file.write_text(HARBOR.replace('name = "harbor"', 'name = "mine"'))
    return file


def background(chat: Chat) -> str:
    return chat.app.screen.styles.background.hex.lower()


async def pick(chat: Chat) -> None:
    chat.app.action_change_theme()
    await chat.shows("Theme", "Enter keeps it")


async def test_the_highlighted_theme_is_shown_at_once_and_kept_in_the_settings(open_chat: Open) -> None:
    paths.config_dir().mkdir(parents=True)
    paths.config_file().write_text("# mine\n[ui]\npanel = 'full'\n")
    async with open_chat(size=(100, 40)) as chat:
        await pick(chat)
        names = sorted(theme.name for theme in shipped_themes())
        await chat.press(*["down"] * (names.index("linen") - names.index("harbor")))
        await chat.until(lambda: chat.app.theme == "linen")
        assert chat.app.has_class("-light-mode")
        await chat.press("enter")
        await chat.shows_not("Enter keeps it")
        assert chat.app.theme == "linen"
    assert paths.config_file().read_text() == "# mine\n[ui]\npanel = 'full'\ntheme = \"linen\"\n"
    assert load_config().ui.theme == "linen"


async def test_escape_brings_the_theme_back(open_chat: Open) -> None:
    async with open_chat() as chat:
        await pick(chat)
        await chat.press("down", "down")
        await chat.until(lambda: chat.app.theme != "harbor")
        await chat.press("escape")
        await chat.until(lambda: chat.app.theme == "harbor")
    assert not paths.config_file().exists()


async def test_a_choice_that_cannot_be_kept_is_used_and_says_so(open_chat: Open) -> None:
    paths.config_dir().mkdir(parents=True)
    paths.config_file().write_text("[ui\n")
    async with open_chat(size=(160, 40)) as chat:
        await pick(chat)
        await chat.press("down", "enter")
        await chat.shows("The theme is not kept")
    assert paths.config_file().read_text() == "[ui\n"


async def test_a_theme_of_the_user_is_listed_and_can_be_the_settings(open_chat: Open, mine: Path) -> None:
    async with open_chat(config=Config(ui=UiConfig(theme="mine"))) as chat:
        await pick(chat)
        await chat.shows("mine", "harbor")


async def test_a_change_of_the_file_is_seen_while_the_application_runs(open_chat: Open, mine: Path) -> None:
    async with open_chat(config=Config(ui=UiConfig(theme="mine"))) as chat:
        mine.write_text(mine.read_text().replace('background = "#13171e"', 'background = "#202020"'))
        os.utime(mine, ns=(1, 1))
        await chat.until(lambda: chat.app.current_theme.background == "#202020")
        await chat.until(lambda: chat.app.theme_variables["background"] == "#202020")


async def test_a_bad_file_is_named_with_the_place_and_hides_nothing(open_chat: Open, mine: Path) -> None:
    async with open_chat(size=(200, 40), config=Config(ui=UiConfig(theme="mine"))) as chat:
        mine.write_text(mine.read_text().replace('primary = "#73b8c9"', 'primary = "blue-ish"'))
        await chat.shows("A theme cannot be used", "blue-ish")
        assert chat.app.theme == "mine" and chat.app.current_theme.primary == "#73b8c9"


async def test_a_faulty_theme_of_the_settings_is_told_and_the_default_takes_its_place(
    open_chat: Open, mine: Path
) -> None:
    mine.write_text("name = 3")
    async with open_chat(size=(200, 40), config=Config(ui=UiConfig(theme="mine"))) as chat:
        await chat.shows("A theme cannot be used", "mine.toml:1: key 'name'")
        assert chat.app.theme == "harbor"


async def test_a_link_to_itself_is_named_and_ends_nothing(open_chat: Open, mine: Path) -> None:
    async with open_chat(size=(200, 40)) as chat:
        loop = mine.with_name("loop.toml")
        loop.symlink_to(loop)
        await chat.shows("A theme cannot be used", "loop.toml: cannot be read")
    async with open_chat(size=(200, 40), config=Config(ui=UiConfig(theme="mine"))) as chat:
        await chat.shows("loop.toml: cannot be read")
        assert chat.app.theme == "mine"


async def test_a_theme_that_is_not_there_is_refused_with_those_that_are(open_chat: Open, mine: Path) -> None:
    mine.write_text("name = 3")
    with pytest.raises(ConfigError, match="unknown theme 'neon': kvchat has beacon, .*terminal$"):
        async with open_chat(config=Config(ui=UiConfig(theme="neon"))):
            pass


@pytest.mark.parametrize("theme", [theme.name for theme in shipped_themes()])
async def test_every_shipped_theme_draws_the_chat(open_chat: Open, theme: str) -> None:
    async with open_chat(size=(120, 30), config=Config(ui=UiConfig(theme=theme))) as chat:
        chat.client.reply(await chat.send("Hello"), "# A\n\n```python\nprint(1)\n```\n\n- *b*")
        await chat.shows("print(1)", "KV blocks")


async def test_without_colours_nothing_is_coloured(open_chat: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with open_chat(size=(120, 30)) as chat:
        chat.client.reply(await chat.send("Hello"), "**bold** `code`")
        await chat.shows("bold")
        styles = [
            segment.style
            for strip in chat.app.screen._compositor.render_strips()
            for segment in strip.apply_filter(chat.app._filters[-1], chat.app.screen.styles.background)
            if segment.style
        ]
        grey = [color.triplet for style in styles for color in (style.color, style.bgcolor) if color and color.triplet]
        assert grey and all(triplet.red == triplet.green == triplet.blue for triplet in grey)
