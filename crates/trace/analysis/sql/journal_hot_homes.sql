-- title: Blocks logged most often
-- key: device, home_sector
-- about: The 50 homes that the journal wrote most often.
SELECT
    device,
    home_sector,
    COUNT(*) AS logged,
    COUNT(DISTINCT transaction_id) AS transactions,
    SUM(bytes) AS bytes
FROM pieces
WHERE class = 'journal' AND operation = 'write' AND home_sector IS NOT NULL
GROUP BY device, home_sector
ORDER BY COUNT(*) DESC, device, home_sector
LIMIT 50
