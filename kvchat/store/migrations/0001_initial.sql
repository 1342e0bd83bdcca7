CREATE TABLE conversations (
    number        INTEGER PRIMARY KEY,           -- the rowid that title_index refers to
    id            TEXT    NOT NULL UNIQUE,
    title         TEXT    NOT NULL,
    auto_title    INTEGER NOT NULL,
    persona       TEXT    NOT NULL,
    system_prompt TEXT    NOT NULL,
    model         TEXT    NOT NULL,
    sampling      TEXT    NOT NULL,              -- JSON of engine.api.SamplingParams
    created_at    REAL    NOT NULL,
    updated_at    REAL    NOT NULL,
    archived      INTEGER NOT NULL DEFAULT 0,
    leaf_id       INTEGER,
    FOREIGN KEY (id, leaf_id) REFERENCES messages (conversation_id, id)
);
CREATE INDEX conversations_by_time ON conversations (updated_at);

CREATE TABLE messages (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,  -- never reused: a stale id finds nothing, not another message
    conversation_id TEXT    NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    parent_id       INTEGER,
    role            TEXT    NOT NULL CHECK (role IN ('system', 'user', 'assistant')),
    text            TEXT    NOT NULL,
    token_ids       BLOB    NOT NULL,            -- little-endian uint32
    status          TEXT    NOT NULL CHECK (status IN ('complete', 'streaming', 'stopped', 'failed')),
    finish_reason   TEXT,
    error           TEXT    NOT NULL DEFAULT '',
    model           TEXT    NOT NULL,
    created_at      REAL    NOT NULL,
    writer          TEXT    NOT NULL,            -- the instance that wrote it last
    UNIQUE (conversation_id, id),
    FOREIGN KEY (conversation_id, parent_id) REFERENCES messages (conversation_id, id) ON DELETE CASCADE
);
CREATE INDEX messages_by_parent ON messages (conversation_id, parent_id);
CREATE INDEX messages_streaming ON messages (writer) WHERE status = 'streaming';

CREATE TABLE message_metrics (                   -- the fields of engine.api.Metrics
    message_id        INTEGER PRIMARY KEY REFERENCES messages (id) ON DELETE CASCADE,
    queue_s           REAL    NOT NULL,
    ttft_s            REAL,
    tpot_s            REAL,
    e2e_s             REAL    NOT NULL,
    tokens_per_s      REAL,
    prompt_tokens     INTEGER NOT NULL,
    cached_tokens     INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    preemptions       INTEGER NOT NULL
);

CREATE TABLE tags (
    conversation_id TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    tag             TEXT NOT NULL,
    PRIMARY KEY (conversation_id, tag)
) WITHOUT ROWID;

CREATE TABLE open_tabs (
    position        INTEGER PRIMARY KEY,
    conversation_id TEXT    NOT NULL UNIQUE REFERENCES conversations (id) ON DELETE CASCADE,
    active          INTEGER NOT NULL,
    draft           TEXT    NOT NULL
);

-- Full-text search. segment() is kvchat.store.search.segment: scripts written without spaces are indexed by character.
CREATE VIEW message_words AS SELECT id, segment(text) AS text FROM messages;
CREATE VIEW title_words AS SELECT number, segment(title) AS title FROM conversations;
CREATE VIRTUAL TABLE message_index USING fts5 (
    text, content = 'message_words', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2'
);
CREATE VIRTUAL TABLE title_index USING fts5 (
    title, content = 'title_words', content_rowid = 'number', tokenize = 'unicode61 remove_diacritics 2'
);

CREATE TRIGGER message_inserted AFTER INSERT ON messages BEGIN
    INSERT INTO message_index (rowid, text) VALUES (new.id, segment(new.text));
END;
CREATE TRIGGER message_deleted AFTER DELETE ON messages BEGIN
    INSERT INTO message_index (message_index, rowid, text) VALUES ('delete', old.id, segment(old.text));
END;
CREATE TRIGGER message_changed AFTER UPDATE OF text ON messages BEGIN
    INSERT INTO message_index (message_index, rowid, text) VALUES ('delete', old.id, segment(old.text));
    INSERT INTO message_index (rowid, text) VALUES (new.id, segment(new.text));
END;
CREATE TRIGGER title_inserted AFTER INSERT ON conversations BEGIN
    INSERT INTO title_index (rowid, title) VALUES (new.number, segment(new.title));
END;
CREATE TRIGGER title_deleted AFTER DELETE ON conversations BEGIN
    INSERT INTO title_index (title_index, rowid, title) VALUES ('delete', old.number, segment(old.title));
END;
CREATE TRIGGER title_changed AFTER UPDATE OF title ON conversations BEGIN
    INSERT INTO title_index (title_index, rowid, title) VALUES ('delete', old.number, segment(old.title));
    INSERT INTO title_index (rowid, title) VALUES (new.number, segment(new.title));
END;
