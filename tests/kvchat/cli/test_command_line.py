"""Flags, exit codes and the one line that an error gets."""

from __future__ import annotations

from pathlib import Path

import pytest

import kvchat.personas
from kvchat import __version__, paths
from kvchat.cli.program import run
from kvchat.cli.root import root


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
    for command in ("pull", "models", "personas", "doctor", "config"):
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
