-- title: Latencies
-- key: stage, operation, class
-- about: Queue: from the block layer to the driver. Device: from the driver to the completion. Total: both. By the class
-- about: of a request's first piece; flushes and discards have none. Percentiles are the smallest value that at least
-- about: so many requests do not exceed. A stage that the trace has no times for is missing.
-- Groups have numbers until the end: three million latencies are sorted by them, which by names takes three times as long.
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
kinds AS (
    SELECT operation, class, ROW_NUMBER() OVER (ORDER BY operation, class) AS kind
    FROM (SELECT DISTINCT operation, class FROM timed) AS names
),
numbered AS (
    SELECT kinds.kind AS kind, timed.entered_ns, timed.issued_ns, timed.completed_ns
    FROM timed
    JOIN kinds ON kinds.operation = timed.operation AND kinds.class = timed.class
),
stages AS (
    SELECT 1 AS stage, kind, issued_ns - entered_ns AS latency_ns FROM numbered
    UNION ALL
    SELECT 2 AS stage, kind, completed_ns - issued_ns AS latency_ns FROM numbered
    UNION ALL
    SELECT 3 AS stage, kind, completed_ns - entered_ns AS latency_ns FROM numbered
),
ranked AS (
    SELECT
        stage,
        kind,
        latency_ns,
        ROW_NUMBER() OVER (PARTITION BY stage, kind ORDER BY latency_ns) AS position
    FROM stages
    WHERE latency_ns >= 0
),
totals AS (
    SELECT stage, kind, COUNT(*) AS requests, CAST(SUM(latency_ns) AS DOUBLE) / COUNT(*) AS mean_ns
    FROM stages
    WHERE latency_ns >= 0
    GROUP BY stage, kind
),
summed AS (
    SELECT
        totals.stage AS stage,
        totals.kind AS kind,
        MAX(totals.requests) AS requests,
        MAX(totals.mean_ns) AS mean_ns,
        MIN(CASE WHEN ranked.position * 2 >= totals.requests THEN ranked.latency_ns END) AS p50_ns,
        MIN(CASE WHEN ranked.position * 10 >= totals.requests * 9 THEN ranked.latency_ns END) AS p90_ns,
        MIN(CASE WHEN ranked.position * 100 >= totals.requests * 99 THEN ranked.latency_ns END) AS p99_ns,
        MIN(CASE WHEN ranked.position * 1000 >= totals.requests * 999 THEN ranked.latency_ns END) AS p99_9_ns,
        MAX(ranked.latency_ns) AS max_ns
    FROM ranked
    JOIN totals ON totals.stage = ranked.stage AND totals.kind = ranked.kind
    GROUP BY totals.stage, totals.kind
)
SELECT
    CASE summed.stage WHEN 1 THEN 'queue' WHEN 2 THEN 'device' ELSE 'total' END AS stage,
    kinds.operation AS operation,
    kinds.class AS class,
    summed.requests AS requests,
    summed.mean_ns AS mean_ns,
    summed.p50_ns AS p50_ns,
    summed.p90_ns AS p90_ns,
    summed.p99_ns AS p99_ns,
    summed.p99_9_ns AS p99_9_ns,
    summed.max_ns AS max_ns
FROM summed
JOIN kinds ON kinds.kind = summed.kind
ORDER BY stage, operation, class
