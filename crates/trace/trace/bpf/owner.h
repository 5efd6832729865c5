/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * Whose data a bio carries. The end_io function decides before any page is looked at: pages of direct I/O are the
 * caller's memory, which may itself be a file's.
 */
#ifndef TIDEGATE_OWNER_H
#define TIDEGATE_OWNER_H

#define PAGE_SHIFT 12
#define PAGE_BYTES (1UL << PAGE_SHIFT)
#define OPERATION_BITS 0xff
#define OPERATION_WRITE 1
/* A file system of this flag lives on a device. Memory of others never is what a bio moves. */
#define FS_REQUIRES_DEV 1
/* Pages of the largest bio there can be: 1 GiB. */
#define MAX_STEPS (1 << 18)

/* Big-endian on the medium. */
#define JOURNAL_MAGIC 0x98393bc0
#define EXTENT_MAGIC 0xf30a
#define XATTR_MAGIC 0xea020000
/* An ext4 directory block ends with an entry of no inode, 12 bytes, no name, and this type. */
#define DIRECTORY_TAIL 0xde00000cULL

/* tids of jbd2's threads -> transaction that they commit. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 1024);
    __type(key, u32);
    __type(value, u32);
} committing SEC(".maps");

/* Kind of an ext4 metadata block by its content. The data of a read is not there yet. */
static __always_inline u8 content_flags(u64 data, u64 bytes)
{
    u32 head[3] = {};
    u64 tail = 0;
    if (bytes < 1024 || bpf_probe_read_kernel(head, sizeof(head), (void *)data))
        return 0;
    if ((head[0] & 0xffff) == EXTENT_MAGIC)
        return RUN_EXTENTS;
    if (head[0] == JOURNAL_MAGIC)
        return RUN_JOURNAL_BLOCK;
    if (head[0] == XATTR_MAGIC)
        return RUN_XATTR;
    /* The first entry of a directory's first block is ".": 12 bytes, name of 1 byte, type 2. */
    if (head[0] && head[1] == 0x0201000c && head[2] == 0x2e)
        return RUN_DIRECTORY;
    bpf_probe_read_kernel(&tail, sizeof(tail), (void *)(data + bytes - 12));
    if (tail == DIRECTORY_TAIL << 32)
        return RUN_DIRECTORY;
    return 0;
}

static __always_inline struct folio *folio_of(u64 page)
{
    u64 head = BPF_CORE_READ((struct page *)page, compound_head);
    return (void *)(head & 1 ? head - 1 : page);
}

static __always_inline u64 flags_of(struct folio *folio)
{
    u64 flags = 0;
    /* The first word of every page; what type it has changed. */
    bpf_probe_read_kernel(&flags, sizeof(flags), folio);
    return flags;
}

#define HAS_FLAG(flags, name) ((flags) >> bpf_core_enum_value(enum pageflags, name) & 1)

static __always_inline u64 pages_of(struct folio *folio, u64 page)
{
    if (!HAS_FLAG(flags_of(folio), PG_head))
        return 1;
    u64 pages = 1;
    if (bpf_core_field_exists(folio->_nr_pages))
        pages = BPF_CORE_READ(folio, _nr_pages);
    else if (bpf_core_field_exists(folio->_folio_nr_pages))
        pages = BPF_CORE_READ(folio, _folio_nr_pages);
    u64 within = (page - (u64)folio) / bpf_core_type_size(struct page);
    return pages > within ? pages : within + 1;
}

/* Where the walk over a bio's pages is. */
struct walk {
    u64 bio;
    u64 vectors;
    u64 mapping;            /* of the run that grows */
    u64 device_holder;
    u32 index;
    u32 done;               /* bytes of this vector */
    u32 position;           /* bytes of the bio */
    u32 remaining;
    u32 writes;
    u32 mark;               /* low half of the bio's time */
    u32 waited_for;         /* its caller waits for it: perhaps direct I/O of the device itself */
    u32 reserved;
    struct run run;
};

static __always_inline void send_run(struct walk *walk)
{
    RESERVE(record, run_record, RECORD_RUN);
    if (!record)
        return;
    record->mark = walk->mark;
    record->bio = walk->bio;
    record->run = walk->run;
    SUBMIT(record);
}

/* Whether a page of this file is in the bio as its caller's memory. A file in memory alone (tmpfs) is never written to a
 * device by its own pages. A bio that its caller waits for fills a page of the cache only by a read, of a page that has no
 * content yet: else it is a device's direct I/O from or to mapped memory. */
static __always_inline bool is_memory(struct walk *walk, struct folio *folio, struct inode *inode)
{
    if (!(BPF_CORE_READ(inode, i_sb, s_type, fs_flags) & FS_REQUIRES_DEV))
        return true;
    return walk->waited_for && (walk->writes || HAS_FLAG(flags_of(folio), PG_uptodate));
}

/* Names the owner of a folio in walk->run. */
static __always_inline void own_folio(struct walk *walk, struct folio *folio, u64 mapping)
{
    struct run *run = &walk->run;
    if (!mapping || mapping & 3) {
        if (HAS_FLAG(flags_of(folio), PG_swapcache))
            run->kind = RUN_SWAP;
        else
            run->kind = walk->device_holder ? RUN_MEMORY : RUN_RAW;
        return;
    }
    struct inode *inode = BPF_CORE_READ((struct address_space *)mapping, host);
    if (!inode) {
        run->kind = RUN_UNKNOWN;
        return;
    }
    if ((BPF_CORE_READ(inode, i_mode) & FORMAT_BITS) == FORMAT_BLOCK_DEVICE) {
        run->kind = walk->device_holder ? RUN_METADATA : RUN_RAW;
        return;
    }
    if (is_memory(walk, folio, inode)) {
        run->kind = HAS_FLAG(flags_of(folio), PG_swapcache) ? RUN_SWAP : walk->device_holder ? RUN_MEMORY : RUN_RAW;
        return;
    }
    run->kind = RUN_PAGES;
    u64 entry = 0;
    if (!walk->writes && BPF_CORE_READ(inode, i_nlink) > 1)
        entry = called_entry((u64)inode);
    identify_named(inode, run, entry);
    if (walk->writes) {
        flag_mappings(inode, run);
        u64 key = (u64)inode;
        bpf_map_delete_elem(&last_writes, &key);
    }
}

/* A bio_vec as it lies in memory; it has not changed since there are bios. */
struct vector {
    u64 page;
    u32 length;
    u32 offset;
};

/* The mapping of the first page of a bio, with the bits that mark anonymous memory. */
static __always_inline u64 first_mapping(struct walk *walk)
{
    struct vector raw;
    u64 place = walk->vectors + (u64)walk->index * sizeof(raw);
    if (bpf_probe_read_kernel(&raw, sizeof(raw), (void *)place))
        return 0;
    u64 offset = (u64)raw.offset + walk->done;
    u64 page = raw.page + (offset >> PAGE_SHIFT) * bpf_core_type_size(struct page);
    return (u64)BPF_CORE_READ(folio_of(page), mapping);
}

/* One step: the part of a vector that lies in one folio. */
static long step(u64 unused, struct walk *walk)
{
    struct vector raw;
    if (!walk->remaining)
        return 1;
    u64 place = walk->vectors + (u64)walk->index * sizeof(raw);
    if (bpf_probe_read_kernel(&raw, sizeof(raw), (void *)place) || raw.length <= walk->done)
        return 1;
    u64 offset = (u64)raw.offset + walk->done;
    u64 page = raw.page + (offset >> PAGE_SHIFT) * bpf_core_type_size(struct page);
    u64 in_page = offset & (PAGE_BYTES - 1);
    struct folio *folio = folio_of(page);
    u64 mapping = (u64)BPF_CORE_READ(folio, mapping);
    struct folio *cached = folio;
    if (!mapping) {
        /* fscrypt writes from a bounce page that points to the page of the cache. */
        u64 behind = (u64)BPF_CORE_READ(folio, private);
        u64 its_mapping = 0;
        if (behind > PAGE_BYTES && !(behind & 7))
            its_mapping = (u64)BPF_CORE_READ((struct folio *)behind, mapping);
        if (its_mapping > PAGE_BYTES && !(its_mapping & 7) &&
            BPF_CORE_READ((struct address_space *)its_mapping, host)) {
            cached = (void *)behind;
            mapping = its_mapping;
        }
    }
    u64 within = (page - (u64)folio) / bpf_core_type_size(struct page);
    u64 bytes = (pages_of(folio, page) - within) * PAGE_BYTES - in_page;
    u64 left = raw.length - walk->done;
    if (bytes > left)
        bytes = left;
    if (bytes > walk->remaining)
        bytes = walk->remaining;
    u64 file_offset = 0;
    if (mapping && !(mapping & 3))
        file_offset = (BPF_CORE_READ(cached, index) + within) * PAGE_BYTES + in_page;

    struct run *run = &walk->run;
    bool first = run->bytes == 0;
    if (!first && mapping == walk->mapping && (run->offset + run->bytes == file_offset || run->kind == RUN_MEMORY)) {
        run->bytes += bytes;
    } else {
        if (!first)
            send_run(walk);
        __builtin_memset(run, 0, sizeof(*run));
        run->start = walk->position;
        run->bytes = bytes;
        run->offset = file_offset;
        walk->mapping = mapping;
        own_folio(walk, cached, mapping);
        if (run->kind == RUN_METADATA && raw.offset + bytes <= PAGE_BYTES)
            run->block_bytes = bytes;
    }
    walk->position += bytes;
    walk->remaining -= bytes;
    walk->done += bytes;
    if (walk->done >= raw.length) {
        walk->done = 0;
        walk->index++;
    }
    return 0;
}

/* One logged block: where its home is, and which file's data it is with data=journal. */
static __always_inline void own_journal(struct run *run, struct buffer_head *logged)
{
    struct buffer_head *home = BPF_CORE_READ(logged, b_private);
    u32 tid = bpf_get_current_pid_tgid();
    u32 *transaction = bpf_map_lookup_elem(&committing, &tid);
    run->transaction = transaction ? *transaction : 0;
    run->file_system = BPF_CORE_READ(logged, b_bdev, bd_dev);
    if (!home) {
        run->kind = RUN_JOURNAL_CONTROL;
        return;
    }
    run->kind = RUN_JOURNAL;
    run->home = BPF_CORE_READ(home, b_blocknr);
    run->block_bytes = BPF_CORE_READ(home, b_size);
    u64 data = (u64)BPF_CORE_READ(home, b_data);
    u64 page = (u64)BPF_CORE_READ(home, b_page);
    if (!page)
        return;
    struct folio *folio = folio_of(page);
    u64 mapping = (u64)BPF_CORE_READ(folio, mapping);
    if (!mapping || mapping & 3)
        return;
    struct inode *inode = BPF_CORE_READ((struct address_space *)mapping, host);
    if (!inode)
        return;
    if ((BPF_CORE_READ(inode, i_mode) & FORMAT_BITS) == FORMAT_BLOCK_DEVICE) {
        run->flags |= content_flags(data, run->block_bytes);
        return;
    }
    /* A folio lies at a multiple of its size. */
    u64 folio_bytes = pages_of(folio, (u64)folio) * PAGE_BYTES;
    run->flags |= RUN_HOME_IS_FILE;
    identify_with_path(inode, run);
    flag_mappings(inode, run);
    run->offset = BPF_CORE_READ(folio, index) * PAGE_BYTES + (data & (folio_bytes - 1));
}

static __always_inline void own_direct(struct run *run, struct file *file, u64 offset)
{
    run->kind = RUN_DIRECT;
    run->offset = offset;
    identify_file(file, run);
}

struct legacy_progress {
    u64 inode;
    u64 start;
    u64 done;
};

/* A legacy direct I/O (struct dio) -> how much of it has been given to the block layer. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 4096);
    __type(key, u64);
    __type(value, struct legacy_progress);
} legacy_directs SEC(".maps");

/* Where in the file the next bio of a legacy direct I/O begins. Its bios come in the order of the file, and none says
 * where it lies. The structure is used again for other calls: as `result` counts what the call has mapped so far, a bio
 * that would reach beyond it is the first of another call. A hole that is read has no bio, so what follows it within the
 * same call is told too low. */
static __always_inline u64 legacy_offset(struct dio *direct, u32 bytes)
{
    u64 key = (u64)direct;
    struct legacy_progress now = {
        .inode = (u64)BPF_CORE_READ(direct, inode),
        .start = BPF_CORE_READ(direct, iocb, ki_pos),
    };
    u64 mapped = BPF_CORE_READ(direct, result);
    struct legacy_progress *before = bpf_map_lookup_elem(&legacy_directs, &key);
    if (before && before->inode == now.inode && before->start == now.start && before->done + bytes <= mapped)
        now.done = before->done;
    u64 offset = now.start + now.done;
    now.done += bytes;
    bpf_map_update_elem(&legacy_directs, &key, &now, BPF_ANY);
    return offset;
}

static __always_inline void own_xfs_buffer(struct run *run, struct xfs_buf *buffer)
{
    run->kind = RUN_XFS_BUFFER;
    if (!bpf_core_type_exists(struct xfs_buf))
        return;
    char name[16] = {};
    const struct xfs_buf_ops *operations = BPF_CORE_READ(buffer, b_ops);
    if (operations)
        bpf_probe_read_kernel_str(name, sizeof(name), BPF_CORE_READ(operations, name));
    __builtin_memcpy(&run->home, name, 8);
    __builtin_memcpy(&run->dentry, name + 8, 8);
}

#endif
