/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * Commands that a driver sends to its card, below the block layer: eMMC and SD by the mmc core's tracepoints.
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

struct pending_command {
    u64 issued;
    u32 tries;
    u32 reserved;
};

/* mmc_request -> its first try. A request whose end was missed is pushed out. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 1024);
    __type(key, u64);
    __type(value, struct pending_command);
} pending_commands SEC(".maps");

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
    if (traced_host(host) < 0)
        return 0;
    u64 key = (u64)request;
    struct pending_command *known = bpf_map_lookup_elem(&pending_commands, &key);
    if (known) {
        known->tries++;
        return 0;
    }
    struct pending_command first = {.issued = bpf_ktime_get_ns(), .tries = 1};
    bpf_map_update_elem(&pending_commands, &key, &first, BPF_ANY);
    return 0;
}

SEC("tp_btf/mmc_request_done")
int BPF_PROG(command_done, struct mmc_host *host, struct mmc_request *request)
{
    int place = traced_host(host);
    if (place < 0)
        return 0;
    u64 key = (u64)request;
    struct pending_command *known = bpf_map_lookup_elem(&pending_commands, &key);
    if (!known)
        return 0;
    struct pending_command pending = *known;
    bpf_map_delete_elem(&pending_commands, &key);
    struct mmc_command *command = BPF_CORE_READ(request, cmd);
    struct mmc_command *count = BPF_CORE_READ(request, sbc);
    struct mmc_command *stop = BPF_CORE_READ(request, stop);
    struct mmc_data *data = BPF_CORE_READ(request, data);
    RESERVE(record, driver_record, RECORD_DRIVER);
    if (!record)
        return 0;
    record->device = config.devices[place & (MAX_DEVICES - 1)];
    record->issued = pending.issued;
    record->completed = bpf_ktime_get_ns();
    record->sector = 0;
    record->code = 0;
    record->argument = 0;
    record->bytes = 0;
    record->tries = pending.tries;
    record->error = 0;
    record->tag = 0;
    record->flags = 0;
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

#endif
