-- title: Short-lived files
-- key: path, volume
-- about: Files that were created and deleted within the trace, by path and file system (volume), the 50 with most bytes
-- about: written: what reached the device for nothing. Lifetime is from create to delete, the mean of all files of that
-- about: name. Fsyncs count fdatasync too.
WITH born AS (
    SELECT trace_id, file_system, inode, generation, MIN(time_ns) AS born_ns
    FROM events
    WHERE kind = 'create' AND inode IS NOT NULL
    GROUP BY trace_id, file_system, inode, generation
),
gone AS (
    SELECT trace_id, file_system, inode, generation, MAX(time_ns) AS gone_ns, MAX(path) AS path
    FROM events
    WHERE (kind = 'delete' OR (kind = 'unlink' AND value = 0)) AND inode IS NOT NULL
    GROUP BY trace_id, file_system, inode, generation
),
synced AS (
    SELECT trace_id, file_system, inode, generation, COUNT(*) AS fsyncs, SUM(value) AS fsync_ns
    FROM events
    WHERE kind IN ('fsync', 'fdatasync') AND inode IS NOT NULL
    GROUP BY trace_id, file_system, inode, generation
),
written AS (
    SELECT
        trace_id, file_system, inode, generation,
        MAX(path) AS path, SUM(request) AS write_requests, SUM(bytes) AS write_bytes
    FROM pieces
    WHERE operation = 'write' AND inode IS NOT NULL
    GROUP BY trace_id, file_system, inode, generation
)
SELECT
    COALESCE(gone.path, written.path, '(unknown)') AS path,
    born.file_system AS volume,
    COUNT(*) AS files,
    CAST(SUM(gone.gone_ns - born.born_ns) AS DOUBLE) / COUNT(*) AS mean_lifetime_ns,
    COALESCE(SUM(synced.fsyncs), 0) AS fsyncs,
    COALESCE(SUM(synced.fsync_ns), 0) AS fsync_time_ns,
    COALESCE(SUM(written.write_requests), 0) AS write_requests,
    COALESCE(SUM(written.write_bytes), 0) AS write_bytes
FROM born
JOIN gone
    ON gone.trace_id = born.trace_id AND gone.file_system = born.file_system
    AND gone.inode = born.inode AND gone.generation = born.generation
LEFT JOIN synced
    ON synced.trace_id = born.trace_id AND synced.file_system = born.file_system
    AND synced.inode = born.inode AND synced.generation = born.generation
LEFT JOIN written
    ON written.trace_id = born.trace_id AND written.file_system = born.file_system
    AND written.inode = born.inode AND written.generation = born.generation
WHERE gone.gone_ns >= born.born_ns
GROUP BY COALESCE(gone.path, written.path, '(unknown)'), born.file_system
ORDER BY write_bytes DESC, path, volume
LIMIT 50
