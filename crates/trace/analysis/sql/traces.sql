-- title: Traces
-- key: trace_id
-- about: What the traces hold. An I/O is a read or write with bytes; flushes and discards are counted apart.
SELECT
    trace_id,
    COUNT(*) AS requests,
    SUM(CASE WHEN operation = 'read' AND moves_data THEN 1 ELSE 0 END) AS read_requests,
    SUM(CASE WHEN operation = 'read' AND moves_data THEN bytes ELSE 0 END) AS read_bytes,
    SUM(CASE WHEN operation = 'write' AND moves_data THEN 1 ELSE 0 END) AS write_requests,
    SUM(CASE WHEN operation = 'write' AND moves_data THEN bytes ELSE 0 END) AS write_bytes,
    SUM(CASE WHEN operation = 'flush' THEN 1 ELSE 0 END) AS flush_requests,
    SUM(CASE WHEN operation = 'discard' THEN bytes ELSE 0 END) AS discard_bytes,
    COALESCE(MAX(COALESCE(completed_ns, issued_ns, first_ns)) - MIN(first_ns), 0) AS span_ns
FROM requests
GROUP BY trace_id
ORDER BY trace_id
