/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * Maps, counters, and what every program needs: the ring, the devices that are traced, processes.
 */
#ifndef TIDEGATE_STATE_H
#define TIDEGATE_STATE_H

#define PF_KTHREAD 0x00200000

/* The verifier checks a global function by itself, not anew with each of its callers. Such functions take numbers; a
 * pointer that the verifier knows is made one by as_number. */
#define CHECKED_ONCE __attribute__((noinline))

static __always_inline u64 as_number(void *pointer)
{
    u64 known = (u64)pointer;
    u64 number = 0;
    bpf_probe_read_kernel(&number, sizeof(number), &known);
    return number;
}

const volatile struct configuration config SEC(".rodata.config") = {};
struct counters counters = {};

/* Its size is set by user space. */
struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 16 << 20);
} ring SEC(".maps");

/* The consumer polls, and is woken only by a ring over half full: waking it costs more than all the rest of a record. */
static __always_inline u64 wakeup(void)
{
    if (bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) <= config.ring_bytes / 2)
        return BPF_RB_NO_WAKEUP;
    counters.half_full++;
    return BPF_RB_FORCE_WAKEUP;
}

static __always_inline void count_lost(void)
{
    __sync_fetch_and_add(&counters.lost, 1);
}

/* Goes before the next record that finds room, as that one may rest on records that were lost. 0: there was no room. */
CHECKED_ONCE int send_lost(void)
{
    u64 lost = counters.lost;
    struct lost_record *record = bpf_ringbuf_reserve(&ring, sizeof(struct lost_record), 0);
    if (!record)
        return 0;
    record->kind = RECORD_LOST;
    record->reserved = 0;
    record->time = bpf_ktime_get_ns();
    record->lost = lost;
    bpf_ringbuf_submit(record, wakeup());
    counters.lost_told = lost;
    return 1;
}

static __always_inline void *reserve(u64 bytes)
{
    if (counters.lost != counters.lost_told && !send_lost())
        return NULL;
    return bpf_ringbuf_reserve(&ring, bytes, 0);
}

#define RESERVE(name, type, kind_word)                                                                                 \
    struct type *name = reserve(sizeof(struct type));                                                                  \
    if (!name)                                                                                                         \
        count_lost();                                                                                                  \
    else                                                                                                               \
        name->kind = (kind_word)

#define SUBMIT(name) bpf_ringbuf_submit((name), wakeup())

static __always_inline u32 disk_number(struct gendisk *disk)
{
    return (u32)disk->major << 20 | (u32)disk->first_minor;
}

/* Place of the device in the configuration, or -1. */
static __always_inline int traced(u32 device)
{
    for (int i = 0; i < MAX_DEVICES; i++) {
        if (i >= config.device_count)
            break;
        if (config.devices[i] == device)
            return i;
    }
    return -1;
}

/* File systems on traced devices: superblocks that were met, and numbers of mounted ones that user space put in, as some
 * (btrfs, partitions) have another number than the disk. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 256);
    __type(key, u64);
    __type(value, u8);
} file_systems SEC(".maps");

static __always_inline bool is_traced_super(struct super_block *super)
{
    u64 key = (u64)super;
    u8 *known = bpf_map_lookup_elem(&file_systems, &key);
    if (known)
        return *known;
    struct block_device *device = BPF_CORE_READ(super, s_bdev);
    if (!device) {
        key = BPF_CORE_READ(super, s_dev);
        return bpf_map_lookup_elem(&file_systems, &key) != NULL;
    }
    struct gendisk *disk = BPF_CORE_READ(device, bd_disk);
    u32 number = (u32)BPF_CORE_READ(disk, major) << 20 | (u32)BPF_CORE_READ(disk, first_minor);
    return traced(number) >= 0;
}

static __always_inline void remember_super(struct super_block *super)
{
    u64 key = (u64)super;
    u8 yes = 1;
    if (!bpf_map_lookup_elem(&file_systems, &key))
        bpf_map_update_elem(&file_systems, &key, &yes, BPF_ANY);
}

struct last_write {
    u64 first;              /* pages */
    u64 last;
    u64 time;
    u64 thread;             /* tgid and tid */
    u64 name;               /* of the process: a program executed in it, or one whose number it took, is another writer */
    u64 entry;              /* written through, of several; else 0 */
    u64 number;             /* of the inode: another one may lie where it lay, on btrfs with the same generation */
    u32 generation;
    u32 by;                 /* enum dirtied_by, the surest first; BY_CALL for calls to come */
};

/* inode -> the dirty range that was sent last; forgotten when the inode is written to the device. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 16384);
    __type(key, u64);
    __type(value, struct last_write);
} last_writes SEC(".maps");

struct process_key {
    u64 name;
    u64 tgid;
};

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 16384);
    __type(key, struct process_key);
    __type(value, u8);
} processes_sent SEC(".maps");

/* The name of who runs: the group leader's, as threads are often named by what they do. Returns its mix. */
static __always_inline u64 current_name(u64 comm[2])
{
    struct task_struct *task = bpf_get_current_task_btf();
    struct task_struct *leader = task->group_leader;
    bpf_probe_read_kernel(comm, 2 * sizeof(*comm), leader->comm);
    return comm[0] * 0x9E3779B97F4A7C15ULL ^ (comm[1] << 7 | comm[1] >> 57);
}

/* Who runs. */
static __always_inline void current_process(struct process_reference *reference)
{
    struct task_struct *task = bpf_get_current_task_btf();
    u64 comm[2];
    reference->name = current_name(comm);
    reference->tgid = task->tgid;
    reference->tid = task->pid;
    struct process_key key = {.name = reference->name, .tgid = reference->tgid};
    if (bpf_map_lookup_elem(&processes_sent, &key))
        return;
    RESERVE(record, process_record, RECORD_PROCESS);
    if (!record)
        return;
    record->tgid = reference->tgid;
    record->name = reference->name;
    __builtin_memcpy(record->comm, comm, sizeof(comm));
    SUBMIT(record);
    u8 yes = 1;
    bpf_map_update_elem(&processes_sent, &key, &yes, BPF_ANY);
}

static __always_inline bool current_is_kernel(void)
{
    return bpf_get_current_task_btf()->flags & PF_KTHREAD;
}

#endif
