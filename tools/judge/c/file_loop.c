/*
 * The plain C loop that a benchmark is measured against: one system call an operation and nothing beside it.
 *
 * It makes its files, brings the cache into the state asked for, runs the operations between two readings of the
 * clock, removes the files and prints one line of JSON. Each record is visited once; random order is a shuffled
 * table. The window holds the operations, the syncs and the final sync, but no close and no unmapping. With
 * --histogram each operation is timed and counted in a logarithmic histogram, as a benchmark has to: the clock is read
 * once an operation, as the end of one is the start of the next, and once more before a sync, which is counted apart.
 * Several threads have a table of descriptors each, so that the kernel counts no references in their calls, and a ring
 * has the flags of a ring that one thread alone uses. --prefault touches each page of a mapping before the
 * window. --offsets FILE visits these offsets (decimal, one on each line), in this order, in place of its own order. A
 * single thread is the process's only one: a second one would make each system call slower. The window is that of all
 * threads, from the first start to the last end; `longest_ns` is that of the thread that took longest, each from its own
 * start, which is how fio counts; `cpu_ns` is the processor time of all.
 *
 * An error ends it with a message and exit code 2. A short transfer is an error: records are small, disks are not full.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum sync_after { SYNC_NONE, SYNC_FSYNC, SYNC_FDATASYNC, SYNC_MS_ASYNC, SYNC_MS_SYNC };
enum engine { ENGINE_PSYNC, ENGINE_MMAP, ENGINE_URING };

static const char *directory = ".", *offsets_path;
static uint64_t record_bytes = 4096, file_bytes = 64 << 20;
static unsigned threads = 1, depth = 1, read_percent = 0;
static int is_random, is_new_file, final_sync, is_cold, is_warm, with_histogram, prefault, open_flags;
static enum sync_after sync_after;
static enum engine engine;
static pthread_barrier_t start_line;

struct worker {
    pthread_t thread;
    char path[4096];
    int descriptor;
    unsigned number;
    char *buffer, *map;
    uint32_t *order;
    uint64_t records, began_ns, ended_ns, cpu_ns, histogram[64 * 16], sync_histogram[64 * 16], sum_ns;
};

static void fail(const char *format, ...)
{
    int error = errno;
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "file_loop: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, ": %s\n", strerror(error));
    exit(2);
}

static inline uint64_t time_of(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static inline uint64_t now_ns(void)
{
    return time_of(CLOCK_MONOTONIC);
}

/* Sixteen buckets for each power of two. */
static void count_latency(struct worker *worker, uint64_t *histogram, uint64_t ns)
{
    unsigned top = 63 - (unsigned)__builtin_clzll(ns | 16);
    histogram[(top - 4) * 16 + ((ns >> (top - 4)) & 15)]++;
    worker->sum_ns += ns;
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void shuffle(struct worker *worker, uint64_t records)
{
    uint64_t state = 88172645463325252ull + worker->number;
    worker->order = malloc(records * sizeof *worker->order);
    if (!worker->order)
        fail("malloc");
    for (uint64_t i = 0; i < records; i++)
        worker->order[i] = (uint32_t)i;
    for (uint64_t i = records - 1; i > 0; i--) {
        uint64_t other = next_random(&state) % (i + 1);
        uint32_t kept = worker->order[i];
        worker->order[i] = worker->order[other];
        worker->order[other] = kept;
    }
}

static void read_offsets(struct worker *worker)
{
    unsigned long long offset;
    uint64_t room = file_bytes / record_bytes;
    FILE *file = fopen(offsets_path, "r");
    worker->order = malloc(room * sizeof *worker->order);
    worker->records = 0;
    if (!file || !worker->order)
        fail("open %s", offsets_path);
    while (worker->records < room && fscanf(file, "%llu", &offset) == 1) {
        if (offset % record_bytes || offset >= file_bytes) {
            errno = EINVAL;
            fail("offset %llu of %s", offset, offsets_path);
        }
        worker->order[worker->records++] = (uint32_t)(offset / record_bytes);
    }
    fclose(file);
}

static void prepare(struct worker *worker)
{
    const size_t chunk = 1 << 20;
    char *content;
    int descriptor = open(worker->path, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (descriptor < 0)
        fail("open %s", worker->path);
    if (posix_memalign((void **)&content, 4096, chunk))
        fail("posix_memalign");
    memset(content, 0xA5, chunk);
    for (uint64_t offset = 0; !is_new_file && offset < file_bytes;) {
        size_t part = file_bytes - offset < chunk ? (size_t)(file_bytes - offset) : chunk;
        ssize_t moved = pwrite(descriptor, content, part, (off_t)offset);
        if (moved <= 0)
            fail("prepare %s", worker->path);
        offset += (uint64_t)moved;
    }
    if (is_new_file && engine == ENGINE_MMAP && posix_fallocate(descriptor, 0, (off_t)file_bytes))
        fail("posix_fallocate %s", worker->path);
    if (fsync(descriptor))
        fail("fsync %s", worker->path);
    for (uint64_t offset = 0; is_warm && offset < file_bytes; offset += chunk)
        if (pread(descriptor, content, chunk, (off_t)offset) < 0)
            fail("read %s", worker->path);
    free(content);
    close(descriptor);
    worker->descriptor = open(worker->path, O_RDWR | open_flags);
    if (worker->descriptor < 0)
        fail("open %s with flags %#x", worker->path, open_flags);
    if (posix_memalign((void **)&worker->buffer, 4096, record_bytes * depth))
        fail("posix_memalign");
    memset(worker->buffer, 0, record_bytes * depth);
    if (engine == ENGINE_MMAP) {
        worker->map = mmap(NULL, file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, worker->descriptor, 0);
        if (worker->map == MAP_FAILED)
            fail("mmap %s", worker->path);
    }
    worker->records = file_bytes / record_bytes;
    if (offsets_path)
        read_offsets(worker);
    else if (is_random || (read_percent > 0 && read_percent < 100))
        shuffle(worker, file_bytes / record_bytes);
}

static void drop_caches(void)
{
    sync();
    int descriptor = open("/proc/sys/vm/drop_caches", O_WRONLY);
    if (descriptor < 0 || write(descriptor, "3\n", 2) != 2)
        fail("write /proc/sys/vm/drop_caches");
    close(descriptor);
}

/* Writing a page back needs it writable in the page table: each is written with what it holds. */
static void touch_pages(struct worker *worker)
{
    for (uint64_t offset = 0; offset < file_bytes; offset += 4096) {
        volatile char *byte = worker->map + offset;
        if (read_percent < 100)
            *byte = *byte;
        else
            (void)*byte;
    }
}

static inline int reads(uint64_t record)
{
    if (read_percent == 0 || read_percent == 100)
        return read_percent == 100;
    uint64_t state = record * 0x9E3779B97F4A7C15ull + 1;
    return next_random(&state) % 100 < read_percent;
}

static inline void sync_record(struct worker *worker, uint64_t offset)
{
    int answer = 0;
    switch (sync_after) {
    case SYNC_NONE: return;
    case SYNC_FSYNC: answer = fsync(worker->descriptor); break;
    case SYNC_FDATASYNC: answer = fdatasync(worker->descriptor); break;
    case SYNC_MS_ASYNC:
    case SYNC_MS_SYNC: {
        uint64_t first = offset & ~(uint64_t)4095;
        answer = msync(worker->map + first, record_bytes + (offset - first),
                       sync_after == SYNC_MS_SYNC ? MS_SYNC : MS_ASYNC);
        break;
    }
    }
    if (answer)
        fail("sync %s", worker->path);
}

/* Returns when the sync of the record began, where one is timed; otherwise 0. */
static inline uint64_t operate(struct worker *worker, uint64_t record)
{
    uint64_t offset = record * record_bytes;
    if (reads(record)) {
        if (worker->map) {
            memcpy(worker->buffer, worker->map + offset, record_bytes);
            __asm__ volatile("" : : "r"(worker->buffer) : "memory");
        } else if (pread(worker->descriptor, worker->buffer, record_bytes, (off_t)offset) != (ssize_t)record_bytes)
            fail("read %s", worker->path);
        return 0;
    }
    if (worker->map)
        memcpy(worker->map + offset, worker->buffer, record_bytes);
    else if (pwrite(worker->descriptor, worker->buffer, record_bytes, (off_t)offset) != (ssize_t)record_bytes)
        fail("write %s", worker->path);
    uint64_t written = with_histogram && sync_after != SYNC_NONE ? now_ns() : 0;
    sync_record(worker, offset);
    return written;
}

static void run_calls(struct worker *worker, uint64_t records)
{
    if (with_histogram) {
        uint64_t start = now_ns();
        for (uint64_t i = 0; i < records; i++) {
            uint64_t written = operate(worker, worker->order ? worker->order[i] : i), end = now_ns();
            count_latency(worker, worker->histogram, (written ? written : end) - start);
            if (written)
                count_latency(worker, worker->sync_histogram, end - written);
            start = end;
        }
        return;
    }
    for (uint64_t i = 0; i < records; i++)
        operate(worker, worker->order ? worker->order[i] : i);
}

/* A ring without a library: `depth` operations are kept in flight, each finished one is replaced at once. */
static void run_ring(struct worker *worker, uint64_t records)
{
    struct io_uring_params parameters = {
        .flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_DEFER_TASKRUN,
    };
    int ring = (int)syscall(__NR_io_uring_setup, depth, &parameters);
    if (ring < 0 && errno == EINVAL) {
        parameters = (struct io_uring_params){0};
        ring = (int)syscall(__NR_io_uring_setup, depth, &parameters);
    }
    if (ring < 0)
        fail("io_uring_setup");
    size_t submit_bytes = parameters.sq_off.array + parameters.sq_entries * sizeof(uint32_t);
    size_t complete_bytes = parameters.cq_off.cqes + parameters.cq_entries * sizeof(struct io_uring_cqe);
    size_t ring_bytes = submit_bytes > complete_bytes ? submit_bytes : complete_bytes;
    char *rings = mmap(NULL, ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
    struct io_uring_sqe *entries = mmap(NULL, parameters.sq_entries * sizeof *entries, PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQES);
    if (rings == MAP_FAILED || entries == MAP_FAILED || !(parameters.features & IORING_FEAT_SINGLE_MMAP))
        fail("mmap of the ring");
    uint32_t *tail = (uint32_t *)(rings + parameters.sq_off.tail), *array = (uint32_t *)(rings + parameters.sq_off.array);
    uint32_t submit_mask = *(uint32_t *)(rings + parameters.sq_off.ring_mask);
    uint32_t *done_head = (uint32_t *)(rings + parameters.cq_off.head);
    uint32_t *done_tail = (uint32_t *)(rings + parameters.cq_off.tail);
    uint32_t done_mask = *(uint32_t *)(rings + parameters.cq_off.ring_mask);
    struct io_uring_cqe *done = (struct io_uring_cqe *)(rings + parameters.cq_off.cqes);
    /* As a benchmark does that knows its file and its memory: the kernel then looks neither up each time. */
    struct iovec memory = {worker->buffer, record_bytes * depth};
    if (syscall(__NR_io_uring_register, ring, IORING_REGISTER_FILES, &worker->descriptor, 1) ||
        syscall(__NR_io_uring_register, ring, IORING_REGISTER_BUFFERS, &memory, 1))
        fail("io_uring_register");
    uint64_t *started = calloc(depth, sizeof *started), next = 0, finished = 0;
    unsigned *free_slots = malloc(depth * sizeof *free_slots), free_count = 0;
    for (unsigned slot = 0; slot < depth; slot++)
        free_slots[free_count++] = slot;
    while (finished < records) {
        unsigned queued = 0;
        uint32_t end = *tail;
        while (free_count > 0 && next < records) {
            unsigned slot = free_slots[--free_count];
            uint64_t record = worker->order ? worker->order[next] : next;
            struct io_uring_sqe *entry = &entries[end & submit_mask];
            memset(entry, 0, sizeof *entry);
            entry->opcode = reads(record) ? IORING_OP_READ_FIXED : IORING_OP_WRITE_FIXED;
            entry->flags = IOSQE_FIXED_FILE;
            entry->addr = (uint64_t)(uintptr_t)(worker->buffer + (uint64_t)slot * record_bytes);
            entry->len = (uint32_t)record_bytes;
            entry->off = record * record_bytes;
            entry->user_data = slot;
            array[end & submit_mask] = end & submit_mask;
            if (with_histogram)
                started[slot] = now_ns();
            end++;
            next++;
            queued++;
        }
        __atomic_store_n(tail, end, __ATOMIC_RELEASE);
        int taken = (int)syscall(__NR_io_uring_enter, ring, queued, 1, IORING_ENTER_GETEVENTS, NULL, 0);
        if (taken < 0 || (unsigned)taken != queued)
            fail("io_uring_enter");
        uint32_t head = *done_head, last = __atomic_load_n(done_tail, __ATOMIC_ACQUIRE);
        for (; head != last; head++, finished++) {
            struct io_uring_cqe *answer = &done[head & done_mask];
            if (answer->res != (int)record_bytes) {
                errno = answer->res < 0 ? -answer->res : EIO;
                fail("operation on %s", worker->path);
            }
            if (with_histogram)
                count_latency(worker, worker->histogram, now_ns() - started[answer->user_data]);
            free_slots[free_count++] = (unsigned)answer->user_data;
        }
        __atomic_store_n(done_head, head, __ATOMIC_RELEASE);
    }
    close(ring);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    uint64_t records = worker->records;
    if (threads > 1) {
        if (unshare(CLONE_FILES))
            fail("unshare");
        pthread_barrier_wait(&start_line);
    }
    uint64_t cpu_ns = time_of(CLOCK_THREAD_CPUTIME_ID);
    worker->began_ns = now_ns();
    if (engine == ENGINE_URING)
        run_ring(worker, records);
    else
        run_calls(worker, records);
    if (final_sync && read_percent < 100) {
        if (worker->map && msync(worker->map, file_bytes, MS_SYNC))
            fail("msync %s", worker->path);
        if (!worker->map && fsync(worker->descriptor))
            fail("fsync %s", worker->path);
    }
    worker->ended_ns = now_ns();
    worker->cpu_ns = time_of(CLOCK_THREAD_CPUTIME_ID) - cpu_ns;
    return NULL;
}

static void set_mode(const char *mode)
{
    if (!strcmp(mode, "sync")) open_flags = O_SYNC;
    else if (!strcmp(mode, "dsync")) open_flags = O_DSYNC;
    else if (!strcmp(mode, "direct")) open_flags = O_DIRECT;
    else if (!strcmp(mode, "direct-sync")) open_flags = O_DIRECT | O_SYNC;
    else if (!strcmp(mode, "fsync")) sync_after = SYNC_FSYNC;
    else if (!strcmp(mode, "fdatasync")) sync_after = SYNC_FDATASYNC;
    else if (!strcmp(mode, "mmap")) engine = ENGINE_MMAP;
    else if (!strcmp(mode, "mmap-async")) engine = ENGINE_MMAP, sync_after = SYNC_MS_ASYNC;
    else if (!strcmp(mode, "mmap-sync")) engine = ENGINE_MMAP, sync_after = SYNC_MS_SYNC;
    else if (strcmp(mode, "buffered")) {
        errno = EINVAL;
        fail("--mode %s", mode);
    }
}

static void parse(int count, char **words)
{
    for (int i = 1; i < count; i++) {
        const char *word = words[i], *value = i + 1 < count ? words[i + 1] : "";
        if (!strcmp(word, "--random")) is_random = 1;
        else if (!strcmp(word, "--new")) is_new_file = 1;
        else if (!strcmp(word, "--final-sync")) final_sync = 1;
        else if (!strcmp(word, "--cold")) is_cold = 1;
        else if (!strcmp(word, "--warm")) is_warm = 1;
        else if (!strcmp(word, "--histogram")) with_histogram = 1;
        else if (!strcmp(word, "--prefault")) prefault = 1;
        else if (i++, !strcmp(word, "--directory")) directory = value;
        else if (!strcmp(word, "--offsets")) offsets_path = value;
        else if (!strcmp(word, "--record")) record_bytes = strtoull(value, NULL, 10);
        else if (!strcmp(word, "--size")) file_bytes = strtoull(value, NULL, 10);
        else if (!strcmp(word, "--threads")) threads = (unsigned)strtoul(value, NULL, 10);
        else if (!strcmp(word, "--read-percent")) read_percent = (unsigned)strtoul(value, NULL, 10);
        else if (!strcmp(word, "--uring")) engine = ENGINE_URING, depth = (unsigned)strtoul(value, NULL, 10);
        else if (!strcmp(word, "--mode")) set_mode(value);
        else {
            errno = EINVAL;
            fail("%s", word);
        }
    }
    if (!record_bytes || !file_bytes || file_bytes % record_bytes || !threads || threads > 1024 || !depth ||
        (offsets_path && threads > 1)) {
        errno = EINVAL;
        fail("sizes");
    }
}

int main(int count, char **words)
{
    uint64_t began = UINT64_MAX, ended = 0, longest = 0, latencies = 0, operations = 0, cpu = 0;
    parse(count, words);
    struct worker *workers = calloc(threads, sizeof *workers);
    pthread_barrier_init(&start_line, NULL, threads + 1);
    for (unsigned i = 0; i < threads; i++) {
        workers[i].number = i;
        snprintf(workers[i].path, sizeof workers[i].path, "%s/file-loop-%d-%u", directory, getpid(), i);
        prepare(&workers[i]);
    }
    if (is_cold)
        drop_caches();
    for (unsigned i = 0; i < threads; i++) {
        if (prefault && workers[i].map)
            touch_pages(&workers[i]);
        if (threads > 1 && pthread_create(&workers[i].thread, NULL, work, &workers[i]))
            fail("pthread_create");
    }
    if (threads > 1)
        pthread_barrier_wait(&start_line);
    else
        work(&workers[0]);
    for (unsigned i = 0; i < threads; i++) {
        if (threads > 1)
            pthread_join(workers[i].thread, NULL);
        operations += workers[i].records;
        cpu += workers[i].cpu_ns;
        if (workers[i].began_ns < began) began = workers[i].began_ns;
        if (workers[i].ended_ns > ended) ended = workers[i].ended_ns;
        if (workers[i].ended_ns - workers[i].began_ns > longest) longest = workers[i].ended_ns - workers[i].began_ns;
        for (unsigned bucket = 0; bucket < sizeof workers[i].histogram / sizeof *workers[i].histogram; bucket++)
            latencies += workers[i].histogram[bucket];
    }
    for (unsigned i = 0; i < threads; i++)
        unlink(workers[i].path);
    printf("{\"operations\":%llu,\"elapsed_ns\":%llu,\"longest_ns\":%llu,\"latencies\":%llu,\"cpu_ns\":%llu}\n",
           (unsigned long long)operations, (unsigned long long)(ended - began), (unsigned long long)longest,
           (unsigned long long)latencies, (unsigned long long)cpu);
    return 0;
}
