-- title: Requests in flight
-- key: in_flight
-- about: Requests in the driver when one was issued, itself included; from this number to under twice it.
WITH depths AS (
    SELECT
        CASE
            WHEN in_flight < 2 THEN 1
            WHEN in_flight < 4 THEN 2
            WHEN in_flight < 8 THEN 4
            WHEN in_flight < 16 THEN 8
            WHEN in_flight < 32 THEN 16
            WHEN in_flight < 64 THEN 32
            WHEN in_flight < 128 THEN 64
            WHEN in_flight < 256 THEN 128
            ELSE 256
        END AS in_flight
    FROM requests
    WHERE in_flight IS NOT NULL
),
counted AS (
    SELECT in_flight, COUNT(*) AS requests
    FROM depths
    GROUP BY in_flight
)
SELECT in_flight, requests, CAST(requests AS DOUBLE) / SUM(requests) OVER () AS requests_share
FROM counted
ORDER BY in_flight
