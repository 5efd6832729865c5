-- title: How data came to the block layer
-- key: operation, mode
-- about: Direct: O_DIRECT. Synchronous: page cache, pushed by fsync, O_SYNC, msync or a writer's own full cache.
-- about: Writeback: page cache, written by the kernel in its own time. Cached read: a buffered read and read-ahead.
WITH counted AS (
    SELECT operation, mode, COUNT(*) AS requests, SUM(bytes) AS bytes
    FROM io
    GROUP BY operation, mode
)
SELECT
    operation,
    mode,
    requests,
    CAST(requests AS DOUBLE) / SUM(requests) OVER (PARTITION BY operation) AS requests_share,
    bytes,
    CAST(bytes AS DOUBLE) / SUM(bytes) OVER (PARTITION BY operation) AS bytes_share
FROM counted
ORDER BY operation, mode
