"""Profiles: defaults of the engine for a pattern of requests, which settings and flags go before."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.config import EngineConfig
from kvchat import paths
from kvchat.catalogue.names import DEFAULT_MODEL
from kvchat.cli.options import Options
from kvchat.cli.program import run
from kvchat.cli.settings import resolve
from kvchat.config import Config, load_config
from kvchat.profiles import DEFAULT_PROFILE, PROFILES, ProfileName

SET_BY_PROFILES = {"max_sequences", "max_batch_tokens", "kv_dtype", "pin_fraction"}


@pytest.fixture
def settings() -> Path:
    paths.config_dir().mkdir(parents=True)
    return paths.config_file()


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_says_all_of_batch_chunk_kv_dtype_and_pins_and_why(name: ProfileName) -> None:
    profile = PROFILES[name]
    assert set(profile.settings) == SET_BY_PROFILES
    assert profile.pattern and profile.why
    EngineConfig("model", **profile.settings)


def test_no_two_profiles_are_the_same() -> None:
    assert len({str(profile.settings) for profile in PROFILES.values()}) == len(PROFILES)


def test_the_default_is_chat_and_what_the_engine_does_by_itself() -> None:
    assert DEFAULT_PROFILE == "chat"
    assert Config().engine == EngineConfig(DEFAULT_MODEL)


def test_a_profile_in_the_settings_sets_up_the_engine(settings: Path) -> None:
    settings.write_text('profile = "documents"')
    config = load_config()
    assert config.profile == "documents"
    assert config.engine == EngineConfig(
        DEFAULT_MODEL, max_sequences=4, max_batch_tokens=256, kv_dtype="int8", pin_fraction=0.1
    )


def test_a_setting_of_ones_own_goes_before_the_profile(settings: Path) -> None:
    settings.write_text('profile = "documents"\n[engine]\nkv_dtype = "auto"\nmax_sequences = 5')
    assert load_config().engine == EngineConfig(
        DEFAULT_MODEL, max_sequences=5, max_batch_tokens=256, kv_dtype="auto", pin_fraction=0.1
    )


def test_a_flag_goes_before_the_profile_of_the_settings_but_not_before_the_other_settings(
    settings: Path, model_folder: Path
) -> None:
    settings.write_text(f'model = "{model_folder}"\nprofile = "documents"\n[engine]\nmax_sequences = 5')
    config = resolve(Options(profile="writer", kv_dtype="int4")).config
    assert config.profile == "writer"
    assert config.engine == EngineConfig(
        str(model_folder), max_sequences=5, max_batch_tokens=2048, kv_dtype="int4", pin_fraction=0.0
    )


def test_a_profile_needs_no_settings_file(model_folder: Path) -> None:
    engine = resolve(Options(model=str(model_folder), profile="writer")).config.engine
    assert engine == EngineConfig(str(model_folder), **PROFILES["writer"].settings)


def test_an_unknown_profile_is_refused_by_its_name(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings.write_text('profile = "fast"')
    assert run(["config", "check"]) == 1
    assert 'key \'profile\': expected one of "chat", "documents", "writer", got "fast"' in capsys.readouterr().err
    assert run(["--profile", "fast", "config", "path"]) == 2
    assert "'fast' is not one of 'chat', 'documents', 'writer'" in capsys.readouterr().err


def test_a_setting_that_does_not_go_with_the_profile_is_blamed_and_not_the_profiles_own(
    settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.write_text('profile = "documents"\n[engine]\nmax_sequences = 300')
    assert run(["config", "check"]) == 1
    assert capsys.readouterr().err == (
        f"kvchat: {settings}:3: key 'engine.max_sequences': max_batch_tokens of the profile documents (256) must be "
        "above max_sequences (300): set engine.max_batch_tokens\n"
    )
