/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * The block tracer's programs. Built by scripts/build-bpf.sh into tidegate.bpf.o, which is checked in.
 *
 * All programs sit on tracepoints with BTF (tp_btf), which exist wherever the kernel has the subsystem: neither kprobes
 * nor fentry are needed. The loader leaves out those whose tracepoint the running kernel lacks.
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "records.h"

#include "state.h"

#include "file.h"

#include "owner.h"

#include "block.h"

#include "writers.h"

#include "events.h"

#include "driver.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";
