-- title: Throughput over time
-- key: from_ns
-- about: Bytes and requests of each second of the trace.
SELECT
    first_ns - first_ns % 1000000000 AS from_ns,
    SUM(CASE WHEN operation = 'read' THEN 1 ELSE 0 END) AS read_requests,
    SUM(CASE WHEN operation = 'read' THEN bytes ELSE 0 END) AS read_bytes,
    SUM(CASE WHEN operation = 'write' THEN 1 ELSE 0 END) AS write_requests,
    SUM(CASE WHEN operation = 'write' THEN bytes ELSE 0 END) AS write_bytes
FROM io
WHERE first_ns IS NOT NULL
GROUP BY first_ns - first_ns % 1000000000
ORDER BY from_ns
