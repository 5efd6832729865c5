-- title: Written after deletion
-- key: path
-- about: Data of files that had no name any more when it was written, the 50 paths with most bytes.
SELECT
    COALESCE(path, '(unknown)') AS path,
    SUM(request) AS write_requests,
    SUM(bytes) AS write_bytes
FROM pieces
WHERE operation = 'write' AND deleted
GROUP BY COALESCE(path, '(unknown)')
ORDER BY write_bytes DESC, path
LIMIT 50
