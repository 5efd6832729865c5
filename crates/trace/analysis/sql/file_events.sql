-- title: What happened to files
-- key: process, kind
-- about: Creates, unlinks, renames, deletes, fsyncs and commits by process. Time is what an fsync took.
SELECT
    COALESCE(package, process_name, '(unknown)') AS process,
    kind,
    COUNT(*) AS events,
    SUM(CASE WHEN kind IN ('fsync', 'fdatasync') THEN value ELSE 0 END) AS time_ns
FROM events
WHERE kind IN ('create', 'unlink', 'rename', 'delete', 'fsync', 'fdatasync', 'commit', 'lost')
GROUP BY COALESCE(package, process_name, '(unknown)'), kind
ORDER BY process, kind
