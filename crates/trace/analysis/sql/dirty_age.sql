-- title: Age of written data
-- key: class
-- about: From the moment data was dirtied to the moment its request reached the block layer, where both are known.
WITH aged AS (
    SELECT
        class,
        first_ns - dirtied_ns AS age_ns,
        bytes
    FROM pieces
    WHERE operation = 'write' AND first_ns >= dirtied_ns
),
ranked AS (
    SELECT
        class,
        age_ns,
        bytes,
        CAST(ROW_NUMBER() OVER (PARTITION BY class ORDER BY age_ns) AS BIGINT) AS position,
        COUNT(*) OVER (PARTITION BY class) AS pieces
    FROM aged
)
SELECT
    class,
    COUNT(*) AS pieces,
    SUM(bytes) AS bytes,
    MIN(CASE WHEN position * 2 >= pieces THEN age_ns END) AS p50_ns,
    MIN(CASE WHEN position * 10 >= pieces * 9 THEN age_ns END) AS p90_ns,
    MIN(CASE WHEN position * 100 >= pieces * 99 THEN age_ns END) AS p99_ns,
    MAX(age_ns) AS max_ns
FROM ranked
GROUP BY class
ORDER BY class
