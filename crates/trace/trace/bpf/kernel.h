/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * The parts of kernel structures that the programs read, and nothing else.
 *
 * Not a copy of kernel headers: each structure names only the fields that are used, in any order, and their real places
 * are filled in when the object is loaded (CO-RE, by the running kernel's BTF). A structure or field that the running
 * kernel lacks is asked for with bpf_core_type_exists or bpf_core_field_exists before it is read.
 */
#ifndef TIDEGATE_KERNEL_H
#define TIDEGATE_KERNEL_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8;
typedef short s16;
typedef int s32;
typedef long long s64;

/* Names that libbpf's headers expect. */
typedef u8 __u8;
typedef u16 __u16;
typedef u32 __u32;
typedef u64 __u64;
typedef s32 __s32;
typedef s64 __s64;
typedef u16 __be16;
typedef u32 __be32;
typedef u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

/* Constants of the kernel's interface with BPF programs. */
enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_LRU_HASH = 9, BPF_MAP_TYPE_RINGBUF = 27 };
enum { BPF_ANY = 0 };
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2, BPF_RB_AVAIL_DATA = 0 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct task_struct {
    int pid;
    int tgid;
    unsigned int flags;
    struct task_struct *group_leader;
    char comm[16];
    struct files_struct *files;
};

struct path {
    struct dentry *dentry;
};
struct file {
    struct inode *f_inode;
    struct path f_path;
};
struct fdtable {
    unsigned int max_fds;
    struct file **fd;
};
struct files_struct {
    struct fdtable *fdt;
};

/* What a thread in a system call has in its registers, by architecture. */
struct pt_regs___x86 {
    unsigned long di;
    unsigned long si;
    unsigned long dx;
    unsigned long orig_ax;
};
struct pt_regs___arm64 {
    u64 regs[31];
    s32 syscallno;
};

struct file_system_type {
    int fs_flags;
};
struct super_block {
    struct file_system_type *s_type;
    u32 s_dev;
    unsigned long s_magic;
    struct block_device *s_bdev;
};

struct hlist_node {
    struct hlist_node *next;
};
struct hlist_head {
    struct hlist_node *first;
};
struct hlist_bl_node {
    struct hlist_bl_node **pprev;
};
typedef struct {
    int counter;
} atomic_t;
struct address_space {
    struct inode *host;
    atomic_t i_mmap_writable;
};
struct inode {
    u16 i_mode;
    unsigned long i_ino;
    unsigned int i_nlink;
    s64 i_size;
    u32 i_generation;
    struct super_block *i_sb;
    struct address_space *i_mapping;
    struct hlist_head i_dentry;
};

struct qstr {
    u64 hash_len;
    const unsigned char *name;
};
struct dentry {
    struct hlist_bl_node d_hash;
    struct dentry *d_parent;
    struct qstr d_name;
    struct inode *d_inode;
    union {
        struct hlist_node d_alias;
    } d_u;
};

struct page {
    unsigned long compound_head;
};
struct folio {
    struct address_space *mapping;
    unsigned long index;
    void *private;
    /* The names that the number of pages has had. */
    unsigned int _nr_pages;
    unsigned int _folio_nr_pages;
};
enum pageflags { PG_uptodate = 2, PG_head = 6, PG_swapcache = 10 };
enum req_flag_bits { __REQ_SWAP = 24 };

struct gendisk {
    int major;
    int first_minor;
    struct request_queue *queue;
};
struct blk_mq_hw_ctx {
    unsigned int queue_num;
};
struct request_queue {
    const void *mq_ops;
    struct gendisk *disk;
};
struct block_device {
    struct gendisk *bd_disk;
    void *bd_holder;
    u32 bd_dev;
    u64 bd_start_sect;
};

struct bvec_iter {
    u64 bi_sector;
    unsigned int bi_size;
    unsigned int bi_idx;
    unsigned int bi_bvec_done;
};
struct bio {
    struct bio *bi_next;
    struct block_device *bi_bdev;
    u32 bi_opf;
    u16 bi_ioprio;
    u8 bi_status;
    struct bvec_iter bi_iter;
    void (*bi_end_io)(struct bio *);
    void *bi_private;
    u16 bi_vcnt;
    void *bi_io_vec;
};
struct request {
    struct request_queue *q;
    struct blk_mq_hw_ctx *mq_hctx;
    u32 cmd_flags;
    int tag;
    int internal_tag;
    unsigned int __data_len;
    u64 __sector;
    struct bio *bio;
};

struct kiocb {
    struct file *ki_filp;
    s64 ki_pos;
    int ki_flags;
};
struct iov_iter {
    unsigned long count;
};
struct iomap_dio {
    struct kiocb *iocb;
    s64 size;
};
struct dio {
    struct inode *inode;
    struct kiocb *iocb;
    s64 result;
};

struct buffer_head {
    struct page *b_page;
    u64 b_blocknr;
    unsigned long b_size;
    char *b_data;
    struct block_device *b_bdev;
    void (*b_end_io)(struct buffer_head *, int);
    void *b_private;
};
struct transaction_s {
    u32 t_tid;
};
struct journal_s {
    struct block_device *j_fs_dev;
};

struct xfs_buf_ops {
    char *name;
};
struct xfs_buf {
    const struct xfs_buf_ops *b_ops;
};
struct xfs_inode {
    u64 i_ino;
    struct inode i_vnode;
};

struct btrfs_root {
    u32 anon_dev;
};
struct extent_io_tree {
    u8 owner;
};
struct btrfs_inode {
    struct btrfs_root *root;
    struct extent_io_tree io_tree;
    struct inode vfs_inode;
};
struct btrfs_bio {
    struct btrfs_inode *inode;
    u64 file_offset;
    struct bio bio;
};

struct scsi_device {
    struct request_queue *request_queue;
};
struct scsi_cmnd {
    struct scsi_device *device;
    /* A pointer before Linux 5.18, which is asked for. */
    unsigned char cmnd[32];
    int result;
};

struct mmc_host {
    int index;
};
struct mmc_command {
    u32 opcode;
    u32 arg;
    unsigned int flags;
    int error;
};
struct mmc_data {
    unsigned int blksz;
    unsigned int blocks;
    unsigned int blk_addr;
    int error;
    unsigned int flags;
};
struct mmc_request {
    struct mmc_command *sbc;
    struct mmc_command *cmd;
    struct mmc_data *data;
    struct mmc_command *stop;
    int tag;
};

#pragma clang attribute pop

#endif
