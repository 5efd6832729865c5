-- title: Commands of the driver
-- key: command
-- about: Commands that a driver sent to its card or SCSI disk, by number (25 is CMD25 of a card; 42, or 0x2a, is
-- about: WRITE(10) of SCSI and UFS); packed: requests that they carried in all.
SELECT
    command_code AS command,
    COUNT(*) AS commands,
    SUM(bytes) AS bytes,
    SUM(CASE WHEN command_packed_requests > 1 THEN 1 ELSE 0 END) AS packed_commands,
    SUM(command_packed_requests) AS carried_requests,
    SUM(command_retries) AS retries,
    SUM(command_interrupts) AS interrupts
FROM requests
WHERE command_code IS NOT NULL
GROUP BY command_code
ORDER BY command_code
