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
    u64 name; /* see name_key */
};

/* What user space knows of directory entries: one is sent again when its name or parent changed. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 65536);
    __type(key, u64);
    __type(value, struct entry_state);
} names_sent SEC(".maps");

/* What tells names of an entry apart: hash and length. A file without a name (O_TMPFILE) is called after its inode, and that
 * name has no hash, so the number stands in for it: another file's entry may lie at the same address. */
static __always_inline u64 name_key(struct dentry *dentry)
{
    u64 hash_and_length = BPF_CORE_READ(dentry, d_name.hash_len);
    if (!(u32)hash_and_length)
        hash_and_length ^= BPF_CORE_READ(dentry, d_inode, i_ino);
    return hash_and_length;
}

CHECKED_ONCE int send_name(u64 entry, u64 parent, u64 key)
{
    struct dentry *dentry = (void *)entry;
    RESERVE(record, name_record, RECORD_NAME);
    if (!record)
        return 1;
    u32 length = BPF_CORE_READ(dentry, d_name.hash_len) >> 32;
    record->dentry = entry;
    record->parent = parent;
    record->bytes = length < NAME_BYTES ? length : NAME_BYTES - 1;
    bpf_probe_read_kernel_str(record->name, NAME_BYTES, BPF_CORE_READ(dentry, d_name.name));
    SUBMIT(record);
    struct entry_state state = {.parent = parent, .name = key};
    bpf_map_update_elem(&names_sent, &entry, &state, BPF_ANY);
    return 0;
}

/* Sends the names from this entry up to the root that user space does not know. The record goes out before the map says
 * so: another processor that meets the entry meanwhile sends it a second time, but never refers to one not sent. Returns
 * the number of names that were lost. */
CHECKED_ONCE int send_path(u64 entry)
{
    int lost = 0;
    for (int depth = 0; depth < MAX_DEPTH && entry; depth++) {
        struct dentry *dentry = (void *)entry;
        u64 parent = (u64)BPF_CORE_READ(dentry, d_parent);
        u64 key = name_key(dentry);
        struct entry_state *known = bpf_map_lookup_elem(&names_sent, &entry);
        if (!known || known->parent != parent || known->name != key)
            lost += send_name(entry, parent, key);
        if (parent == entry)
            break;
        entry = parent;
    }
    return lost;
}

static __always_inline u64 entry_of(struct hlist_node *alias)
{
    return alias ? (u64)alias - bpf_core_field_offset(struct dentry, d_u.d_alias) : 0;
}

/* An entry that was removed while it was open stays with its inode, but is in no folder. */
static __always_inline bool is_removed(u64 entry)
{
    return !BPF_CORE_READ((struct dentry *)entry, d_hash.pprev);
}

/* An entry of the inode: the first one that is in a folder, or else the first. */
static __attribute__((noinline)) u64 entry_in_folder(u64 address)
{
    struct inode *inode = (void *)address;
    struct hlist_node *first = BPF_CORE_READ(inode, i_dentry.first);
    struct hlist_node *alias = first;
    for (int i = 0; i < MAX_ALIASES && alias; i++) {
        if (!is_removed(entry_of(alias)))
            return entry_of(alias);
        alias = BPF_CORE_READ(alias, next);
    }
    return entry_of(first);
}

static __always_inline u64 first_entry(struct inode *inode)
{
    return entry_in_folder((u64)inode);
}

/* Sends all names of an inode that has several, and which they are; not those that are gone. Returns the number of records
 * lost. The names are walked twice, as the stack has no room for them. */
static __attribute__((noinline)) int send_aliases(u64 address, u32 file_system)
{
    struct inode *inode = (void *)address;
    int lost = 0;
    struct hlist_node *alias = BPF_CORE_READ(inode, i_dentry.first);
    for (int i = 0; i < MAX_ALIASES && alias; i++) {
        if (!is_removed(entry_of(alias)))
            lost += send_path(entry_of(alias));
        alias = BPF_CORE_READ(alias, next);
    }
    RESERVE(record, aliases_record, RECORD_ALIASES);
    if (!record)
        return lost + 1;
    record->file_system = file_system;
    record->inode = BPF_CORE_READ(inode, i_ino);
    record->generation = BPF_CORE_READ(inode, i_generation);
    record->reserved = 0;
    alias = BPF_CORE_READ(inode, i_dentry.first);
    for (int i = 0; i < MAX_ALIASES; i++) {
        record->dentries[i] = alias && !is_removed(entry_of(alias)) ? entry_of(alias) : 0;
        if (alias)
            alias = BPF_CORE_READ(alias, next);
    }
    SUBMIT(record);
    return lost;
}

/* Threads of the kernel that work for a program, and have no call of their own: PF_IO_WORKER, PF_USER_WORKER. */
#define PF_WORKERS 0x4010
#define CALL_ARGUMENTS 3

/* The entry of the file that descriptor `number` of the running thread is open on, if it is this inode; or 0. */
static __always_inline u64 entry_of_descriptor(struct inode *inode, u64 number)
{
    struct task_struct *task = bpf_get_current_task_btf();
    struct fdtable *table = BPF_CORE_READ(task, files, fdt);
    u64 file = 0;
    if (!table || number >= BPF_CORE_READ(table, max_fds))
        return 0;
    struct file **files = BPF_CORE_READ(table, fd);
    bpf_probe_read_kernel(&file, sizeof(file), files + number);
    if (!file || BPF_CORE_READ((struct file *)file, f_inode) != inode)
        return 0;
    return (u64)BPF_CORE_READ((struct file *)file, f_path.dentry);
}

/* Number of the system call that a thread of a program is in, by its registers; negative: it is in none. */
static __always_inline s64 call_of(void *registers)
{
    if (bpf_core_field_exists(struct pt_regs___x86, orig_ax))
        return (s64)BPF_CORE_READ((struct pt_regs___x86 *)registers, orig_ax);
    if (bpf_core_field_exists(struct pt_regs___arm64, syscallno))
        return BPF_CORE_READ((struct pt_regs___arm64 *)registers, syscallno);
    return 0;
}

/* Whether the running thread is in a system call, or is the kernel's. Else a fault of its own memory has stopped it. */
static __attribute__((noinline)) bool is_in_call(void)
{
    struct task_struct *task = bpf_get_current_task_btf();
    return task->flags & (PF_KTHREAD | PF_WORKERS) || call_of((void *)bpf_task_pt_regs(task)) >= 0;
}

/* The entries of this inode among those arguments of the running thread's system call that are descriptors; `shift`: 0 for
 * all, 4 for those that the call writes to. 0: there is none, or there are two. */
static __attribute__((noinline)) u64 entry_in_call(u64 address, u32 shift)
{
    struct inode *inode = (void *)address;
    struct task_struct *task = bpf_get_current_task_btf();
    if (task->flags & (PF_KTHREAD | PF_WORKERS))
        return 0;
    void *registers = (void *)bpf_task_pt_regs(task);
    u64 arguments[CALL_ARGUMENTS] = {};
    s64 call = call_of(registers);
    if (bpf_core_field_exists(struct pt_regs___x86, orig_ax)) {
        struct pt_regs___x86 *own = registers;
        arguments[0] = BPF_CORE_READ(own, di);
        arguments[1] = BPF_CORE_READ(own, si);
        arguments[2] = BPF_CORE_READ(own, dx);
    } else if (bpf_core_field_exists(struct pt_regs___arm64, syscallno)) {
        struct pt_regs___arm64 *own = registers;
        bpf_core_read(arguments, sizeof(arguments), &own->regs);
    }
    if (call < 0 || call >= MAX_CALLS)
        return 0;
    u32 descriptors = config.descriptors[call & (MAX_CALLS - 1)] >> (shift & 4);
    u64 found = 0;
    for (int i = 0; i < CALL_ARGUMENTS; i++) {
        if (!(descriptors >> i & 1))
            continue;
        u64 entry = entry_of_descriptor(inode, (u32)arguments[i]);
        if (found && entry && entry != found)
            return 0;
        if (entry)
            found = entry;
    }
    return found;
}

/* The name by which the running thread's system call works on this inode: that of the descriptor which the call was given.
 * 0: it is in no such call, or was given descriptors of two names. */
static __always_inline u64 called_entry(u64 inode)
{
    return entry_in_call(inode, 0);
}

/* Whether the running thread's system call writes to this inode. Not known of io_uring and of threads of the kernel. */
static __always_inline bool is_written_by_call(u64 inode)
{
    return entry_in_call(inode, 4) != 0;
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

/* Fills in who the inode is and its name. `entry`: the name that was used; 0: not known, and where the inode has several
 * the run says that it bears one of them. So it is if the name that was used is gone, and others are left. */
static __always_inline void identify_named(struct inode *inode, struct run *run, u64 entry)
{
    identify(inode, run);
    remember_super(BPF_CORE_READ(inode, i_sb));
    u32 links = BPF_CORE_READ(inode, i_nlink);
    if (links == 0)
        run->flags |= RUN_DELETED;
    else if (entry && is_removed(entry))
        entry = 0;
    int lost = 0;
    if (!entry && links > 1 && (run->mode & FORMAT_BITS) != FORMAT_DIRECTORY) {
        run->flags |= RUN_ONE_OF_NAMES;
        lost = send_aliases((u64)inode, run->file_system);
    }
    run->dentry = entry ? entry : first_entry(inode);
    if (run->dentry)
        lost += send_path(run->dentry);
    if (lost)
        run->flags |= RUN_NAME_LOST;
}

/* How often a file is mapped for stores, at most 2. A process that has stored to a page may do so again unseen. */
static __always_inline u32 mappings_of(struct inode *inode)
{
    s32 count = BPF_CORE_READ(inode, i_mapping, i_mmap_writable.counter);
    return count < 0 ? 0 : count > 2 ? 2 : count;
}

static __always_inline void flag_mappings(struct inode *inode, struct run *run)
{
    u32 mappings = mappings_of(inode);
    if (mappings)
        run->flags |= mappings > 1 ? RUN_MAPPED | RUN_MAPPED_OFTEN : RUN_MAPPED;
}

static __always_inline void identify_with_path(struct inode *inode, struct run *run)
{
    identify_named(inode, run, 0);
}

static __always_inline void identify_file(struct file *file, struct run *run)
{
    identify_named(BPF_CORE_READ(file, f_inode), run, (u64)BPF_CORE_READ(file, f_path.dentry));
}

#endif
