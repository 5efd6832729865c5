/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * From an inode to what names it: file system, number, generation, and the chain of its directory entries.
 */
#ifndef TIDEGATE_FILE_H
#define TIDEGATE_FILE_H

#define BTRFS_MAGIC 0x9123683e
#define FORMAT_BITS 0xf000
#define FORMAT_BLOCK_DEVICE 0x6000
#define FORMAT_DIRECTORY 0x4000
/* Deeper paths lose their first components; user space marks them. */
#define MAX_DEPTH 40

struct entry_state {
    u64 parent;
    u64 hash_and_length;
};

/* What user space knows of directory entries: one is sent again when its name or parent changed. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 65536);
    __type(key, u64);
    __type(value, struct entry_state);
} names_sent SEC(".maps");

static __attribute__((noinline)) int send_name(u64 entry, u64 parent, u64 hash_and_length)
{
    struct dentry *dentry = (void *)entry;
    RESERVE(record, name_record, RECORD_NAME);
    if (!record)
        return 0;
    u32 length = hash_and_length >> 32;
    record->dentry = entry;
    record->parent = parent;
    record->bytes = length < NAME_BYTES ? length : NAME_BYTES - 1;
    bpf_probe_read_kernel_str(record->name, NAME_BYTES, BPF_CORE_READ(dentry, d_name.name));
    SUBMIT(record);
    struct entry_state state = {.parent = parent, .hash_and_length = hash_and_length};
    bpf_map_update_elem(&names_sent, &entry, &state, BPF_ANY);
    return 0;
}

/* Sends the names from this entry up to the root that user space does not know. The record goes out before the map says
 * so: another processor that meets the entry meanwhile sends it a second time, but never refers to one not sent. */
static __attribute__((noinline)) int send_path(u64 entry)
{
    for (int depth = 0; depth < MAX_DEPTH && entry; depth++) {
        struct dentry *dentry = (void *)entry;
        u64 parent = (u64)BPF_CORE_READ(dentry, d_parent);
        u64 hash_and_length = BPF_CORE_READ(dentry, d_name.hash_len);
        struct entry_state *known = bpf_map_lookup_elem(&names_sent, &entry);
        if (!known || known->parent != parent || known->hash_and_length != hash_and_length)
            send_name(entry, parent, hash_and_length);
        if (parent == entry)
            break;
        entry = parent;
    }
    return 0;
}

static __always_inline u64 first_entry(struct inode *inode)
{
    struct hlist_node *alias = BPF_CORE_READ(inode, i_dentry.first);
    return alias ? (u64)alias - bpf_core_field_offset(struct dentry, d_u.d_alias) : 0;
}

/* Fills in who the inode is. False: it is on no traced device. */
static __always_inline bool identify(struct inode *inode, struct run *run)
{
    struct super_block *super = BPF_CORE_READ(inode, i_sb);
    run->inode = BPF_CORE_READ(inode, i_ino);
    run->generation = BPF_CORE_READ(inode, i_generation);
    run->mode = BPF_CORE_READ(inode, i_mode);
    run->magic = BPF_CORE_READ(super, s_magic);
    run->file_system = BPF_CORE_READ(super, s_dev);
    if (run->magic == BTRFS_MAGIC && bpf_core_type_exists(struct btrfs_inode)) {
        struct btrfs_inode *own = (void *)inode - bpf_core_field_offset(struct btrfs_inode, vfs_inode);
        u32 subvolume = BPF_CORE_READ(own, root, anon_dev);
        if (subvolume)
            run->file_system = subvolume;
    }
    return true;
}

static __always_inline void identify_with_path(struct inode *inode, struct run *run)
{
    identify(inode, run);
    remember_super(BPF_CORE_READ(inode, i_sb));
    if (BPF_CORE_READ(inode, i_nlink) == 0)
        run->flags |= RUN_DELETED;
    run->dentry = first_entry(inode);
    if (run->dentry)
        send_path(run->dentry);
}

#endif
