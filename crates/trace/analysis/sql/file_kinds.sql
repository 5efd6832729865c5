-- title: Types of files
-- key: file_type, operation
-- about: By names' endings and extensions (sql/views/3_file_types.sql). What is no content of a file is in parentheses.
-- Pieces are added up by path first: types are of paths, and paths are few beside pieces.
WITH by_path AS (
    SELECT
        path,
        volume,
        class,
        block_type,
        operation,
        SUM(request) AS requests,
        COUNT(*) AS pieces,
        SUM(bytes) AS bytes
    FROM pieces
    GROUP BY path, volume, class, block_type, operation
),
typed AS (
    SELECT
        CASE WHEN by_path.path IS NOT NULL THEN CONCAT(by_path.volume, ' ', by_path.path) END AS file,
        CASE
            WHEN by_path.class = 'journal' THEN '(journal)'
            WHEN by_path.class = 'metadata' THEN '(metadata)'
            WHEN by_path.block_type = 'directory' THEN '(directory)'
            WHEN by_path.path IS NULL THEN '(not known)'
            ELSE file_types.file_type
        END AS file_type,
        by_path.operation AS operation,
        by_path.requests AS requests,
        by_path.pieces AS pieces,
        by_path.bytes AS bytes
    FROM by_path
    LEFT JOIN file_types ON file_types.path = by_path.path
),
counted AS (
    SELECT
        file_type,
        operation,
        COUNT(DISTINCT file) AS files,
        SUM(requests) AS requests,
        SUM(pieces) AS pieces,
        SUM(bytes) AS bytes
    FROM typed
    GROUP BY file_type, operation
)
SELECT
    file_type,
    operation,
    files,
    requests,
    CAST(requests AS DOUBLE) / SUM(requests) OVER (PARTITION BY operation) AS requests_share,
    pieces,
    bytes,
    CAST(bytes AS DOUBLE) / SUM(bytes) OVER (PARTITION BY operation) AS bytes_share
FROM counted
ORDER BY file_type, operation
