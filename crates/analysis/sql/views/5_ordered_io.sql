-- I/Os with their position on their device and what came before them.
--
-- `follows_previous`: it starts where the preceding I/O of its device ended, whatever that was: the aggregate stream,
-- in which a write of the journal in between makes two I/Os random. `follows_recent`: it starts where one of the 32
-- I/Os before it ended: the nearest earlier end at its start is looked up, and its distance counted.
WITH numbered AS (
    SELECT
        trace_id,
        device,
        id,
        operation,
        bytes,
        start_byte,
        end_byte,
        ROW_NUMBER() OVER (PARTITION BY trace_id, device ORDER BY id) AS position,
        LAG(end_byte) OVER (PARTITION BY trace_id, device ORDER BY id) AS previous_end
    FROM io
),
places AS (
    SELECT
        trace_id, device, operation, bytes, position, start_byte AS place, 1 AS is_start,
        CASE WHEN start_byte = previous_end THEN 1 ELSE 0 END AS follows_previous
    FROM numbered
    UNION ALL
    SELECT
        trace_id, device, operation, bytes, position, end_byte AS place, 0 AS is_start, 0 AS follows_previous
    FROM numbered
),
looked_up AS (
    SELECT
        trace_id, device, operation, bytes, position, is_start, follows_previous,
        MAX(CASE WHEN is_start = 0 THEN position END) OVER (
            PARTITION BY trace_id, device, place
            ORDER BY position
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS last_end_position
    FROM places
)
SELECT
    trace_id,
    device,
    operation,
    bytes,
    position,
    follows_previous,
    CASE WHEN position - last_end_position <= 32 THEN 1 ELSE 0 END AS follows_recent
FROM looked_up
WHERE is_start = 1
