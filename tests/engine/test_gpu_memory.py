"""What a GPU is asked to compute before its memory is shared out."""

from __future__ import annotations

import pytest

from engine.config import EngineConfig
from engine.gpu_memory import largest_steps
from engine.model.decoder import READ_ROWS, Step


@pytest.mark.parametrize("batch", [{}, {"max_batch_tokens": 40, "max_sequences": 39}, {"max_sequences": 1}])
@pytest.mark.parametrize("context_length", [30, 200, 9000])
def test_no_step_of_the_engine_is_larger(batch: dict[str, int], context_length: int) -> None:
    config = EngineConfig(model="any", **batch)  # type: ignore[arg-type]
    steps = list(largest_steps(config, context_length))
    for step in steps:
        check_is_sound(step, config.block_size)
        assert all(span.context == context_length for span in step.spans)
    assert max(len(step.token_ids) for step in steps) >= min(config.max_batch_tokens, context_length)
    assert max(len(step.spans) for step in steps) == config.max_sequences
    assert max(len(step.logit_rows) for step in steps) >= max(config.max_sequences, min(READ_ROWS, context_length))


def check_is_sound(step: Step, block_size: int) -> None:
    """It has what a pool of one block needs, and writes nothing."""
    rows = sum(span.rows for span in step.spans)
    assert rows == len(step.token_ids) == len(step.positions) == len(step.slots)
    assert set(step.slots) == {-1} and set(step.logit_rows) <= set(range(rows))
    for span in step.spans:
        assert set(span.block_table) == {0} and len(span.block_table) * block_size >= span.context >= span.rows
