-- title: Data, metadata and journal
-- key: operation, class
-- about: The papers' classes; a directory's content is data there. An I/O of several pieces is counted once, by its
-- about: first piece, as MOST did; pieces and bytes are exact.
WITH counted AS (
    SELECT operation, class, SUM(request) AS requests, COUNT(*) AS pieces, SUM(bytes) AS bytes
    FROM pieces
    GROUP BY operation, class
)
SELECT
    operation,
    class,
    requests,
    CAST(requests AS DOUBLE) / SUM(requests) OVER (PARTITION BY operation) AS requests_share,
    pieces,
    bytes,
    CAST(bytes AS DOUBLE) / SUM(bytes) OVER (PARTITION BY operation) AS bytes_share
FROM counted
ORDER BY operation, class
