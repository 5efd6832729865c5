-- title: Figure 4 of the bFUSE paper
-- key: operation
-- about: One row for reads and one for writes: the shares of I/Os that the paper's figure 4 shows in its four parts: size,
-- about: locality, mode, type of block. The rules are those of sizes, locality, sync and classes.
WITH sizes AS (
    SELECT
        operation,
        COUNT(*) AS requests,
        CAST(SUM(CASE WHEN bytes > 262144 THEN 1 ELSE 0 END) AS DOUBLE) / COUNT(*) AS over_256k_share,
        CAST(SUM(CASE WHEN bytes = 4096 THEN 1 ELSE 0 END) AS DOUBLE) / COUNT(*) AS exactly_4k_share,
        CAST(SUM(CASE WHEN sync THEN 0 ELSE 1 END) AS DOUBLE) / COUNT(*) AS buffered_share
    FROM io
    GROUP BY operation
),
localities AS (
    SELECT operation, CAST(SUM(follows_previous) AS DOUBLE) / COUNT(*) AS sequential_share
    FROM ordered_io
    GROUP BY operation
),
types AS (
    SELECT
        operation,
        CAST(SUM(CASE WHEN class = 'data' THEN request ELSE 0 END) AS DOUBLE) / SUM(request) AS data_share,
        CAST(SUM(CASE WHEN class = 'metadata' THEN request ELSE 0 END) AS DOUBLE) / SUM(request) AS metadata_share,
        CAST(SUM(CASE WHEN class = 'journal' THEN request ELSE 0 END) AS DOUBLE) / SUM(request) AS journal_share
    FROM pieces
    GROUP BY operation
)
SELECT
    sizes.operation AS operation,
    sizes.requests AS requests,
    sizes.over_256k_share AS over_256k_share,
    sizes.exactly_4k_share AS exactly_4k_share,
    localities.sequential_share AS sequential_share,
    sizes.buffered_share AS buffered_share,
    types.data_share AS data_share,
    types.metadata_share AS metadata_share,
    types.journal_share AS journal_share
FROM sizes
LEFT JOIN localities ON localities.operation = sizes.operation
LEFT JOIN types ON types.operation = sizes.operation
ORDER BY operation
