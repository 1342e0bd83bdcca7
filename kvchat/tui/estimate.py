"""What sending will cost, before it is sent. The tokenizer is in the engine: here tokens are estimated."""

from __future__ import annotations

from kvchat.tui.format import count

BYTES_PER_TOKEN = 4
"""Of English and of code under the vocabularies in use; other scripts take more bytes a character, and more tokens."""


def estimated_tokens(text: str) -> int:
    """About how many tokens a text is."""
    return -(-len(text.encode()) // BYTES_PER_TOKEN)


def sending_cost(new: int, cached: int, prefill_tokens_per_s: float) -> str:
    """412, 6180, 460 -> "about 412 new + 6,180 cached, about 0.9 s to first token"; without a known rate no time."""
    parts = f"about {count(new)} new" + (f" + {count(cached)} cached" if cached else "")
    if prefill_tokens_per_s <= 0:
        return parts + " tokens"
    return f"{parts}, about {max(0.1, new / prefill_tokens_per_s):,.1f} s to first token"
