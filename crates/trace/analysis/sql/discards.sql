-- title: Discards
-- key: path
-- about: What was discarded, by the last known owner of the place, the 50 with most bytes.
SELECT
    COALESCE(path, '(unknown)') AS path,
    COUNT(*) AS pieces,
    SUM(bytes) AS bytes
FROM runs
WHERE operation = 'discard'
GROUP BY COALESCE(path, '(unknown)')
ORDER BY bytes DESC, path
LIMIT 50
