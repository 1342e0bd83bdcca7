"""Personas: shipped ones worth using, the user's own beside and above them."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.api import SamplingParams
from engine.tokenizer import Tokenizer
from kvchat.personas import Persona, PersonaWarning, load_personas, shipped_personas
from kvchat.toml_file import ConfigError


def test_the_shipped_personas_are_complete(tmp_path: Path) -> None:
    personas = load_personas(tmp_path / "none")
    assert len(personas.all) >= 8
    assert personas.warnings == ()
    for persona in personas.all:
        assert persona.title and persona.description
        assert len(persona.description) < 90
        assert persona.system_prompt == persona.system_prompt.strip() != ""


@pytest.mark.parametrize("name", ["reviewer", "shell"])
def test_some_shipped_personas_have_more_than_1000_tokens_and_leave_room_in_8192(name: str, model_folder: Path) -> None:
    prompt = load_personas().named(name).system_prompt
    assert 1_000 < len(Tokenizer(model_folder).encode(prompt)) < 3_000


def test_a_persona_of_the_user_is_read_from_the_settings_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "kvchat" / "personas"
    folder.mkdir(parents=True)
    (folder / "pirate.toml").write_text(
        '''
        title = "Pirate"
        description = "Arr"
        greeting = "Ahoy!"
        pin = true
        system_prompt = """
Talk like a pirate.
"""
        [sampling]
        temperature = 1
        stop = ["Arr"]
        '''
    )
    assert load_personas().named("pirate") == Persona(
        name="pirate",
        title="Pirate",
        description="Arr",
        greeting="Ahoy!",
        pin=True,
        system_prompt="Talk like a pirate.",
        sampling={"temperature": 1.0, "stop": ("Arr",)},
    )


def test_a_persona_changes_only_the_sampling_it_names() -> None:
    defaults = SamplingParams(temperature=1.2, top_k=40)
    persona = Persona(name="x", system_prompt="", sampling={"temperature": 0.1})
    assert persona.sampling_params(defaults) == SamplingParams(temperature=0.1, top_k=40)


def test_a_persona_of_the_user_wins_over_a_shipped_one_of_the_same_name(tmp_path: Path) -> None:
    (tmp_path / "coder.toml").write_text('system_prompt = "Write Haskell."')
    coder = load_personas(tmp_path).named("coder")
    assert coder == Persona(name="coder", title="coder", system_prompt="Write Haskell.")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('title = "x"', ": key 'system_prompt': missing"),
        ("system_prompt = 3", ":1: key 'system_prompt': expected a string, got 3"),
        ('system_promt = "x"', ":1: key 'system_promt': unknown, did you mean 'system_prompt'?"),
        (
            'name = "x"',
            ":1: key 'name': unknown; known here: title, description, system_prompt, greeting, pin, sampling",
        ),
        (
            'system_prompt = ""\n[sampling]\ntemprature = 1',
            ":3: key 'sampling.temprature': unknown, did you mean 'temperature'?",
        ),
        (
            'system_prompt = ""\n[sampling]\ntemperature = "hot"',
            ":3: key 'sampling.temperature': expected a number, got \"hot\"",
        ),
        (
            'system_prompt = ""\n[sampling]\ntemperature = -1',
            ":3: key 'sampling.temperature': must be 0 or more, not -1.0",
        ),
        ("system_prompt", ":1:14: not valid TOML: expected '=' after a key in a key/value pair"),
    ],
)
def test_a_bad_file_is_a_warning_and_hides_no_other_persona(tmp_path: Path, content: str, problem: str) -> None:
    bad = tmp_path / "coder.toml"
    bad.write_text(content)
    (tmp_path / "mine.toml").write_text('system_prompt = "Mine."')
    personas = load_personas(tmp_path)
    assert personas.warnings == (PersonaWarning(str(bad), f"{bad}{problem}"),)
    assert {"coder", "mine", "tutor"} <= {persona.name for persona in personas.all}


def test_personas_of_a_folder_that_is_none_are_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "personas"
    file.write_text("")
    personas = load_personas(file)
    assert personas.warnings == (PersonaWarning(str(file), f"{file}: cannot be read: Not a directory"),)
    assert personas.all == tuple(shipped_personas())


def test_an_unknown_name_is_answered_with_one_like_it(tmp_path: Path) -> None:
    personas = load_personas(tmp_path)
    with pytest.raises(ConfigError) as error:
        personas.named("codr")
    assert str(error.value) == "unknown persona 'codr': did you mean 'coder'?"
    with pytest.raises(ConfigError) as error:
        personas.named("xyz")
    assert str(error.value).startswith("unknown persona 'xyz': there are assistant, coder, editor, ")
