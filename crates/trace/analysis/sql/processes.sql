-- title: Processes
-- key: process
-- about: Who made the data or asked for it (not who submitted it), the 50 with most bytes. An Android package stands
-- about: for its processes. Requests are counted by their first piece.
SELECT
    process,
    COUNT(DISTINCT cause_pid) AS pids,
    SUM(CASE WHEN operation = 'read' THEN request ELSE 0 END) AS read_requests,
    SUM(CASE WHEN operation = 'read' THEN bytes ELSE 0 END) AS read_bytes,
    SUM(CASE WHEN operation = 'write' THEN request ELSE 0 END) AS write_requests,
    SUM(CASE WHEN operation = 'write' THEN bytes ELSE 0 END) AS write_bytes,
    SUM(CASE WHEN operation = 'write' AND class = 'data' THEN bytes ELSE 0 END) AS data_write_bytes,
    SUM(CASE WHEN operation = 'write' AND class = 'metadata' THEN bytes ELSE 0 END) AS metadata_write_bytes,
    SUM(CASE WHEN operation = 'write' AND class = 'journal' THEN bytes ELSE 0 END) AS journal_write_bytes
FROM pieces
GROUP BY process
ORDER BY SUM(bytes) DESC, process
LIMIT 50
