-- Runs of requests that move data: a piece of an I/O with one owner.
-- The requests of a group are counted by their first piece, so that groups add up to all requests; bytes are exact.
-- A path is relative to its file system's root: `volume` and path together name a file. It is the file system's number, or
-- the device's where the source told no files.
SELECT
    trace_id,
    request_id,
    run_index,
    CASE WHEN run_index = 0 THEN 1 ELSE 0 END AS request,
    device,
    operation,
    mode,
    first_ns,
    sector,
    sector * 512 AS start_byte,
    sector * 512 + bytes AS end_byte,
    bytes,
    class,
    block_type,
    file_system,
    COALESCE(file_system, device) AS volume,
    inode,
    generation,
    path,
    deleted,
    home_sector,
    transaction_id,
    COALESCE(cause_package, cause_name, '(unknown)') AS process,
    cause_pid,
    cause_quality,
    dirtied_ns
FROM runs
WHERE operation IN ('read', 'write') AND bytes > 0
