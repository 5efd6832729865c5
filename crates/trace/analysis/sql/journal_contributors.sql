-- title: Who fills the journal
-- key: process, handle
-- about: Processes that took part in the journal's transactions, by the type of their handles.
SELECT
    COALESCE(package, process_name, '(unknown)') AS process,
    COALESCE(name, '(unknown)') AS handle,
    COUNT(*) AS contributions,
    COUNT(DISTINCT value) AS transactions
FROM events
WHERE kind = 'contribution'
GROUP BY COALESCE(package, process_name, '(unknown)'), COALESCE(name, '(unknown)')
ORDER BY contributions DESC, process, handle
LIMIT 50
