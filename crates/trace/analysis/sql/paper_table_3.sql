-- title: Table 3 of the bFUSE paper
-- key: item
-- about: Calls of pwrite(), as the paper counts them (a FUSE daemon answers by writev), requests that reached the device, and those for metadata and journal among them.
SELECT '1 pwrite calls' AS item, COALESCE(SUM(value), 0) AS count
FROM events
WHERE kind = 'call_count' AND name IN ('pwrite64', 'pwritev', 'pwritev2')
UNION ALL
SELECT '2 I/O requests' AS item, COUNT(*) AS count
FROM io
UNION ALL
SELECT '3 metadata and journal' AS item, COALESCE(SUM(request), 0) AS count
FROM pieces
WHERE class IN ('metadata', 'journal')
ORDER BY item
