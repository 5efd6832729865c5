-- title: Sizes of I/Os
-- key: operation, from_bytes
-- about: I/Os by size in powers of two: from this size to under twice it. Below 1 KiB is one row.
WITH sized AS (
    SELECT
        operation,
        bytes,
        CASE
            WHEN bytes < 1024 THEN 512
            WHEN bytes < 2048 THEN 1024
            WHEN bytes < 4096 THEN 2048
            WHEN bytes < 8192 THEN 4096
            WHEN bytes < 16384 THEN 8192
            WHEN bytes < 32768 THEN 16384
            WHEN bytes < 65536 THEN 32768
            WHEN bytes < 131072 THEN 65536
            WHEN bytes < 262144 THEN 131072
            WHEN bytes < 524288 THEN 262144
            WHEN bytes < 1048576 THEN 524288
            WHEN bytes < 2097152 THEN 1048576
            WHEN bytes < 4194304 THEN 2097152
            WHEN bytes < 8388608 THEN 4194304
            WHEN bytes < 16777216 THEN 8388608
            ELSE 16777216
        END AS from_bytes
    FROM io
),
counted AS (
    SELECT operation, from_bytes, COUNT(*) AS requests, SUM(bytes) AS bytes
    FROM sized
    GROUP BY operation, from_bytes
)
SELECT
    operation,
    from_bytes,
    requests,
    CAST(requests AS DOUBLE) / SUM(requests) OVER (PARTITION BY operation) AS requests_share,
    bytes,
    CAST(bytes AS DOUBLE) / SUM(bytes) OVER (PARTITION BY operation) AS bytes_share
FROM counted
ORDER BY operation, from_bytes
