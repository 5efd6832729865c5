#!/usr/bin/env bash
# Makes the lab guest: QEMU and the tools by apt, the distribution's kernel package unpacked (never installed) into a
# cache folder, its uncompressed kernel image, an initramfs and our flash module. See docs/reference/lab.md.
#
# Debian 12 and 13, Ubuntu 24.04. Asks no questions; existing parts are left alone, and a second run takes no time.
# Unavailable parts are named; exit code 1: there is no guest (tests then skip); 2: an internal error.
#
#   lab/setup.sh            the guest
#   lab/setup.sh --update   the same with the newest kernel that apt offers
#   lab/setup.sh --fsck     also the stock fsck.ubifs (also with TIDEGATE_FULL set)
#   lab/setup.sh --fastmap  also a UBI module with fastmaps, if the kernel's has none (also with TIDEGATE_FULL set)
set -euo pipefail
cd "$(dirname "$0")/.."
lab=${TIDEGATE_LAB_DIR:-${HOME:-/root}/.cache/tidegate/lab}
update=
fsck=${TIDEGATE_FULL:-}
fastmap=${TIDEGATE_FULL:-}
for argument in "$@"; do
    case $argument in
    --update) update=yes ;;
    --fsck) fsck=yes ;;
    --fastmap) fastmap=yes ;;
    *) printf 'usage: lab/setup.sh [--update] [--fsck] [--fastmap]\n' >&2; exit 2 ;;
    esac
done

say() { printf 'lab: %s\n' "$*"; }
give_up() { say "$*; tests and studies in the guest are left out"; exit 1; }

[ "$(uname -m)" = x86_64 ] || give_up "the guest is an x86-64 PC and this machine is $(uname -m)"
mkdir -p "$lab"
lab=$(cd "$lab" && pwd)
# Two concurrent runs would unpack over each other.
exec 9>"$lab/lock"
command -v flock >/dev/null 2>&1 && flock 9

PATH="$PATH:/usr/sbin:/sbin"
. lab/packages.sh
. lab/fsck/build.sh
. lab/fastmap/build.sh

install_tools() {
    local missing=()
    # Command that proves a package is installed, and the package.
    for need in qemu-system-x86_64:qemu-system-x86 cpio:cpio modprobe:kmod xz:xz-utils zstd:zstd \
        ubiformat:mtd-utils mkfs.f2fs:f2fs-tools mkfs.nilfs2:nilfs-tools mkfs.vfat:dosfstools dmsetup:dmsetup \
        mkfs.ext4:e2fsprogs mkfs.xfs:xfsprogs mkfs.btrfs:btrfs-progs sqlite3:sqlite3 fio:fio getfattr:attr python3:python3; do
        command -v "${need%%:*}" >/dev/null 2>&1 || missing+=("${need##*:}")
    done
    static_busybox >/dev/null || missing+=(busybox-static)
    [ "${#missing[@]}" -eq 0 ] || install_packages "${missing[@]}"
}

# Path of a static busybox: the package busybox-static installs it under the path of the dynamic one.
static_busybox() {
    local path
    path=$(command -v busybox 2>/dev/null) || return 1
    ! ldd "$path" >/dev/null 2>&1 && printf '%s\n' "$path"
}

# Unpacks the kernel's packages to $lab/kernel-VERSION and puts VERSION into $version.
unpack_kernel() {
    if [ -z "$update" ] && [ -e "$lab/version" ]; then
        version=$(cat "$lab/version")
        [ -e "$lab/kernel-$version/vmlinux" ] && return
    fi
    version=$(newest_kernel) || give_up "apt knows no kernel package"
    [ -e "$lab/kernel-$version/vmlinux" ] && return
    say "unpacking kernel $version to $lab/kernel-$version"
    local tree=$lab/kernel-$version.part
    rm -rf "$tree" "$lab/download"
    mkdir -p "$tree" "$lab/download"
    # shellcheck disable=SC2046
    (cd "$lab/download" && apt-get download -qq $(kernel_packages "$version") >/dev/null 2>&1) ||
        give_up "apt can't download the kernel package $version"
    local package
    for package in "$lab"/download/*.deb; do
        dpkg -x "$package" "$tree"
    done
    rm -rf "$lab/download"
    # If /lib is a link, newer packages use its target.
    [ -d "$tree/lib/modules" ] || { mkdir -p "$tree/lib" && mv "$tree/usr/lib/modules" "$tree/lib/modules"; }
    rm -f "$tree/lib/modules/$version/build" "$tree/lib/modules/$version/source"
    depmod -b "$tree" "$version"
    uncompressed_kernel "$tree/boot/vmlinuz-$version" "$tree/vmlinux" ||
        { say "the kernel's payload can't be unpacked: it boots compressed, some seconds slower"
          cp "$tree/boot/vmlinuz-$version" "$tree/vmlinux"; }
    mv "$tree" "$lab/kernel-$version"
}

# The ELF image inside a bzImage (Linux' x86 boot protocol: setup_sects at 0x1f1, payload_offset and payload_length at
# 0x248 and 0x24c). QEMU starts it directly, without decompression under emulation.
uncompressed_kernel() {
    local image=$1 out=$2 start length
    number() { od -An -tu"$2" -j$(($1)) -N"$2" "$image" | tr -d ' '; }
    start=$((($(number 0x1f1 1) + 1) * 512 + $(number 0x248 4)))
    length=$(number 0x24c 4)
    # Its last four bytes are the decompressed size, which only gzip accepts as its own.
    payload() {
        dd if="$image" bs=1M iflag=skip_bytes,count_bytes skip="$start" count=$((length - $1)) status=none
    }
    case $(od -An -tx1 -j"$start" -N4 "$image" | tr -d ' ') in
    fd377a58) payload 4 | xz -dc --single-stream >"$out" ;;
    28b52ffd) payload 4 | zstd -qdc >"$out" ;;
    1f8b*) payload 0 | gzip -qdc >"$out" ;;
    *) return 1 ;;
    esac
}

# Builds lab/module against the distribution's headers, which are unpacked like the kernel, into the guest's modules.
# Installing them would also install the kernel (Debian 13).
build_flash_module() {
    local tree=$lab/kernel-$version part=$lab/module.part stamp
    local headers=$tree/headers/usr/src/linux-headers-$version
    stamp=$(cat lab/module/* | cksum)
    [ "$(cat "$tree/flash-module" 2>/dev/null)" = "$stamp" ] && return
    rm -f "$tree/flash-module"
    command -v make >/dev/null 2>&1 && command -v gcc >/dev/null 2>&1 || install_packages make gcc libc6-dev
    # A tool of the headers links with it.
    ldconfig -p | grep -q 'libelf\.so\.1 ' || install_packages libelf-dev
    if [ ! -d "$headers" ] && ! unpack_headers "$tree/headers"; then
        say "apt can't download linux-headers-$version: tests with power cuts in the guest are left out (--update may help)"
        return
    fi
    rm -rf "$part"
    cp -r lab/module "$part"
    if ! make -C "$headers" M="$part" modules >"$lab/module.log" 2>&1; then
        say "lab/module does not build (log: $lab/module.log): tests with power cuts in the guest are left out"
        return
    fi
    mkdir -p "$tree/lib/modules/$version/extra"
    strip --strip-debug "$part/tidegate_flash.ko"
    cp "$part/tidegate_flash.ko" "$tree/lib/modules/$version/extra/"
    depmod -b "$tree" "$version"
    rm -rf "$part"
    printf '%s' "$stamp" >"$tree/flash-module"
}

# Unpacks the kernel's headers to $1 and redirects their absolute paths there.
unpack_headers() {
    local to=$1 package link
    rm -rf "$to.part" "$lab/download"
    mkdir -p "$to.part" "$lab/download"
    # shellcheck disable=SC2046
    (cd "$lab/download" && apt-get download -qq $(header_packages "$version") >/dev/null 2>&1) || return 1
    for package in "$lab"/download/*.deb; do
        dpkg -x "$package" "$to.part"
    done
    rm -rf "$lab/download"
    [ -d "$to.part/usr/src/linux-headers-$version" ] || return 1
    find "$to.part" -type l -lname '/usr/*' -print | while read -r link; do
        ln -sfn "$to$(readlink "$link")" "$link"
    done
    find "$to.part/usr/src" -maxdepth 2 -name Makefile -type f -exec sed -i "s# /usr/src/# $to/usr/src/#g" {} +
    rm -rf "$to"
    mv "$to.part" "$to"
}

# The initramfs holds a busybox, the modules to reach the host's tree over 9p, and the agent.
build_initramfs() {
    local tree=$lab/initramfs.part modules=$lab/kernel-$version module
    rm -rf "$tree"
    mkdir -p "$tree/bin" "$tree/modules" "$tree/guest"
    cp "$(static_busybox)" "$tree/bin/busybox"
    cp -r lab/guest/agent.sh lab/guest/bin "$tree/guest/"
    cp lab/guest/init "$tree/init"
    chmod +x "$tree/init" "$tree"/guest/bin/*
    for module in virtio_pci virtio_console 9pnet_virtio 9p overlay; do
        # A built-in module has no file, and older names may be part of others.
        modprobe -d "$modules" -S "$version" --show-depends "$module" 2>/dev/null || true
    done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r module; do
        unpacked_module "$module" "$tree/modules"
    done >"$tree/modules/order"
    (cd "$tree" && find . | cpio -o -H newc --quiet) >"$lab/initramfs.cpio.part"
    mv "$lab/initramfs.cpio.part" "$lab/initramfs.cpio"
    rm -rf "$tree"
}

# Copies a module, uncompressed, and prints its file name.
unpacked_module() {
    local name
    name=$(basename "$1")
    case $name in
    *.xz) name=${name%.xz} && xz -dc "$1" >"$2/$name" ;;
    *.zst) name=${name%.zst} && zstd -qdc "$1" >"$2/$name" ;;
    *) cp "$1" "$2/" ;;
    esac
    printf '%s\n' "$name"
}

# Sets $accelerator, QEMU's accelerator for the guest. Nested virtualisation may be present and broken, so the guest is
# booted with it once; without its devices it ends by itself.
find_accelerator() {
    accelerator=tcg,thread=multi
    [ -w /dev/kvm ] || return 0
    if [ -e "$lab/accelerator" ]; then
        accelerator=$(cat "$lab/accelerator")
        return
    fi
    say "trying hardware virtualisation"
    if timeout -k 1 15 qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot -accel kvm -cpu max -m 512 \
        -kernel "$lab/kernel-$version/vmlinux" -initrd "$lab/initramfs.cpio" -append "console=ttyS0 quiet panic=-1 no_timer_check" \
        -serial stdio </dev/null 2>/dev/null | grep -q "there is no host tree"; then
        accelerator=kvm
    else
        say "it does not work: the guest is emulated"
    fi
    printf '%s\n' "$accelerator" >"$lab/accelerator"
}

# Read by the test harness; the file exists only if there is a guest.
write_description() {
    cat >"$lab/guest.env.part" <<END
version=$version
kernel=$lab/kernel-$version/vmlinux
modules=$lab/kernel-$version/lib/modules
initramfs=$lab/initramfs.cpio
accelerator=$accelerator
END
    mv "$lab/guest.env.part" "$lab/guest.env"
}

# fsck.ubifs runs on the host, so it is useful without a guest too.
[ -z "$fsck" ] || build_fsck
install_tools
command -v qemu-system-x86_64 >/dev/null 2>&1 || give_up "there is no qemu-system-x86_64"
static_busybox >/dev/null || give_up "there is no static busybox"
for tool in cpio modprobe depmod; do
    command -v "$tool" >/dev/null 2>&1 || give_up "there is no $tool"
done
unpack_kernel
build_flash_module
[ -z "$fastmap" ] || build_ubi_with_fastmap
stamp=$(cat lab/setup.sh lab/guest/init lab/guest/agent.sh lab/guest/bin/* "$(static_busybox)" | cksum)-$version
if [ "$(cat "$lab/stamp" 2>/dev/null)" != "$stamp" ]; then
    build_initramfs
    find_accelerator
    write_description
    printf '%s' "$stamp" >"$lab/stamp"
fi
printf '%s\n' "$version" >"$lab/version"
say "guest ready: kernel $version in $lab"
