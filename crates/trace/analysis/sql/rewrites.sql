-- title: Rewrites
-- key: device, class
-- about: Of all bytes written, how many went to places that the same class had written before within the trace. A flash
-- about: device has to clean up behind them.
WITH written AS (
    SELECT trace_id, device, class, start_byte, end_byte
    FROM pieces
    WHERE operation = 'write'
),
covered AS (
    SELECT
        device,
        class,
        start_byte,
        end_byte,
        COALESCE(
            MAX(end_byte) OVER (
                PARTITION BY trace_id, device, class
                ORDER BY start_byte, end_byte
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ),
            0
        ) AS covered_to
    FROM written
),
summed AS (
    SELECT
        device,
        class,
        SUM(end_byte - start_byte) AS written_bytes,
        SUM(
            CASE
                WHEN covered_to <= start_byte THEN end_byte - start_byte
                WHEN covered_to < end_byte THEN end_byte - covered_to
                ELSE 0
            END
        ) AS distinct_bytes
    FROM covered
    GROUP BY device, class
)
SELECT
    device,
    class,
    written_bytes,
    distinct_bytes,
    written_bytes - distinct_bytes AS rewritten_bytes,
    CAST(written_bytes - distinct_bytes AS DOUBLE) / written_bytes AS rewritten_share
FROM summed
ORDER BY device, class
