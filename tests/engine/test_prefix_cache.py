"""What the prefix cache finds, keeps and gives up."""

from __future__ import annotations

from engine.block_manager import BlockManager
from engine.prefix_cache import Match, PrefixCache
from engine.sequence import Sequence

BLOCK = 4


def manager(blocks: int = 16) -> BlockManager:
    return BlockManager(PrefixCache(blocks, BLOCK, seed=b"model float32"))


def computed(blocks: BlockManager, tokens: list[int]) -> Sequence:
    """A sequence whose KV is computed up to its last token."""
    seq = Sequence("r", tokens, max_tokens=1, arrival=1)
    blocks.admit(seq, blocks.cache.match(tokens), len(tokens))
    blocks.commit(seq, seq.uncomputed)
    return seq


def remember(blocks: BlockManager, tokens: list[int]) -> list[int]:
    """Compute and finish a sequence; returns the blocks it had."""
    seq = computed(blocks, tokens)
    table = list(seq.block_table)
    blocks.release(seq)
    return table


def test_a_prompt_matches_up_to_its_last_token_which_must_be_computed() -> None:
    blocks = manager()
    table = remember(blocks, [*range(8)])
    assert blocks.cache.match([*range(8)]) == Match([table[0]], table[1], 3)
    assert blocks.cache.match([*range(9)]) == Match(table)


def test_rows_come_from_the_block_that_shares_most() -> None:
    blocks = manager()
    remember(blocks, [0, 1, 2, 3, 4, 9, 9, 9])
    longest = remember(blocks, [0, 1, 2, 3, 4, 5, 9, 9])
    assert blocks.cache.match([0, 1, 2, 3, 4, 5, 6, 7, 8]) == Match([longest[0]], longest[1], 2)


def test_a_block_that_is_not_full_lends_its_rows() -> None:
    blocks = manager()
    table = remember(blocks, [0, 1, 2, 3, 4, 5])
    assert blocks.cache.match([0, 1, 2, 3, 4, 5, 6, 7]) == Match([table[0]], table[1], 2)


def test_the_same_tokens_behind_another_start_do_not_match() -> None:
    blocks = manager()
    remember(blocks, [0, 0, 0, 0, 5, 6, 7, 8])
    assert blocks.cache.match([1, 1, 1, 1, 5, 6, 7, 8, 9]) == Match([], None, 0)


def test_another_seed_gives_other_digests() -> None:
    one, other = PrefixCache(1, BLOCK, b"model float32"), PrefixCache(1, BLOCK, b"model bfloat16")
    assert one.digest(one.root, [1, 2, 3, 4]) != other.digest(other.root, [1, 2, 3, 4])


def test_a_block_computed_twice_is_kept_once() -> None:
    blocks = manager()
    one = Sequence("a", [*range(6)], max_tokens=1, arrival=1)
    two = Sequence("b", [*range(6)], max_tokens=1, arrival=2)
    for seq in (one, two):
        blocks.admit(seq, Match(), 6)
    for seq in (one, two):
        blocks.commit(seq, 6)
    assert one.block_table[0] == two.block_table[0] and one.block_table[1] != two.block_table[1]
    blocks.check_integrity([one, two])
    blocks.release(one)
    blocks.release(two)
    blocks.check_integrity([])
    assert blocks.pool.num_cached == 2, "the second tail holds nothing that the first does not"


def test_a_longer_tail_replaces_the_shorter_one_it_contains() -> None:
    blocks = manager()
    remember(blocks, [0, 1, 2, 3, 4])
    remember(blocks, [0, 1, 2, 3, 4, 5, 6])
    assert blocks.pool.num_cached == 2
    blocks.check_integrity([])


def test_the_tail_of_a_chain_is_evicted_before_its_head() -> None:
    blocks = manager(6)
    chain = remember(blocks, [*range(24)])
    for given_away in range(1, 6):
        blocks.pool.allocate(1)
        assert blocks.cache.match([*range(24), 0]).blocks == chain[: 6 - given_away]
        blocks.cache.check_integrity()


def test_what_was_used_last_is_evicted_last() -> None:
    blocks = manager(6)
    remember(blocks, [1] * 8)
    remember(blocks, [2] * 8)
    remember(blocks, [1] * 9)
    blocks.pool.allocate(2)
    assert len(blocks.cache.match([1] * 9).blocks) == 2 and len(blocks.cache.match([2] * 9).blocks) == 1
