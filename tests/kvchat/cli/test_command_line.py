"""Flags, exit codes and the one line that an error gets."""

from __future__ import annotations

import shutil
from pathlib import Path

import click
import pytest

import kvchat.personas
from kvchat import __version__, paths
from kvchat.catalogue.folder import validate
from kvchat.cli.logfile import log_to_file
from kvchat.cli.program import run
from kvchat.cli.root import root
from kvchat.cli.settings import installed_name


def write_config(text: str) -> Path:
    paths.config_dir().mkdir(parents=True)
    paths.config_file().write_text(text)
    return paths.config_file()


def error_of(capsys: pytest.CaptureFixture[str]) -> str:
    """What was said on stderr, which must be one line, with nothing on stdout."""
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("kvchat: ") and output.err.count("\n") == 1
    return output.err.strip()


def test_help_names_every_command_and_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    help_text = capsys.readouterr().out
    for command in ("pull", "models", "plan", "personas", "doctor", "config"):
        assert f"\n  {command} " in help_text
    for option in root.params:
        assert option.opts[-1] in help_text


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"kvchat {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--modle", "x"], "--model"),
        (["pul"], "pull"),
        (["pull"], "kvchat pull --help"),
        (["--temperature", "-1", "-p", "x"], "--temperature"),
        (["--max-tokens", "many", "-p", "x"], "--max-tokens"),
        (["--kv-dtype", "int3", "-p", "x"], "bfloat16"),
        (["--temperature", "inf", "-p", "x"], "--temperature"),
        (["--temperature", "nan", "-p", "x"], "--temperature"),
        (["--model", "", "-p", "x"], "--model"),
        (["--persona", "", "-p", "x"], "--persona"),
        (["pull", ""], "must not be empty"),
        (["--json"], "kvchat -p TEXT --json"),
        (["-p", "x", "models"], "models"),
        (["doctor", "--config", "x"], "kvchat --config ... COMMAND"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert said in error_of(capsys)


def test_an_unknown_key_of_the_settings_is_named_with_its_file(capsys: pytest.CaptureFixture[str]) -> None:
    file = write_config("[sampling]\ntemprature = 1\n")
    assert run(["config", "check"]) == 1
    error = error_of(capsys)
    assert f"{file}:2" in error and "temperature" in error


def test_config_check_says_that_a_file_is_fine(capsys: pytest.CaptureFixture[str]) -> None:
    file = write_config("[sampling]\ntemperature = 1\n")
    assert run(["config", "check"]) == 0
    assert capsys.readouterr().out == f"{file}: fine\n"


def test_config_check_names_everything_that_cannot_be_had(capsys: pytest.CaptureFixture[str]) -> None:
    file = write_config('model = "nope"\npersona = "asistant"\n[ui]\ntheme = "harbour"\n')
    assert run(["config", "check"]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    theme, persona, model = output.err.splitlines()
    assert theme.startswith(f"kvchat: {file}:4: key 'ui.theme': unknown theme 'harbour': kvchat has ")
    assert persona == f"kvchat: {file}:2: key 'persona': unknown persona 'asistant': did you mean 'assistant'?"
    assert model.startswith(f"kvchat: {file}:1: key 'model': unknown model 'nope' (none is installed); ")


def test_config_check_names_a_device_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    file = write_config('[engine]\ndevice = "tpu"\n')
    assert run(["config", "check"]) == 1
    problem = "must be auto, cpu, cuda or cuda:N, not 'tpu'"
    assert capsys.readouterr().err == f"kvchat: {file}:2: key 'engine.device': {problem}\n"


def test_config_check_takes_the_themes_that_the_chat_takes(capsys: pytest.CaptureFixture[str]) -> None:
    write_config('[ui]\ntheme = "nord"\n')
    assert run(["config", "check"]) == 0


@pytest.mark.model
def test_config_check_knows_the_size_of_the_model(installed_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_config("[engine]\ncontext_length = 9000\nkv_memory = 1000\n")
    assert run(["config", "check"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"kvchat: {file}:2: key 'engine.context_length': 9,000 tokens are more than the 8,192 of the model",
        f"kvchat: {file}:3: key 'engine.kv_memory': 1,000 bytes hold no block of 16 tokens: it takes 368,640",
    ]
    file.write_text("[engine]\ncontext_length = 8192\nkv_memory = 368640\n")
    assert run(["config", "check"]) == 0


def test_config_alone_shows_its_help_and_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("Usage: kvchat config") and "\n  check " in output.err


def test_the_config_flag_moves_the_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "other.toml"
    assert run(["--config", str(file), "config", "path"]) == 0
    assert capsys.readouterr().out == f"{file}\n"
    assert run(["--config", str(file), "config", "check"]) == 1
    assert str(file) in error_of(capsys)


def test_personas_lists_shipped_ones_and_reports_a_bad_one_of_the_user(capsys: pytest.CaptureFixture[str]) -> None:
    folder = paths.config_dir() / "personas"
    folder.mkdir(parents=True)
    (folder / "pirate.toml").write_text('description = "Says arr"\nsystem_prompt = "You are a pirate."\n')
    (folder / "broken.toml").write_text("system_prompt = 3\n")
    assert run(["personas"]) == 0
    output = capsys.readouterr()
    assert "assistant" in output.out and "Says arr" in output.out
    assert "broken.toml" in output.err


def test_models_says_how_to_get_the_first_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["models"]) == 0
    assert "kvchat pull smollm2-135m-instruct" in capsys.readouterr().out


def test_pulling_an_unknown_model_names_those_spelled_alike(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pull", "smollm2-135m"]) == 1
    assert "smollm2-135m-instruct" in error_of(capsys)


def test_an_error_nobody_expected_is_one_line_and_its_traceback_is_logged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise ZeroDivisionError("a mistake of ours")

    monkeypatch.setattr(kvchat.personas, "load_personas", fail)
    assert run(["personas"]) == 1
    log = paths.log_dir() / "kvchat.log"
    error = error_of(capsys)
    assert "a mistake of ours" in error and str(log) in error
    assert "Traceback" in log.read_text()

    with pytest.raises(ZeroDivisionError):
        run(["--debug", "personas"])


def test_a_log_that_cannot_be_written_is_one_line_with_the_way_out(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "file"))
    with pytest.raises(click.ClickException) as refusal:
        log_to_file()
    log = paths.log_dir() / "kvchat.log"
    assert refusal.value.message == (
        f"cannot write the log {log}: Not a directory; set XDG_STATE_HOME to another folder"
    )


@pytest.mark.model
def test_a_slash_after_a_models_name_changes_nothing(installed_model: str) -> None:
    assert installed_name(f"{installed_model}/") == installed_model


@pytest.mark.model
@pytest.mark.parametrize("name", ["tokenizer_config.json", "tokenizer.json", "generation_config.json"])
def test_a_damaged_file_is_seen_by_every_command_and_mended_by_a_pull(
    name: str, model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = shutil.copytree(model_folder, tmp_path / "smol")
    installed = paths.models_dir() / "smol"
    assert run(["pull", str(source)]) == 0
    (installed / name).write_text('{"cut')
    capsys.readouterr()

    damage = f"{installed / name} is damaged"
    assert run(["models"]) == 0
    assert f"damaged: {damage}" in capsys.readouterr().out
    assert run(["--model", "smol", "doctor"]) == 1
    assert damage in capsys.readouterr().out

    assert run(["pull", str(source)]) == 0
    validate(installed)


@pytest.mark.model
def test_a_pulled_folder_is_listed_under_the_name_that_pull_says(
    model_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pull", str(model_folder)]) == 0
    output = capsys.readouterr()
    name, _, rest = output.out.partition(" ")
    assert rest == f"is installed in {paths.models_dir() / name}\n"
    assert "copying: 100 %" in output.err

    assert run(["models"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[0] == name
