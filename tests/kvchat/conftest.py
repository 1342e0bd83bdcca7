"""An open conversation for whoever tests the controller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from opened_conversation import Opened
from tui.scripted_client import ScriptedClient

from kvchat.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "kvchat.db") as store:
        yield store


@pytest.fixture
def client() -> ScriptedClient:
    return ScriptedClient()


@pytest.fixture
def opened(store: Store, client: ScriptedClient) -> Opened:
    return Opened(store, client)
