"""Measures the engine beside transformers `generate` in one run: `make bench` (nothing else should run meanwhile).

Every figure is a median over interleaved rounds; the last column is what matters, absolute times depend on the machine.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from statistics import median

import psutil
import torch
from transformers import AutoModelForCausalLM

from engine import Engine, EngineConfig, GenerationRequest, SamplingParams
from engine.locate import model_folder

ROUNDS = 5
NEW_TOKENS = 64
MIB = 1 << 20


def prompt(length: int, seed: int) -> tuple[int, ...]:
    """Random ordinary tokens: nothing here is cached unless asked for."""
    return tuple(torch.randint(100, 40_000, (length,), generator=torch.Generator().manual_seed(seed)).tolist())


def request(length: int, seed: int) -> GenerationRequest:
    params = SamplingParams(temperature=0, max_tokens=NEW_TOKENS, ignore_eos=True)
    return GenerationRequest(prompt(length, seed), params)


def tpot(engine: Engine, length: int, seed: int) -> float:
    [done] = engine.generate([request(length, seed)])
    assert done.metrics.tpot_s is not None
    return done.metrics.tpot_s


def decode_step(engine: Engine, sequences: int, length: int, seed: int) -> float:
    """Seconds of one step in which `sequences` conversations decode."""
    for index in range(sequences):
        engine.submit(request(length, seed * 100 + index))
    while engine.stats().running < sequences or any(live.seq.generated < 2 for live in engine._live.values()):
        engine.step()
    times = []
    while len(engine._live) == sequences:
        started = time.perf_counter()
        engine.step()
        times.append(time.perf_counter() - started)
    while engine.has_work:
        engine.step()
    return median(times)


def transformers_tpot(model: torch.nn.Module, length: int, seed: int) -> float:
    """By difference, so that the prefill does not count."""
    ids = torch.tensor([prompt(length, seed)])

    def generate(tokens: int) -> float:
        started = time.perf_counter()
        model.generate(ids, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, pad_token_id=0)
        return time.perf_counter() - started

    return (generate(NEW_TOKENS) - generate(2)) / (NEW_TOKENS - 2)


def main(name: str) -> None:
    folder = model_folder(name)
    cap = 512 * MIB
    before = psutil.Process().memory_info().rss
    engine = Engine(EngineConfig(model=folder, kv_memory=cap))
    loaded = psutil.Process().memory_info().rss
    pool = engine.stats().pool
    peers = {
        f"transformers {dtype}": AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
        for dtype in (torch.bfloat16, torch.float32)
    }
    measures: dict[str, Callable[[int], float]] = {
        "kvchat, 1 conversation, 128 tokens": lambda seed: decode_step(engine, 1, 128, seed),
        "kvchat, 4 conversations, 128 tokens": lambda seed: decode_step(engine, 4, 128, seed),
        "kvchat, 1 conversation, 4096 tokens": lambda seed: decode_step(engine, 1, 4096, seed),
        "kvchat, TPOT as reported, 128 tokens": lambda seed: tpot(engine, 128, seed),
    } | {
        f"{name}, 128 tokens": lambda seed, peer=peer: transformers_tpot(peer, 128, seed)
        for name, peer in peers.items()
    }
    times: dict[str, list[float]] = {name: [] for name in measures}
    for round_number in range(ROUNDS + 1):
        for name, measure in measures.items():
            seconds = measure(round_number)
            if round_number:  # the first round warms up
                times[name].append(seconds)

    single = median(times["kvchat, 1 conversation, 128 tokens"])
    print(f"{engine.info.name}, {engine.info.dtype}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    print(f"{'a decode step':40} {'median':>9} {'min':>9} {'max':>9}   x of 1 x 128")
    for name, values in times.items():
        low, middle, high = (1000 * value for value in (min(values), median(values), max(values)))
        print(f"{name:40} {middle:6.2f} ms {low:6.2f} ms {high:6.2f} ms   {middle / 1000 / single:.2f}")
    four = median(times["kvchat, 4 conversations, 128 tokens"])
    print(f"throughput of 4 conversations over 1: {4 * single / four:.2f}x")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        f"KV pool: cap {cap / MIB:.0f} MiB, {pool.total} blocks of {pool.block_bytes} bytes = "
        f"{pool.total * pool.block_bytes / MIB:.1f} MiB; RSS {before / MIB:.0f} MiB before, "
        f"{loaded / MIB:.0f} MiB loaded, peak {peak / MIB:.0f} MiB"
    )


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m-instruct")
