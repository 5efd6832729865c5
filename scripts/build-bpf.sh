#!/usr/bin/env bash
# Rebuilds the block tracer's programs: crates/trace/trace/bpf/tidegate.bpf.o, and beside it the checksum of its sources,
# by which a test detects a stale object. Needs clang 14 or later and libbpf-dev; building Tidegate needs neither.
set -euo pipefail
cd "$(dirname "$0")/../crates/trace/trace/bpf"

clang -O2 -g -target bpf -mcpu=v3 -Wall -Werror -Wno-unused-function -ffile-prefix-map="$PWD"=bpf \
    -I. -c tidegate.bpf.c -o tidegate.bpf.o
llvm-strip -g tidegate.bpf.o
export LC_ALL=C
cat tidegate.bpf.c ./*.h | sha256sum | cut -d' ' -f1 >tidegate.bpf.sources
ls -l tidegate.bpf.o
