/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * What is no request: life of files, fsync, the journal's transactions, counts of system calls.
 */
#ifndef TIDEGATE_EVENTS_H
#define TIDEGATE_EVENTS_H

/* `number`: the inode's own, which a new one may not have got from its file system yet. `entry`: the name that the event is
 * of, or 0 for any that the inode has. */
static __always_inline void tell_of(u32 event, struct inode *inode, u64 number, u64 entry, u64 value, u64 time)
{
    struct super_block *super = BPF_CORE_READ(inode, i_sb);
    if (!is_traced_super(super))
        return;
    struct run who = {};
    identify_named(inode, &who, entry);
    struct process_reference process;
    current_process(&process);
    RESERVE(record, event_record, RECORD_EVENT);
    if (!record)
        return;
    record->event = event;
    record->time = time;
    record->inode = number;
    record->dentry = who.dentry;
    record->value = value;
    record->file_system = who.file_system;
    record->generation = who.generation;
    record->detail = 0;
    record->flags = who.flags;
    record->process = process;
    SUBMIT(record);
}

static __always_inline void tell(u32 event, struct inode *inode, u64 value, u64 time)
{
    tell_of(event, inode, BPF_CORE_READ(inode, i_ino), 0, value, time);
}

static __always_inline void tell_deleted(struct inode *inode)
{
    if (BPF_CORE_READ(inode, i_nlink) == 0)
        tell(EVENT_DELETE, inode, BPF_CORE_READ(inode, i_size), bpf_ktime_get_ns());
}

SEC("tp_btf/ext4_evict_inode")
int BPF_PROG(ext4_delete, struct inode *inode)
{
    tell_deleted(inode);
    return 0;
}

SEC("tp_btf/f2fs_evict_inode")
int BPF_PROG(f2fs_delete, struct inode *inode)
{
    tell_deleted(inode);
    return 0;
}

SEC("tp_btf/btrfs_inode_evict")
int BPF_PROG(btrfs_delete, struct inode *inode)
{
    tell_deleted(inode);
    return 0;
}

SEC("tp_btf/xfs_destroy_inode")
int BPF_PROG(xfs_delete, struct xfs_inode *own)
{
    if (bpf_core_type_exists(struct xfs_inode))
        tell_deleted((void *)own + bpf_core_field_offset(struct xfs_inode, i_vnode));
    return 0;
}

SEC("tp_btf/ext4_allocate_inode")
int BPF_PROG(ext4_create, struct inode *inode, struct inode *directory, int mode)
{
    tell(EVENT_CREATE, inode, 0, bpf_ktime_get_ns());
    return 0;
}

SEC("tp_btf/f2fs_new_inode")
int BPF_PROG(f2fs_create, struct inode *inode, int result)
{
    if (!result)
        tell(EVENT_CREATE, inode, 0, bpf_ktime_get_ns());
    return 0;
}

SEC("tp_btf/btrfs_inode_new")
int BPF_PROG(btrfs_create, struct inode *inode)
{
    tell(EVENT_CREATE, inode, 0, bpf_ktime_get_ns());
    return 0;
}

/* XFS tells of a new inode only by taking it from its memory or making one there, before it has a mode; a free inode is
 * read for no other purpose. The generation is in it by then. */
static __always_inline void tell_xfs_created(struct xfs_inode *own)
{
    if (!bpf_core_type_exists(struct xfs_inode))
        return;
    struct inode *inode = (void *)own + bpf_core_field_offset(struct xfs_inode, i_vnode);
    if (BPF_CORE_READ(inode, i_mode) == 0)
        tell_of(EVENT_CREATE, inode, BPF_CORE_READ(own, i_ino), 0, 0, bpf_ktime_get_ns());
}

SEC("tp_btf/xfs_iget_miss")
int BPF_PROG(xfs_create, struct xfs_inode *own)
{
    tell_xfs_created(own);
    return 0;
}

SEC("tp_btf/xfs_iget_recycle")
int BPF_PROG(xfs_create_again, struct xfs_inode *own)
{
    tell_xfs_created(own);
    return 0;
}

SEC("tp_btf/ext4_unlink_exit")
int BPF_PROG(ext4_unlink, struct dentry *entry, int result)
{
    struct inode *inode = BPF_CORE_READ(entry, d_inode);
    if (!result && inode)
        tell_of(EVENT_UNLINK, inode, BPF_CORE_READ(inode, i_ino), as_number(entry), BPF_CORE_READ(inode, i_nlink),
                bpf_ktime_get_ns());
    return 0;
}

/* A thread's unlink under way on f2fs: the entry that goes. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 4096);
    __type(key, u32);
    __type(value, u64);
} pending_unlinks SEC(".maps");

SEC("tp_btf/f2fs_unlink_enter")
int BPF_PROG(f2fs_unlink_start, struct inode *directory, struct dentry *entry)
{
    u32 tid = bpf_get_current_pid_tgid();
    u64 address = as_number(entry);
    if (is_traced_super(BPF_CORE_READ(directory, i_sb)))
        bpf_map_update_elem(&pending_unlinks, &tid, &address, BPF_ANY);
    return 0;
}

SEC("tp_btf/f2fs_unlink_exit")
int BPF_PROG(f2fs_unlink, struct inode *inode, int result)
{
    u32 tid = bpf_get_current_pid_tgid();
    u64 *entry = bpf_map_lookup_elem(&pending_unlinks, &tid);
    if (!result && inode)
        tell_of(EVENT_UNLINK, inode, BPF_CORE_READ(inode, i_ino), entry ? *entry : 0, BPF_CORE_READ(inode, i_nlink),
                bpf_ktime_get_ns());
    bpf_map_delete_elem(&pending_unlinks, &tid);
    return 0;
}

/* The last name of an inode goes, also by a rename over it. One that never had a name (O_TMPFILE) goes this way too. */
SEC("tp_btf/xfs_iunlink")
int BPF_PROG(xfs_unlink, struct xfs_inode *own)
{
    if (!bpf_core_type_exists(struct xfs_inode))
        return 0;
    struct inode *inode = (void *)own + bpf_core_field_offset(struct xfs_inode, i_vnode);
    u64 entry = first_entry(inode);
    if (entry && (BPF_CORE_READ(inode, i_mode) & FORMAT_BITS) != FORMAT_DIRECTORY)
        tell_of(EVENT_UNLINK, inode, BPF_CORE_READ(inode, i_ino), entry, 0, bpf_ktime_get_ns());
    return 0;
}

/* A thread's fsync under way. */
struct pending_sync {
    u64 inode;
    u64 entry;
    u64 start;
    u32 event;
    u32 reserved;
};

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 4096);
    __type(key, u32);
    __type(value, struct pending_sync);
} pending_syncs SEC(".maps");

/* The name that an event of the running thread's call is of, if the inode has several. */
static __always_inline u64 used_entry(struct inode *inode)
{
    return BPF_CORE_READ(inode, i_nlink) > 1 ? called_entry((u64)inode) : 0;
}

static __always_inline void sync_starts(struct inode *inode, u64 entry, bool data_only)
{
    if (!is_traced_super(BPF_CORE_READ(inode, i_sb)))
        return;
    u32 tid = bpf_get_current_pid_tgid();
    struct pending_sync pending = {
        .inode = (u64)inode,
        .entry = entry,
        .start = bpf_ktime_get_ns(),
        .event = data_only ? EVENT_FDATASYNC : EVENT_FSYNC,
    };
    bpf_map_update_elem(&pending_syncs, &tid, &pending, BPF_ANY);
}

static __always_inline void sync_ends(void)
{
    u32 tid = bpf_get_current_pid_tgid();
    struct pending_sync *pending = bpf_map_lookup_elem(&pending_syncs, &tid);
    if (!pending)
        return;
    struct inode *inode = (void *)pending->inode;
    tell_of(pending->event, inode, BPF_CORE_READ(inode, i_ino), pending->entry, bpf_ktime_get_ns() - pending->start,
            pending->start);
    bpf_map_delete_elem(&pending_syncs, &tid);
}

SEC("tp_btf/ext4_sync_file_enter")
int BPF_PROG(ext4_sync_start, struct file *file, int data_only)
{
    sync_starts(BPF_CORE_READ(file, f_inode), (u64)BPF_CORE_READ(file, f_path.dentry), data_only);
    return 0;
}

SEC("tp_btf/ext4_sync_file_exit")
int BPF_PROG(ext4_sync_end, struct inode *inode, int result)
{
    sync_ends();
    return 0;
}

SEC("tp_btf/f2fs_sync_file_enter")
int BPF_PROG(f2fs_sync_start, struct inode *inode)
{
    sync_starts(inode, used_entry(inode), false);
    return 0;
}

SEC("tp_btf/f2fs_sync_file_exit")
int BPF_PROG(f2fs_sync_end, struct inode *inode)
{
    sync_ends();
    return 0;
}

/* XFS and btrfs tell the start alone: the end is not known, and the value stays 0. */
SEC("tp_btf/xfs_file_fsync")
int BPF_PROG(xfs_sync, struct xfs_inode *own)
{
    if (!bpf_core_type_exists(struct xfs_inode))
        return 0;
    struct inode *inode = (void *)own + bpf_core_field_offset(struct xfs_inode, i_vnode);
    tell_of(EVENT_FSYNC, inode, BPF_CORE_READ(inode, i_ino), used_entry(inode), 0, bpf_ktime_get_ns());
    return 0;
}

SEC("tp_btf/btrfs_sync_file")
int BPF_PROG(btrfs_sync, struct file *file, int data_only)
{
    struct inode *inode = BPF_CORE_READ(file, f_inode);
    tell_of(data_only ? EVENT_FDATASYNC : EVENT_FSYNC, inode, BPF_CORE_READ(inode, i_ino),
            (u64)BPF_CORE_READ(file, f_path.dentry), 0, bpf_ktime_get_ns());
    return 0;
}

static __always_inline void tell_journal(u32 event, u32 file_system, u32 transaction, u32 detail)
{
    struct process_reference process;
    current_process(&process);
    RESERVE(record, event_record, RECORD_EVENT);
    if (!record)
        return;
    record->event = event;
    record->time = bpf_ktime_get_ns();
    record->inode = 0;
    record->dentry = 0;
    record->value = transaction;
    record->file_system = file_system;
    record->generation = 0;
    record->detail = detail;
    record->flags = 0;
    record->process = process;
    SUBMIT(record);
}

struct contribution {
    u32 device;
    u32 transaction;
    u32 tid;
    u32 type;
};

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 16384);
    __type(key, struct contribution);
    __type(value, u8);
} contributions SEC(".maps");

/* Devices of jbd2's file systems that are traced, as jbd2 names them. */
static __always_inline void contributes(u32 device, u32 transaction, u32 type)
{
    /* Partitions have numbers of their own; which are on traced disks is told by jbd2_start_commit. */
    u64 key = device;
    u8 *known = bpf_map_lookup_elem(&file_systems, &key);
    if (traced(device) < 0 && !known)
        return;
    struct contribution contribution = {
        .device = device,
        .transaction = transaction,
        .tid = (u32)bpf_get_current_pid_tgid(),
        .type = type,
    };
    if (bpf_map_lookup_elem(&contributions, &contribution))
        return;
    u8 yes = 1;
    bpf_map_update_elem(&contributions, &contribution, &yes, BPF_ANY);
    tell_journal(EVENT_CONTRIBUTION, device, transaction, type);
}

SEC("tp_btf/jbd2_handle_start")
int BPF_PROG(handle_start, u32 device, u32 transaction, u32 type)
{
    contributes(device, transaction, type);
    return 0;
}

/* A long operation goes on in the next transaction. */
SEC("tp_btf/jbd2_handle_restart")
int BPF_PROG(handle_restart, u32 device, u32 transaction, u32 type)
{
    contributes(device, transaction, type);
    return 0;
}

SEC("tp_btf/jbd2_start_commit")
int BPF_PROG(commit_start, struct journal_s *journal, struct transaction_s *transaction)
{
    struct block_device *device = BPF_CORE_READ(journal, j_fs_dev);
    struct gendisk *disk = BPF_CORE_READ(device, bd_disk);
    u32 number = (u32)BPF_CORE_READ(disk, major) << 20 | (u32)BPF_CORE_READ(disk, first_minor);
    if (traced(number) < 0)
        return 0;
    u64 own_number = BPF_CORE_READ(device, bd_dev);
    u8 yes = 1;
    bpf_map_update_elem(&file_systems, &own_number, &yes, BPF_ANY);
    u32 tid = bpf_get_current_pid_tgid();
    u32 number_of_transaction = BPF_CORE_READ(transaction, t_tid);
    bpf_map_update_elem(&committing, &tid, &number_of_transaction, BPF_ANY);
    return 0;
}

SEC("tp_btf/jbd2_end_commit")
int BPF_PROG(commit_end, struct journal_s *journal, struct transaction_s *transaction)
{
    u32 tid = bpf_get_current_pid_tgid();
    if (!bpf_map_lookup_elem(&committing, &tid))
        return 0;
    struct block_device *device = BPF_CORE_READ(journal, j_fs_dev);
    tell_journal(EVENT_COMMIT, BPF_CORE_READ(device, bd_dev), BPF_CORE_READ(transaction, t_tid), 0);
    bpf_map_delete_elem(&committing, &tid);
    return 0;
}

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 16384);
    __type(key, struct call_key);
    __type(value, u64);
} calls SEC(".maps");

SEC("tp_btf/sys_enter")
int BPF_PROG(call, void *registers, long number)
{
    if (number < 0 || number >= MAX_CALLS || !config.counted_calls[number & (MAX_CALLS - 1)])
        return 0;
    struct call_key key = {};
    struct process_reference process;
    current_process(&process);
    if (process.tgid == config.own_tgid)
        return 0;
    key.tgid = process.tgid;
    key.call = number;
    key.name = process.name;
    u64 *count = bpf_map_lookup_elem(&calls, &key);
    if (count) {
        __sync_fetch_and_add(count, 1);
        return 0;
    }
    u64 one = 1;
    bpf_map_update_elem(&calls, &key, &one, BPF_ANY);
    return 0;
}

#endif
