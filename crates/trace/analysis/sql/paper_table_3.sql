-- title: Table 3 of the bFUSE paper
-- key: item
-- about: System calls that write, requests that reached the device, and those for metadata and journal among them.
SELECT '1 write calls' AS item, COALESCE(SUM(value), 0) AS count
FROM events
WHERE kind = 'call_count' AND name IN ('write', 'pwrite64', 'writev', 'pwritev', 'pwritev2')
UNION ALL
SELECT '2 I/O requests' AS item, COUNT(*) AS count
FROM io
UNION ALL
SELECT '3 metadata and journal' AS item, COALESCE(SUM(request), 0) AS count
FROM pieces
WHERE class IN ('metadata', 'journal')
ORDER BY item
