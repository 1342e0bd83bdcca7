"""The experiments: `run(setup)` in a module for each, imported when it runs."""

from __future__ import annotations

from kvchat.bench.experiment import Experiment

MIXED = Experiment(
    "mixed",
    "No configuration suits every load: which profile is best depends on how short and long requests are mixed.",
)
DOCTOR = Experiment(
    "doctor", "Slow replies are queueing, prefill, decoding or the memory policy: TTFT, TPOT and throughput tell which."
)
PEERS = Experiment("peers", "kvchat's engine is faster than the others that run the same model on this machine.")
EXPERIMENTS = (
    Experiment(
        "recompute", "Without a KV cache each token takes longer the longer the context is; with one, hardly longer."
    ),
    Experiment(
        "paged",
        "Memory reserved for the longest request stays mostly empty; in blocks under 4% of it is wasted, and at least "
        "twice as many conversations fit.",
    ),
    Experiment(
        "batching",
        "Static batches keep the slots of finished replies idle until the longest one ends; continuous batching fills "
        "them at once.",
    ),
    Experiment(
        "prefix",
        "A new tab on a persona of some hundred tokens answers much sooner when it reuses the keys and values of "
        "another; on one of fifty tokens it gains little.",
    ),
    Experiment(
        "gqa",
        "The KV cache shrinks as the number of KV heads does, from MHA to GQA to MQA, and long contexts decode faster.",
    ),
    Experiment(
        "kv-dtype",
        "An int8 KV cache takes half the memory and loses next to nothing, an int4 one takes less and loses something "
        "in long contexts.",
    ),
    MIXED,
    Experiment(
        "interference",
        "A long paste holds up the replies in other tabs, far less in chunks than in one step.",
    ),
    DOCTOR,
    PEERS,
)
"""In the order of the report."""
