-- title: Types of files
-- key: file_type, operation
-- about: By names' endings and extensions (sql/views/3_file_types.sql). What is no content of a file is in parentheses.
WITH counted AS (
    SELECT
        file_type,
        operation,
        COUNT(DISTINCT path) AS files,
        SUM(request) AS requests,
        COUNT(*) AS pieces,
        SUM(bytes) AS bytes
    FROM typed_pieces
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
