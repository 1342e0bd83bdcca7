"""A model's name or path becomes its folder, or one line that says what to do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from engine.errors import ModelError
from engine.locate import REPAIR, installed_names, model_folder, models_dir


def make_model(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    return folder


def test_a_name_is_a_folder_under_the_users_models(home: Path) -> None:
    folder = make_model(models_dir() / "smol")
    assert model_folder("smol") == folder
    assert folder.is_relative_to(home / "data" / "kvchat")


def test_a_hub_name_has_its_owner_in_front() -> None:
    folder = make_model(models_dir() / "owner" / "repo")
    assert model_folder("owner/repo") == folder
    assert installed_names() == ["owner/repo"]


@pytest.mark.parametrize("kind", [str, Path])
def test_a_path_is_taken_as_it_is(kind: type, tmp_path: Path) -> None:
    folder = make_model(tmp_path / "anywhere")
    assert model_folder(kind(folder)) == folder


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = make_model(tmp_path / "mine")
    assert model_folder("~/mine") == folder


def test_a_path_wins_over_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_model(models_dir() / "smol")
    make_model(tmp_path / "smol")
    monkeypatch.chdir(tmp_path)
    assert model_folder("smol").resolve() == tmp_path / "smol"


def test_an_unknown_name_is_answered_with_what_is_installed() -> None:
    make_model(models_dir() / "smollm2-135m-instruct")
    make_model(models_dir() / "qwen3")
    with pytest.raises(ModelError) as unknown:
        model_folder("smolm2-135m")
    assert str(unknown.value) == (
        "unknown model 'smolm2-135m' (installed: qwen3, smollm2-135m-instruct); "
        "`kvchat models` shows what can be pulled"
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "no model given"),
        (
            "nothing-like-it",
            "unknown model 'nothing-like-it' (none is installed); `kvchat models` shows what can be pulled",
        ),
        ("owner/repo", "the model owner/repo is not installed; run: kvchat pull owner/repo"),
        ("../outside", "does not exist"),
        ("/nowhere", "model /nowhere does not exist"),
    ],
)
def test_what_does_not_exist_is_one_clear_line(name: str, message: str) -> None:
    with pytest.raises(ModelError) as missing:
        model_folder(name)
    assert message in str(missing.value)
    assert "\n" not in str(missing.value)


def test_a_folder_without_config_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"has no config\.json, so it is no model folder"):
        model_folder(tmp_path)


def test_an_installed_folder_that_lost_its_config_is_named_damaged() -> None:
    (models_dir() / "smol").mkdir(parents=True)
    with pytest.raises(ModelError, match=re.escape(f"model 'smol' is damaged: it has no config.json; {REPAIR}")):
        model_folder("smol")


def test_an_installed_folder_that_may_not_be_read_is_not_called_damaged() -> None:
    folder = make_model(models_dir() / "smol")
    folder.chmod(0)
    if os.access(folder, os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(ModelError) as unreadable:
        model_folder("smol")
    folder.chmod(0o700)
    assert str(unreadable.value) == f"{folder} cannot be read: Permission denied"


def test_what_is_being_pulled_is_not_installed() -> None:
    make_model(models_dir() / ".pulling" / "smol.work")
    make_model(models_dir() / ".pulling" / "owner--repo.resumable" / "model")
    assert installed_names() == []


def test_finding_a_model_brings_no_torch() -> None:
    check = "import sys, engine.locate, kvchat.paths; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
