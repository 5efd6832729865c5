-- title: Discards
-- key: path, volume
-- about: What was discarded, by the last known owner of the place and its file system (volume), the 50 with most
-- about: bytes.
SELECT
    COALESCE(path, '(unknown)') AS path,
    COALESCE(file_system, device) AS volume,
    COUNT(*) AS pieces,
    SUM(bytes) AS bytes
FROM runs
WHERE operation = 'discard'
GROUP BY COALESCE(path, '(unknown)'), COALESCE(file_system, device)
ORDER BY bytes DESC, path, volume
LIMIT 50
