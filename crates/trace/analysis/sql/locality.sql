-- title: Sequential against random
-- key: operation
-- about: Sequential by the papers' view, the aggregate stream: an I/O that starts where the preceding one of its device
-- about: ended, reads and writes together, in the order in which they reached the block layer. The papers give no
-- about: formula; they say that journal and metadata in between make a stream random, and so it is here.
-- about: Sequential by streams: it starts where one of the 32 I/Os before it on its device ended, so that streams side
-- about: by side, which a device with as many open streams serves well, stay sequential.
SELECT
    operation,
    COUNT(*) AS requests,
    SUM(follows_previous) AS sequential_requests,
    CAST(SUM(follows_previous) AS DOUBLE) / COUNT(*) AS sequential_share,
    SUM(follows_recent) AS stream_requests,
    CAST(SUM(follows_recent) AS DOUBLE) / COUNT(*) AS stream_share,
    CAST(SUM(follows_previous * bytes) AS DOUBLE) / SUM(bytes) AS sequential_bytes_share,
    CAST(SUM(follows_recent * bytes) AS DOUBLE) / SUM(bytes) AS stream_bytes_share
FROM ordered_io
GROUP BY operation
ORDER BY operation
