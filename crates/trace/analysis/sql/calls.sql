-- title: System calls against block requests
-- key: process
-- about: Calls of each process over the whole trace beside the requests that it caused. Sync calls: fsync, fdatasync,
-- about: sync_file_range, msync, syncfs, sync.
WITH called AS (
    SELECT
        COALESCE(package, process_name, '(unknown)') AS process,
        SUM(
            CASE WHEN name IN ('read', 'pread64', 'readv', 'preadv', 'preadv2') THEN value ELSE 0 END
        ) AS read_calls,
        SUM(
            CASE WHEN name IN ('write', 'pwrite64', 'writev', 'pwritev', 'pwritev2') THEN value ELSE 0 END
        ) AS write_calls,
        SUM(
            CASE
                WHEN name IN ('fsync', 'fdatasync', 'sync_file_range', 'msync', 'syncfs', 'sync') THEN value
                ELSE 0
            END
        ) AS sync_calls,
        SUM(value) AS calls
    FROM events
    WHERE kind = 'call_count'
    GROUP BY COALESCE(package, process_name, '(unknown)')
),
caused AS (
    SELECT
        process,
        SUM(CASE WHEN operation = 'read' THEN request ELSE 0 END) AS read_requests,
        SUM(CASE WHEN operation = 'write' THEN request ELSE 0 END) AS write_requests
    FROM pieces
    GROUP BY process
)
SELECT
    called.process AS process,
    called.calls AS calls,
    called.read_calls AS read_calls,
    COALESCE(caused.read_requests, 0) AS read_requests,
    called.write_calls AS write_calls,
    COALESCE(caused.write_requests, 0) AS write_requests,
    called.sync_calls AS sync_calls
FROM called
LEFT JOIN caused ON caused.process = called.process
ORDER BY calls DESC, process
LIMIT 50
