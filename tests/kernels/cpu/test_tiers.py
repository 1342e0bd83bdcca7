"""Every set of instructions that this CPU has computes the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba")

from kernels.cpu import tier as tiers

FOREIGN = {"avx512_vnni", "avx_vnni", "avx2"} - set(tiers.available_tiers())


def test_the_portable_tier_is_everywhere_and_the_last_choice() -> None:
    assert tiers.available_tiers()[-1] == "portable"


def test_the_best_tier_is_taken_unless_another_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(tiers.VARIABLE, raising=False)
    assert tiers.tier.__wrapped__() == tiers.available_tiers()[0]
    for name in tiers.available_tiers():
        monkeypatch.setenv(tiers.VARIABLE, name)
        assert tiers.tier.__wrapped__() == name


@pytest.mark.parametrize("name", ["sse9", "AVX2", " portable", *FOREIGN])
def test_a_tier_that_cannot_be_had_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tiers.VARIABLE, name)
    with pytest.raises(ValueError, match=r"^KVCHAT_CPU_TIER is '.*', but this CPU has .*portable$"):
        tiers.tier.__wrapped__()


@pytest.mark.parametrize(
    ("has", "expected"),
    [
        ({}, ("portable",)),
        ({"avx2": True}, ("portable",)),
        ({"avx2": True, "f16c": True}, ("avx2", "portable")),
        ({"avx2": True, "f16c": True, "avxvnni": True}, ("avx_vnni", "avx2", "portable")),
        ({"avx2": True, "f16c": True, "avx512f": True, "avx512bw": True, "avx512vl": True}, ("avx2", "portable")),
    ],
)
def test_a_tier_needs_all_its_features(
    has: dict[str, bool], expected: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(tiers.binding, "get_host_cpu_features", lambda: has)
    assert tiers.available_tiers.__wrapped__() == expected


def test_another_architecture_has_the_portable_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers.platform, "machine", lambda: "aarch64")
    assert tiers.available_tiers.__wrapped__() == ("portable",)


@pytest.mark.parametrize("name", [name for name in tiers.available_tiers() if name != tiers.tier()])
def test_the_native_step_in_every_tier(name: str, model_cache: Path) -> None:
    """This process has compiled for one of them; the others need processes of their own."""
    tests = Path(__file__).with_name("test_native_step.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(tests)],
        env={**os.environ, tiers.VARIABLE: name, "KVCHAT_TEST_CACHE": str(model_cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    kept = Path(os.environ.get("NUMBA_CACHE_DIR") or model_cache / "kernels")
    assert list(kept.glob(f"{name}-*"))
