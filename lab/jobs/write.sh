# Makes an image with Linux: formats the chip, makes one volume with UBIFS, runs a load on it and returns the flash.
#
# In:  CHIP, NANDSIM, FLASH, IMAGE as in lab-chip (IMAGE=none: an empty nandsim); ATTACH; FORMAT: options of ubiformat;
#      MKVOL (-N root -m): options of ubimkvol; OPTIONS: mount options (compr=zstd);
#      LOAD: a command run in the mounted tree (lab-load . 1 300);
#      LEAVE=yes: the flash is copied while the file system is mounted, as after a power cut between two operations.
# Out: files.txt (lab-hash of the tree), flash.img (with nandsim; chips of the guest are the host's files anyhow).
#
# For a power cut: chips of the guest, and cut_at= in FLASH, or --kill-on with a word printed by LOAD.
if [ "$IMAGE" = none ]; then
    IMAGE=
    modprobe nandsim "id_bytes=${CHIP:-0x20,0xa1,0x00,0x15}" $NANDSIM || exit 2
else
    lab-chip || exit 2
fi
modprobe ubi && modprobe ubifs || exit 2
ubiformat -q -y $FORMAT /dev/mtd0 || exit 3
ubiattach $ATTACH -m 0 >/dev/null || exit 3
ubimkvol /dev/ubi0 ${MKVOL:--N root -m} >/dev/null || exit 3
mkdir -p /mnt/write
mount -t ubifs ${OPTIONS:+-o "$OPTIONS"} ubi0_0 /mnt/write || exit 4
echo "formatted and mounted"
(cd /mnt/write && eval "${LOAD:-lab-load . 1 300}") || exit 6
lab-hash /mnt/write >/host/files.txt || exit 5
if [ -z "$LEAVE" ]; then
    umount /mnt/write || exit 7
    ubidetach -m 0 || exit 7
fi
if [ ! -e /sys/module/tidegate_flash ]; then
    dd if=/dev/mtd0 of=/host/flash.img bs=1M status=none || exit 2
else
    echo "operations $(cat /sys/module/tidegate_flash/parameters/operations)"
fi
