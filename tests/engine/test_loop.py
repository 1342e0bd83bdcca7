"""Frames: what happens between two of them is joined, never lost or reordered within a request."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.api import Event, Finished, Metrics, Progress, TokenDelta
from engine.loop import merge_deltas

events = st.lists(
    st.one_of(
        st.builds(
            TokenDelta,
            st.sampled_from("ab"),
            st.text("xyz", max_size=3),
            st.lists(st.integers(0, 9), max_size=3).map(tuple),
        ),
        st.builds(Progress, st.sampled_from("ab"), st.just("decode"), st.just(1), st.just(Metrics())),
    ),
    max_size=12,
)


@given(events)
def test_merging_keeps_text_ids_and_everything_else(frame: list[Event]) -> None:
    merged = merge_deltas([*frame, Finished("a", "stop", "", (), Metrics())])
    assert isinstance(merged[-1], Finished), "the end stays behind the text"
    for request_id in "ab":
        before = [event for event in frame if isinstance(event, TokenDelta) and event.request_id == request_id]
        after = [event for event in merged if isinstance(event, TokenDelta) and event.request_id == request_id]
        assert len(after) == min(1, len(before))
        assert "".join(event.text for event in after) == "".join(event.text for event in before)
        assert sum((event.token_ids for event in after), ()) == sum((event.token_ids for event in before), ())
    others = [event for event in frame if not isinstance(event, TokenDelta)]
    assert [event for event in merged[:-1] if not isinstance(event, TokenDelta)] == others
