-- title: Hottest places
-- key: device, sector
-- about: The 50 starts of writes that were written most often, and what lies there (where several did: the last by name).
SELECT
    device,
    sector,
    COUNT(*) AS writes,
    SUM(bytes) AS bytes,
    MAX(bytes) AS largest_bytes,
    MAX(block_type) AS block_type,
    COALESCE(MAX(path), '') AS path
FROM pieces
WHERE operation = 'write'
GROUP BY device, sector
HAVING COUNT(*) > 1
ORDER BY COUNT(*) DESC, device, sector
LIMIT 50
