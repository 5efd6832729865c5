-- title: Written after deletion
-- key: path, volume
-- about: Data of files that had no name any more when it was written, the 50 paths, by file system (volume), with
-- about: most bytes.
SELECT
    COALESCE(path, '(unknown)') AS path,
    volume,
    SUM(request) AS write_requests,
    SUM(bytes) AS write_bytes
FROM pieces
WHERE operation = 'write' AND deleted
GROUP BY COALESCE(path, '(unknown)'), volume
ORDER BY write_bytes DESC, path, volume
LIMIT 50
