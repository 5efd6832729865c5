# Attaches a raw image to Linux' UBI and returns every volume, LEB after LEB.
#
# In:  IMAGE, CHIP, NANDSIM, FLASH as in lab-chip; ATTACH: further options of ubiattach (-O 2048).
# Out: attach.log (the kernel's messages), ubinfo.txt, volume-N.img (unmapped LEBs read as 0xFF; an empty volume-N.marked
#      instead after an interrupted update), volumes.txt (number, type, LEB bytes, LEBs, name). Code 3: UBI refuses the
#      image; attach.log has the reason.
lab-chip || exit 2
modprobe ubi || exit 2
dmesg -c >/dev/null
ubiattach $ATTACH -m 0 >/dev/null 2>&1
code=$?
dmesg >/host/attach.log
if [ $code -ne 0 ]; then
    cat /host/attach.log
    exit 3
fi
ubinfo -a >/host/ubinfo.txt
: >/host/volumes.txt
for volume in /sys/class/ubi/ubi0_*; do
    [ -e "$volume/name" ] || continue
    number=${volume##*_}
    echo "$number $(cat "$volume/type") $(cat "$volume/usable_eb_size") $(cat "$volume/reserved_ebs")" \
        "$(cat "$volume/name")" >>/host/volumes.txt
    if [ "$(cat "$volume/upd_marker")" = 1 ]; then
        : >"/host/volume-$number.marked"
        continue
    fi
    dd if="/dev/ubi0_$number" "of=/host/volume-$number.img" bs="$(cat "$volume/usable_eb_size")" status=none || exit 4
done
cat /host/volumes.txt
