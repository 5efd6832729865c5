-- Pieces with the type of their file. What is no content of a file is named by what it is instead.
SELECT
    pieces.*,
    CASE
        WHEN pieces.class = 'journal' THEN '(journal)'
        WHEN pieces.class = 'metadata' THEN '(metadata)'
        WHEN pieces.block_type = 'directory' THEN '(directory)'
        WHEN pieces.path IS NULL THEN '(not known)'
        ELSE file_types.file_type
    END AS file_type
FROM pieces
LEFT JOIN file_types ON file_types.path = pieces.path
