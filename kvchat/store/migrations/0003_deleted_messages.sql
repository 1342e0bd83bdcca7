-- A deleted message stays until the instance that deleted it ends: until then it can be brought back.
ALTER TABLE messages ADD COLUMN deletion INTEGER;    -- NULL, or a number that all messages deleted together have
ALTER TABLE messages ADD COLUMN deleted_by TEXT;     -- the instance
CREATE INDEX messages_deleted ON messages (deletion, deleted_by) WHERE deletion IS NOT NULL;
