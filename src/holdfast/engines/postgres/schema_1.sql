-- The lock table in PostgreSQL, from nothing to version 1. Run with search_path set to its own schema.
-- Times are seconds since the epoch by the database's clock. Text is ordered by code point, as names are.

CREATE TABLE meta (
  key   text PRIMARY KEY,
  value text NOT NULL
);

-- The last number that each bucket gave out. A row, not a sequence: a sequence may repeat itself
-- after a crash. The pages are kept nearly empty, so that an update finds room beside the old row.
CREATE TABLE counters (
  bucket integer PRIMARY KEY,
  last   bigint  NOT NULL
) WITH (fillfactor = 10);

-- `ended` is what decides whether a session lives: whoever needs to know marks the expired ones first,
-- under the row's lock, so that a heartbeat on its way and a judge of its death cannot both be right.
-- `channel` is where the session is notified.
-- A dead session's row is kept for a while after its claims were removed (`buried_at`), for those of
-- its claims that were on their way.
CREATE TABLE sessions (
  id         text COLLATE "C" PRIMARY KEY,
  ttl        double precision NOT NULL,
  expires_at double precision NOT NULL,
  app        text    NOT NULL,
  host       text    NOT NULL,
  pid        integer NOT NULL,
  channel    text    NOT NULL,
  ended      boolean NOT NULL DEFAULT false,
  buried_at  double precision
) WITH (fillfactor = 50);
CREATE INDEX sessions_mortal ON sessions (expires_at) WHERE buried_at IS NULL;
-- By their last heartbeats: one that is in the future says that the clock was set back.
CREATE INDEX sessions_ahead ON sessions ((expires_at - ttl)) WHERE buried_at IS NULL AND NOT ended;
CREATE INDEX sessions_dead ON sessions (expires_at, id) WHERE ended;

-- A claim id is its session's id, a dash and a number: the index by id is an index by session too.
CREATE TABLE claims (
  id        text COLLATE "C" PRIMARY KEY,
  session   text COLLATE "C" NOT NULL,
  owner     text COLLATE "C" NOT NULL,
  kind      text COLLATE "C" NOT NULL,
  name      text COLLATE "C" NOT NULL,
  mode      text    NOT NULL,
  subtree   boolean NOT NULL,
  permits   integer NOT NULL,
  reentrant boolean NOT NULL,
  max_hold  double precision,
  note      text    NOT NULL,
  thread    text    NOT NULL,
  ord       bigint  NOT NULL,
  since     double precision NOT NULL,
  token     bigint,
  slot      integer,
  dies_at   double precision,
  ticket    text    NOT NULL
) WITH (
  -- A grant leaves one dead row here when it is released: vacuum by their number, not by the table's size.
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0
);
-- With the id, so that the first in a line is found without sorting the line.
CREATE INDEX claims_line ON claims (kind, name, ord, id);
-- Whether an owner has other claims, and which it waits for, is asked whenever a claim has to queue.
CREATE INDEX claims_owner ON claims (owner);
-- Partial indexes: an uncontended pair on a plain name touches none of them.
CREATE INDEX claims_in_line ON claims (kind, name, ord, id) WHERE token IS NULL;
CREATE INDEX claims_subtrees ON claims (kind, name) WHERE subtree;
CREATE INDEX claims_mortal ON claims (dies_at) WHERE dies_at IS NOT NULL;

CREATE TABLE tombstones (
  session  text COLLATE "C" NOT NULL,
  claim_id text COLLATE "C" NOT NULL,
  reason   text NOT NULL,
  PRIMARY KEY (session, claim_id)
);

CREATE TABLE cells (
  kind       text COLLATE "C" NOT NULL,
  name       text COLLATE "C" NOT NULL,
  value      bytea  NOT NULL,
  version    bigint NOT NULL,
  keep       double precision,
  expires_at double precision,
  PRIMARY KEY (kind, name)
);
CREATE INDEX cells_mortal ON cells (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE watches (
  session text COLLATE "C" NOT NULL,
  id      text COLLATE "C" NOT NULL,
  kind    text COLLATE "C" NOT NULL,
  prefix  text COLLATE "C" NOT NULL,
  given   bigint NOT NULL,
  PRIMARY KEY (session, id)
);

CREATE TABLE letters (
  session text COLLATE "C" NOT NULL,
  watch   text COLLATE "C" NOT NULL,
  number  bigint NOT NULL,
  event   text NOT NULL,
  PRIMARY KEY (session, watch, number)
);

-- Counting starts at the time of creation, so that a schema that was dropped never sends tokens back.
INSERT INTO counters SELECT bucket, (extract(epoch FROM pg_catalog.clock_timestamp())::float8 * 1000000::float8)::bigint
FROM pg_catalog.generate_series(0, 255) AS bucket;
INSERT INTO meta VALUES ('version', '1');

-- What notices are signed with: any role may notify any channel. A role that can read it can make clients believe that
-- a lock was granted. It is made here and not by a client: other roles may read the texts of queries.
-- PostgreSQL 12 has no function for a random number that is made for secrets.
DO $$
DECLARE
  secret text := pg_catalog.string_agg(pg_catalog.md5(pg_catalog.concat(
    pg_catalog.random(), pg_catalog.clock_timestamp(), pg_catalog.pg_backend_pid(), number)), '')
    FROM pg_catalog.generate_series(1, 2) AS number;
BEGIN
  IF pg_catalog.to_regprocedure('pg_catalog.gen_random_uuid()') IS NOT NULL THEN
    EXECUTE 'SELECT pg_catalog.concat(pg_catalog.gen_random_uuid(), pg_catalog.gen_random_uuid())' INTO secret;
  END IF;
  INSERT INTO meta VALUES ('secret', secret);
END $$;
