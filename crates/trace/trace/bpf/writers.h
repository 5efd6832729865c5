/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * Who makes pages dirty: by write calls where the file system has a tracepoint for them, else by the page cache's own.
 * ext4 and f2fs tell of each copied part, XFS of a whole call before it copies, btrfs of each range that waits for its
 * place on the medium, also if it waited already.
 *
 * A large folio is made dirty once, however many processes write to it; so what counts is the range of each call. A
 * range that the same thread of the same program told of just before, by the same name of the file, is not sent again.
 */
#ifndef TIDEGATE_WRITERS_H
#define TIDEGATE_WRITERS_H

#define TELL_AGAIN_NS 1000000000ULL

/* Largest block of btrfs. */
#define MAX_BLOCK_BYTES (64 << 10)

/* Flag of a call: it fails where it would have to wait. */
#define CALL_NOWAIT 0x8

static __always_inline void tell_writer(struct inode *inode, u64 position, u64 bytes, u8 by)
{
    u64 key = (u64)inode;
    u64 now = bpf_ktime_get_ns();
    u64 comm[2];
    /* Which of several names is told by the call; the only name needs no asking. */
    bool has_several = BPF_CORE_READ(inode, i_nlink) > 1;
    struct last_write range = {
        .first = position >> PAGE_SHIFT,
        .last = (position + (bytes ? bytes - 1 : 0)) >> PAGE_SHIFT,
        .time = now,
        .thread = bpf_get_current_pid_tgid(),
        .name = current_name(comm),
        .entry = has_several ? called_entry(key) : 0,
        .number = BPF_CORE_READ(inode, i_ino),
        .generation = BPF_CORE_READ(inode, i_generation),
        .by = by == BY_CALL_TO_COME ? BY_CALL : by,
    };
    struct last_write *before = bpf_map_lookup_elem(&last_writes, &key);
    if (before && before->thread == range.thread && before->name == range.name && before->entry == range.entry &&
        before->number == range.number && before->generation == range.generation && before->first <= range.first &&
        before->last >= range.last && before->by <= range.by && now - before->time < TELL_AGAIN_NS)
        return;
    struct run who = {};
    identify(inode, &who);
    u64 entry = has_several ? range.entry : first_entry(inode);
    struct process_reference process;
    current_process(&process);
    RESERVE(record, writer_record, RECORD_WRITER);
    if (!record)
        return;
    record->file_system = who.file_system;
    record->time = now;
    record->inode = who.inode;
    record->position = position;
    record->bytes = bytes;
    record->generation = who.generation;
    record->by_kernel = current_is_kernel();
    record->by = by;
    record->mappings = mappings_of(inode);
    record->dentry = entry;
    record->process = process;
    SUBMIT(record);
    bpf_map_update_elem(&last_writes, &key, &range, BPF_ANY);
}

static __always_inline void write_call(struct inode *inode, u64 position, u64 bytes, u8 by)
{
    if (bytes && is_traced_super(BPF_CORE_READ(inode, i_sb)))
        tell_writer(inode, position, bytes, by);
}

/* The folio is locked and not dirty yet by this call. */
SEC("tp_btf/ext4_write_end")
int BPF_PROG(ext4_write, struct inode *inode, s64 position, u32 bytes, u32 copied)
{
    write_call(inode, position, copied, BY_CALL);
    return 0;
}

SEC("tp_btf/ext4_da_write_end")
int BPF_PROG(ext4_delayed_write, struct inode *inode, s64 position, u32 bytes, u32 copied)
{
    write_call(inode, position, copied, BY_CALL);
    return 0;
}

SEC("tp_btf/ext4_journalled_write_end")
int BPF_PROG(ext4_journalled_write, struct inode *inode, s64 position, u32 bytes, u32 copied)
{
    write_call(inode, position, copied, BY_CALL);
    return 0;
}

SEC("tp_btf/f2fs_write_end")
int BPF_PROG(f2fs_write, struct inode *inode, s64 position, u32 bytes, u32 copied)
{
    write_call(inode, position, copied, BY_CALL);
    return 0;
}

SEC("tp_btf/xfs_file_buffered_write")
int BPF_PROG(xfs_write, struct kiocb *control, struct iov_iter *data)
{
    struct inode *inode = BPF_CORE_READ(control, ki_filp, f_inode);
    u8 by = BPF_CORE_READ(control, ki_flags) & CALL_NOWAIT ? BY_CALL_PERHAPS : BY_CALL_TO_COME;
    write_call(inode, BPF_CORE_READ(control, ki_pos), BPF_CORE_READ(data, count), by);
    return 0;
}

/* Only trees that lie in an inode know of data that waits. A call that writes to the file has copied it just before; but the
 * block in which the file ends may only be made longer, by zeros, for a write behind it. In other calls it is a fault of
 * memory, a truncation, or io_uring. */
SEC("tp_btf/btrfs_set_extent_bit")
int BPF_PROG(btrfs_write, struct extent_io_tree *tree, u64 position, u64 bytes, u32 bits)
{
    if (!(bits & config.btrfs_waits) || !bpf_core_field_exists(struct btrfs_inode, io_tree))
        return 0;
    u64 own = as_number(tree) - bpf_core_field_offset(struct btrfs_inode, io_tree);
    struct inode *inode = (void *)(own + bpf_core_field_offset(struct btrfs_inode, vfs_inode));
    u64 size = BPF_CORE_READ(inode, i_size);
    bool may_grow = bytes <= MAX_BLOCK_BYTES && position < size && size < position + bytes;
    u8 by = !is_in_call() ? BY_STORE : is_written_by_call((u64)inode) && !may_grow ? BY_CALL : BY_CALL_PERHAPS;
    write_call(inode, position, bytes, by);
    return 0;
}

static __always_inline void dirty(struct folio *folio, struct address_space *mapping)
{
    if (!mapping)
        return;
    struct inode *inode = BPF_CORE_READ(mapping, host);
    if (!inode || (BPF_CORE_READ(inode, i_mode) & FORMAT_BITS) == FORMAT_BLOCK_DEVICE)
        return;
    if (!is_traced_super(BPF_CORE_READ(inode, i_sb)))
        return;
    u64 head = (u64)folio;
    tell_writer(inode, (u64)BPF_CORE_READ(folio, index) << PAGE_SHIFT, pages_of(folio, head) << PAGE_SHIFT,
                is_in_call() ? IN_CALL : BY_STORE);
}

SEC("tp_btf/writeback_dirty_folio")
int BPF_PROG(dirty_folio, struct folio *folio, struct address_space *mapping)
{
    dirty(folio, mapping);
    return 0;
}

/* Its name before 5.18. */
SEC("tp_btf/writeback_dirty_page")
int BPF_PROG(dirty_page, struct folio *page, struct address_space *mapping)
{
    dirty(folio_of((u64)page), mapping);
    return 0;
}

#endif
