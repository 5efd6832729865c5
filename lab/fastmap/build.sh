# Puts a UBI module that writes and reads fastmaps into the guest's modules, for lab/setup.sh. Ubuntu's own does; Debian
# disables fastmaps, so there the module is built from Debian's source package of the same kernel, with that option added.
#
# It is not called ubi.ko, so that modprobe still finds the distribution's: a job loads it by its path, after its
# dependencies: modprobe ubi && rmmod ubi && insmod /lib/modules/VERSION/ubi-with-fastmap.

build_ubi_with_fastmap() {
    local tree=$lab/kernel-$version part=$lab/fastmap.part module
    local headers=$tree/headers/usr/src/linux-headers-$version
    local out=$tree/lib/modules/$version/ubi-with-fastmap
    [ -e "$out" ] && return
    if grep -qs '^CONFIG_MTD_UBI_FASTMAP=y' "$tree/boot/config-$version"; then
        module=$(find "$tree/lib/modules/$version/kernel/drivers/mtd/ubi" -name 'ubi.ko*' | head -n 1)
        rm -rf "$part"
        mkdir "$part"
        [ "$module" ] && mv "$part/$(unpacked_module "$module" "$part")" "$out"
        rm -rf "$part"
        return
    fi
    if [ ! -d "$headers" ]; then
        say "there are no headers of kernel $version: UBI with fastmaps is left out"
        return
    fi
    say "building UBI with fastmaps of kernel $version"
    rm -rf "$part"
    mkdir "$part"
    if (
        cd "$part"
        package=linux-source-$(printf '%s' "$version" | cut -d. -f1-2)
        apt-get download -qq "$package"
        dpkg-deb --fsys-tarfile "$package"_*.deb | tar -xO --wildcards './usr/src/*.tar.xz' |
            tar -xJ --strip-components=1 --wildcards '*/drivers/mtd/ubi/*' || [ -e drivers/mtd/ubi/fastmap.c ]
        make -C "$headers" M="$PWD/drivers/mtd/ubi" CONFIG_MTD_UBI_FASTMAP=y \
            KCFLAGS=-DCONFIG_MTD_UBI_FASTMAP=1 modules
    ) >"$lab/fastmap.log" 2>&1; then
        strip --strip-debug -o "$out" "$part/drivers/mtd/ubi/ubi.ko"
    else
        say "UBI with fastmaps can't be built (log: $lab/fastmap.log): what needs it is left out"
    fi
    rm -rf "$part"
}
