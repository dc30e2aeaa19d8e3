PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE IF NOT EXISTS record (
    shard, sequence, part, offset, us, bytes, PRIMARY KEY (shard, sequence)) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS by_offset ON record (shard, part, offset);
-- What comes next: the offset of a partition, or (as of partition -1) the sequence.
CREATE TABLE IF NOT EXISTS ends (shard, part, next, PRIMARY KEY (shard, part)) WITHOUT ROWID;
