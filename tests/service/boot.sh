# Boots systemd as PID 1 of a machine of its own: `unshare --mount --propagation private sh -e boot.sh ROOT PYTHON DEPENDENCIES INSTALLED`.
#
# ROOT is an empty folder that becomes its root; the next three are bound to /opt/python, /opt/dependencies and /opt/exuvia. Nothing
# of the machine that this runs on can be changed from inside: its /usr is read-only, everything else is a tmpfs.
# Only the network is shared.
root=$1 python=$2 dependencies=$3 installed=$4

mount -t tmpfs -o mode=755 tmpfs "$root"
cd "$root"
mkdir -p dev etc/systemd/system etc/credstore home mnt/empty mnt/units mnt/old opt/python opt/dependencies opt/exuvia proc root run sys \
    tmp usr var/lib var/log var/tmp
chmod 1777 tmp var/tmp
ln -s /run var/run
for folder in bin sbin lib lib32 lib64 libx32; do
    if [ -L "/$folder" ]; then
        cp -P "/$folder" "$folder"
    elif [ -d "/$folder" ]; then
        mkdir "$folder" && mount --rbind "/$folder" "$folder" && mount -o remount,bind,ro "$folder"
    fi
done
bound() { mount --rbind "$1" "$2" && mount -o remount,bind,ro "$2"; }
bound /usr usr
bound "$python" opt/python
bound "$dependencies" opt/dependencies
bound "$installed" opt/exuvia

# Of the units of the machine around only those that change nothing: no sysctl, no modules, no clock, no tmpfiles.
for unit in basic exit final local-fs multi-user network network-online paths shutdown slices sockets swap sysinit timers umount; do
    cp "/usr/lib/systemd/system/$unit.target" mnt/units/
done
cp /usr/lib/systemd/system/systemd-journald.service /usr/lib/systemd/system/systemd-journald*.socket mnt/units/
mkdir mnt/units/sysinit.target.wants
ln -s ../systemd-journald.service mnt/units/sysinit.target.wants/
mount --bind mnt/units usr/lib/systemd/system
mount --bind mnt/empty usr/lib/systemd/system-generators

echo 'root:x:0:0::/root:/bin/sh
nobody:x:65534:65534::/:/bin/false' >etc/passwd
echo 'root:x:0:
nogroup:x:65534:' >etc/group
echo '127.0.0.1 localhost' >etc/hosts
echo 'hosts: files' >etc/nsswitch.conf
echo /opt/python/lib >etc/ld.so.conf
ldconfig -r "$root"
tr -d - </proc/sys/kernel/random/uuid >etc/machine-id

mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/pts dev/shm
for device in full null random tty urandom zero; do
    : >"dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t tmpfs -o mode=755 tmpfs run
mount --rbind /sys sys

# Its control groups hang below ours.
mount -t cgroup2 cgroup2 mnt/old
group="mnt/old$(sed -n 's/^0:://p' /proc/self/cgroup)/exuvia-test-$$"
mkdir "$group"
echo $$ >"$group/cgroup.procs"
umount mnt/old

exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin unshare --fork --kill-child --pid --cgroup --uts --ipc sh -e -c '
mount -t proc proc proc
mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
mount -t cgroup2 cgroup2 sys/fs/cgroup
pivot_root . mnt/old
cd /
umount -l mnt/old
mount --make-rshared / # as systemd does where it is no container; it hands credentials to services so
exec /lib/systemd/systemd --system --unit=multi-user.target --show-status=no
'
