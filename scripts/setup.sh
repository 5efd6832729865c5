#!/usr/bin/env bash
# Installs the requirements of building and testing on Debian 12 and 13 and Ubuntu 24.04, as far as this user may.
#
# It asks no questions. Installed packages are left alone; unavailable ones are named, and only a missing compiler is an
# error. Rust: the toolchain in rust-toolchain.toml, through rustup.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/cargo_path.sh

say() { printf 'setup: %s\n' "$*"; }

# Command (or file) that proves a package is installed, and the package.
needs=(
    fusermount3:fuse3
    mkfs.btrfs:btrfs-progs
    mkfs.ext4:e2fsprogs
    losetup:util-linux
    getfattr:attr
    getfacl:acl
    cc:gcc
)
# Only for comparisons and long tests.
wishes=(fio:fio)
[ "${TIDEGATE_FULL:-}${TIDEGATE_AGREEMENT:-}" ] && needs+=("${wishes[@]}")
# Spark, a second engine for the analyses of block traces, in the long tests: it runs on Java; pyspark comes by pip.
[ "${TIDEGATE_FULL:-}" ] && needs+=(java:default-jre-headless python3:python3)
# External programs used by tests; a test whose program is unavailable says so.
judges=(bindfs:bindfs blkparse:blktrace fio:fio strace:strace sqlite3:sqlite3 chromium:chromium mkfs.fat:dosfstools mshowfat:mtools mkfs.xfs:xfsprogs ubinize:mtd-utils)
[ "${TIDEGATE_TEST:-}" ] && needs+=("${judges[@]}")
# The peers of `make bench`; unavailable ones are skipped there.
peers=(bindfs:bindfs mergerfs:mergerfs python3:python3 git:git)
[ "${TIDEGATE_BENCH:-}" ] && needs+=("${peers[@]}")
# The file systems of a study on this machine.
[ "${TIDEGATE_GUEST:-}" ] && needs+=(mkfs.xfs:xfsprogs)

PATH="$PATH:/usr/sbin:/sbin"
missing=()
for need in "${needs[@]}"; do
    command -v "${need%%:*}" >/dev/null 2>&1 || missing+=("${need##*:}")
done
# Headers required by the block tracer's loader (libbpf).
for header in gelf.h:libelf-dev zlib.h:zlib1g-dev; do
    printf '#include <%s>\n' "${header%%:*}" | cc -E - >/dev/null 2>&1 || missing+=("${header##*:}")
done
command -v make >/dev/null 2>&1 || missing+=(make)
command -v pkg-config >/dev/null 2>&1 || missing+=(pkg-config)
if ! printf '#include <stdlib.h>\n' | cc -E - >/dev/null 2>&1; then
    missing+=(libc6-dev)
fi
if [ "${TIDEGATE_FULL:-}" ] && ! python3 -c 'import ensurepip' >/dev/null 2>&1; then
    missing+=(python3-venv)
fi
# Required by the comparison of SQLite with the system's library.
if [ "${TIDEGATE_AGREEMENT:-}" ] && [ "${SQLITE:-}" = system ] &&
    ! printf '#include <sqlite3.h>\n' | cc -E - >/dev/null 2>&1; then
    missing+=(libsqlite3-dev)
fi

as_root=()
may_install=yes
if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
        as_root=(sudo -n)
    else
        may_install=
    fi
fi
command -v apt-get >/dev/null 2>&1 || may_install=

install_packages() {
    local environment=(env DEBIAN_FRONTEND=noninteractive)
    "${as_root[@]}" "${environment[@]}" apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1 && return
    "${as_root[@]}" "${environment[@]}" apt-get update -qq >/dev/null 2>&1 || true
    "${as_root[@]}" "${environment[@]}" apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

if [ "${#missing[@]}" -gt 0 ]; then
    if [ "$may_install" ]; then
        say "installing ${missing[*]}"
        # A package missing from a distribution must not prevent the others.
        install_packages "${missing[@]}" 2>/dev/null || for package in "${missing[@]}"; do
            install_packages "$package" || say "could not install $package: its users are left out"
        done
    else
        say "missing, and neither root nor sudo without a password to install them with apt-get: ${missing[*]}"
        say "their users are left out; by hand: apt-get install ${missing[*]}"
    fi
fi

command -v cc >/dev/null 2>&1 || { say "no C compiler to link with: install gcc and libc6-dev"; exit 2; }

if ! command -v cargo >/dev/null 2>&1; then
    if [ "$may_install" ] && apt-cache show rustup >/dev/null 2>&1; then
        say "installing rustup from the distribution"
        install_packages rustup || true
    fi
    if command -v rustup >/dev/null 2>&1; then
        rustup toolchain install >/dev/null 2>&1 || true
    elif command -v curl >/dev/null 2>&1; then
        say "installing Rust with rustup-init from sh.rustup.rs"
        curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal \
            --default-toolchain none --no-modify-path >/dev/null || true
        . scripts/cargo_path.sh
    fi
    command -v cargo >/dev/null 2>&1 || {
        say "cargo is missing and could not be installed; see https://rustup.rs"
        exit 2
    }
fi

wanted=$(sed -n 's/^channel *= *"\(.*\)"/\1/p' rust-toolchain.toml)
if command -v rustup >/dev/null 2>&1; then
    # rustup reads rust-toolchain.toml; an older one installs at the first call of cargo.
    cargo --version >/dev/null 2>&1 || rustup toolchain install "$wanted" --profile minimal -c rustfmt -c clippy
elif ! cargo --version | grep -qF "cargo $wanted"; then
    say "$(cargo --version) is not the pinned $wanted, and there is no rustup to get it; it may do"
fi

[ -e /dev/fuse ] || { [ "$(id -u)" -eq 0 ] && modprobe fuse 2>/dev/null; } || true
[ -e /dev/fuse ] || say "/dev/fuse is missing: everything that mounts is left out"

# The guest that checks flash images and runs file systems missing from this kernel; it reports why it is unavailable.
if [ "${TIDEGATE_TEST:-}${TIDEGATE_GUEST:-}" ]; then
    if [ "${TIDEGATE_LAB:-}" = no ]; then
        say "TIDEGATE_LAB=no leaves out the lab guest"
    else
        lab/setup.sh || true
    fi
fi
