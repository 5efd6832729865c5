-- I/Os with their position on their device and what came before them.
--
-- `follows_previous`: it starts where the preceding I/O of its device ended, whatever that was: the aggregate stream,
-- in which a write of the journal in between makes two I/Os random. `follows_recent`: it starts where one of the 32
-- I/Os before it ended: the nearest earlier end at its start is looked up, and its distance counted. Devices have
-- numbers meanwhile: sorts by their names would take three times as long.
WITH devices AS (
    SELECT trace_id, device, ROW_NUMBER() OVER (ORDER BY trace_id, device) AS device_number
    FROM (SELECT DISTINCT trace_id, device FROM io) AS names
),
numbered AS (
    SELECT
        devices.device_number AS device_number,
        io.operation AS operation,
        io.bytes AS bytes,
        io.start_byte AS start_byte,
        io.end_byte AS end_byte,
        ROW_NUMBER() OVER (PARTITION BY devices.device_number ORDER BY io.id) AS position,
        LAG(io.end_byte) OVER (PARTITION BY devices.device_number ORDER BY io.id) AS previous_end
    FROM io
    JOIN devices ON devices.trace_id = io.trace_id AND devices.device = io.device
),
places AS (
    SELECT
        device_number, operation, bytes, position, start_byte AS place, 1 AS is_start,
        CASE WHEN start_byte = previous_end THEN 1 ELSE 0 END AS follows_previous
    FROM numbered
    UNION ALL
    SELECT
        device_number, operation, bytes, position, end_byte AS place, 0 AS is_start, 0 AS follows_previous
    FROM numbered
),
looked_up AS (
    SELECT
        device_number, operation, bytes, position, is_start, follows_previous,
        MAX(CASE WHEN is_start = 0 THEN position END) OVER (
            PARTITION BY device_number, place
            ORDER BY position
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS last_end_position
    FROM places
)
SELECT
    devices.trace_id AS trace_id,
    devices.device AS device,
    looked_up.operation AS operation,
    looked_up.bytes AS bytes,
    looked_up.position AS position,
    looked_up.follows_previous AS follows_previous,
    CASE WHEN looked_up.position - looked_up.last_end_position <= 32 THEN 1 ELSE 0 END AS follows_recent
FROM looked_up
JOIN devices ON devices.device_number = looked_up.device_number
WHERE looked_up.is_start = 1
