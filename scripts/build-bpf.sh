#!/usr/bin/env bash
# Builds the block tracer's programs anew: crates/trace/trace/bpf/tidegate.bpf.o, and beside it the sum of the sources that it
# came from, by which a test knows a stale one. Needs clang 14 or later and libbpf-dev; building Tidegate needs neither.
set -euo pipefail
cd "$(dirname "$0")/../crates/trace/trace/bpf"

clang -O2 -g -target bpf -mcpu=v3 -Wall -Werror -Wno-unused-function -ffile-prefix-map="$PWD"=bpf \
    -I. -c tidegate.bpf.c -o tidegate.bpf.o
llvm-strip -g tidegate.bpf.o
export LC_ALL=C
cat tidegate.bpf.c ./*.h | sha256sum | cut -d' ' -f1 >tidegate.bpf.sources
ls -l tidegate.bpf.o
