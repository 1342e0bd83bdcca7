"""The engines as they are driven, and the processes around them, on a tiny model."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvchat.bench.peers.peer import PeerError
from kvchat.bench.peers.processes import Worker, run
from kvchat.bench.workers.kvchat_engine import Worker as KvchatWorker
from kvchat.bench.workers.transformers_engine import Worker as TransformersWorker

POOL_BYTES = 1 << 20
"""Of 256 bytes a token."""


@pytest.fixture
def engine(small_model: Path) -> KvchatWorker:
    return KvchatWorker(model=str(small_model), dtype="float32", kv_memory=POOL_BYTES, threads=1)


@pytest.fixture
def process(small_model: Path) -> Iterator[Worker]:
    worker = Worker(sys.executable, "kvchat_engine", model=str(small_model), dtype="float32", kv_memory=POOL_BYTES)
    yield worker
    worker.close()


def test_decoding_is_timed_while_all_sequences_decode_and_leaves_the_engine_idle(engine: KvchatWorker) -> None:
    prompts = [[index + 40] * 50 for index in range(3)]
    assert engine.decode(prompts, steps=4) > 0
    assert engine.step() == []
    assert engine.decode(prompts, steps=4) > 0


def test_a_step_names_the_prompts_that_got_a_token(engine: KvchatWorker) -> None:
    engine.start([[40] * 20, [50] * 20], max_tokens=3)
    made = [index for _ in range(4) for index in engine.step()]
    assert sorted(made) == [0, 0, 0, 1, 1, 1]
    engine.stop()


def test_sequences_that_do_not_fit_together_are_an_error_and_no_figure(small_model: Path) -> None:
    engine = KvchatWorker(model=str(small_model), dtype="float32", kv_memory=256 * 1024, threads=1)
    prompts = [[index + 40] * 400 for index in range(4)]
    with pytest.raises(RuntimeError, match="do not all fit at the same time"):
        engine.decode(prompts, steps=4)
    assert engine.prefill(prompts[0]) > 0, "the engine is idle again"


def test_the_second_conversation_finds_the_persona_in_the_cache(engine: KvchatWorker) -> None:
    persona = list(range(30, 130))
    engine.first_token_behind([*persona, 1, 2], [*persona, 3, 4])
    engine.start([[*persona, 5, 6]], max_tokens=1)
    while not engine.step():
        pass
    assert engine._engine.stats().hit_rate > 0.5


def test_transformers_is_driven_the_same_way(small_model: Path) -> None:
    engine = TransformersWorker(str(small_model), threads=1)
    assert engine.decode([[40] * 20, [50] * 20], steps=4) > 0
    assert engine.prefill([40] * 20) > 0
    assert engine.first_token_behind([40] * 20 + [1], [40] * 20 + [2, 3]) > 0


def test_a_worker_answers_and_survives_a_measurement_that_fails(process: Worker) -> None:
    assert process.about["context_length"] == 600
    assert process.ask("prefill", prompt=[40] * 64) > 0
    with pytest.raises(PeerError, match="token id 9999 is not in the vocabulary"):
        process.ask("prefill", prompt=[9999])
    assert process.ask("decode", prompts=[[40] * 64], steps=4) > 0
    assert process.ask("peak_bytes") > POOL_BYTES


def test_a_worker_that_cannot_load_says_why() -> None:
    with pytest.raises(PeerError, match="does not exist"):
        Worker(sys.executable, "kvchat_engine", model="/nowhere")


def test_a_worker_that_died_is_an_error(process: Worker) -> None:
    os.kill(process._process.pid, signal.SIGKILL)
    process._process.wait()
    for _ in range(2):
        with pytest.raises(PeerError, match=r"its process ended \(exit -9\)"):
            process.ask("prefill", prompt=[40] * 64)


def test_a_program_is_run_to_its_end() -> None:
    ended = run([sys.executable, "-c", "import sys; print('done'); sys.stderr.write('and more')"])
    assert ended.stdout == "done\n"
    assert ended.seconds > 0 and ended.peak_bytes > 1 << 20


def test_a_program_that_cannot_be_started_is_an_error() -> None:
    with pytest.raises(PeerError, match="/nowhere/python cannot be started: No such file"):
        run(["/nowhere/python"])
