-- title: How sure the processes are
-- key: operation, cause_quality
-- about: Best first: folio (it dirtied this very piece or asked for it), write_call, inode (last writer), submitter,
-- about: transaction (took part in the commit), none.
SELECT operation, cause_quality, COUNT(*) AS pieces, SUM(bytes) AS bytes
FROM pieces
GROUP BY operation, cause_quality
ORDER BY operation, cause_quality
