#!/usr/bin/env bash
# Prints the folder with the sqlite3.c that is built into tidegate, for comparisons over the same source.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/cargo_path.sh
manifest=$(cargo metadata --locked --format-version 1 |
    grep -o '"manifest_path":"[^"]*/libsqlite3-sys-[^"/]*/Cargo.toml"' | head -1 | cut -d'"' -f4)
[ -n "$manifest" ] || { echo "sqlite_source: libsqlite3-sys is not among the crates of this workspace" >&2; exit 2; }
printf '%s/sqlite3\n' "$(dirname "$manifest")"
