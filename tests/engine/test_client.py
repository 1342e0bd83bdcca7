"""Both clients keep the same promises; the process one also survives what can happen to a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from collector import Collector

from engine.api import EngineState, EngineStats, Event, Failed, Finished, GenerationRequest, SamplingParams, TokenDelta
from engine.client import InProcessClient, QueueClient
from engine.config import EngineConfig
from engine.process import ProcessClient

MakeClient = Callable[..., QueueClient]


@pytest.fixture(params=["thread", "process"])
def make_client(request: pytest.FixtureRequest, tiny_model: Path, tmp_path: Path) -> Iterator[MakeClient]:
    clients: list[QueueClient] = []

    def make(model: Path | str = tiny_model) -> QueueClient:
        config = EngineConfig(model=model, dtype="float32", kv_memory=1 << 20, max_batch_tokens=64, threads=1)
        client = InProcessClient(config) if request.param == "thread" else ProcessClient(config, tmp_path / "log")
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.close()


def ask(max_tokens: int = 8, request_id: str = "") -> GenerationRequest:
    params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    return GenerationRequest((1, 2, 3), params, request_id=request_id)


def state(name: str) -> Callable[[Event], bool]:
    return lambda event: isinstance(event, EngineState) and event.state == name


def ended(request_id: str) -> Callable[[Event], bool]:
    return lambda event: isinstance(event, Finished | Failed) and event.request_id == request_id


def test_a_request_sent_while_the_model_loads_is_answered(make_client: MakeClient, collector: Collector) -> None:
    client = make_client()
    client.start(collector)
    done = collector.until(ended(client.submit(ask())))
    assert isinstance(done, Finished) and len(done.token_ids) == 8
    kinds = [type(event) for event in collector.events]
    assert kinds[0] is EngineState and EngineStats in kinds and TokenDelta in kinds


def test_abort_ends_a_running_request(make_client: MakeClient, collector: Collector) -> None:
    client = make_client()
    client.start(collector)
    request_id = client.submit(ask(max_tokens=500))
    collector.until(lambda event: isinstance(event, TokenDelta))
    client.abort(request_id)
    done = collector.until(ended(request_id))
    assert isinstance(done, Finished) and done.finish_reason == "aborted" and done.token_ids


def test_a_refused_request_fails_with_the_reason(make_client: MakeClient, collector: Collector) -> None:
    client = make_client()
    client.start(collector)
    failed = collector.until(ended(client.submit(GenerationRequest((1,) * 600))))
    assert isinstance(failed, Failed) and failed.refused and failed.too_long and "the context holds 512" in failed.error


def test_a_model_that_cannot_load_fails_what_waits_for_it(make_client: MakeClient, collector: Collector) -> None:
    client = make_client("no-such-model")
    request_id = client.submit(ask())
    client.start(collector)
    failed = collector.until(ended(request_id))
    assert isinstance(failed, Failed) and "no-such-model" in failed.error


def test_closing_while_the_model_loads(make_client: MakeClient, collector: Collector) -> None:
    client = make_client()
    client.start(collector)
    collector.until(state("loading"))
    client.close()


def test_closing_twice_is_fine(make_client: MakeClient, collector: Collector) -> None:
    client = make_client()
    client.start(collector)
    collector.until(state("ready"))
    client.close()
    client.close()


@pytest.fixture
def process_client(tiny_model: Path, tmp_path: Path) -> Iterator[ProcessClient]:
    config = EngineConfig(model=tiny_model, dtype="float32", kv_memory=1 << 20, max_batch_tokens=64, threads=1)
    client = ProcessClient(config, tmp_path / "log")
    yield client
    client.close()


def test_a_killed_engine_is_reported_and_can_be_started_again(
    process_client: ProcessClient, collector: Collector
) -> None:
    process_client.start(collector)
    lost = process_client.submit(ask(max_tokens=500))
    collector.until(lambda event: isinstance(event, TokenDelta))
    assert process_client.pid is not None
    os.kill(process_client.pid, signal.SIGKILL)
    died = collector.until(state("died"))
    assert isinstance(died, EngineState) and "SIGKILL" in died.detail
    assert isinstance(collector.until(ended(lost)), Failed)
    waits = process_client.submit(ask())
    process_client.start(collector)
    assert isinstance(collector.until(ended(waits)), Finished)


PARENT = """
import sys, threading
from engine.config import EngineConfig
from engine.process import ProcessClient
from engine.api import EngineState, GenerationRequest, SamplingParams
from pathlib import Path

def hear(events):
    for event in events:
        if isinstance(event, EngineState) and event.state == "ready":
            print(client.pid, flush=True)

if __name__ == "__main__":
    config = EngineConfig(model=Path(sys.argv[1]), dtype="float32", kv_memory=1 << 20, max_batch_tokens=64, threads=1)
    client = ProcessClient(config, Path(sys.argv[2]))
    client.start(hear)
    threading.Event().wait()
"""


def test_the_engine_process_ends_when_its_ui_is_killed(tiny_model: Path, tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    environment = os.environ | {"PYTHONPATH": os.getcwd()}
    with subprocess.Popen(
        [sys.executable, script, tiny_model, tmp_path / "log"], stdout=subprocess.PIPE, env=environment
    ) as parent:
        assert parent.stdout is not None
        engine = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
        parent.wait()
        psutil.wait_procs([engine], timeout=60)
        assert not engine.is_running() or engine.status() == psutil.STATUS_ZOMBIE


def test_another_model_is_loaded_after_a_close_and_nothing_waits_for_the_old_one(
    make_client: MakeClient, collector: Collector, tiny_model: Path
) -> None:
    client = make_client("no-such-model")
    client.start(collector)
    collector.until(state("failed"))
    client.close()
    lost = client.submit(ask())
    client.configure(EngineConfig(model=tiny_model, dtype="float32", kv_memory=1 << 20, threads=1))
    failed = collector.until(ended(lost))
    assert isinstance(failed, Failed) and "replaced" in failed.error

    client.start(collector)
    done = collector.until(ended(client.submit(ask())))
    assert isinstance(done, Finished)
    client.close()
    client.configure(EngineConfig(model=tiny_model, dtype="float32", kv_memory=1 << 20, threads=1))
    client.start(collector)
    assert isinstance(collector.until(ended(client.submit(ask(request_id="again")))), Finished)
