"""`kvchat bench mixed`, `interference` and `doctor`, on the product's own engine with a tiny model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.api import Finished, GenerationRequest, SamplingParams
from engine.config import EngineConfig
from engine.engine import Engine
from kvchat.bench.experiment import Setup
from kvchat.bench.experiments import mixed
from kvchat.bench.experiments.doctor import read
from kvchat.bench.latency import Spread, Summary
from kvchat.bench.load import Arrival, serve
from kvchat.bench.mixes import MIXES
from kvchat.cli.bench import loads
from kvchat.cli.program import run
from kvchat.diagnosis import diagnose
from kvchat.profiles import PROFILES

FAST = ["--quick", "--rate", "40"]


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["bench", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_every_profile_serves_the_same_arrivals(small_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = report(capsys, "mixed", "--model", str(small_model), *FAST)
    measured = found["measured"]
    assert list(measured["profiles"]) == list(PROFILES)
    work = {
        name: [[(each["prompt_tokens"], each["completion_tokens"]) for each in turn] for turn in turns]
        for name, turns in measured["requests"].items()
    }
    assert work["chat"] == work["documents"] == work["writer"]
    assert len(work["chat"][0]) == 8 + 1, "the questions and the long text"
    for name, figures in measured["profiles"].items():
        assert figures["max_sequences"] == PROFILES[name].settings["max_sequences"]
        assert 0 < figures["most_running"] <= figures["max_sequences"]
        assert 0 < figures["ttft_s"]["p50"] <= figures["ttft_s"]["p95"] <= figures["ttft_s"]["p99"]
        assert 0 < figures["pool_mean"] <= figures["pool_most"] <= 1
        assert 0 < figures["hit_rate"] < 1, "questions find the persona in the cache"
    assert [line["name"] for line in found["plot"]["series"]] == list(PROFILES)
    assert found["ratios"]["writer / chat, TTFT max"] > 0


def test_the_mixed_load_reads_as_an_answer_a_table_and_a_plot(
    small_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["mixed", "--model", str(small_model), "--mix", "chat", "--requests", "3", *FAST]
    assert run(["bench", *arguments]) == 0
    printed = capsys.readouterr().out
    assert "With short questions behind one persona, at 40 requests a second, the first token comes soonest" in printed
    for words in ("TTFT, s: p50 / max", "One round:", "preemptions", "pool in use: mean, most", "% of the pool in use"):
        assert words in printed
    for name, profile in PROFILES.items():
        assert f"{name}: {profile.pattern}; max_sequences {profile.settings['max_sequences']}" in printed


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ["--requests", "3", "--duration", "2"],
            "--requests or --duration, not both: each says how long requests arrive",
        ),
        (["--mix", "writer", "--rate", "2"], "the mix writer is one request: --rate, --requests and --duration do not"),
        (["--rate", "0"], "Invalid value for '--rate'"),
        (["--rate", "nan"], "Invalid value for '--rate': nan is not a finite number"),
        (["--rate", "1e300"], "Invalid value for '--rate'"),
        (["--rate", "1e-300"], "Invalid value for '--rate'"),
        (["--requests", "9" * 30], "Invalid value for '--requests'"),
        (["--duration", "1e300"], "Invalid value for '--duration'"),
        (
            ["--duration", "80000"],
            "80000 s at 1.5 requests a second are more than 10,000 requests: lower --duration or",
        ),
        (["--mix", "all"], "'all' is not one of 'chat', 'documents', 'writer', 'blend'"),
    ],
)
def test_a_load_that_makes_no_sense_is_refused(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", "mixed", *arguments]) == 2
    assert problem in capsys.readouterr().err


def test_a_reply_goes_on_beside_a_paste_in_chunks_and_stands_still_beside_one_in_one_step(
    small_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = report(capsys, "interference", "--model", str(small_model), "--quick")
    trials, paste = found["measured"]["trials"], found["measured"]["paste_tokens"]
    assert paste == 450
    for each in trials["one step"]:
        assert len(each["gaps_s"]) == 1, "its one token came with the end of the paste"
        assert each["paste_ttft_s"] >= each["token_at_s"][-1]
    for each in trials["chunks"]:
        # A chunk is shared with the running reply, which takes a row of it.
        assert len(each["gaps_s"]) == -(-paste // (found["measured"]["chunk_tokens"] - 1))
    assert all(each["paste_ttft_s"] is None for each in trials["alone"])
    assert found["ratios"]["one step / chunks, p95 ms a token"] > 0
    assert "chunks of 112" in found["answer"] and "ms (the longest gap), " in found["answer"]


def test_a_context_too_short_for_a_paste_is_one_line(
    small_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "config.toml"
    settings.write_text("[engine]\ncontext_length = 300")
    assert run(["--config", str(settings), "bench", "interference", "--model", str(small_model), "--quick"]) == 1
    *_, line = capsys.readouterr().err.splitlines()
    assert line == "kvchat: a context of 300 tokens is too short for a long paste"


def test_the_doctor_names_what_is_slow_from_its_figures(small_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = report(capsys, "doctor", "--model", str(small_model), "--mix", "chat", *FAST)
    reading, diagnosis = found["measured"]["reading"], found["measured"]["diagnosis"]
    assert diagnosis["bottleneck"] in ("none", "queueing", "prefill", "decode")
    assert reading["preemptions"] == 0 and not reading["blocked"]
    assert reading["max_sequences"] == 16
    assert found["ratios"]["TTFT max / limit"] == pytest.approx(reading["ttft_s"])
    assert len(found["measured"]["requests"]) == 8
    assert ("TTFT, max" in {row[0] for row in found["table"]}) and found["answer"]


def test_a_load_that_outgrows_its_pool_is_read_as_the_memory_policy(small_model: Path) -> None:
    engine = Engine(EngineConfig(small_model, dtype="float32", kv_memory=12 * 16 * 256, max_sequences=8))
    sampling = SamplingParams(temperature=0, max_tokens=100, ignore_eos=True)
    requests = [GenerationRequest(tuple([40 + number] * 40), sampling) for number in range(4)]
    served = serve(engine, [Arrival(0.0, request) for request in requests])
    assert all(isinstance(each, Finished) for each in served.finished)
    reading = read(served, engine.info)
    assert reading.preemptions > 0 and reading.blocked
    assert diagnose(reading).bottleneck == "memory"


def test_every_mix_can_be_asked_for() -> None:
    assert tuple(MIXES) == loads.MIXES


@pytest.mark.parametrize(
    ("rounds", "best", "words"),
    [
        (
            {"chat": [1.0, 1.2], "documents": [1.1, 1.3], "writer": [3.0, 4.0]},
            ["chat", "documents"],
            "chat (1.20 s) and documents (1.30 s), which are level, before writer (4.00 s)",
        ),
        (
            {"chat": [1.0, 1.2], "documents": [1.3, 1.4], "writer": [0.5, 0.6]},
            ["writer"],
            "writer (0.60 s), before chat (1.20 s) and documents (1.40 s)",
        ),
    ],
)
def test_profiles_are_ranked_only_where_they_differ_by_more_than_their_rounds_do(
    rounds: dict[Any, list[float]], best: list[str], words: str
) -> None:
    def summary(ttft_s: float) -> Summary:
        spread = Spread(ttft_s, ttft_s, ttft_s)
        return Summary(9, spread, spread, spread, spread, 1.0, 0, 1, 0, 0.0, 0.5, 0.5)

    found = {name: summary(max(values)) for name, values in rounds.items()}
    ranked = mixed._best(found, {name: [*map(summary, values)] for name, values in rounds.items()}, mixed._ttft)
    assert ranked == best
    assert mixed._ranked(found, ranked, mixed._ttft, 1, "s") == words


def test_settings_of_ones_own_that_the_profiles_replace_are_named(small_model: Path) -> None:
    own = Setup(config=EngineConfig(small_model, kv_dtype="int4", threads=1))
    assert mixed._replaced(own) == ["Your own settings do not count here, each profile has its own: kv_dtype int4."]
    assert mixed._replaced(Setup(config=EngineConfig(small_model, threads=1))) == []
