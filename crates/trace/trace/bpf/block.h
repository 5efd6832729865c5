/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * Programs of the block layer: a bio's way to its device, and a request's.
 */
#ifndef TIDEGATE_BLOCK_H
#define TIDEGATE_BLOCK_H

static __always_inline void own_bio(struct walk *walk, struct bio *bio)
{
    u64 end = (u64)bio->bi_end_io;
    struct run *run = &walk->run;
    u8 operation = bio->bi_opf & OPERATION_BITS;
    void *private = bio->bi_private;
    run->bytes = walk->remaining;
    if (!walk->remaining || operation > OPERATION_WRITE || !walk->vectors) {
        run->kind = RUN_EMPTY;
        return;
    }
    if (config.iomap_direct && end == config.iomap_direct) {
        struct iomap_dio *direct = private;
        struct kiocb *control = BPF_CORE_READ(direct, iocb);
        u64 place = BPF_CORE_READ(control, ki_pos) + BPF_CORE_READ(direct, size) - run->bytes;
        own_direct(run, BPF_CORE_READ(control, ki_filp), place);
        return;
    }
    if ((config.legacy_direct && end == config.legacy_direct) ||
        (config.legacy_direct_async && end == config.legacy_direct_async)) {
        struct dio *direct = private;
        run->kind = RUN_MEMORY;
        if (bpf_core_type_exists(struct dio))
            own_direct(run, BPF_CORE_READ(direct, iocb, ki_filp), legacy_offset(direct, run->bytes));
        return;
    }
    if (config.xfs_log && end == config.xfs_log) {
        run->kind = RUN_XFS_LOG;
        return;
    }
    if (config.xfs_buffer && end == config.xfs_buffer) {
        own_xfs_buffer(run, private);
        return;
    }
    if (config.btrfs_super && end == config.btrfs_super) {
        run->kind = RUN_SUPERBLOCK;
        return;
    }
    if ((config.raw_direct && end == config.raw_direct) || (config.raw_direct_async && end == config.raw_direct_async)) {
        run->kind = RUN_RAW;
        return;
    }
    if (((config.btrfs_simple && end == config.btrfs_simple) ||
         (config.btrfs_original && end == config.btrfs_original)) &&
        bpf_core_type_exists(struct btrfs_bio) && bpf_core_field_exists(struct btrfs_bio, inode)) {
        struct btrfs_bio *own = (void *)bio - bpf_core_field_offset(struct btrfs_bio, bio);
        struct btrfs_inode *inode = BPF_CORE_READ(own, inode);
        if (inode) {
            run->kind = RUN_BTRFS;
            run->offset = BPF_CORE_READ(own, file_offset);
            struct inode *own_inode = (void *)inode + bpf_core_field_offset(struct btrfs_inode, vfs_inode);
            /* Compressed data has pages of its own, in no file's cache. */
            u64 mapping = first_mapping(walk);
            bool is_direct = mapping && mapping != (u64)BPF_CORE_READ(own_inode, i_mapping);
            if (is_direct)
                run->kind = RUN_DIRECT;
            u64 entry = 0;
            if ((is_direct || !walk->writes) && BPF_CORE_READ(own_inode, i_nlink) > 1)
                entry = called_entry((u64)own_inode);
            identify_named(own_inode, run, entry);
            if (!mapping)
                run->flags |= RUN_COMPRESSED;
            if (walk->writes && !is_direct)
                flag_mappings(own_inode, run);
            return;
        }
    }
    u8 metadata_flags = 0;
    u32 block_bytes = 0;
    if (config.buffer_head && end == config.buffer_head) {
        struct buffer_head *buffer = private;
        u64 buffer_end = (u64)BPF_CORE_READ(buffer, b_end_io);
        if (config.journal_buffer && buffer_end == config.journal_buffer) {
            own_journal(run, buffer);
            return;
        }
        if (config.fast_commit_buffer && buffer_end == config.fast_commit_buffer) {
            run->kind = RUN_FAST_COMMIT;
            return;
        }
        if (operation == OPERATION_WRITE) {
            block_bytes = BPF_CORE_READ(buffer, b_size);
            metadata_flags = content_flags((u64)BPF_CORE_READ(buffer, b_data), block_bytes);
        }
    }
    run->bytes = 0;
    /* Kernels before 6.7 verify the step once, with what they know of the walk at its start, and remove the branches that
     * the first step cannot take. Read from memory, even its own, nothing is known of it. */
    bpf_probe_read_kernel(walk, sizeof(*walk), walk);
    bpf_loop(MAX_STEPS, step, walk, 0);
    if (run->kind == RUN_METADATA)
        run->flags |= metadata_flags;
}

SEC("tp_btf/block_bio_queue")
int BPF_PROG(bio_queue, struct bio *bio)
{
    struct gendisk *disk = bio->bi_bdev->bd_disk;
    u32 device = disk_number(disk);
    if (traced(device) < 0)
        return 0;
    u64 now = bpf_ktime_get_ns();
    struct walk walk = {};
    walk.bio = (u64)bio;
    walk.vectors = (u64)bio->bi_io_vec;
    walk.index = bio->bi_iter.bi_idx;
    walk.done = bio->bi_iter.bi_bvec_done;
    walk.remaining = bio->bi_iter.bi_size;
    walk.writes = (bio->bi_opf & OPERATION_BITS) == OPERATION_WRITE;
    walk.mark = now;
    walk.waited_for = (config.waited_for && (u64)bio->bi_end_io == config.waited_for) ||
                      (config.waited_for_too && (u64)bio->bi_end_io == config.waited_for_too);
    walk.device_holder = (u64)bio->bi_bdev->bd_holder;
    u32 bytes = walk.remaining;
    struct process_reference submitter;
    current_process(&submitter);
    own_bio(&walk, bio);

    RESERVE(record, bio_record, RECORD_BIO);
    if (!record)
        return 0;
    record->device = device;
    record->time = now;
    record->bio = (u64)bio;
    record->sector = bio->bi_iter.bi_sector;
    record->bytes = bytes;
    record->operation = bio->bi_opf;
    record->priority = bio->bi_ioprio;
    record->by_kernel = current_is_kernel();
    record->without_requests = disk->queue->mq_ops == NULL;
    record->reserved = 0;
    record->partition = bio->bi_bdev->bd_start_sect;
    record->submitter = submitter;
    record->run = walk.run;
    SUBMIT(record);
    __sync_fetch_and_add(&counters.bios, 1);
    return 0;
}

/* A bio that ends without a request: of a device that has none, or refused (REQ_NOWAIT while the queue was full). Bios of
 * requests are told as done with those, and the block layer clears the mark that leads here. */
SEC("tp_btf/block_bio_complete")
int BPF_PROG(bio_complete, struct request_queue *queue, struct bio *bio)
{
    struct gendisk *disk = bio->bi_bdev->bd_disk;
    u32 device = disk_number(disk);
    if (traced(device) < 0)
        return 0;
    bool without_requests = disk->queue->mq_ops == NULL;
    RESERVE(record, bio_done_record, RECORD_BIO_DONE);
    if (!record)
        return 0;
    record->device = device;
    record->time = bpf_ktime_get_ns();
    record->bio = (u64)bio;
    record->sector = bio->bi_iter.bi_sector;
    record->status = bio->bi_status;
    record->operation = bio->bi_opf;
    record->bytes = without_requests ? 0 : bio->bi_iter.bi_size;
    record->without_requests = without_requests;
    SUBMIT(record);
    return 0;
}

/* A request under way. Requests are made once for each tag and used again and again, so a place by tag is enough; the
 * address tells a request that took the place of another one. */
struct slot {
    u64 request;
    u64 inserted;
    u64 issued;
    u64 sector;
    u32 bytes;
    u32 done;
    u32 in_flight;
    u32 requeues;
    u16 hardware_queue;
    u16 issued_once;
    u32 operation;
    u64 bio;                /* the first one */
};

/* 8 devices with 16 queues each. */
#define SLOTS 131072
#define TAGS_PER_QUEUE 1024
#define SLOTS_PER_DEVICE 16384

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, SLOTS);
    __type(key, u32);
    __type(value, struct slot);
} slots SEC(".maps");

static __always_inline struct slot *slot_of(struct request *request, int place, u32 *hardware_queue)
{
    /* With a scheduler, the request belongs to the scheduler's tag. */
    u32 tag = request->internal_tag >= 0 ? request->internal_tag : request->tag;
    u32 queue = request->mq_hctx ? request->mq_hctx->queue_num : 0;
    u32 in_device = (queue * TAGS_PER_QUEUE + tag) & (SLOTS_PER_DEVICE - 1);
    u32 index = ((u32)place * SLOTS_PER_DEVICE + in_device) & (SLOTS - 1);
    *hardware_queue = queue;
    return bpf_map_lookup_elem(&slots, &index);
}

static __always_inline int traced_request(struct request *request)
{
    struct gendisk *disk = request->q->disk;
    return disk ? traced(disk_number(disk)) : -1;
}

/* What else is known of a request that is done. */
struct done {
    u64 completed;          /* 0: not seen */
    u64 bio;
    u32 operation;
    u32 status;
    u32 merged;
    u32 reserved;
};

static __always_inline void tell_request(struct slot *slot, int place, struct done *done)
{
    RESERVE(record, request_record, RECORD_REQUEST);
    if (!record)
        return;
    record->device = config.devices[place & (MAX_DEVICES - 1)];
    record->sector = slot->sector;
    record->inserted = slot->inserted;
    record->issued = slot->issued;
    record->completed = done->completed;
    record->bytes = slot->bytes;
    record->operation = done->operation;
    record->status = done->status;
    record->in_flight = slot->in_flight;
    record->hardware_queue = slot->hardware_queue;
    record->requeues = slot->requeues;
    record->merged = done->merged;
    record->bio = done->bio;
    SUBMIT(record);
    __sync_fetch_and_add(&counters.requests, 1);
}

/* A request that is issued anew without having been done: the kernel runs no program while an interrupt has stopped the same
 * program on the same processor, so a completion may pass unseen. It is told now, without its time. */
static __always_inline void tell_unseen(struct slot *slot, int place)
{
    struct done done = {.bio = slot->bio, .operation = slot->operation};
    __sync_fetch_and_add(&counters.unseen, 1);
    __sync_fetch_and_add(&counters.in_flight[place & (MAX_DEVICES - 1)], -1);
    tell_request(slot, place, &done);
}

static __always_inline void take_slot(struct slot *slot, struct request *request)
{
    if (slot->request && slot->request != (u64)request && slot->issued_once)
        __sync_fetch_and_add(&counters.slots_taken_twice, 1);
    slot->request = (u64)request;
    slot->inserted = 0;
    slot->issued = 0;
    slot->done = 0;
    slot->requeues = 0;
    slot->issued_once = 0;
}

/* A bio as it was given to the block layer: a part that was split off it leads to it. */
static __always_inline u64 first_bio(struct request *request)
{
    struct bio *bio = request->bio;
    if (!bio)
        return 0;
    return config.chained && (u64)bio->bi_end_io == config.chained ? (u64)bio->bi_private : (u64)bio;
}

SEC("tp_btf/block_rq_insert")
int BPF_PROG(request_insert, struct request *request)
{
    int place = traced_request(request);
    if (place < 0)
        return 0;
    u32 queue;
    struct slot *slot = slot_of(request, place, &queue);
    if (!slot)
        return 0;
    if (slot->request == (u64)request && slot->issued_once)
        tell_unseen(slot, place);
    take_slot(slot, request);
    slot->inserted = bpf_ktime_get_ns();
    return 0;
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(request_issue, struct request *request)
{
    int place = traced_request(request);
    if (place < 0 || place >= MAX_DEVICES)
        return 0;
    u32 queue;
    struct slot *slot = slot_of(request, place, &queue);
    if (!slot)
        return 0;
    if (slot->request == (u64)request && slot->issued_once)
        tell_unseen(slot, place);
    if (slot->request != (u64)request || slot->issued_once)
        take_slot(slot, request);
    slot->bio = first_bio(request);
    slot->operation = request->cmd_flags;
    slot->issued = bpf_ktime_get_ns();
    slot->issued_once = 1;
    slot->sector = request->__sector;
    slot->bytes = request->__data_len;
    slot->hardware_queue = queue;
    slot->in_flight = __sync_fetch_and_add(&counters.in_flight[place], 1) + 1;
    return 0;
}

SEC("tp_btf/block_rq_requeue")
int BPF_PROG(request_requeue, struct request *request)
{
    int place = traced_request(request);
    if (place < 0 || place >= MAX_DEVICES)
        return 0;
    u32 queue;
    struct slot *slot = slot_of(request, place, &queue);
    if (!slot || slot->request != (u64)request || !slot->issued_once)
        return 0;
    slot->requeues++;
    slot->issued_once = 0;
    __sync_fetch_and_add(&counters.in_flight[place], -1);
    return 0;
}

/* As first_bio, of a further one. */
static __always_inline u64 given_bio(u64 address)
{
    struct bio *bio = (void *)address;
    if (config.chained && (u64)BPF_CORE_READ(bio, bi_end_io) == config.chained)
        return (u64)BPF_CORE_READ(bio, bi_private);
    return address;
}

struct chain {
    u64 next;
    u64 first;
    u32 mark;
    u32 count;
};

/* One record of the chain of a request's bios. */
static long send_merged(u64 unused, struct chain *chain)
{
    if (!chain->next)
        return 1;
    RESERVE(record, merged_record, RECORD_MERGED);
    if (!record)
        return 1;
    record->mark = chain->mark;
    record->bio = chain->first;
    for (int i = 0; i < MERGED_BIOS; i++) {
        struct bio *bio = (void *)chain->next;
        record->bios[i] = bio ? given_bio((u64)bio) : 0;
        if (!bio)
            continue;
        chain->next = (u64)BPF_CORE_READ(bio, bi_next);
        chain->count++;
    }
    SUBMIT(record);
    return 0;
}

#define MAX_MERGED_RECORDS 4096

SEC("tp_btf/block_rq_complete")
int BPF_PROG(request_complete, struct request *request, u8 status, u32 bytes)
{
    int place = traced_request(request);
    if (place < 0 || place >= MAX_DEVICES)
        return 0;
    u32 queue;
    struct slot *slot = slot_of(request, place, &queue);
    /* Not issued: it was under way before the trace, or it is an empty flush that was answered by the device's own. */
    if (!slot || slot->request != (u64)request || !slot->issued_once)
        return 0;
    bool in_one_step = slot->done == 0;
    slot->done += bytes;
    if (slot->done < slot->bytes)
        return 0;
    slot->issued_once = 0;
    struct done done = {
        .completed = bpf_ktime_get_ns(),
        .operation = request->cmd_flags,
        .status = status,
    };
    /* After a first step, its bios are no longer in the request. */
    if (in_one_step && request->bio) {
        struct chain chain = {.mark = done.completed};
        chain.first = first_bio(request);
        chain.next = (u64)request->bio->bi_next;
        if (chain.next) {
            /* As for a walk: the verifier must not take the first step's state for that of all. */
            bpf_probe_read_kernel(&chain, sizeof(chain), &chain);
            bpf_loop(MAX_MERGED_RECORDS, send_merged, &chain, 0);
        }
        done.bio = chain.first;
        done.merged = chain.count;
    }
    /* The same request, used anew, starts without the times of this one. */
    slot->request = 0;
    __sync_fetch_and_add(&counters.in_flight[place], -1);
    tell_request(slot, place, &done);
    return 0;
}

#endif
