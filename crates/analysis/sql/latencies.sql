-- title: Latencies
-- key: stage, operation, class
-- about: Queue: from the block layer to the driver. Device: from the driver to the completion. Total: both. By the class
-- about: of a request's first piece; flushes and discards have none. Percentiles are the smallest value that at least
-- about: so many requests do not exceed. A stage that the trace has no times for is missing.
WITH first_pieces AS (
    SELECT trace_id, request_id, class
    FROM runs
    WHERE run_index = 0
),
timed AS (
    SELECT
        requests.operation AS operation,
        COALESCE(CASE WHEN requests.moves_data THEN first_pieces.class END, '-') AS class,
        COALESCE(requests.queued_ns, requests.inserted_ns) AS entered_ns,
        requests.issued_ns AS issued_ns,
        requests.completed_ns AS completed_ns
    FROM requests
    LEFT JOIN first_pieces
        ON first_pieces.request_id = requests.id AND first_pieces.trace_id = requests.trace_id
),
stages AS (
    SELECT 'queue' AS stage, operation, class, issued_ns - entered_ns AS latency_ns FROM timed
    UNION ALL
    SELECT 'device' AS stage, operation, class, completed_ns - issued_ns AS latency_ns FROM timed
    UNION ALL
    SELECT 'total' AS stage, operation, class, completed_ns - entered_ns AS latency_ns FROM timed
),
ranked AS (
    SELECT
        stage,
        operation,
        class,
        latency_ns,
        ROW_NUMBER() OVER (PARTITION BY stage, operation, class ORDER BY latency_ns) AS position
    FROM stages
    WHERE latency_ns >= 0
),
totals AS (
    SELECT stage, operation, class, COUNT(*) AS requests, CAST(SUM(latency_ns) AS DOUBLE) / COUNT(*) AS mean_ns
    FROM stages
    WHERE latency_ns >= 0
    GROUP BY stage, operation, class
)
SELECT
    totals.stage AS stage,
    totals.operation AS operation,
    totals.class AS class,
    MAX(totals.requests) AS requests,
    MAX(totals.mean_ns) AS mean_ns,
    MIN(CASE WHEN ranked.position * 2 >= totals.requests THEN ranked.latency_ns END) AS p50_ns,
    MIN(CASE WHEN ranked.position * 10 >= totals.requests * 9 THEN ranked.latency_ns END) AS p90_ns,
    MIN(CASE WHEN ranked.position * 100 >= totals.requests * 99 THEN ranked.latency_ns END) AS p99_ns,
    MIN(CASE WHEN ranked.position * 1000 >= totals.requests * 999 THEN ranked.latency_ns END) AS p99_9_ns,
    MAX(ranked.latency_ns) AS max_ns
FROM ranked
JOIN totals
    ON totals.stage = ranked.stage AND totals.operation = ranked.operation AND totals.class = ranked.class
GROUP BY totals.stage, totals.operation, totals.class
ORDER BY stage, operation, class
