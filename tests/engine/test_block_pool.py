"""The pool against a plain model of it, through every operation in any order."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.block_pool import BlockPool, PoolExhausted
from engine.errors import EngineError


def test_a_fresh_pool_hands_out_ascending_runs() -> None:
    pool = BlockPool(8, on_evict=lambda block: None)
    assert pool.allocate(3) == [0, 1, 2]
    assert pool.allocate(2) == [3, 4]


def test_asking_for_more_than_is_available_takes_nothing() -> None:
    pool = BlockPool(4, on_evict=lambda block: None)
    pool.allocate(3)
    with pytest.raises(PoolExhausted, match="2 KV blocks wanted, 1 of 4 available"):
        pool.allocate(2)
    assert pool.available == 1


def test_a_block_released_twice_is_an_error() -> None:
    pool = BlockPool(2, on_evict=lambda block: None)
    [block] = pool.allocate(1)
    pool.release(block)
    with pytest.raises(EngineError, match="released twice"):
        pool.release(block)


class PoolMachine(RuleBasedStateMachine):
    SIZE = 6

    def __init__(self) -> None:
        super().__init__()
        self.evicted: list[int] = []
        self.pool = BlockPool(self.SIZE, on_evict=self.evicted.append)
        self.references: dict[int, int] = {}
        self.retained: set[int] = set()
        self.pinned: set[int] = set()
        self.lru: list[int] = []

    def eviction_order(self) -> list[int]:
        return [b for b in self.lru if b not in self.pinned] + [b for b in self.lru if b in self.pinned]

    @rule(count=st.integers(1, 3))
    def allocate(self, count: int) -> None:
        if count > self.pool.available:
            with pytest.raises(PoolExhausted):
                self.pool.allocate(count)
            return
        free = self.SIZE - len(self.references) - len(self.lru)
        expected = self.eviction_order()[: max(0, count - free)]
        self.evicted.clear()
        blocks = self.pool.allocate(count)
        assert self.evicted == expected
        assert not set(blocks) & set(self.references)
        for block in expected:
            self.lru.remove(block)
        self.retained -= set(expected)
        self.pinned -= set(expected)
        self.references |= dict.fromkeys(blocks, 1)

    @precondition(lambda self: self.references)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(sorted(self.references)))
        self.pool.release(block)
        self.references[block] -= 1
        if not self.references[block]:
            del self.references[block]
            if block in self.retained:
                self.lru.append(block)

    @precondition(lambda self: self.references or self.lru)
    @rule(data=st.data())
    def acquire(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(sorted([*self.references, *self.lru])))
        self.pool.acquire(block)
        self.references[block] = self.references.get(block, 0) + 1
        if block in self.lru:
            self.lru.remove(block)

    @precondition(lambda self: self.references)
    @rule(data=st.data())
    def retain(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(sorted(self.references)))
        self.pool.retain(block)
        self.retained.add(block)

    @precondition(lambda self: self.retained)
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(sorted(self.retained)))
        self.pool.discard(block)
        self.retained.discard(block)
        self.pinned.discard(block)
        if block in self.lru:
            self.lru.remove(block)

    @precondition(lambda self: self.retained)
    @rule(data=st.data(), pinned=st.booleans())
    def pin(self, data: st.DataObject, pinned: bool) -> None:
        block = data.draw(st.sampled_from(sorted(self.retained)))
        self.pool.set_pinned(block, pinned)
        (self.pinned.add if pinned else self.pinned.discard)(block)
        if block in self.lru:
            self.lru.remove(block)
            self.lru.append(block)

    @precondition(lambda self: self.lru)
    @rule(data=st.data())
    def touch(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(self.lru))
        self.pool.touch(block)
        self.lru.remove(block)
        self.lru.append(block)

    @invariant()
    def agrees_with_the_model(self) -> None:
        self.pool.check_integrity()
        assert self.pool.cached_blocks() == self.eviction_order()
        assert {b for b in range(self.SIZE) if self.pool.references(b)} == set(self.references)
        assert all(self.pool.references(b) == n for b, n in self.references.items())
        assert self.pool.num_used == len(self.references)
        assert self.pool.available == self.SIZE - len(self.references)


TestBlockPool = PoolMachine.TestCase
TestBlockPool.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
