"""Scheduler, block manager and prefix cache together, over a memory that remembers what was written where.

The simulated memory holds, for each row of each block, the tokens whose KV lies there: computing position p of a
sequence writes tokens[: p + 1]. Before each computation every earlier row of the sequence must hold exactly its own
prefix, so any wrong share, copy, eviction or double owner shows at once.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.block_manager import BlockManager
from engine.errors import InvalidRequest
from engine.policy import Policy
from engine.prefix_cache import NoPrefixCache, PrefixCache
from engine.scheduler import MAX_OVERTAKEN, Batch, Scheduler
from engine.sequence import Sequence

BLOCK = 4


class Machine:
    """A scheduler with simulated memory and a sampler that draws random tokens."""

    def __init__(
        self,
        blocks: int = 12,
        *,
        max_batch_tokens: int = 16,
        max_sequences: int = 4,
        pin_budget: int = 3,
        caching: bool = True,
        policy: Policy | None = None,
    ) -> None:
        cache = (PrefixCache if caching else NoPrefixCache)(blocks, BLOCK, seed=b"test", pin_budget=pin_budget)
        self.scheduler = Scheduler(
            BlockManager(cache), max_batch_tokens=max_batch_tokens, max_sequences=max_sequences, policy=policy
        )
        self.pool = cache.pool
        self.memory: dict[tuple[int, int], tuple[int, ...]] = {}
        self.arrivals = 0
        self.finished: list[Sequence] = []
        self.exhausted: list[Sequence] = []
        self.random = random.Random(7)

    def submit(self, tokens: list[int], *, max_tokens: int = 4, priority: int = 0, pin: int = 0) -> Sequence:
        self.arrivals += 1
        seq = Sequence(
            f"r{self.arrivals}", list(tokens), max_tokens, self.arrivals, priority=priority, system_tokens=pin
        )
        self.scheduler.add(seq)
        return seq

    def step(self) -> Batch:
        batch = self.scheduler.schedule()
        assert sum(share.tokens for share in batch.shares) <= self.scheduler.max_batch_tokens
        for seq in batch.exhausted:
            self.scheduler.remove(seq)
            self.exhausted.append(seq)
        for source, destination, rows in batch.copies:
            for row in range(rows):
                self.memory[destination, row] = self.memory[source, row]
        for seq, tokens in batch.shares:
            assert tokens >= 1
            for position in range(seq.computed):
                assert self.memory[self.row(seq, position)] == tuple(seq.tokens[: position + 1])
            for position in range(seq.computed, seq.computed + tokens):
                block, row = self.row(seq, position)
                assert self.pool.references(block) == 1, "a block with two owners is written"
                self.memory[block, row] = tuple(seq.tokens[: position + 1])
        sampled = [seq for seq, tokens in batch.shares if tokens == seq.uncomputed]
        self.scheduler.complete(batch)
        for seq in sampled:
            seq.tokens.append(self.random.randrange(3))
            if seq.generated >= seq.max_tokens:
                self.scheduler.remove(seq)
                self.finished.append(seq)
        return batch

    @staticmethod
    def row(seq: Sequence, position: int) -> tuple[int, int]:
        return seq.block_table[position // BLOCK], position % BLOCK

    @property
    def live(self) -> list[Sequence]:
        return self.scheduler.running + self.scheduler.waiting

    def run(self, limit: int = 2000) -> None:
        """Every step makes progress, so the end comes in a bounded number of steps."""
        for _ in range(limit):
            if not self.live:
                break
            batch = self.step()
            assert batch.shares or batch.exhausted, "a step with waiting work did nothing"
            self.scheduler.check_integrity()
        assert not self.live, f"not finished after {limit} steps"
        assert self.pool.num_used == 0


class SchedulerMachine(RuleBasedStateMachine):
    @initialize(
        policy=st.sampled_from([Policy(), Policy(reserve=20), Policy(static_batches=True), Policy(keep_kv=False)]),
        caching=st.booleans(),
    )
    def start(self, policy: Policy, caching: bool) -> None:
        self.machine = Machine(policy=policy, caching=caching and policy.keep_kv)

    # Few distinct tokens, so that prompts share prefixes that end anywhere in a block.
    @rule(
        tokens=st.lists(st.integers(0, 1), min_size=1, max_size=40),
        max_tokens=st.integers(1, 12),
        priority=st.integers(0, 1),
        pin=st.integers(0, 12),
    )
    def submit(self, tokens: list[int], max_tokens: int, priority: int, pin: int) -> None:
        self.machine.submit(tokens, max_tokens=max_tokens, priority=priority, pin=min(pin, len(tokens)))

    @precondition(lambda self: self.machine.finished)
    @rule(data=st.data(), extra=st.lists(st.integers(0, 2), min_size=1, max_size=5))
    def continue_a_conversation(self, data: st.DataObject, extra: list[int]) -> None:
        before = data.draw(st.sampled_from(self.machine.finished))
        tokens = [*before.tokens, *extra]
        if len(tokens) < 44:
            self.machine.submit(tokens)

    @rule(steps=st.integers(1, 6))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            self.machine.step()

    @precondition(lambda self: self.machine.live)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.machine.scheduler.remove(data.draw(st.sampled_from(self.machine.live)))

    @invariant()
    def nothing_leaks(self) -> None:
        self.machine.scheduler.check_integrity()

    def teardown(self) -> None:
        if hasattr(self, "machine"):
            self.machine.run()


TestSchedulerUnderAnyOrder = SchedulerMachine.TestCase
TestSchedulerUnderAnyOrder.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


def test_decodes_come_before_a_long_prefill_which_is_chunked() -> None:
    machine = Machine(blocks=64, max_batch_tokens=8)
    talking = machine.submit([0] * 3, max_tokens=50)
    machine.step()
    paste = machine.submit([1] * 40)
    shares = [machine.step().shares for _ in range(3)]
    assert [[(share.sequence, share.tokens) for share in step] for step in shares] == [[(talking, 1), (paste, 7)]] * 3


def test_a_short_prompt_is_not_held_up_by_a_long_one() -> None:
    machine = Machine(blocks=64, max_batch_tokens=8)
    machine.submit([1] * 60)
    machine.step()
    short = machine.submit([0, 2, 0, 2])
    machine.step()
    assert short.generated == 1


def test_a_second_prompt_shares_whole_blocks_and_copies_the_rest() -> None:
    machine = Machine(blocks=32)
    machine.submit([*range(10), 20, 21])
    machine.run()
    second = machine.submit([*range(10), 30, 31])
    batch = machine.step()
    assert [copy.rows for copy in batch.copies] == [2]
    assert second.tokens[:2] == [0, 1] and batch.shares[0].tokens == 2, "10 of 12 tokens were cached"


def test_the_next_turn_computes_only_what_is_new() -> None:
    machine = Machine(blocks=32)
    first = machine.submit([*range(9)], max_tokens=5)
    machine.run()
    machine.submit([*first.tokens, 7, 7])
    # The token sampled last was never fed, so its KV does not exist yet.
    assert machine.step().shares[0].tokens == 3


def test_without_prefix_caching_everything_is_computed_again() -> None:
    machine = Machine(blocks=32, caching=False)
    machine.submit([*range(12)])
    machine.run()
    machine.submit([*range(12)])
    assert machine.step().shares[0].tokens == 12
    machine.run()
    assert machine.pool.num_free == 32


def test_two_prompts_with_one_prefix_at_the_same_time_compute_it_once() -> None:
    machine = Machine(blocks=32, max_batch_tokens=8)
    persona = [5, 6, 7, 8] * 4
    one, two = machine.submit([*persona, 1, 1]), machine.submit([*persona, 2, 2])
    machine.step()
    assert two.waiting_for == "the prefix it shares with a prompt being computed"
    machine.run()
    assert one in machine.finished and two in machine.finished
    computed = [value for value in machine.memory.values() if value == tuple(persona[:8])]
    assert len(computed) == 1


def test_a_prompt_that_can_never_fit_is_refused_with_the_numbers() -> None:
    machine = Machine(blocks=4)
    with pytest.raises(InvalidRequest, match="prompt of 16 tokens needs 5 KV blocks and the pool has 4"):
        machine.submit([0] * 16)


def test_a_prompt_that_fits_only_alone_waits_for_the_others() -> None:
    machine = Machine(blocks=8)
    machine.submit([0] * 10, max_tokens=8)
    big = machine.submit([1] * 30, max_tokens=1)
    machine.step()
    assert big.phase == "queued" and "KV blocks" in big.waiting_for
    machine.run()
    assert big in machine.finished


def test_a_preempted_sequence_resumes_with_the_same_tokens() -> None:
    machine = Machine(blocks=6, max_sequences=2)
    first = machine.submit([0] * 7, max_tokens=10)
    second = machine.submit([1] * 7, max_tokens=10)
    machine.run()
    assert machine.scheduler.preemptions >= 1 and second.preemptions >= 1 and first.preemptions == 0
    assert {first.generated, second.generated} == {10}


def test_a_sequence_that_fills_the_pool_alone_ends() -> None:
    machine = Machine(blocks=3)
    seq = machine.submit([0] * 8, max_tokens=99)
    machine.run()
    assert machine.exhausted == [seq] and len(seq.tokens) == 13


def test_the_visible_tab_goes_first_but_nobody_starves() -> None:
    machine = Machine(blocks=64, max_sequences=1)
    machine.submit([0] * 4)
    patient = machine.submit([1] * 4)
    order = []
    for number in range(MAX_OVERTAKEN + 3):
        machine.submit([2, 2, 2, number], priority=1)
    machine.run()
    order = [seq.request_id for seq in machine.finished]
    assert order.index(patient.request_id) == 1 + MAX_OVERTAKEN


def test_a_pinned_persona_survives_conversations_that_need_all_other_memory() -> None:
    persona = [3] * 8

    def tokens_to_compute(pin: int) -> int:
        machine = Machine(blocks=10, pin_budget=2)
        machine.submit([*persona, 0], pin=pin)
        machine.run()
        for filler in ([1] * 28, [2] * 28):
            machine.submit(filler)
            machine.run()
        machine.submit([*persona, 1])
        return machine.step().shares[0].tokens

    assert tokens_to_compute(pin=0) == 9
    assert tokens_to_compute(pin=8) == 1


def test_a_pin_beyond_the_budget_is_not_taken_and_the_oldest_pin_gives_way() -> None:
    machine = Machine(blocks=16, pin_budget=3)
    for persona in ([1] * 8, [2] * 8, [3] * 16):
        machine.submit([*persona, 0], pin=len(persona))
        machine.run()
    pinned = [tuple(machine.memory[block, 3][:1]) for block in range(16) if machine.pool.pinned(block)]
    assert pinned == [(2,), (2,)], "the first gave way to the second, the third exceeds the budget"


def test_reserved_memory_is_taken_at_once_and_held_to_the_end() -> None:
    machine = Machine(blocks=12, policy=Policy(reserve=24), caching=False)
    first, second, third = (machine.submit([token] * 3, max_tokens=12) for token in range(3))
    used = []
    while first in machine.live:
        machine.step()
        used.append(machine.pool.num_used)
        assert third.phase == "queued"
    assert set(used[:-1]) == {12}, "6 blocks for each of two, from the first step on"
    machine.run()
    assert [seq.generated for seq in (first, second, third)] == [12, 12, 12] and not machine.scheduler.preemptions


def test_a_reservation_larger_than_the_pool_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="needs 6 KV blocks and the pool has 4"):
        Machine(blocks=4, policy=Policy(reserve=24)).submit([0])


def test_a_static_batch_lets_nobody_in_until_its_last_sequence_has_ended() -> None:
    machine = Machine(blocks=64, max_sequences=3, policy=Policy(static_batches=True))
    for token, tokens in enumerate((2, 5, 9, 2, 2)):
        machine.submit([token] * 3, max_tokens=tokens)
    widths = []
    while machine.live:
        machine.step()
        widths.append(len(machine.scheduler.running))
    assert widths == [3, 2, 2, 2, 1, 1, 1, 1, 0, 2, 0]
    assert [seq.request_id for seq in machine.finished] == ["r1", "r2", "r3", "r4", "r5"]


def test_without_a_kv_cache_every_token_computes_all_tokens_before_it() -> None:
    machine = Machine(blocks=32, max_batch_tokens=64, policy=Policy(keep_kv=False), caching=False)
    seq = machine.submit([1] * 5, max_tokens=4)
    assert [machine.step().shares[0].tokens for _ in range(4)] == [5, 6, 7, 8]
    assert seq in machine.finished and machine.pool.num_free == 32
