-- I/Os with their position on their device and what came before them.
--
-- `follows_previous`: it starts where the preceding I/O of its device ended, whatever that was: the aggregate stream,
-- in which a write of the journal in between makes two I/Os random. `follows_recent`: it starts where one of the 32
-- I/Os before it ended: all starts and ends are sorted by place and position, and the last end before a start, if it is at
-- the same place, is the nearest one. Its position comes along behind its row's number, which grows. Devices have numbers
-- meanwhile: sorts by their names would take three times as long. Both sides of an I/O come from one pass over the I/Os,
-- and what is small stands first in a join: that is the side which is kept in memory. Numbers of rows are BIGINT, as
-- DataFusion computes with others in decimals.
WITH devices AS (
    SELECT trace_id, device, CAST(ROW_NUMBER() OVER (ORDER BY trace_id, device) AS BIGINT) AS device_number
    FROM (SELECT DISTINCT trace_id, device FROM io) AS names
),
sides AS (
    SELECT 0 AS is_start
    UNION ALL
    SELECT 1 AS is_start
),
numbered AS (
    SELECT
        devices.device_number AS device_number,
        CASE WHEN io.operation = 'write' THEN 1 ELSE 0 END AS is_write,
        io.bytes AS bytes,
        io.start_byte AS start_byte,
        io.end_byte AS end_byte,
        CAST(ROW_NUMBER() OVER (PARTITION BY devices.device_number ORDER BY io.id) AS BIGINT) AS position,
        LAG(io.end_byte) OVER (PARTITION BY devices.device_number ORDER BY io.id) AS previous_end
    FROM devices
    JOIN io ON io.trace_id = devices.trace_id AND io.device = devices.device
),
places AS (
    SELECT
        numbered.device_number AS device_number,
        numbered.is_write AS is_write,
        numbered.bytes AS bytes,
        numbered.position AS position,
        sides.is_start AS is_start,
        CASE WHEN sides.is_start = 1 THEN numbered.start_byte ELSE numbered.end_byte END AS place,
        CASE WHEN numbered.start_byte = numbered.previous_end THEN 1 ELSE 0 END AS follows_previous
    FROM sides
    CROSS JOIN numbered
),
ranked AS (
    SELECT
        device_number, is_write, bytes, position, is_start, place, follows_previous,
        CAST(ROW_NUMBER() OVER (PARTITION BY device_number ORDER BY place, position) AS BIGINT) * 4294967296 + position
            AS row_and_position
    FROM places
),
looked_up AS (
    SELECT
        device_number, is_write, bytes, position, is_start, place, follows_previous,
        MAX(CASE WHEN is_start = 0 THEN place END) OVER (
            PARTITION BY device_number
            ORDER BY place, position
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS end_place,
        MAX(CASE WHEN is_start = 0 THEN row_and_position END) OVER (
            PARTITION BY device_number
            ORDER BY place, position
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS row_and_position_of_end
    FROM ranked
)
SELECT
    devices.trace_id AS trace_id,
    devices.device AS device,
    CASE WHEN looked_up.is_write = 1 THEN 'write' ELSE 'read' END AS operation,
    looked_up.bytes AS bytes,
    looked_up.position AS position,
    looked_up.follows_previous AS follows_previous,
    CASE
        WHEN looked_up.end_place = looked_up.place
            AND looked_up.position - looked_up.row_and_position_of_end % 4294967296 <= 32
        THEN 1
        ELSE 0
    END AS follows_recent
FROM devices
JOIN looked_up ON looked_up.device_number = devices.device_number
WHERE looked_up.is_start = 1
