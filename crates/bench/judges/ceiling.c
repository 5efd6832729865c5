/* The plain loop that `tidegate bench file` is measured against: pread or pwrite at given offsets, and nothing else.
 *
 *     cc -O2 -Wall -Wextra -o ceiling ceiling.c
 *     tidegate bench file DIR --pattern random-read --record 4k --size 512m --print-offsets > offsets
 *     ./ceiling read FILE 4096 < offsets
 *
 * FILE must be as long as the largest offset and one record. Offsets are decimal numbers, one on each line. The memory
 * that is read into or written from is one record, aligned to a page. One line of JSON says how many operations were
 * done in how many nanoseconds of the monotonic clock, and of the processor; reading the offsets, open and close are not part of them.
 * With `mmap-read` and `mmap-write` the file is mapped and its pages are made present before; the loop copies memory.
 * Exit codes: 0 done, 2 could not do it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static void fail(const char *what, const char *name)
{
    fprintf(stderr, "ceiling: %s of %s failed: %s\n", what, name, strerror(errno));
    exit(2);
}

static uint64_t now_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t *read_offsets(size_t *count)
{
    size_t room = 1 << 16, used = 0;
    uint64_t *offsets = malloc(room * sizeof *offsets), offset;

    while (offsets && scanf("%" SCNu64, &offset) == 1) {
        if (used == room) {
            room *= 2;
            offsets = realloc(offsets, room * sizeof *offsets);
            if (!offsets)
                break;
        }
        offsets[used++] = offset;
    }
    if (!offsets)
        fail("malloc", "the offsets");
    *count = used;
    return offsets;
}

static void *map_whole(int file, const char *name, size_t *length)
{
    struct stat status;
    void *memory;

    if (fstat(file, &status) < 0)
        fail("fstat", name);
    *length = (size_t)status.st_size;
    memory = mmap(NULL, *length, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED)
        fail("mmap", name);
    if (madvise(memory, *length, MADV_POPULATE_WRITE) < 0)
        fail("madvise", name);
    return memory;
}

int main(int argc, char **argv)
{
    size_t count = 0, record, place, length = 0;
    int file, writes, maps;
    uint64_t *offsets, began, ended, cpu;
    char *memory, *mapped = NULL;

    if (argc != 4) {
        fprintf(stderr, "usage: ceiling read|write|mmap-read|mmap-write FILE RECORD_BYTES < OFFSETS\n");
        return 2;
    }
    maps = strncmp(argv[1], "mmap-", 5) == 0;
    writes = strcmp(argv[1] + (maps ? 5 : 0), "write") == 0;
    record = strtoull(argv[3], NULL, 10);
    if (record == 0 || (!writes && strcmp(argv[1] + (maps ? 5 : 0), "read") != 0)) {
        fprintf(stderr, "ceiling: %s records of %s bytes can't be done\n", argv[1], argv[3]);
        return 2;
    }
    offsets = read_offsets(&count);
    memory = aligned_alloc(4096, (record + 4095) / 4096 * 4096);
    if (!memory)
        fail("malloc", "the record");
    memset(memory, 0xfe, record);
    file = open(argv[2], O_RDWR);
    if (file < 0)
        fail("open", argv[2]);
    if (maps)
        mapped = map_whole(file, argv[2], &length);

    cpu = now_ns(CLOCK_THREAD_CPUTIME_ID);
    began = now_ns(CLOCK_MONOTONIC);
    for (place = 0; place < count; place++) {
        off_t offset = (off_t)offsets[place];

        if (maps && writes) {
            memcpy(mapped + offset, memory, record);
        } else if (maps) {
            memcpy(memory, mapped + offset, record);
            /* Keeps the copy from being left out. */
            __asm__ volatile("" : : "r"(memory) : "memory");
        } else if (writes) {
            if (pwrite(file, memory, record, offset) != (ssize_t)record)
                fail("pwrite", argv[2]);
        } else if (pread(file, memory, record, offset) != (ssize_t)record) {
            fail("pread", argv[2]);
        }
    }
    ended = now_ns(CLOCK_MONOTONIC);
    cpu = now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;

    printf("{\"operations_count\":%zu,\"elapsed_ns\":%" PRIu64 ",\"cpu_ns\":%" PRIu64 ",\"operations_per_s\":%.1f}\n", count,
           ended - began, cpu, (double)count * 1e9 / (double)(ended - began));
    if (mapped)
        munmap(mapped, length);
    free(offsets);
    free(memory);
    return close(file) < 0 ? 2 : 0;
}
