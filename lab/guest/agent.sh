# Runs jobs in the lab guest. Run by busybox, so that it does not depend on the host's tree.
#
# The control port (a virtio serial port called "control") carries lines from the host:
#     ping                     answered by "ready"
#     run FOLDER               runs .lab-script of that folder of the share as /host
#     off                      ends the guest
# and, to the host, the job's output interleaved with the agent's lines. Those start with byte 1, which ordinary output
# does not contain: "ready", "started", "code N" and, if mounts or modules of the job could not be removed,
# "dirty WHAT".
bb=/lab/busybox
PATH=/lab/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
HOME=/root
LANG=C.UTF-8
export PATH HOME LANG

mkdir -p /dev/pts /dev/shm
$bb mount -t devpts devpts /dev/pts
$bb mount -t tmpfs shm /dev/shm
$bb mount -t debugfs debug /sys/kernel/debug
$bb mount -t tracefs trace /sys/kernel/tracing 2>/dev/null
$bb mount -t bpf bpf /sys/fs/bpf 2>/dev/null
$bb mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=none host /lab/share ||
    $bb poweroff -f
echo 1 >/proc/sys/kernel/sysrq
# UBIFS prints whole eraseblocks with its findings; they stay in dmesg.
echo 1 >/proc/sys/kernel/printk
$bb hostname lab
$bb ip link set lo up

for port in /sys/class/virtio-ports/*; do
    [ "$($bb cat "$port/name")" = control ] && control=/dev/${port##*/}
done
exec 3<>"$control"

tell() { printf '\n\001%s\n' "$1" >&3; }

# Mounts and modules before the first job; everything else is removed after each job.
$bb cut -d' ' -f2 /proc/mounts >/lab/mounts
$bb cut -d' ' -f1 /proc/modules >/lab/modules

take_away() {
    # Remaining processes of a job keep its mounts busy.
    for process in /proc/[0-9]*; do
        # Kernel threads have no program.
        [ "$process" != /proc/1 ] && [ -e "$process/exe" ] && kill -9 "${process#/proc/}" 2>/dev/null
    done
    swapoff -a 2>/dev/null
    $bb cut -d' ' -f2 /proc/mounts | $bb tac | while read -r mount; do
        $bb grep -qxF "$mount" /lab/mounts || $bb umount "$mount" 2>/dev/null || $bb umount -l "$mount"
    done
    [ -e /sys/module/dm_mod ] && dmsetup remove_all --force >/dev/null 2>&1
    [ -e /sys/module/loop ] && /bin/sh -c "losetup -D"
    if [ -e /sys/class/ubi/version ]; then
        for device in /sys/class/ubi/ubi[0-9]*; do
            case ${device##*/} in *_*) continue ;; esac
            [ -e "$device/mtd_num" ] && ubidetach -m "$($bb cat "$device/mtd_num")" >/dev/null 2>&1
        done
    fi
    # Devices made by loading a module; file system modules may stay, they hold no data.
    for module in tidegate_flash nandsim mtdram null_blk scsi_debug brd; do
        [ -e "/sys/module/$module" ] && { rmmod "$module" 2>/dev/null || tell "dirty $module"; }
    done
    $bb rm -rf /dev/shm/*
    $bb dmesg -c >/dev/null
}

run() {
    $bb mount -o bind "/lab/share/$1" /host || { tell "code 125"; return; }
    tell started
    (
        cd /host || exit 125
        # By their paths; otherwise busybox uses its own applets for them and for all commands of the script.
        exec /usr/bin/setsid --wait /bin/sh /host/.lab-script </dev/null >&3 2>&3
    )
    code=$?
    cd /
    take_away
    tell "code $code"
}

tell ready
while :; do
    if ! read -r word folder <&3; then
        # The other end is closed.
        $bb usleep 20000
        continue
    fi
    case $word in
    ping) tell ready ;;
    run) run "$folder" ;;
    off) $bb umount /lab/share; $bb poweroff -f ;;
    esac
done
