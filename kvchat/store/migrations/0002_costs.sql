-- Where the time of a reply went, and where its prompt stopped being what had been computed before.
ALTER TABLE message_metrics ADD COLUMN prefill_s REAL NOT NULL DEFAULT 0;
ALTER TABLE message_metrics ADD COLUMN decode_s REAL NOT NULL DEFAULT 0;
ALTER TABLE message_metrics ADD COLUMN preempted_s REAL NOT NULL DEFAULT 0;
ALTER TABLE message_metrics ADD COLUMN evicted_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE messages ADD COLUMN divergence TEXT;  -- JSON of engine.api.Divergence

-- Of earlier replies only the first token is known; what was preempted counts as decode.
UPDATE message_metrics SET
    prefill_s = max(0, coalesce(ttft_s, e2e_s) - queue_s),
    decode_s = max(0, e2e_s - coalesce(ttft_s, e2e_s));
