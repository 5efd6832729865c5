-- title: Operations and flags
-- key: operation
-- about: What was asked of the devices, and with which of the kernel's flags. Unfinished: no completion was seen.
SELECT
    operation,
    COUNT(*) AS requests,
    SUM(bytes) AS bytes,
    SUM(CASE WHEN sync THEN 1 ELSE 0 END) AS sync_requests,
    SUM(CASE WHEN meta THEN 1 ELSE 0 END) AS meta_requests,
    SUM(CASE WHEN fua THEN 1 ELSE 0 END) AS fua_requests,
    SUM(CASE WHEN preflush THEN 1 ELSE 0 END) AS preflush_requests,
    SUM(CASE WHEN readahead THEN 1 ELSE 0 END) AS readahead_requests,
    SUM(CASE WHEN status IS NOT NULL AND status <> 0 THEN 1 ELSE 0 END) AS failed_requests,
    SUM(CASE WHEN completed_ns IS NULL THEN 1 ELSE 0 END) AS unfinished_requests
FROM requests
GROUP BY operation
ORDER BY operation
