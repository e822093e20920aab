-- offer adopted: hf1 618b8138a72b-10 f3lDb-eOTb7pmaM640262w story.lock x adopted
-- offer offered: hf1 618b8138a72b-9 v6J-yURtYvXEqbkQhOb3Qg story.lock x offered
PRAGMA page_size = 1024;
PRAGMA application_id = 0;
PRAGMA user_version = 0;
BEGIN TRANSACTION;
CREATE TABLE cells (
  kind       TEXT NOT NULL,
  name       TEXT NOT NULL,
  value      BLOB NOT NULL,
  version    INTEGER NOT NULL,
  keep       REAL,
  expires_at REAL,
  PRIMARY KEY (kind, name)
) WITHOUT ROWID;
INSERT INTO "cells" VALUES('story.cell','config',X'6A7B22636F6C6F7572223A2247725C75303066636E227D',1795138258723948,NULL,NULL);
INSERT INTO "cells" VALUES('story.latch','ready',X'6A7B22636F756E74223A332C226C656674223A327D',1795138258723950,2592000.0,2.59644689254559809339e+06);
INSERT INTO "cells" VALUES('story.log','orders',X'6A7B227374617274223A302C226265666F7265223A22222C226576656E7473223A5B226D616465222C2270616964222C7B2273656E74223A747275657D5D7D',1795138258723957,NULL,NULL);
INSERT INTO "cells" VALUES('story.once','payment:77',X'6A7B226279223A313739353133383235383732333935312C22726573756C74223A7B2270616964223A37377D7D',1795138258723953,2592000.0,2.59644689431896386663e+06);
INSERT INTO "cells" VALUES('story.partition','workers',X'6A5B5B223631386238313338613732622D3132222C22776F726B65722D31225D5D',1795138258723955,2592000.0,2.5964468970627090894e+06);
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
INSERT INTO "claims" VALUES('story.election','scheduler',1795138258723944,'618b8138a72b-8','618b8138a72b','618b8138a72b/t1','exclusive',0,0,0,NULL,'host:9000','MainThread',4446.87653762,1795138258723944,NULL,NULL,'');
INSERT INTO "claims" VALUES('story.lock','account/3',1795138258723942,'618b8138a72b-6','618b8138a72b','618b8138a72b/t1','exclusive',0,0,0,NULL,'','MainThread',4446.876130753,1795138258723942,NULL,NULL,'');
INSERT INTO "claims" VALUES('story.lock','account/7',1795138258723943,'618b8138a72b-7','618b8138a72b','618b8138a72b/t1','exclusive',0,0,0,NULL,'','MainThread',4446.876355558,1795138258723943,NULL,NULL,'');
INSERT INTO "claims" VALUES('story.lock','adopted',1795138258723946,'23e52178b364-1','23e52178b364','23e52178b364/t1','exclusive',0,0,0,NULL,'','MainThread',4446.947779481,1795138258723961,NULL,NULL,'');
INSERT INTO "claims" VALUES('story.lock','cache',1795138258723934,'618b8138a72b-3','618b8138a72b','618b8138a72b/t1','shared',0,0,0,NULL,'','MainThread',4446.840966699,1795138258723934,NULL,NULL,'');
INSERT INTO "claims" VALUES('story.lock','cache',1795138258723935,'5cc2595dfdfc-2','5cc2595dfdfc','5cc2595dfdfc/t1','shared',0,0,0,NULL,'','MainThread',4446.841083473,1795138258723935,NULL,NULL,'');
INSERT INTO "claims" VALUES('story.lock','cache',1795138258723936,'5cc2595dfdfc-3','5cc2595dfdfc','5cc2595dfdfc/t3','exclusive',0,0,0,NULL,'','asks for cache',4446.841682117,NULL,NULL,NULL,'');
INSERT INTO "claims" VALUES('story.lock','offered',1795138258723945,'618b8138a72b-9','618b8138a72b','618b8138a72b/t1','exclusive',0,0,0,NULL,'','MainThread',4446.876616438,1795138258723945,NULL,NULL,'4517e4bfbb8de464a329d3f4da677c6a50141612d5316dab1b52c557cb6d1ca2');
INSERT INTO "claims" VALUES('story.lock','orders/1',1795138258723931,'618b8138a72b-1','618b8138a72b','618b8138a72b/t1','exclusive',0,0,0,NULL,'the nightly run','MainThread',4446.818976694,1795138258723931,NULL,NULL,'');
INSERT INTO "claims" VALUES('story.lock','orders/1',1795138258723932,'5cc2595dfdfc-1','5cc2595dfdfc','5cc2595dfdfc/t2','exclusive',0,0,0,NULL,'','asks for orders/1',4446.833565074,NULL,NULL,NULL,'');
INSERT INTO "claims" VALUES('story.lock','session/one',1795138258723959,'618b8138a72b-14','618b8138a72b','618b8138a72b/t1','exclusive',0,0,0,NULL,'','MainThread',4446.90531266,1795138258723959,NULL,NULL,'');
INSERT INTO "claims" VALUES('story.lock','session/three',1795138258723962,'23e52178b364-2','23e52178b364','23e52178b364/t1','exclusive',0,0,0,NULL,'','MainThread',4446.949257227,1795138258723962,NULL,NULL,'');
INSERT INTO "claims" VALUES('story.lock','session/two',1795138258723960,'5cc2595dfdfc-7','5cc2595dfdfc','5cc2595dfdfc/t1','exclusive',0,0,0,NULL,'','MainThread',4446.905619297,1795138258723960,NULL,NULL,'');
INSERT INTO "claims" VALUES('story.lock','tree/a',1795138258723937,'618b8138a72b-4','618b8138a72b','618b8138a72b/t1','exclusive',1,0,0,NULL,'','MainThread',4446.852167323,1795138258723937,NULL,NULL,'');
INSERT INTO "claims" VALUES('story.lock','tree/a/b/c',1795138258723938,'5cc2595dfdfc-4','5cc2595dfdfc','5cc2595dfdfc/t4','exclusive',0,0,0,NULL,'','asks for tree/a/b/c',4446.853121798,NULL,NULL,NULL,'');
INSERT INTO "claims" VALUES('story.partition','workers',1795138258723954,'618b8138a72b-12','618b8138a72b','618b8138a72b/t1','shared',0,0,0,NULL,'worker-1','MainThread',4446.896779366,1795138258723954,NULL,NULL,'');
INSERT INTO "claims" VALUES('story.semaphore','gpu',1795138258723939,'618b8138a72b-5','618b8138a72b','618b8138a72b/t1','exclusive',0,2,0,NULL,'','MainThread',4446.863504391,1795138258723939,0,NULL,'');
INSERT INTO "claims" VALUES('story.semaphore','gpu',1795138258723940,'5cc2595dfdfc-5','5cc2595dfdfc','5cc2595dfdfc/t1','exclusive',0,2,0,NULL,'','MainThread',4446.864112779,1795138258723940,1,NULL,'');
INSERT INTO "claims" VALUES('story.semaphore','gpu',1795138258723941,'5cc2595dfdfc-6','5cc2595dfdfc','5cc2595dfdfc/t5','exclusive',0,2,0,NULL,'','asks for gpu',4446.865618356,NULL,NULL,NULL,'');
CREATE TABLE counter (
  id    INTEGER PRIMARY KEY CHECK (id = 0),
  last  INTEGER NOT NULL,
  bound INTEGER NOT NULL
);
INSERT INTO "counter" VALUES(0,1795138258723962,1795138259723930);
CREATE TABLE letters (
  session TEXT NOT NULL,
  watch   TEXT NOT NULL,
  number  INTEGER NOT NULL,
  event   TEXT NOT NULL,
  PRIMARY KEY (session, watch, number)
) WITHOUT ROWID;
CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO "meta" VALUES('boot_id','02afdcd2-bbab-4557-b6dc-bfec7a36c497');
INSERT INTO "meta" VALUES('machine_id','3d1219c7c4c5404aaa1f6d2a48adfda4');
INSERT INTO "meta" VALUES('time_namespace','time:[4026531834]');
INSERT INTO "meta" VALUES('version','1');
CREATE TABLE sessions (
  id         TEXT PRIMARY KEY,
  ttl        REAL NOT NULL,
  expires_at REAL NOT NULL,
  app        TEXT NOT NULL,
  host       TEXT NOT NULL,
  pid        INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO "sessions" VALUES('23e52178b364',600.0,5046.947249661,'operator','vm',11491);
INSERT INTO "sessions" VALUES('5cc2595dfdfc',600.0,5046.833038198,'shipping','vm',11477);
INSERT INTO "sessions" VALUES('618b8138a72b',600.0,5046.813094276,'billing','vm',11477);
CREATE TABLE tombstones (
  session  TEXT NOT NULL,
  claim_id TEXT NOT NULL,
  reason   TEXT NOT NULL,
  PRIMARY KEY (session, claim_id)
) WITHOUT ROWID;
INSERT INTO "tombstones" VALUES('618b8138a72b','618b8138a72b-10','it was handed over');
INSERT INTO "tombstones" VALUES('618b8138a72b','618b8138a72b-2','an operator broke it');
CREATE TABLE watches (
  session TEXT NOT NULL,
  id      TEXT NOT NULL,
  kind    TEXT NOT NULL,
  prefix  TEXT NOT NULL,
  given   INTEGER NOT NULL,
  PRIMARY KEY (session, id)
) WITHOUT ROWID;
INSERT INTO "watches" VALUES('5cc2595dfdfc','w1','story.','sh',0);
CREATE INDEX sessions_mortal ON sessions (expires_at);
CREATE UNIQUE INDEX claims_by_id ON claims (id);
CREATE INDEX claims_of_owner ON claims (owner);
CREATE INDEX claims_in_line ON claims (kind, name, ord) WHERE token IS NULL;
CREATE INDEX claims_mortal ON claims (dies_at) WHERE dies_at IS NOT NULL;
CREATE INDEX cells_mortal ON cells (expires_at) WHERE expires_at IS NOT NULL;
COMMIT;
