-- title: Submitters
-- key: submitter
-- about: Who called the block layer, the 50 with most bytes: for buffered writes often a thread of the kernel.
SELECT
    COALESCE(submitter_package, submitter_name, '(unknown)') AS submitter,
    SUM(CASE WHEN operation = 'read' THEN 1 ELSE 0 END) AS read_requests,
    SUM(CASE WHEN operation = 'read' THEN bytes ELSE 0 END) AS read_bytes,
    SUM(CASE WHEN operation = 'write' THEN 1 ELSE 0 END) AS write_requests,
    SUM(CASE WHEN operation = 'write' THEN bytes ELSE 0 END) AS write_bytes
FROM requests
WHERE moves_data
GROUP BY COALESCE(submitter_package, submitter_name, '(unknown)')
ORDER BY SUM(bytes) DESC, submitter
LIMIT 50
