"""The state of one request while it is in the engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.api import Phase


@dataclass(slots=True, eq=False)
class Sequence:
    """Tokens, how far their KV is computed, and where it lies.

    tokens        prompt, then generated
                  |<----- computed ----->|<- not yet ->|
    block_table   block i holds the KV of tokens[i * block_size : (i + 1) * block_size]
    digests       one per registered block: full and computed
    """

    request_id: str
    tokens: list[int]
    max_tokens: int
    arrival: int
    """Order of submission; ties in priority go to the earlier one."""
    owner: str = ""
    priority: int = 0
    system_tokens: int = 0
    """Leading tokens to pin once they are computed; 0: nothing left to pin."""

    prompt_tokens: int = 0
    computed: int = 0
    block_table: list[int] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    overtaken: int = 0
    """How often a later request was admitted while this one waited."""
    preemptions: int = 0
    lost: int = 0
    """How far it was computed when it was preempted; what is below is computed again."""
    cached_tokens: int = 0
    evicted_tokens: int = 0
    waiting_for: str = ""

    def __post_init__(self) -> None:
        self.prompt_tokens = len(self.tokens)

    @property
    def uncomputed(self) -> int:
        return len(self.tokens) - self.computed

    @property
    def generated(self) -> int:
        return len(self.tokens) - self.prompt_tokens

    @property
    def decoding(self) -> bool:
        """Only the token sampled last is left to compute."""
        return self.uncomputed == 1 and bool(self.block_table)

    @property
    def phase(self) -> Phase:
        if not self.block_table:
            return "queued"
        return "decode" if self.decoding else "prefill"
