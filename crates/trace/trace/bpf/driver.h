/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * Commands that a driver sends to its card or disk, below the block layer: eMMC and SD by the mmc core's tracepoints, SCSI
 * disks, UFS among them, by those of the SCSI layer. UFS's own (ufshcd_command) names no disk before Linux 6.8.
 *
 * A command is told when it is done, with when it was tried first and how often. User space joins it to its block request.
 */
#ifndef TIDEGATE_DRIVER_H
#define TIDEGATE_DRIVER_H

/* Bits of the mmc core. */
#define MMC_BUSY_ANSWER (1 << 3)
#define MMC_DATA_TO_CARD (1 << 8)
/* What a queued transfer is to the card: EXECUTE_READ_TASK and EXECUTE_WRITE_TASK. */
#define MMC_QUEUED_READ 46
#define MMC_QUEUED_WRITE 47
/* Operations of the block layer from here on carry a user's own command and are told as they are. */
#define OPERATION_PASS_THROUGH 34
#define OPERATION_FLUSH 2

struct pending_command {
    u64 issued;
    u32 tries;
    u32 interrupts;         /* the host's, so far */
};

/* mmc_request or scsi_cmnd -> its first try. One whose end was missed is pushed out. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 1024);
    __type(key, u64);
    __type(value, struct pending_command);
} pending_commands SEC(".maps");

static __always_inline void command_starts(u64 key, int place)
{
    struct pending_command *known = bpf_map_lookup_elem(&pending_commands, &key);
    if (known) {
        known->tries++;
        return;
    }
    struct pending_command first = {
        .issued = bpf_ktime_get_ns(),
        .tries = 1,
        .interrupts = counters.interrupts[place & (MAX_DEVICES - 1)],
    };
    bpf_map_update_elem(&pending_commands, &key, &first, BPF_ANY);
}

/* The record of a command that is done, with what does not depend on its kind; NULL when its start was not seen. */
static __always_inline struct driver_record *command_ends(u64 key, int place)
{
    struct pending_command *known = bpf_map_lookup_elem(&pending_commands, &key);
    if (!known)
        return NULL;
    struct pending_command pending = *known;
    bpf_map_delete_elem(&pending_commands, &key);
    RESERVE(record, driver_record, RECORD_DRIVER);
    if (!record)
        return NULL;
    u32 interrupts = (u32)counters.interrupts[place & (MAX_DEVICES - 1)] - pending.interrupts;
    record->device = config.devices[place & (MAX_DEVICES - 1)];
    record->issued = pending.issued;
    record->completed = bpf_ktime_get_ns();
    record->sector = 0;
    record->code = 0;
    record->argument = 0;
    record->bytes = 0;
    record->tries = pending.tries < 0xffff ? pending.tries : 0xffff;
    record->interrupts = interrupts < 0xffff ? interrupts : 0xffff;
    record->error = 0;
    record->tag = 0;
    record->flags = 0;
    return record;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(interrupt, int line)
{
    for (int i = 0; i < MAX_DEVICES; i++)
        if (config.interrupts[i] == (u32)line + 1)
            __sync_fetch_and_add(&counters.interrupts[i], 1);
    return 0;
}

/* Place of the device on this host in the configuration, or -1. */
static __always_inline int traced_host(struct mmc_host *host)
{
    u32 number = (u32)BPF_CORE_READ(host, index) + 1;
    for (int i = 0; i < MAX_DEVICES; i++)
        if (config.mmc_hosts[i] == number)
            return i;
    return -1;
}

SEC("tp_btf/mmc_request_start")
int BPF_PROG(command_start, struct mmc_host *host, struct mmc_request *request)
{
    int place = traced_host(host);
    if (place >= 0)
        command_starts((u64)request, place);
    return 0;
}

SEC("tp_btf/mmc_request_done")
int BPF_PROG(command_done, struct mmc_host *host, struct mmc_request *request)
{
    int place = traced_host(host);
    if (place < 0)
        return 0;
    struct mmc_command *command = BPF_CORE_READ(request, cmd);
    struct mmc_command *count = BPF_CORE_READ(request, sbc);
    struct mmc_command *stop = BPF_CORE_READ(request, stop);
    struct mmc_data *data = BPF_CORE_READ(request, data);
    struct driver_record *record = command_ends((u64)request, place);
    if (!record)
        return 0;
    if (count)
        record->error = BPF_CORE_READ(count, error);
    if (data) {
        record->flags |= DRIVER_HAS_DATA;
        record->sector = BPF_CORE_READ(data, blk_addr);
        record->bytes = BPF_CORE_READ(data, blksz) * BPF_CORE_READ(data, blocks);
        if (!record->error)
            record->error = BPF_CORE_READ(data, error);
    }
    if (command) {
        record->code = BPF_CORE_READ(command, opcode);
        record->argument = BPF_CORE_READ(command, arg);
        if (BPF_CORE_READ(command, flags) & MMC_BUSY_ANSWER)
            record->flags |= DRIVER_WAITS_BUSY;
        if (!record->error)
            record->error = BPF_CORE_READ(command, error);
    } else if (data) {
        record->code = BPF_CORE_READ(data, flags) & MMC_DATA_TO_CARD ? MMC_QUEUED_WRITE : MMC_QUEUED_READ;
        record->tag = BPF_CORE_READ(request, tag);
        record->argument = (u32)record->tag << 16;
        record->flags |= DRIVER_QUEUED;
    }
    if (stop) {
        if (BPF_CORE_READ(stop, flags) & MMC_BUSY_ANSWER)
            record->flags |= DRIVER_WAITS_BUSY;
        if (!record->error)
            record->error = BPF_CORE_READ(stop, error);
    }
    SUBMIT(record);
    return 0;
}

/* Place of a SCSI command's disk in the configuration, or -1. */
static __always_inline int traced_scsi(struct scsi_cmnd *command)
{
    if (!bpf_core_type_exists(struct scsi_cmnd) || !bpf_core_field_exists(struct scsi_cmnd, cmnd))
        return -1;
    struct gendisk *disk = BPF_CORE_READ(command, device, request_queue, disk);
    if (!disk)
        return -1;
    return traced((u32)BPF_CORE_READ(disk, major) << 20 | (u32)BPF_CORE_READ(disk, first_minor));
}

static __always_inline u32 big_endian(const u8 *bytes)
{
    return (u32)bytes[0] << 24 | (u32)bytes[1] << 16 | (u32)bytes[2] << 8 | bytes[3];
}

/* Low half of the logical block's address in a command: its first three bits tell how long it is. */
static __always_inline u32 scsi_address(const u8 *bytes)
{
    switch (bytes[0] >> 5) {
    case 0:
        return big_endian(bytes) & 0x1fffff;
    case 4:
        return big_endian(bytes + 6);
    default:
        return big_endian(bytes + 2);
    }
}

SEC("tp_btf/scsi_dispatch_cmd_start")
int BPF_PROG(scsi_start, struct scsi_cmnd *command)
{
    int place = traced_scsi(command);
    if (place >= 0)
        command_starts((u64)command, place);
    return 0;
}

SEC("tp_btf/scsi_dispatch_cmd_done")
int BPF_PROG(scsi_done, struct scsi_cmnd *command)
{
    int place = traced_scsi(command);
    if (place < 0)
        return 0;
    /* The block layer makes a request with room for the command right behind it. */
    struct request *request = (void *)command - bpf_core_type_size(struct request);
    u32 operation = BPF_CORE_READ(request, cmd_flags) & OPERATION_BITS;
    u8 bytes[12] = {};
    if (bpf_core_field_exists(struct scsi_cmnd, cmnd))
        bpf_probe_read_kernel(bytes, sizeof(bytes), (void *)command + bpf_core_field_offset(struct scsi_cmnd, cmnd));
    struct driver_record *record = command_ends((u64)command, place);
    if (!record)
        return 0;
    if (operation >= OPERATION_PASS_THROUGH) {
        bpf_ringbuf_discard(record, BPF_RB_NO_WAKEUP);
        return 0;
    }
    record->flags = DRIVER_SCSI | DRIVER_QUEUED;
    record->tag = BPF_CORE_READ(request, tag);
    record->code = bytes[0];
    record->error = BPF_CORE_READ(command, result);
    if (operation != OPERATION_FLUSH) {
        record->flags |= DRIVER_HAS_DATA;
        record->argument = scsi_address(bytes);
        record->sector = BPF_CORE_READ(request, __sector);
        record->bytes = BPF_CORE_READ(request, __data_len);
    }
    SUBMIT(record);
    return 0;
}

#endif
