/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * What goes through the ring to user space. Rust's side is src/block/record.rs; sizes are checked on both sides.
 *
 * Every record starts with its kind. Times are CLOCK_MONOTONIC, ns. Devices are the kernel's own numbers
 * (major << 20 | minor). Pointers are names of objects, never followed by user space.
 */
#ifndef TIDEGATE_RECORDS_H
#define TIDEGATE_RECORDS_H

enum record_kind {
    RECORD_BIO = 1,         /* struct bio_record: given to the block layer */
    RECORD_RUN = 2,         /* struct run_record: a piece of the bio record that follows */
    RECORD_REQUEST = 3,     /* struct request_record: a request that is done */
    RECORD_BIO_DONE = 4,    /* struct bio_done_record: a bio ended without a request */
    RECORD_NAME = 5,        /* struct name_record: name and parent of a directory entry */
    RECORD_PROCESS = 6,     /* struct process_record */
    RECORD_WRITER = 7,      /* struct writer_record: a process made a range of a file dirty */
    RECORD_EVENT = 8,       /* struct event_record: life of files, journal */
    RECORD_DRIVER = 10,     /* struct driver_record: a driver's command */
    RECORD_MERGED = 11,     /* struct merged_record: further bios of the request record that follows */
    RECORD_LOST = 12,       /* struct lost_record: records before this one were lost */
    RECORD_ALIASES = 13,    /* struct aliases_record: the names of a file that has several */
};

enum run_kind {
    RUN_UNKNOWN = 0,
    RUN_PAGES = 1,          /* page cache of a file */
    RUN_DIRECT = 2,         /* O_DIRECT on a file */
    RUN_METADATA = 3,       /* page cache of the device, which somebody has claimed */
    RUN_JOURNAL = 4,        /* a block that jbd2 logs */
    RUN_JOURNAL_CONTROL = 5,/* jbd2's descriptor, commit or superblock */
    RUN_FAST_COMMIT = 6,
    RUN_XFS_BUFFER = 7,
    RUN_XFS_LOG = 8,
    RUN_BTRFS = 9,          /* known by btrfs's own structure */
    RUN_SUPERBLOCK = 10,
    RUN_RAW = 11,           /* the device itself */
    RUN_SWAP = 12,
    RUN_MEMORY = 13,        /* memory of a process, by a way that names no file */
    RUN_EMPTY = 14,         /* moves nothing: flush, discard, zeroes */
    /* 15 is user space's own: a place in a journal of which no more is known */
};

enum run_flag {
    RUN_DELETED = 1,        /* the inode has no name left */
    RUN_HOME_IS_FILE = 2,   /* logged block: file, offset are of the data that is logged */
    RUN_EXTENTS = 4,        /* content: node of an extent tree */
    RUN_XATTR = 8,          /* content: block of extended attributes */
    RUN_DIRECTORY = 16,     /* content: block of a directory */
    RUN_JOURNAL_BLOCK = 32, /* content: jbd2's superblock */
    RUN_MAPPED = 4,         /* data of a file that is mapped for stores, which are not seen */
    RUN_MAPPED_OFTEN = 8,   /* it is, more than once */
    RUN_COMPRESSED = 16,    /* data of a file of btrfs, whose range in the file is larger than the run */
    RUN_ONE_OF_NAMES = 64,  /* the inode has several names, and which one was used is not known here */
    RUN_NAME_LOST = 128,    /* a record of its name was lost */
};

struct process_reference {
    u32 tgid;
    u32 tid;
    u64 name;               /* mix of the name; with tgid the key of a process record */
};

struct run {
    u64 inode;
    u64 offset;             /* in the file, bytes */
    u64 home;               /* journal: block number of the home; XFS: bytes 0..8 of the type's name */
    u64 dentry;             /* 0: no name known; XFS: bytes 8..16 of the type's name */
    u32 file_system;
    u32 generation;
    u32 start;              /* bytes from the start of the bio */
    u32 bytes;
    u32 transaction;
    u32 magic;              /* of the file system */
    u16 mode;
    u8 kind;
    u8 flags;
    u32 block_bytes;        /* journal: size of the home block */
};

struct bio_record {
    u32 kind;
    u32 device;
    u64 time;
    u64 bio;
    u64 sector;
    u32 bytes;
    u32 operation;
    u16 priority;
    u8 by_kernel;           /* the submitter is a kernel thread */
    u8 without_requests;    /* its device completes bios: dm, md, zram */
    u32 reserved;
    u64 partition;          /* first sector of the partition, to which block numbers are relative */
    struct process_reference submitter;
    struct run run;         /* the last one */
};

struct run_record {
    u32 kind;
    u32 mark;               /* low half of the bio record's time: tells it from others at that address */
    u64 bio;
    struct run run;
};

struct request_record {
    u32 kind;
    u32 device;
    u64 sector;
    u64 inserted;           /* 0: not seen */
    u64 issued;
    u64 completed;
    u32 bytes;
    u32 operation;
    u32 status;             /* block layer's status of the completion: 0 is good */
    u32 in_flight;
    u16 hardware_queue;
    u16 requeues;
    u32 merged;             /* number of further bios, named by merged records */
    u64 bio;                /* its first bio as given to the block layer; 0: not known */
};

#define MERGED_BIOS 15

/* Sent right before the request record with the same first bio and time. */
struct merged_record {
    u32 kind;
    u32 mark;               /* low half of the request record's time of completion */
    u64 bio;                /* the request's first */
    u64 bios[MERGED_BIOS];  /* 0: no more */
};

struct bio_done_record {
    u32 kind;
    u32 device;
    u64 time;
    u64 bio;
    u64 sector;             /* of what was not done */
    u32 status;
    u32 operation;
    u32 bytes;              /* that were not done; of a device without requests 0 */
    u32 without_requests;   /* the bio was done by such a device; else it was refused */
};

#define NAME_BYTES 256

struct name_record {
    u32 kind;
    u32 bytes;
    u64 dentry;
    u64 parent;             /* itself: the root of its file system */
    char name[NAME_BYTES];
};

struct process_record {
    u32 kind;
    u32 tgid;
    u64 name;
    char comm[16];
};

/* How a process made a range of a file dirty. */
enum dirtied_by {
    BY_CALL = 0,            /* a write call copied to it */
    BY_CALL_PERHAPS = 1,    /* perhaps: it may fail, or be a call that changes something beside it */
    IN_CALL = 2,            /* a folio, in a call that is not known to have copied to it */
    BY_STORE = 3,           /* a folio, by a store to mapped memory */
    BY_CALL_TO_COME = 4,    /* a write call is about to copy to it, and may fail before its end */
};

struct writer_record {
    u32 kind;
    u32 file_system;
    u64 time;
    u64 inode;
    u64 position;
    u64 bytes;
    u32 generation;
    u8 by_kernel;
    u8 by;                  /* enum dirtied_by */
    u16 mappings;           /* of the file for stores, at most 2 */
    u64 dentry;             /* the name written through; 0: not known */
    struct process_reference process;
};

enum event_kind {
    EVENT_CREATE = 1,
    EVENT_UNLINK = 2,
    EVENT_DELETE = 3,
    EVENT_FSYNC = 4,
    EVENT_FDATASYNC = 5,
    EVENT_COMMIT = 6,
    EVENT_CONTRIBUTION = 7,
};

struct event_record {
    u32 kind;
    u32 event;
    u64 time;
    u64 inode;
    u64 dentry;
    u64 value;
    u32 file_system;
    u32 generation;
    u32 detail;             /* contribution: type of the handle */
    u32 flags;              /* run_flag: RUN_NAME_LOST */
    struct process_reference process;
};

struct lost_record {
    u32 kind;
    u32 reserved;
    u64 time;
    u64 lost;               /* so far */
};

#define MAX_ALIASES 8

struct aliases_record {
    u32 kind;
    u32 file_system;
    u64 inode;
    u32 generation;
    u32 reserved;
    u64 dentries[MAX_ALIASES]; /* 0: none */
};

enum driver_flag {
    DRIVER_HAS_DATA = 1,
    DRIVER_WAITS_BUSY = 2,  /* the card may stay busy after its answer */
    DRIVER_QUEUED = 4,      /* it went through the card's own queue, and has a tag */
    DRIVER_SCSI = 8,        /* a SCSI disk's, UFS among them; else of eMMC or SD */
};

struct driver_record {
    u32 kind;
    u32 device;
    u64 issued;             /* when it was tried first */
    u64 completed;
    u64 sector;             /* of the block request that it belongs to; 0 without data */
    u32 code;               /* of the command: mmc's number, SCSI's operation code */
    u32 argument;           /* mmc's own; SCSI: low half of the logical block's address */
    u32 bytes;
    u16 tries;
    u16 interrupts;         /* of the host, while it had the command */
    s32 error;              /* of the mmc core: errno; of SCSI: its result */
    u16 tag;
    u16 flags;
};

#define HAS_SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), "size of " #type)
HAS_SIZE(run, 64);
HAS_SIZE(bio_record, 136);
HAS_SIZE(run_record, 80);
HAS_SIZE(request_record, 72);
HAS_SIZE(merged_record, 136);
HAS_SIZE(bio_done_record, 48);
HAS_SIZE(name_record, 280);
HAS_SIZE(process_record, 32);
HAS_SIZE(writer_record, 72);
HAS_SIZE(event_record, 72);
HAS_SIZE(lost_record, 24);
HAS_SIZE(aliases_record, 88);
HAS_SIZE(driver_record, 56);

#define MAX_DEVICES 8
#define MAX_CALLS 512

/* Set by user space before the programs are loaded. Addresses of functions are 0 where the kernel has none. */
struct configuration {
    u32 devices[MAX_DEVICES];
    u32 device_count;
    u32 own_tgid;
    u64 ring_bytes;
    u64 iomap_direct;
    u64 legacy_direct;
    u64 legacy_direct_async;
    u64 buffer_head;
    u64 journal_buffer;
    u64 fast_commit_buffer;
    u64 xfs_buffer;
    u64 xfs_log;
    u64 btrfs_simple;
    u64 btrfs_original;
    u64 btrfs_super;
    u64 btrfs_waits;        /* flag of a range whose data waits for its place on the medium: EXTENT_DELALLOC */
    u64 raw_direct;
    u64 raw_direct_async;
    u64 waited_for;         /* bios that their caller waits for: the synchronous way of raw direct I/O, among others */
    u64 waited_for_too;
    u64 chained;            /* bios that are part of another one: split off it */
    u32 mmc_hosts[MAX_DEVICES]; /* of each device: number of its mmc host and 1, or 0 */
    u32 interrupts[MAX_DEVICES]; /* of each device: number of its host's interrupt and 1, or 0 */
    u8 counted_calls[MAX_CALLS];
    u8 descriptors[MAX_CALLS]; /* by system call: bit n set: argument n is a descriptor that it moves data of; bit n + 4:
                                that it writes to */
};

/* Counters that user space reads. */
struct counters {
    u64 bios;
    u64 requests;
    u64 lost;
    u64 lost_told;          /* of them, those that a lost record told of */
    u64 half_full;          /* records that found the ring over half full */
    u64 slots_taken_twice;
    u64 unseen;             /* completions that were not seen */
    u64 in_flight[MAX_DEVICES];
    u64 interrupts[MAX_DEVICES]; /* of each device's host */
};

struct call_key {
    u32 tgid;
    u32 call;
    u64 name;
};

#endif
