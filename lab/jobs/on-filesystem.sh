# Runs a command on a fresh file system of a kind that the host's kernel may lack, for the block tracer.
#
# In:  KIND: ext4, ext4-dm (on a device-mapper target), xfs, btrfs, f2fs, nilfs2, vfat, swap; SIZE in MiB (256);
#      DEVICE (a loop device over memory) on which to make it, or "card" for the guest's first SD card, or "scsi" for a SCSI
#      disk simulated by the kernel; MKFS: further options of mkfs; OPTIONS: mount options;
#      RUN: the command, run as root with FOLDER and DEVICE set (for swap only DEVICE, which is in use by then).
# Out: the files that RUN writes to /host. Its code is the job's; 2: the file system can't be made.
fail() { echo "on-filesystem: $*"; exit 2; }
if [ "$DEVICE" = card ]; then
    modprobe sdhci_pci && modprobe mmc_block || fail "no driver of SD cards"
    DEVICE=/dev/mmcblk0
    tries=300
    until [ -b "$DEVICE" ]; do
        [ "$((tries -= 1))" -gt 0 ] || fail "no SD card"
        sleep 0.1
    done
fi
if [ "$DEVICE" = scsi ]; then
    modprobe sd_mod && modprobe scsi_debug dev_size_mb=64 || fail "no SCSI disk"
    DEVICE=
    tries=300
    until [ "$DEVICE" ]; do
        [ "$((tries -= 1))" -gt 0 ] || fail "no SCSI disk"
        sleep 0.1
        for disk in /sys/block/sd*; do
            [ -b "/dev/${disk##*/}" ] && DEVICE=/dev/${disk##*/}
        done
    done
fi
if [ -z "$DEVICE" ]; then
    modprobe loop || fail "no loop"
    truncate -s "${SIZE:=256}M" /dev/shm/disk
    DEVICE=$(losetup --find --show /dev/shm/disk) || fail "no loop device"
fi
if [ "$KIND" = ext4-dm ]; then
    modprobe dm_mod || fail "no device mapper"
    # A hole between two linear targets, so that sectors of the two devices differ.
    sectors=$(($(blockdev --getsz "$DEVICE") / 2 - 2048))
    printf '0 %s linear %s 2048\n%s %s linear %s %s\n' "$sectors" "$DEVICE" \
        "$sectors" "$((sectors - 2048))" "$DEVICE" "$((sectors + 4096))" | dmsetup create lab || fail "no dm device"
    dmsetup mknodes
    UNDER=$DEVICE
    DEVICE=/dev/mapper/lab
    KIND=ext4
    export UNDER
fi
case $KIND in
ext4 | xfs | btrfs | nilfs2) modprobe "$KIND" && "mkfs.$KIND" -q $MKFS "$DEVICE" >/dev/null || fail "mkfs.$KIND" ;;
f2fs) modprobe f2fs && mkfs.f2fs -q $MKFS "$DEVICE" >/dev/null || fail mkfs.f2fs ;;
vfat) modprobe vfat && mkfs.vfat -F 32 $MKFS "$DEVICE" >/dev/null || fail mkfs.vfat ;;
swap)
    mkswap "$DEVICE" >/dev/null && swapon "$DEVICE" || fail mkswap
    export DEVICE
    eval "$RUN"
    exit
    ;;
*) fail "KIND=$KIND: expected ext4, ext4-dm, xfs, btrfs, f2fs, nilfs2, vfat or swap" ;;
esac
FOLDER=/mnt/$KIND
mkdir -p "$FOLDER"
# nilfs2's cleaner would need a daemon; it is not used here.
mount -i -t "$KIND" ${OPTIONS:+-o "$OPTIONS"} "$DEVICE" "$FOLDER" || fail "mounting $KIND"
export FOLDER DEVICE
eval "$RUN"
code=$?
cd /
umount "$FOLDER" || fail "unmounting $FOLDER"
exit $code
