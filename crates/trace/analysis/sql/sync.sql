-- title: Synchronous against buffered
-- key: operation, kind
-- about: The papers' rule: an I/O is synchronous when somebody waits for it (the kernel's flag REQ_SYNC), else buffered.
-- about: The kernel holds every read for waited for, whether or not it sets the flag; see the modes for reads.
WITH counted AS (
    SELECT
        operation,
        CASE WHEN sync THEN 'synchronous' ELSE 'buffered' END AS kind,
        COUNT(*) AS requests,
        SUM(bytes) AS bytes
    FROM io
    GROUP BY operation, CASE WHEN sync THEN 'synchronous' ELSE 'buffered' END
)
SELECT
    operation,
    kind,
    requests,
    CAST(requests AS DOUBLE) / SUM(requests) OVER (PARTITION BY operation) AS requests_share,
    bytes,
    CAST(bytes AS DOUBLE) / SUM(bytes) OVER (PARTITION BY operation) AS bytes_share
FROM counted
ORDER BY operation, kind
