"""A pull beside the program that wants the model."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf_maker import TinyGGUF

from engine.errors import ModelError
from engine.locate import installed_names
from kvchat.catalogue.background import BackgroundPull


def test_it_reports_its_stages_and_ends_with_the_model_installed(tmp_path: Path) -> None:
    TinyGGUF().write(tmp_path / "tiny.gguf")
    stages = [progress.stage for progress in BackgroundPull(str(tmp_path / "tiny.gguf")).reports()]
    assert "converting" in stages and stages[-1] == "checking"
    assert installed_names() == ["tiny"]


def test_what_cannot_be_pulled_says_why() -> None:
    with pytest.raises(ModelError, match="^unknown model 'nonsense'"):
        list(BackgroundPull("nonsense").reports())


def test_one_that_is_cancelled_installs_nothing(tmp_path: Path) -> None:
    TinyGGUF().write(tmp_path / "tiny.gguf")
    pull = BackgroundPull(str(tmp_path / "tiny.gguf"))
    pull.cancel()
    with pytest.raises(ModelError, match="ended before the model was complete"):
        list(pull.reports())
    assert installed_names() == []
