-- title: Latencies
-- key: stage, operation, class
-- about: Queue: from the block layer to the driver. Device: from the driver to the completion. Total: both. By the class
-- about: of a request's first piece; flushes and discards have none. Percentiles are the smallest value that at least
-- about: so many requests do not exceed. A stage that the trace has no times for is missing.
-- Groups have one number until the end (operation times 32, class times 4, stage): three million latencies are sorted by it,
-- which by names takes three times as long.
-- All three stages come from one pass over the requests: each pass joins them with their pieces, in memory. What is small
-- stands first in a join: that is the side which is kept there.
WITH first_pieces AS (
    SELECT
        trace_id,
        request_id,
        CASE class WHEN 'data' THEN 1 WHEN 'metadata' THEN 2 WHEN 'journal' THEN 3 ELSE 4 END AS class_number
    FROM runs
    WHERE run_index = 0
),
operations AS (
    SELECT operation, CAST(ROW_NUMBER() OVER (ORDER BY operation) AS BIGINT) AS operation_number
    FROM (SELECT DISTINCT operation FROM requests) AS names
),
timed AS (
    SELECT
        operations.operation_number * 8
            + CASE WHEN requests.moves_data THEN COALESCE(first_pieces.class_number, 0) ELSE 0 END AS kind,
        COALESCE(requests.queued_ns, requests.inserted_ns) AS entered_ns,
        requests.issued_ns AS issued_ns,
        requests.completed_ns AS completed_ns
    FROM operations
    JOIN requests ON requests.operation = operations.operation
    LEFT JOIN first_pieces
        ON first_pieces.request_id = requests.id AND first_pieces.trace_id = requests.trace_id
),
sides AS (
    SELECT 1 AS stage
    UNION ALL
    SELECT 2 AS stage
    UNION ALL
    SELECT 3 AS stage
),
stages AS (
    SELECT
        timed.kind * 4 + sides.stage AS kind,
        CASE
            WHEN sides.stage = 1 THEN timed.issued_ns - timed.entered_ns
            WHEN sides.stage = 2 THEN timed.completed_ns - timed.issued_ns
            ELSE timed.completed_ns - timed.entered_ns
        END AS latency_ns
    FROM sides
    CROSS JOIN timed
),
ranked AS (
    SELECT
        kind,
        latency_ns,
        CAST(ROW_NUMBER() OVER (PARTITION BY kind ORDER BY latency_ns) AS BIGINT) AS position
    FROM stages
    WHERE latency_ns >= 0
),
totals AS (
    SELECT kind, COUNT(*) AS requests, CAST(SUM(latency_ns) AS DOUBLE) / COUNT(*) AS mean_ns
    FROM stages
    WHERE latency_ns >= 0
    GROUP BY kind
),
summed AS (
    SELECT
        totals.kind AS kind,
        MAX(totals.requests) AS requests,
        MAX(totals.mean_ns) AS mean_ns,
        MIN(CASE WHEN ranked.position * 2 >= totals.requests THEN ranked.latency_ns END) AS p50_ns,
        MIN(CASE WHEN ranked.position * 10 >= totals.requests * 9 THEN ranked.latency_ns END) AS p90_ns,
        MIN(CASE WHEN ranked.position * 100 >= totals.requests * 99 THEN ranked.latency_ns END) AS p99_ns,
        MIN(CASE WHEN ranked.position * 1000 >= totals.requests * 999 THEN ranked.latency_ns END) AS p99_9_ns,
        MAX(ranked.latency_ns) AS max_ns
    FROM totals
    JOIN ranked ON ranked.kind = totals.kind
    GROUP BY totals.kind
)
SELECT
    CASE summed.kind % 4 WHEN 1 THEN 'queue' WHEN 2 THEN 'device' ELSE 'total' END AS stage,
    operations.operation AS operation,
    CASE summed.kind % 32 - summed.kind % 4
        WHEN 0 THEN '-' WHEN 4 THEN 'data' WHEN 8 THEN 'metadata' WHEN 12 THEN 'journal' ELSE 'other'
    END AS class,
    summed.requests AS requests,
    summed.mean_ns AS mean_ns,
    summed.p50_ns AS p50_ns,
    summed.p90_ns AS p90_ns,
    summed.p99_ns AS p99_ns,
    summed.p99_9_ns AS p99_9_ns,
    summed.max_ns AS max_ns
FROM operations
JOIN summed ON summed.kind - summed.kind % 32 = operations.operation_number * 32
ORDER BY stage, operation, class
