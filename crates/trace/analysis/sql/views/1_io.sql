-- Requests that move data: what counts as an I/O. Flushes, discards and the like are not among them.
-- Places are bytes on the whole device, so that no integer division is needed, which the dialects write differently.
-- The order of `id` is the order of the first known time. A difference of times that is negative is no latency.
SELECT
    trace_id,
    id,
    device,
    operation,
    sector * 512 AS start_byte,
    sector * 512 + bytes AS end_byte,
    bytes,
    sync,
    mode,
    first_ns,
    completed_ns
FROM requests
WHERE moves_data
