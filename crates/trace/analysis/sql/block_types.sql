-- title: Types of blocks
-- key: class, block_type, operation
-- about: The classes above in the file system's own terms. Requests are counted by their first piece.
SELECT class, block_type, operation, SUM(request) AS requests, COUNT(*) AS pieces, SUM(bytes) AS bytes
FROM pieces
GROUP BY class, block_type, operation
ORDER BY class, block_type, operation
