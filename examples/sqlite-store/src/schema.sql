PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE IF NOT EXISTS record (
    shard, sequence, part, offset, us, bytes, PRIMARY KEY (shard, sequence)) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS by_offset ON record (shard, part, offset);
-- What comes next: the offset of a partition, or (as of partition -1) the sequence.
CREATE TABLE IF NOT EXISTS ends (shard, part, next, PRIMARY KEY (shard, part)) WITHOUT ROWID;
-- From where to where a partition, or the log, can be read.
CREATE VIEW IF NOT EXISTS extent AS SELECT shard, part, next, coalesce(CASE part
    WHEN -1 THEN (SELECT min(sequence) FROM record WHERE shard = ends.shard)
    ELSE (SELECT min(offset) FROM record WHERE shard = ends.shard AND part = ends.part)
    END, next) AS low FROM ends;
-- The records of a partition, or of the log, each with the place that it is read at.
CREATE VIEW IF NOT EXISTS placed AS
    SELECT shard, -1 AS part, sequence AS place, sequence, bytes FROM record UNION ALL
    SELECT shard, part, offset, sequence, bytes FROM record;
