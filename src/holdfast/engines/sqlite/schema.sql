-- The lock table in SQLite. Version 1.
-- Times are seconds of CLOCK_BOOTTIME, meaningful only under the boot id in `meta`.

CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
) WITHOUT ROWID;

-- One row. `last` is the last number given out; `bound` is ahead of it and was synced to the disk,
-- so that counting can go on from there after a power cut.
CREATE TABLE counter (
  id    INTEGER PRIMARY KEY CHECK (id = 0),
  last  INTEGER NOT NULL,
  bound INTEGER NOT NULL
);

CREATE TABLE sessions (
  id         TEXT PRIMARY KEY,
  ttl        REAL NOT NULL,
  expires_at REAL NOT NULL,
  app        TEXT NOT NULL,
  host       TEXT NOT NULL,
  pid        INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX sessions_mortal ON sessions (expires_at);

-- A claim id is its session's id, a dash and a number: the index by id is an index by session too.
CREATE TABLE claims (
  kind      TEXT NOT NULL,
  name      TEXT NOT NULL,
  ord       INTEGER NOT NULL,
  id        TEXT NOT NULL,
  session   TEXT NOT NULL,
  owner     TEXT NOT NULL,
  mode      TEXT NOT NULL,
  subtree   INTEGER NOT NULL,
  permits   INTEGER NOT NULL,
  reentrant INTEGER NOT NULL,
  max_hold  REAL,
  note      TEXT NOT NULL,
  thread    TEXT NOT NULL,
  since     REAL NOT NULL,
  token     INTEGER,
  slot      INTEGER,
  dies_at   REAL,
  ticket    TEXT NOT NULL,
  PRIMARY KEY (kind, name, ord, id)
) WITHOUT ROWID;
CREATE UNIQUE INDEX claims_by_id ON claims (id);
CREATE INDEX claims_of_owner ON claims (owner);
-- Partial indexes: an uncontended pair touches none of them.
CREATE INDEX claims_in_line ON claims (kind, name, ord) WHERE token IS NULL;
CREATE INDEX claims_mortal ON claims (dies_at) WHERE dies_at IS NOT NULL;

CREATE TABLE tombstones (
  session  TEXT NOT NULL,
  claim_id TEXT NOT NULL,
  reason   TEXT NOT NULL,
  PRIMARY KEY (session, claim_id)
) WITHOUT ROWID;

CREATE TABLE cells (
  kind       TEXT NOT NULL,
  name       TEXT NOT NULL,
  value      BLOB NOT NULL,
  version    INTEGER NOT NULL,
  keep       REAL,
  expires_at REAL,
  PRIMARY KEY (kind, name)
) WITHOUT ROWID;
CREATE INDEX cells_mortal ON cells (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE watches (
  session TEXT NOT NULL,
  id      TEXT NOT NULL,
  kind    TEXT NOT NULL,
  prefix  TEXT NOT NULL,
  given   INTEGER NOT NULL,
  PRIMARY KEY (session, id)
) WITHOUT ROWID;

CREATE TABLE letters (
  session TEXT NOT NULL,
  watch   TEXT NOT NULL,
  number  INTEGER NOT NULL,
  event   TEXT NOT NULL,
  PRIMARY KEY (session, watch, number)
) WITHOUT ROWID;
