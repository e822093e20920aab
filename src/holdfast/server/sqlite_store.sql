-- The lock server's store, version 1 (PRAGMA user_version).
-- head: one row; which batch the state is of, and what the state has to add up to.
CREATE TABLE head (
  body BLOB NOT NULL
);
-- log: the batches since then, one blob each, numbered without a gap.
CREATE TABLE log (
  number INTEGER PRIMARY KEY,
  batch BLOB NOT NULL
);
-- state: one record for each session, claim, counter, tombstone, cell, watch and letter;
-- claims in the order of their arrival (0 for all else), so that those that come together lie together.
CREATE TABLE state (
  kind TEXT NOT NULL,
  arrival INTEGER NOT NULL,
  one TEXT NOT NULL,
  two TEXT NOT NULL,
  number INTEGER NOT NULL,
  record BLOB NOT NULL,
  sum INTEGER NOT NULL,
  PRIMARY KEY (kind, arrival, one, two, number)
) WITHOUT ROWID;
