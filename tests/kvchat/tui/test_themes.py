"""Theme files."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.color import Color
from textual.theme import Theme

from kvchat.toml_file import ConfigError
from kvchat.tui.themes import load_theme, shipped_themes

HARBOR = (Path(__file__).parents[3] / "themes" / "harbor.toml").read_text()


TRUE_COLOR = [theme for theme in shipped_themes() if not theme.ansi]
"""Those whose colours do not depend on the terminal."""


def test_dark_light_and_sixteen_colour_themes_are_shipped() -> None:
    assert len(shipped_themes()) >= 6
    assert {theme.dark for theme in TRUE_COLOR} == {True, False}
    [terminal] = [theme for theme in shipped_themes() if theme.ansi]
    assert all(color.startswith("ansi_") for color in terminal.variables.values() if color not in ("none", "bold"))


def test_the_theme_of_high_contrast_has_it() -> None:
    [beacon] = [theme for theme in shipped_themes() if theme.name == "beacon"]
    background = Color.parse(beacon.background)
    assert contrast(Color.parse(beacon.foreground), background) == pytest.approx(21)
    for color in (beacon.primary, beacon.secondary, beacon.accent, beacon.error, beacon.warning, beacon.success):
        assert contrast(Color.parse(color), background) >= 7


@pytest.mark.parametrize("theme", TRUE_COLOR, ids=lambda theme: theme.name)
def test_a_shipped_theme_is_readable(theme: Theme) -> None:
    """Contrast as WCAG has it: 7 for text, 4.5 for what carries meaning, 3 for what stands back."""
    background = Color.parse(theme.background)
    for color in (theme.foreground,):
        assert contrast(Color.parse(color), background) >= 7
    for color in (theme.primary, theme.secondary, theme.accent, theme.error, theme.warning, theme.success):
        assert contrast(Color.parse(color), background) >= 4.5
    assert contrast(background.blend(Color.parse(theme.foreground), 0.6), background) >= 3


@pytest.mark.parametrize("theme", TRUE_COLOR, ids=lambda theme: theme.name)
def test_a_shipped_theme_tells_the_owners_of_blocks_apart(theme: Theme) -> None:
    colors = [Color.parse(theme.variables[f"kv-{owner}"]) for owner in ("own", "other", "shared", "cached", "free")]
    for index, one in enumerate(colors):
        for other in colors[index + 1 :]:
            assert sum(abs(a - b) for a, b in zip(one.rgb, other.rgb, strict=True)) > 50


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('primary = "#73b8c9"', 'primary = "#73b8"x"', "not valid TOML"),
        ('primary = "#73b8c9"', 'primary = "blu-ish"', r"key 'colors.primary': expected a colour .*, got \"blu-ish\""),
        ('primary = "#73b8c9"', "primary = 7", "key 'colors.primary': expected a string"),
        ('primary = "#73b8c9"\n', "", "key 'colors.primary': missing"),
        ('own = "#e3a867"', 'mine = "#e3a867"', "key 'blocks.mine': unknown"),
        ('name = "harbor"\n', "", "key 'name': missing"),
        ("dark = true", 'dark = "yes"', "key 'dark': expected true or false"),
        ('border = "#3f6f7d"', "border = 1", "key 'variables.*': expected"),
        ('border = "#3f6f7d"', 'border = "blu"', r":\d+: key 'variables.border': expected a colour .*, got \"blu\""),
        ('h2-text-style = "bold"', 'h2-text-style = "fat"', 'expected words such as .*, got "fat"'),
        ('name = "harbor"', 'name = "My Harbor"', ":4: key 'name': expected small letters"),
    ],
)
def test_a_bad_theme_file_says_what_is_wrong_and_where(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert old in HARBOR
    file = tmp_path / "bad.toml"
    file.write_text(HARBOR.replace(old, new, 1))
    with pytest.raises(ConfigError, match=problem) as caught:
        load_theme(file)
    assert str(file) in str(caught.value)


def contrast(one: Color, other: Color) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(color: Color) -> float:
    linear = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in color.rgb))
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
