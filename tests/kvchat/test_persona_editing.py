"""Personas of the user, changed by the program: what it did not have to touch stays as it was written."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvchat.personas import Persona, load_persona, load_personas
from kvchat.personas.editing import (
    delete_persona,
    name_for,
    persona_file,
    save_persona,
    with_persona,
    without_persona,
)
from kvchat.toml_file import ConfigError

WRITTEN = '''# My favourite.
title = "Pirate"   # with a parrot
pin = true
system_prompt = """
Talk like a pirate.
"""

[sampling]
# hot
temperature = 1.2
stop = ["Arr"]
'''


@pytest.fixture
def pirate(home: Path) -> Path:
    file = persona_file("pirate")
    file.parent.mkdir(parents=True)
    file.write_text(WRITTEN)
    return file


def changed(file: Path, **changes: object) -> str:
    """The file after its persona was saved with these changes."""
    persona = load_persona(file)
    save_persona(Persona(**{name: getattr(persona, name) for name in persona.__struct_fields__} | changes))
    return file.read_text()


def test_saving_what_did_not_change_changes_no_byte(pirate: Path) -> None:
    assert changed(pirate) == WRITTEN


def test_comments_and_order_survive_a_change(pirate: Path) -> None:
    assert changed(pirate, title="Captain") == WRITTEN.replace('"Pirate"', '"Captain"')
    assert changed(pirate, title="Pirate", sampling={"temperature": 0.5, "stop": ("Arr",)}) == WRITTEN.replace(
        "1.2", "0.5"
    )


def test_what_gets_its_default_back_is_taken_out(pirate: Path) -> None:
    text = changed(pirate, pin=False, sampling={"stop": ("Arr",)})
    assert "pin" not in text and "temperature =" not in text and "# My favourite." in text


def test_a_new_persona_is_readable_toml(home: Path) -> None:
    saved = save_persona(
        Persona(name="poet", title="Poet", system_prompt='Rhyme.\n"""Always."""', sampling={"top_k": 5}, pin=True)
    )
    assert load_personas().named("poet") == saved
    assert persona_file("poet").read_text() == (
        'title = "Poet"\npin = true\nsystem_prompt = """\nRhyme.\n""\\"Always.""\\"\n"""\n\n[sampling]\ntop_k = 5\n'
    )


@pytest.mark.parametrize("broken", ["system_prompt = 3\n", WRITTEN + "tempratur = 3\n", "title = \n"])
def test_a_file_that_is_not_understood_is_not_touched(pirate: Path, broken: str) -> None:
    pirate.write_text(broken)
    with pytest.raises(ConfigError, match=f"^{pirate}"):
        save_persona(Persona(name="pirate", system_prompt="x"))
    assert pirate.read_text() == broken


@pytest.mark.parametrize("name", ["", "../x", "Big", "a b", "x.y", "-x"])
def test_a_name_that_is_no_file_name_is_refused(home: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="small letters"):
        save_persona(Persona(name=name, system_prompt="x"))


def test_a_persona_that_is_deleted_is_gone_and_a_shipped_one_of_its_name_shows_again(pirate: Path) -> None:
    save_persona(Persona(name="tutor", system_prompt="Mine."))
    personas = load_personas()
    assert personas.named("tutor").system_prompt == "Mine."
    delete_persona("tutor")
    delete_persona("pirate")
    rest = without_persona(without_persona(personas, "tutor"), "pirate")
    assert rest == load_personas()
    assert "patient tutor" in rest.named("tutor").system_prompt


def test_a_shipped_persona_cannot_be_deleted(home: Path) -> None:
    with pytest.raises(ConfigError, match="'tutor' comes with kvchat"):
        delete_persona("tutor")


def test_a_folder_that_cannot_be_written_is_one_line(home: Path) -> None:
    persona_file("x").parent.parent.mkdir(parents=True)
    persona_file("x").parent.write_text("a file")
    with pytest.raises(ConfigError, match="x.toml: cannot be written: "):
        save_persona(Persona(name="x", system_prompt="x"))


def test_changed_personas_stay_sorted_and_keep_the_warnings(home: Path) -> None:
    personas = load_personas()
    more = with_persona(
        with_persona(personas, Persona(name="aa", system_prompt="")), Persona(name="tutor", system_prompt="")
    )
    assert [persona.name for persona in more.all] == sorted({"aa", *(persona.name for persona in personas.all)})
    assert more.named("tutor").system_prompt == ""


@pytest.mark.parametrize(
    ("title", "name"),
    [("Sea Captain", "sea-captain"), ("Tutor", "tutor-2"), ("船", "persona"), ("C++ / Rust!", "c-rust")],
)
def test_a_name_is_made_of_the_title(title: str, name: str) -> None:
    assert name_for(title, {"tutor"}) == name


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(prompt=st.text().map(lambda text: "\n".join(text.splitlines()).strip()), title=st.text(min_size=1))
def test_any_text_survives(home: Path, prompt: str, title: str) -> None:
    saved = save_persona(Persona(name="any", title=title, system_prompt=prompt))
    assert (saved.system_prompt, saved.title) == (prompt, title)
