# Checks an image with Linux' UBIFS and all of its own checks: mounts it (which recovers an unclean one), reads every
# file, and unmounts it.
#
# In:  IMAGE, CHIP, NANDSIM, FLASH, ATTACH as in attach.sh; VOLUME: name or number (0); OPTIONS: mount options (ro);
#      USE: a command to run in the mounted tree before the hashes are taken; DUMP=yes: the flash afterwards.
# Out: files.txt (lab-hash), kernel.txt (all messages of the kernel), flash.img with DUMP. Code 3: does not attach,
#      4: does not mount, 5: a file can't be read, 6: USE failed, 7: does not unmount, 8: the kernel complains.
lab-chip || exit 2
modprobe ubi || exit 2
lab-ubifs-checks || exit 2
dmesg -c >/dev/null
finish() {
    dmesg >/host/kernel.txt
    [ "$1" -eq 0 ] || cat /host/kernel.txt
    exit "$1"
}
ubiattach $ATTACH -m 0 >/dev/null 2>&1 || finish 3
case ${VOLUME:=0} in
*[!0-9]*) volume=ubi0:$VOLUME ;;
*) volume=ubi0_$VOLUME ;;
esac
mkdir -p /mnt/check
mount -t ubifs ${OPTIONS:+-o "$OPTIONS"} "$volume" /mnt/check || finish 4
if [ -n "$USE" ]; then
    (cd /mnt/check && eval "$USE") || finish 6
fi
lab-hash /mnt/check >/host/files.txt || finish 5
umount /mnt/check || finish 7
lab-complaints || finish 8
ubidetach -m 0 || finish 7
if [ -n "$DUMP" ]; then
    dd if=/dev/mtd0 of=/host/flash.img bs=1M status=none || finish 2
fi
finish 0
