-- title: Home blocks of the journal
-- key: home
-- about: What the journal's blocks are copies of: the type of block at their home, as far as the trace saw a request
-- about: there; control blocks (descriptors, commits) have no home.
WITH homes AS (
    SELECT
        device,
        sector,
        MAX(block_type) AS block_type
    FROM pieces
    WHERE class <> 'journal'
    GROUP BY device, sector
),
logged AS (
    SELECT
        pieces.device AS device,
        pieces.home_sector AS home_sector,
        pieces.bytes AS bytes,
        pieces.transaction_id AS transaction_id,
        CASE
            WHEN pieces.block_type = 'journal_control' THEN '(control)'
            WHEN pieces.home_sector IS NULL THEN '(not known)'
            ELSE COALESCE(homes.block_type, '(not seen)')
        END AS home
    FROM pieces
    LEFT JOIN homes ON homes.device = pieces.device AND homes.sector = pieces.home_sector
    WHERE pieces.class = 'journal' AND pieces.operation = 'write'
)
SELECT
    home,
    COUNT(*) AS pieces,
    SUM(bytes) AS bytes,
    COUNT(DISTINCT home_sector) AS home_sectors,
    COUNT(DISTINCT transaction_id) AS transactions
FROM logged
GROUP BY home
ORDER BY home
