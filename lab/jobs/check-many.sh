# Checks many images with Linux' UBIFS, each on a separate chip: like check.sh, but all are mounted at the same time and
# hashed by one process, which under emulation takes a few tenths of a second per image.
#
# In:  COUNT: number of the guest's chips with an image; FLASH: parameters of the flash module; USE: a command to run in each
#      mounted tree after the hashes are taken.
# Out: files.txt (lab-hash of all, each after a line "== NUMBER"), kernel.txt. The last line names the failed chip, or has the
#      kernel's complaint. Codes: 3 does not attach, 4 does not mount, 5 a file can't be read, 6 USE failed, 7 does not
#      unmount, 8 the kernel complains.
lab-flash $FLASH || exit 2
modprobe ubi || exit 2
lab-ubifs-checks || exit 2
dmesg -c >/dev/null
finish() {
    dmesg >/host/kernel.txt
    [ "$1" -eq 0 ] || { cat /host/kernel.txt; echo "chip or complaint: $number"; }
    exit "$1"
}
# The scan reports a master node torn by a power cut as an error, before it is recovered.
complaints() {
    number=$(lab-complaints | grep -v 'ubifs_scan.*: bad node')
    [ -z "$number" ] || finish 8
}
numbers=$(seq 0 $((COUNT - 1)))
for number in $numbers; do
    ubiattach -m "$number" -d "$number" >/dev/null 2>&1 || finish 3
    mkdir -p "/mnt/$number"
    mount -t ubifs "ubi${number}_0" "/mnt/$number" || finish 4
done
complaints
cd /mnt
lab-hash $numbers >/host/files.txt || finish 5
for number in $numbers; do
    if [ -n "$USE" ]; then
        (cd "/mnt/$number" && eval "$USE") || finish 6
    fi
    umount "/mnt/$number" || finish 7
    ubidetach -d "$number" || finish 7
done
complaints
finish 0
