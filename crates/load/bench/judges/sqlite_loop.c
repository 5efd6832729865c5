/*
 * A plain C loop over libsqlite3: the judge of `tidegate bench sqlite`.
 *
 * It runs the statements of that workload, with the same keys and values in the same order, and reads the clock twice:
 * before the first transaction and after the last one (in WAL mode after the checkpoint that follows it). What the
 * workload does beside (a clock around each transaction and each sync, a histogram, counters) is what the comparison
 * shows. One thread. Options have the names and meanings of the workload's; --threads, --interval, mixes and the orders of
 * the original are left out.
 *
 * Fair only with the same library, built alike. With the source that is inside the workload (SOURCE is the folder
 * `sqlite3` of the crate libsqlite3-sys; scripts/judges/sqlite_source.sh prints it):
 *
 *   cc -O3 -DSQLITE_CORE -DSQLITE_DEFAULT_FOREIGN_KEYS=1 -DSQLITE_ENABLE_API_ARMOR -DSQLITE_ENABLE_COLUMN_METADATA \
 *      -DSQLITE_ENABLE_DBSTAT_VTAB -DSQLITE_ENABLE_FTS3 -DSQLITE_ENABLE_FTS3_PARENTHESIS -DSQLITE_ENABLE_FTS5 \
 *      -DSQLITE_ENABLE_JSON1 -DSQLITE_ENABLE_LOAD_EXTENSION=1 -DSQLITE_ENABLE_RTREE -DSQLITE_ENABLE_STAT4 \
 *      -DSQLITE_SOUNDEX -DSQLITE_THREADSAFE=1 -DSQLITE_USE_URI -DHAVE_USLEEP=1 -DHAVE_ISNAN \
 *      -D_POSIX_THREAD_SAFE_FUNCTIONS -DHAVE_LOCALTIME_R -DHAVE_FDATASYNC=1 \
 *      -I SOURCE -o sqlite_loop sqlite_loop.c SOURCE/sqlite3.c -lpthread -ldl -lm
 *
 * or with the system's, for `--library system`: cc -O2 -o sqlite_loop sqlite_loop.c -lsqlite3
 *
 * Prints one line of JSON. The databases are made in DIRECTORY and removed. Exit code 2 when anything fails.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sqlite3.h>

enum { VALUE_BYTES = 100, ROWS_MIN = 296, ROWS_AT_ONCE = 1000, TABLES_MAX = 1000, DATABASES_MAX = 126 };
enum operation { INSERT, UPDATE, DELETE };

static const char *operation_names[] = {"insert", "update", "delete"};

static enum operation operation = INSERT;
static const char *journal = "wal";
static const char *synchronous = "full";
static uint64_t transactions = 1000;
static unsigned tables = 3;
static unsigned databases = 1;
static int is_text = 0;
static int is_autocommit = 0;
static int is_random = 0;
static int is_constant = 0;
static int checkpoint_outside = 0;
static uint64_t seed = 1;

static sqlite3 *connection;
static char folder[3000];

static void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("sqlite_loop: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(2);
}

static void execute(const char *text)
{
    int status = sqlite3_exec(connection, text, NULL, NULL, NULL);
    if (status != SQLITE_OK)
        fail("SQLite error %d (%s) in: %s", status, sqlite3_errmsg(connection), text);
}

static sqlite3_stmt *prepare(const char *format, ...)
{
    char text[4096];
    sqlite3_stmt *statement;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (sqlite3_prepare_v2(connection, text, -1, &statement, NULL) != SQLITE_OK)
        fail("%s in: %s", sqlite3_errmsg(connection), text);
    return statement;
}

static void step(sqlite3_stmt *statement)
{
    int stepped = sqlite3_step(statement);
    int reset = sqlite3_reset(statement);
    if (stepped != SQLITE_DONE || reset != SQLITE_OK)
        fail("%s in: %s", sqlite3_errmsg(connection), sqlite3_sql(statement));
}

/* SplitMix64's finish; the workload's orders and values are made of it. */
static uint64_t mixed(uint64_t number)
{
    number += UINT64_C(0x9E3779B97F4A7C15);
    number = (number ^ (number >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    number = (number ^ (number >> 27)) * UINT64_C(0x94D049BB133111EB);
    return number ^ (number >> 31);
}

/* A Feistel network of four rounds over the next even power of two, walked on until inside. */
static uint64_t permuted(uint64_t count, uint64_t permutation_seed, uint64_t number)
{
    unsigned bits = count > 1 ? 64 - (unsigned)__builtin_clzll(count - 1) : 0;
    unsigned half = (bits + 1) / 2 ? (bits + 1) / 2 : 1;
    uint64_t mask = (UINT64_C(1) << half) - 1;
    do {
        uint64_t left = number >> half, right = number & mask;
        for (unsigned round = 0; round < 4; round++) {
            uint64_t next = left ^ (mixed(right ^ mixed(permutation_seed + round)) & mask);
            left = right;
            right = next;
        }
        number = left << half | right;
    } while (number >= count);
    return number;
}

static void fill(uint64_t stream_seed, uint64_t number, char constant, char *value)
{
    if (is_constant) {
        for (int place = 0; place < VALUE_BYTES; place++)
            value[place] = (char)(constant + place % 10);
        return;
    }
    uint64_t base = stream_seed + number * 8;
    for (int place = 0; place < VALUE_BYTES; place += 16) {
        uint64_t bits = mixed(base + (uint64_t)place / 16);
        for (int digit = place; digit < place + 16 && digit < VALUE_BYTES; digit++) {
            value[digit] = "0123456789abcdef"[bits & 15];
            bits >>= 4;
        }
    }
}

static const char *schema(unsigned database)
{
    static char name[32];
    snprintf(name, sizeof name, database ? "database_%u" : "main", database);
    return name;
}

static void table_name(unsigned database, unsigned table, char *name, size_t size)
{
    if (database)
        snprintf(name, size, "database_%u.list_%u", database, table);
    else
        snprintf(name, size, "list_%u", table);
}

static void database_path(unsigned database, const char *suffix, char *path, size_t size)
{
    snprintf(path, size, "%s/data-0-%u.db%s", folder, database, suffix);
}

static void checkpoint(void)
{
    for (unsigned database = 0; database < databases; database++)
        if (sqlite3_wal_checkpoint(connection, schema(database)) != SQLITE_OK)
            fail("checkpoint: %s", sqlite3_errmsg(connection));
}

static void make_databases(uint64_t rows, uint64_t thread_seed)
{
    char path[4000], text[4096], name[64], value[VALUE_BYTES];
    database_path(0, "", path, sizeof path);
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    if (sqlite3_open_v2(path, &connection, flags, NULL) != SQLITE_OK)
        fail("%s: %s", path, sqlite3_errmsg(connection));
    for (unsigned database = 0; database < databases; database++) {
        if (database) {
            sqlite3_stmt *attach = prepare("ATTACH DATABASE ?1 AS database_%u", database);
            database_path(database, "", path, sizeof path);
            sqlite3_bind_text(attach, 1, path, -1, SQLITE_STATIC);
            step(attach);
            sqlite3_finalize(attach);
        }
        snprintf(text, sizeof text, "PRAGMA %s.page_size = 4096", schema(database));
        execute(text);
        snprintf(text, sizeof text, "PRAGMA %s.journal_mode = %s", schema(database), journal);
        execute(text);
        snprintf(text, sizeof text, "PRAGMA %s.synchronous = %s", schema(database), synchronous);
        execute(text);
        for (unsigned table = 0; table < tables; table++) {
            table_name(database, table, name, sizeof name);
            snprintf(text, sizeof text,
                     "CREATE TABLE %s (id INTEGER PRIMARY KEY%s, value TEXT NOT NULL, creation_date LONG)", name,
                     is_autocommit ? " AUTOINCREMENT" : "");
            execute(text);
        }
    }
    for (unsigned database = 0; rows && database < databases; database++) {
        uint64_t stream_seed = (thread_seed ^ database) ^ 0x70726570;
        for (unsigned table = 0; table < tables; table++) {
            table_name(database, table, name, sizeof name);
            sqlite3_stmt *insert = prepare("INSERT INTO %s (id, value) VALUES (?1, ?2)", name);
            for (uint64_t row = 0; row < rows; row++) {
                if (row % ROWS_AT_ONCE == 0)
                    execute("BEGIN");
                fill(stream_seed, table * rows + row, 'a', value);
                sqlite3_bind_int64(insert, 1, (sqlite3_int64)(row + (is_autocommit ? 1 : 0)));
                sqlite3_bind_text(insert, 2, value, VALUE_BYTES, SQLITE_STATIC);
                step(insert);
                if ((row + 1) % ROWS_AT_ONCE == 0 || row + 1 == rows)
                    execute("COMMIT");
            }
            sqlite3_finalize(insert);
        }
    }
    if (strcmp(journal, "wal") == 0)
        checkpoint();
    /* Synced and left open: closing a descriptor would drop the locks that SQLite has on the file. */
    for (unsigned database = 0; database < databases; database++)
        for (int is_log = 0; is_log < 2; is_log++) {
            database_path(database, is_log ? "-wal" : "", path, sizeof path);
            int file = open(path, O_RDONLY);
            if (file >= 0 ? fsync(file) != 0 : errno != ENOENT)
                fail("fsync of %s: %s", path, strerror(errno));
        }
}

static uint64_t key_of(uint64_t rows, uint64_t thread_seed, uint64_t number, uint64_t statement)
{
    uint64_t statements = (uint64_t)tables * databases, key;
    switch (operation) {
    case INSERT:
        key = is_random ? permuted(transactions, thread_seed ^ 1, number) : number;
        break;
    case DELETE:
        key = is_random ? permuted(rows, thread_seed ^ 2, number) : number;
        break;
    default:
        key = is_random
                  ? permuted(rows, thread_seed ^ 2,
                             mixed(thread_seed ^ 4 ^ mixed(number * statements + statement)) % rows)
                  : number % rows;
    }
    return key + (is_autocommit ? 1 : 0);
}

static uint64_t now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void run_text(uint64_t rows, uint64_t thread_seed)
{
    unsigned statements = tables * databases;
    char (*names)[64] = calloc(statements, sizeof *names);
    char *text = malloc((size_t)statements * 256 + 64), value[VALUE_BYTES];
    if (!names || !text)
        fail("no memory");
    for (unsigned statement = 0; statement < statements; statement++)
        table_name(statement / tables, statement % tables, names[statement], sizeof names[statement]);
    for (uint64_t number = 0; number < transactions; number++) {
        char *end = text;
        if (!is_autocommit)
            end += sprintf(end, "BEGIN;");
        for (unsigned statement = 0; statement < statements; statement++) {
            uint64_t key = key_of(rows, thread_seed, number, statement);
            if (operation != DELETE)
                fill(thread_seed, number * statements + statement, '0', value);
            if (operation == INSERT && is_autocommit)
                end += sprintf(end, "INSERT INTO %s (value) VALUES ('%.*s');", names[statement], VALUE_BYTES, value);
            else if (operation == INSERT)
                end += sprintf(end, "INSERT INTO %s (id, value) VALUES (%" PRIu64 ", '%.*s');", names[statement], key,
                               VALUE_BYTES, value);
            else if (operation == UPDATE)
                end += sprintf(end, "UPDATE %s SET value = '%.*s' WHERE id = %" PRIu64 ";", names[statement],
                               VALUE_BYTES, value, key);
            else
                end += sprintf(end, "DELETE FROM %s WHERE id = %" PRIu64 ";", names[statement], key);
        }
        if (!is_autocommit)
            sprintf(end, "COMMIT;");
        execute(text);
    }
    free(text);
    free(names);
}

static void run_prepared(uint64_t rows, uint64_t thread_seed, sqlite3_stmt *begin, sqlite3_stmt *commit,
                         sqlite3_stmt **all, char (*values)[VALUE_BYTES])
{
    unsigned statements = tables * databases;
    for (uint64_t number = 0; number < transactions; number++) {
        if (operation != DELETE)
            for (unsigned statement = 0; statement < statements; statement++)
                fill(thread_seed, number * statements + statement, '0', values[statement]);
        if (!is_autocommit)
            step(begin);
        for (unsigned statement = 0; statement < statements; statement++) {
            sqlite3_int64 key = (sqlite3_int64)key_of(rows, thread_seed, number, statement);
            sqlite3_stmt *current = all[statement];
            if (operation == INSERT && is_autocommit) {
                sqlite3_bind_text(current, 1, values[statement], VALUE_BYTES, SQLITE_STATIC);
            } else if (operation == INSERT) {
                sqlite3_bind_int64(current, 1, key);
                sqlite3_bind_text(current, 2, values[statement], VALUE_BYTES, SQLITE_STATIC);
            } else if (operation == UPDATE) {
                sqlite3_bind_text(current, 1, values[statement], VALUE_BYTES, SQLITE_STATIC);
                sqlite3_bind_int64(current, 2, key);
            } else {
                sqlite3_bind_int64(current, 1, key);
            }
            step(current);
        }
        if (!is_autocommit)
            step(commit);
    }
}

static void check_rows(uint64_t expected)
{
    char name[64];
    for (unsigned database = 0; database < databases; database++)
        for (unsigned table = 0; table < tables; table++) {
            table_name(database, table, name, sizeof name);
            sqlite3_stmt *count = prepare("SELECT count(*) FROM %s", name);
            if (sqlite3_step(count) != SQLITE_ROW || (uint64_t)sqlite3_column_int64(count, 0) != expected)
                fail("%s has %lld rows, expected %" PRIu64, name, sqlite3_column_int64(count, 0), expected);
            sqlite3_finalize(count);
        }
}

static void remove_files(void)
{
    static const char *suffixes[] = {"", "-journal", "-wal", "-shm"};
    char path[4000];
    for (unsigned database = 0; database < databases; database++)
        for (unsigned suffix = 0; suffix < 4; suffix++) {
            database_path(database, suffixes[suffix], path, sizeof path);
            unlink(path);
        }
    rmdir(folder);
}

static uint64_t number_of(const char *name, const char *text, uint64_t max)
{
    char *end;
    errno = 0;
    uint64_t number = strtoull(text, &end, 10);
    if (errno || end == text || *end || number > max)
        fail("--%s: %s is no number from 0 to %" PRIu64, name, text, max);
    return number;
}

/* True for `yes`, false for `no`, an error for anything else. */
static int choice(const char *name, const char *text, const char *no, const char *yes)
{
    if (strcmp(text, yes) && strcmp(text, no))
        fail("--%s: %s is none of %s, %s", name, text, no, yes);
    return strcmp(text, yes) == 0;
}

static const char *parse(int count, char **words)
{
    static const struct option options[] = {
        {"operation", 1, 0, 'o'},   {"journal", 1, 0, 'j'}, {"synchronous", 1, 0, 's'}, {"transactions", 1, 0, 'n'},
        {"tables", 1, 0, 'T'},      {"databases", 1, 0, 'D'}, {"statements", 1, 0, 'x'}, {"transaction", 1, 0, 'a'},
        {"keys", 1, 0, 'k'},        {"values", 1, 0, 'v'},  {"checkpoint", 1, 0, 'c'},  {"seed", 1, 0, 'S'},
        {0, 0, 0, 0},
    };
    int option;
    while ((option = getopt_long(count, words, "", options, NULL)) != -1) {
        switch (option) {
        case 'o':
            for (operation = INSERT; operation <= DELETE && strcmp(optarg, operation_names[operation]); operation++)
                ;
            if (operation > DELETE)
                fail("--operation: %s is none of insert, update, delete", optarg);
            break;
        case 'j': journal = optarg; break;
        case 's': synchronous = optarg; break;
        case 'n': transactions = number_of("transactions", optarg, UINT64_C(1) << 40); break;
        case 'T': tables = (unsigned)number_of("tables", optarg, TABLES_MAX); break;
        case 'D': databases = (unsigned)number_of("databases", optarg, DATABASES_MAX); break;
        case 'x': is_text = choice("statements", optarg, "prepared", "text"); break;
        case 'a': is_autocommit = choice("transaction", optarg, "explicit", "autocommit"); break;
        case 'k': is_random = choice("keys", optarg, "sequential", "random"); break;
        case 'v': is_constant = choice("values", optarg, "distinct", "constant"); break;
        case 'c': checkpoint_outside = choice("checkpoint", optarg, "inside", "outside"); break;
        case 'S': seed = number_of("seed", optarg, UINT64_MAX); break;
        default: exit(2);
        }
    }
    if (optind + 1 != count)
        fail("usage: sqlite_loop [--operation insert|update|delete] [--journal MODE] [--synchronous LEVEL] "
             "[--transactions N] [--tables N] [--databases N] [--statements prepared|text] "
             "[--transaction explicit|autocommit] [--keys sequential|random] [--values distinct|constant] "
             "[--checkpoint inside|outside] [--seed N] DIRECTORY");
    if (!tables || !databases || !transactions || (is_autocommit && tables * databases != 1))
        fail("at least one transaction, table and database is needed, and autocommit has one of each");
    return words[optind];
}

int main(int count, char **words)
{
    const char *directory = parse(count, words);
    snprintf(folder, sizeof folder, "%s/.sqlite-loop-XXXXXX", directory);
    if (!mkdtemp(folder))
        fail("%s: %s", folder, strerror(errno));
    /* The seed of the workload's first thread. */
    uint64_t thread_seed = mixed(seed ^ mixed(0));
    uint64_t rows = operation == INSERT ? 0 : transactions > ROWS_MIN ? transactions : ROWS_MIN;
    make_databases(rows, thread_seed);

    unsigned statements = tables * databases;
    char name[64], (*values)[VALUE_BYTES] = calloc(statements, VALUE_BYTES);
    sqlite3_stmt **all = calloc(statements, sizeof *all), *begin = prepare("BEGIN"), *commit = prepare("COMMIT");
    if (!values || !all)
        fail("no memory");
    for (unsigned statement = 0; statement < statements; statement++) {
        table_name(statement / tables, statement % tables, name, sizeof name);
        if (operation == INSERT && is_autocommit)
            all[statement] = prepare("INSERT INTO %s (value) VALUES (?1)", name);
        else if (operation == INSERT)
            all[statement] = prepare("INSERT INTO %s (id, value) VALUES (?1, ?2)", name);
        else if (operation == UPDATE)
            all[statement] = prepare("UPDATE %s SET value = ?1 WHERE id = ?2", name);
        else
            all[statement] = prepare("DELETE FROM %s WHERE id = ?1", name);
    }

    uint64_t start = now_ns(CLOCK_MONOTONIC), cpu_start = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    if (is_text)
        run_text(rows, thread_seed);
    else
        run_prepared(rows, thread_seed, begin, commit, all, values);
    if (strcmp(journal, "wal") == 0 && !checkpoint_outside)
        checkpoint();
    uint64_t elapsed_ns = now_ns(CLOCK_MONOTONIC) - start, cpu_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_start;

    sqlite3_finalize(begin);
    sqlite3_finalize(commit);
    for (unsigned statement = 0; statement < statements; statement++)
        sqlite3_finalize(all[statement]);
    check_rows(operation == INSERT ? transactions : operation == DELETE ? rows - transactions : rows);
    if (sqlite3_close(connection) != SQLITE_OK)
        fail("close: %s", sqlite3_errmsg(connection));
    remove_files();
    free(all);
    free(values);
    printf("{\"sqlite\":\"%s\",\"operation\":\"%s\",\"transactions\":%" PRIu64 ",\"elapsed_ns\":%" PRIu64
           ",\"cpu_ns\":%" PRIu64 ",\"transactions_per_s\":%.1f}\n",
           sqlite3_libversion(), operation_names[operation], transactions, elapsed_ns, cpu_ns,
           (double)transactions * 1e9 / (double)elapsed_ns);
    return 0;
}
