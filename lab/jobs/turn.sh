# A turn of Linux with many images, each on a chip of its own: mounts them with all checks on (which recovers what was cut),
# hashes all files, writes to some, and unmounts. Chips whose power fails meanwhile (cuts= in FLASH) are left as they are then.
#
# In:  COUNT: how many of the guest's chips have an image; FLASH: parameters of the flash module; MADE=yes: the chips are
#      formatted first, and Linux makes the file systems, without checks; TOUCH=yes: a file is made in each and removed, where
#      there is room; CHURN: arguments of lab-churn, with folders /mnt/NUMBER; CUT: numbers of the chips whose power fails.
# Out: before.txt (lab-hash of all, each behind a line "== NUMBER"), touched.txt (numbers of those that had room for a file),
#      after.txt (hashes of those that were not cut), kernel.txt.
#      off.txt (numbers of chips whose power failed before they were mounted; nothing else names those).
#      The last line says which chip failed, or of what the kernel complains. Codes as those of check.sh, and 9: a chip failed
#      that was not to be cut.
lab-flash $FLASH || exit 2
modprobe ubi || exit 2
lab-ubifs-checks || exit 2
if [ "$MADE" ]; then
    # They cost most of the time, and nothing is there yet that somebody else wrote.
    for check in /sys/kernel/debug/ubifs/chk_*; do echo 0 >"$check"; done
fi
dmesg -c >/dev/null
finish() {
    dmesg >/host/kernel.txt
    [ "$1" -eq 0 ] || { cat /host/kernel.txt; echo "chip or complaint: $number"; }
    exit "$1"
}
# A master node that a cut tore is an error for the scan that finds it, before it is recovered. Of chips whose power failed here, errors
# count up to the first write that failed.
complaints() {
    lab-complaints | grep -v 'ubifs_scan.*: bad node' | awk -v cut="$CUT" '
        BEGIN { count = split(cut, chips, " ") }
        {
            is_after = 0
            for (i = 1; i <= count; i++) {
                if ($0 !~ "(ubi|flash)" chips[i] "[^0-9]") continue
                if ($0 ~ /error -(5|30)/) failed[i] = 1
                is_after = failed[i]
            }
            if (!is_after) print
        }'
}
is_cut() { case " $CUT " in *" $1 "*) return 0 ;; esac; return 1; }
numbers=
whole=
for number in $(seq 0 $((COUNT - 1))); do
    is_cut "$number" || whole="$whole $number"
    if [ "$MADE" ]; then
        ubiformat -q -y "/dev/mtd$number" || finish 2
    fi
    ubiattach -m "$number" -d "$number" >/dev/null 2>&1 || finish 3
    if [ "$MADE" ]; then
        ubimkvol "/dev/ubi$number" -N root -m >/dev/null || finish 2
    fi
    mkdir -p "/mnt/$number"
    if mount -t ubifs "ubi${number}_0" "/mnt/$number"; then
        numbers="$numbers $number"
        continue
    fi
    is_cut "$number" || finish 4
    # The power failed while what was there was recovered.
    echo "$number" >>/host/off.txt
    rmdir "/mnt/$number"
    ubidetach -d "$number" || finish 7
done
cd /mnt
[ -z "$numbers" ] || lab-hash $numbers >/host/before.txt || finish 5
for number in $numbers; do
    [ -z "$TOUCH" ] || { touch "$number/touched" && sync && rm "$number/touched" && echo "$number" >>/host/touched.txt; } 2>/dev/null
done
number=$(complaints)
[ -z "$number" ] || finish 8
if [ "$CHURN" ]; then
    set -- $CHURN
    churn=
    while [ "$1" ]; do
        [ ! -d "$1" ] || churn="$churn $1 $2 $3"
        shift 3
    done
    lab-churn $churn >/host/ended.txt || finish 6
    # What a chip without power still has in memory stays there.
    sync
    for number in $whole; do
        grep "^/mnt/$number " /host/ended.txt && finish 9
    done
    [ -z "$whole" ] || lab-hash $whole >/host/after.txt || finish 5
fi
cd /
for number in $numbers; do
    umount "/mnt/$number" || finish 7
    ubidetach -d "$number" || finish 7
done
number=$(complaints)
[ -z "$number" ] || finish 8
finish 0
