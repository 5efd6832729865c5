-- The type of each path in the traces: the one place where names mean types. The types are those of the MOST papers
-- and of their viewer, and some more. A name's ending decides first (SQLite's files), then its extension.
WITH by_extension (extension, file_type) AS (
    VALUES
        ('db', 'SQLite database'), ('db3', 'SQLite database'), ('sqlite', 'SQLite database'),
        ('sqlite3', 'SQLite database'), ('sqlitedb', 'SQLite database'), ('localstorage', 'SQLite database'),
        ('tmp', 'temporary'), ('temp', 'temporary'), ('bak', 'temporary'), ('swp', 'temporary'),
        ('part', 'temporary'), ('partial', 'temporary'), ('crdownload', 'temporary'), ('new', 'temporary'),
        ('jpg', 'multimedia'), ('jpeg', 'multimedia'), ('png', 'multimedia'), ('gif', 'multimedia'),
        ('webp', 'multimedia'), ('heic', 'multimedia'), ('heif', 'multimedia'), ('avif', 'multimedia'),
        ('bmp', 'multimedia'), ('dng', 'multimedia'), ('raw', 'multimedia'), ('mp4', 'multimedia'),
        ('m4a', 'multimedia'), ('m4v', 'multimedia'), ('mov', 'multimedia'), ('3gp', 'multimedia'),
        ('mkv', 'multimedia'), ('webm', 'multimedia'), ('avi', 'multimedia'), ('ts', 'multimedia'),
        ('mp3', 'multimedia'), ('aac', 'multimedia'), ('ogg', 'multimedia'), ('opus', 'multimedia'),
        ('flac', 'multimedia'), ('wav', 'multimedia'), ('mid', 'multimedia'), ('thumb', 'multimedia'),
        ('apk', 'executable'), ('apex', 'executable'), ('dex', 'executable'), ('odex', 'executable'),
        ('vdex', 'executable'), ('oat', 'executable'), ('art', 'executable'), ('jar', 'executable'),
        ('so', 'executable'), ('ko', 'executable'), ('elf', 'executable'), ('bin', 'executable'),
        ('exe', 'executable'), ('dll', 'executable'), ('sh', 'executable'), ('py', 'executable'),
        ('xml', 'resource'), ('json', 'resource'), ('html', 'resource'), ('htm', 'resource'), ('js', 'resource'),
        ('css', 'resource'), ('ttf', 'resource'), ('otf', 'resource'), ('woff2', 'resource'), ('dat', 'resource'),
        ('pb', 'resource'), ('idx', 'resource'), ('pak', 'resource'), ('conf', 'resource'), ('ini', 'resource'),
        ('properties', 'resource'), ('cache', 'resource'), ('0', 'resource'), ('1', 'resource'),
        ('txt', 'document'), ('pdf', 'document'), ('doc', 'document'), ('docx', 'document'), ('xls', 'document'),
        ('xlsx', 'document'), ('ppt', 'document'), ('pptx', 'document'), ('epub', 'document'), ('md', 'document'),
        ('log', 'log'), ('trace', 'log'),
        ('zip', 'archive'), ('gz', 'archive'), ('xz', 'archive'), ('zst', 'archive'), ('tar', 'archive'),
        ('7z', 'archive'), ('rar', 'archive'), ('obb', 'archive'), ('img', 'archive')
),
names AS (
    SELECT DISTINCT path, LOWER(SUBSTRING_INDEX(path, '/', -1)) AS name
    FROM runs
    WHERE path IS NOT NULL
)
SELECT
    names.path AS path,
    CASE
        WHEN names.name LIKE '%-journal' THEN 'SQLite journal'
        WHEN names.name LIKE '%-wal' THEN 'SQLite WAL'
        WHEN names.name LIKE '%-shm' THEN 'SQLite shm, mj'
        WHEN names.name LIKE '%-mj%' THEN 'SQLite shm, mj'
        WHEN names.name LIKE '%.so.%' THEN 'executable'
        WHEN by_extension.file_type IS NOT NULL THEN by_extension.file_type
        WHEN names.name LIKE '%.%' THEN 'other'
        ELSE 'no extension'
    END AS file_type
FROM names
LEFT JOIN by_extension
    ON by_extension.extension = CASE WHEN names.name LIKE '%.%' THEN SUBSTRING_INDEX(names.name, '.', -1) ELSE '' END
