# One turn of Linux with many images, each on a separate chip: mounts them with all checks on (which recovers unclean ones),
# hashes all files, writes to some, and unmounts. Chips whose power fails in between (cuts= in FLASH) are left in that state.
#
# In:  COUNT: number of the guest's chips with an image; FLASH: parameters of the flash module; MADE=yes: the chips are
#      formatted first, and Linux makes the file systems, without checks; TOUCH=yes: a file is made in each and removed, if
#      there is space; CHURN: arguments of lab-churn, with folders /mnt/NUMBER; CUT: numbers of the chips whose power fails.
# Out: before.txt (lab-hash of all, each after a line "== NUMBER"), touched.txt (numbers of those with space for a file),
#      after.txt (hashes of those without a power cut), kernel.txt.
#      off.txt (numbers of chips whose power failed before they were mounted; no other file names those).
#      The last line names the failed chip, or has the kernel's complaint. Codes as in check.sh, and 9: a chip failed
#      without a planned power cut.
lab-flash $FLASH || exit 2
modprobe ubi || exit 2
lab-ubifs-checks || exit 2
if [ "$MADE" ]; then
    # The checks cost most of the time, and there is no data of another writer yet.
    for check in /sys/kernel/debug/ubifs/chk_*; do echo 0 >"$check"; done
fi
dmesg -c >/dev/null
finish() {
    dmesg >/host/kernel.txt
    [ "$1" -eq 0 ] || { cat /host/kernel.txt; echo "chip or complaint: $number"; }
    exit "$1"
}
# The scan reports a master node torn by a power cut as an error, before it is recovered. On chips whose power failed here,
# errors count up to the first failed write.
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
    # The power failed during the recovery.
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
    # Data still in memory for a chip without power stays there.
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
