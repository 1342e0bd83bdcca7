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

ROUNDS = 7
NEW_TOKENS = 24
MIB = 1 << 20


def prompt(length: int, seed: int) -> tuple[int, ...]:
    """Random ordinary tokens. The prefix cache has those of an earlier round, so rounds after the first only decode."""
    return tuple(torch.randint(100, 40_000, (length,), generator=torch.Generator().manual_seed(seed)).tolist())


def request(length: int, seed: int) -> GenerationRequest:
    params = SamplingParams(temperature=0, max_tokens=NEW_TOKENS, ignore_eos=True)
    return GenerationRequest(prompt(length, seed), params)


def decode_step(engine: Engine, sequences: int, length: int) -> float:
    """Seconds of one step in which `sequences` conversations decode."""
    for seed in range(sequences):
        engine.submit(request(length, seed))
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


def transformers_step(model: torch.nn.Module, length: int) -> float:
    """Seconds of one step of `generate`: by difference, so that the prefill does not count."""
    ids = torch.tensor([prompt(length, 0)])

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
    measures: dict[str, Callable[[], float]] = {
        "kvchat, 1 conversation, 128 tokens": lambda: decode_step(engine, 1, 128),
        "kvchat, 4 conversations, 128 tokens": lambda: decode_step(engine, 4, 128),
        "kvchat, 1 conversation, 4096 tokens": lambda: decode_step(engine, 1, 4096),
    }
    for name, peer in peers.items():
        measures[f"{name}, 128 tokens"] = lambda peer=peer: transformers_step(peer, 128)
    times: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(ROUNDS):
        for name, measure in measures.items():
            times[name].append(measure())

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
