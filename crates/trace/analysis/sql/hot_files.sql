-- title: Hottest files
-- key: path, volume
-- about: The 50 paths with most pieces of data read and written, by file system (volume). Inodes: files that had this name
-- about: one after the other, told apart by inode and generation. Rewritten: written again at the same place on the device.
WITH file_pieces AS (
    SELECT
        path,
        volume,
        operation,
        bytes,
        inode,
        generation,
        start_byte,
        end_byte,
        COALESCE(
            MAX(CASE WHEN operation = 'write' THEN end_byte END) OVER (
                PARTITION BY path, volume, trace_id, device, operation
                ORDER BY start_byte, end_byte
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ),
            0
        ) AS covered_to
    FROM pieces
    WHERE path IS NOT NULL AND class = 'data'
),
by_inode AS (
    SELECT
        path,
        volume,
        inode,
        generation,
        COUNT(*) AS pieces,
        SUM(CASE WHEN operation = 'read' THEN 1 ELSE 0 END) AS read_pieces,
        SUM(CASE WHEN operation = 'read' THEN bytes ELSE 0 END) AS read_bytes,
        SUM(CASE WHEN operation = 'write' THEN 1 ELSE 0 END) AS write_pieces,
        SUM(CASE WHEN operation = 'write' THEN bytes ELSE 0 END) AS write_bytes,
        SUM(
            CASE
                WHEN operation = 'read' OR covered_to <= start_byte THEN 0
                WHEN covered_to < end_byte THEN covered_to - start_byte
                ELSE bytes
            END
        ) AS rewritten_bytes
    FROM file_pieces
    GROUP BY path, volume, inode, generation
),
hottest AS (
    SELECT
        path,
        volume,
        COUNT(*) AS inodes,
        SUM(pieces) AS pieces,
        SUM(read_pieces) AS read_pieces,
        SUM(read_bytes) AS read_bytes,
        SUM(write_pieces) AS write_pieces,
        SUM(write_bytes) AS write_bytes,
        SUM(rewritten_bytes) AS rewritten_bytes
    FROM by_inode
    GROUP BY path, volume
    ORDER BY pieces DESC, path, volume
    LIMIT 50
)
SELECT
    hottest.path AS path,
    hottest.volume AS volume,
    file_types.file_type AS file_type,
    hottest.inodes AS inodes,
    hottest.read_pieces AS read_pieces,
    hottest.read_bytes AS read_bytes,
    hottest.write_pieces AS write_pieces,
    hottest.write_bytes AS write_bytes,
    hottest.rewritten_bytes AS rewritten_bytes
FROM hottest
LEFT JOIN file_types ON file_types.path = hottest.path
ORDER BY hottest.pieces DESC, path, volume
