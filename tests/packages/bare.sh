#!/bin/sh
# bare.sh - everything that README, the tutorial and the driver guide describe, with nothing but these pages and a bare
# Debian 12: quickstart, the tutorial, README's program with the packages of cpack, `mortise check`, an installation from
# source, and the driver guide up to a successful conformance run. Each line is taken from the page as printed. The packages
# are hardened, and a purge leaves the file system as it was.
#
# Needs root, the packages' mirror, and a bare root directory: MORTISE_BARE_ROOT, a tar of one (debootstrap --variant=minbase
# bookworm), or debootstrap itself. Takes ten minutes, and a gigabyte below TMPDIR. Skips (77) without them.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
source=${MORTISE_SOURCE_DIR:-$here/../..}
skip() {
    echo "bare: $1"
    exit 77
}
fail() {
    [ ! -f "$work/log" ] || tail -n 60 "$work/log" >&2
    printf 'bare: %s\n' "$1" >&2
    exit 1
}
[ "$(id -u)" -eq 0 ] || skip "only root can enter another root"
PATH=$PATH:/usr/sbin:/sbin
[ -n "${MORTISE_BARE_ROOT:-}" ] || command -v debootstrap >/dev/null 2>&1 || skip "there is no debootstrap"

work=$(mktemp -d "${TMPDIR:-/tmp}/mortise-bare.XXXXXX")
trap 'rm -rf -- "$work"' EXIT
root=$work/root
mkdir "$root"
if [ -n "${MORTISE_BARE_ROOT:-}" ]; then
    tar -C "$root" -xf "$MORTISE_BARE_ROOT"
else
    debootstrap --variant=minbase bookworm "$root" >"$work/log" 2>&1 || fail "debootstrap failed"
fi
cp -L /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || :
echo 'APT::Get::Assume-Yes "true";' >"$root/etc/apt/apt.conf.d/90yes" # nobody is there to press Y
mkdir -p "$root/home/guest/mortise"
(cd -- "$source" && git ls-files -z | xargs -0 tar -cf - --) | tar -C "$root/home/guest/mortise" -xf -

# line FILE PATTERN: the one line of a page that has this in it, without sudo and the remark behind it
line() {
    found=$(sed -n "s/^    //; s/^\`\(.*\)\`[.)]*\$/\1/; /$2/{s/ \{2,\}# .*//; s/sudo //g; p;}" "$source/$1" | head -n 1)
    [ -n "$found" ] || fail "$1 has no line with $2"
    printf '%s\n' "$found"
}

# inside WHAT SCRIPT: in that root, with /proc and /dev of its own, and nothing of our environment
inside() {
    echo "== $1"
    printf 'set -eux\nexport DEBIAN_FRONTEND=noninteractive HOME=/root\ncd /home/guest/mortise\n%s\n' "$2" >"$root/step.sh"
    # shellcheck disable=SC2016 # expanded there
    unshare --mount --pid --fork sh -eu -c '
        mount --bind "$1" "$1"
        mount -t proc proc "$1/proc"
        mount --rbind /dev "$1/dev"
        exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
            chroot "$1" /bin/bash /step.sh' sh "$root" >"$work/log" 2>&1 || fail "$1: exit code $?"
}

packages=$(line README.md '&& cpack)')
install=$(line README.md 'cmake --install build-quickstart')
suite="$(line docs/driver-guide.md 'install libcunit1-dev')
$(line docs/driver-guide.md 'DMORTISE_TESTS=ON')"
prove=$(line docs/driver-guide.md '^ *mortise-conformance skeleton')
# shellcheck disable=SC2016 # a backtick of the pages
configure=$(grep -h -o 'cmake --preset release[^&`]*' "$source"/docs/*.md | sort -u)
[ -n "$configure" ] || fail "no page configures a release"

inside "quickstart" 'apt-get update
sh examples/quickstart.sh | tee /quickstart.out
grep -q "2000 of 2000" /quickstart.out'
inside "each page's way to configure a release, with what quickstart installed" "$configure
rm -r build"
inside "cpack without its tools refuses, and says what is missing" "if $packages >/cpack.out 2>&1; then exit 1; fi
grep -q 'apt-get install' /cpack.out"
# shellcheck disable=SC2016 # expanded there
inside "the tutorial" 'apt-get install -y --no-install-recommends python3 redis-server
MORTISE_SOURCE_DIR=$PWD MORTISE_BUILD_DIR=$PWD/build-quickstart python3 tests/docs/tutorial.py'
inside "packages" "apt-get install -y --no-install-recommends file dpkg-dev
$packages"
# Files with owner, mode and target, and the contents of /etc. What apt, dpkg and ldconfig write for themselves is left out.
cat >"$root/snapshot.sh" <<'END'
find / \( -path /proc -o -path /dev -o -path /sys -o -path /home -o -path /app -o -path /var/cache -o -path /var/log -o \
    -path /var/lib/apt -o -path /var/lib/dpkg -o -path /etc/ld.so.cache -o -path '/*.sh' -o -path '/*.out' \) -prune -o \
    -printf '%y %m %u:%g %p %l\n' | sort
find /etc -type f ! -name ld.so.cache -exec sha256sum {} + | sort
dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' '*mortise*' 2>/dev/null | grep -v '^un' || :
END
# The libraries that the packages need are there before, because they stay.
# shellcheck disable=SC2016 # expanded there
inside "hardened packages, installed" 'mkdir /app
needed=$(for deb in build-quickstart/*.deb; do dpkg-deb -f $deb Depends; done | tr , "\n" | sed "s/[|(].*//; s/ //g" |
    grep -v mortise | sort -u)
apt-get install -y --no-install-recommends $needed
sh /snapshot.sh >/before.out
mkdir /unpacked
for deb in build-quickstart/*.deb; do dpkg-deb -x $deb /unpacked; done
sh tests/packages/hardening.sh /unpacked
rm -r /unpacked
apt-get install -y --no-install-recommends ./build-quickstart/*.deb'
# shellcheck disable=SC2016 # expanded there
inside "README's program against the packages" 'cd /app
sed -n '\''/^```c$/,/^```$/{/^```/d;p;}'\'' /home/guest/mortise/README.md >app.c
head -c 1 app.c | grep -q .
cc -Wall -Werror app.c $(pkg-config --cflags --libs mortise) -o app
./app
mortise check
mortise run nightly -- echo "it ran" | grep "it ran"
mortise status nightly'
# shellcheck disable=SC2016 # expanded there
inside "the services run" 'mortise witness & witness=$!
mortise serve --listen 127.0.0.1:0 2>/serve.out & serve=$!
until [ -S /run/mortise/witness.sock ]; do kill -0 $witness; done
until port=$(sed -n "s,.*http://127.0.0.1:\([0-9]*\)/.*,\1,p" /serve.out) && [ -n "$port" ]; do kill -0 $serve; done
ask() {
    exec 3<>/dev/tcp/127.0.0.1/$port
    printf "GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n" >&3
    head -n 1 <&3
}
until ask | grep " 200 "; do kill -0 $serve; done # after the first listing
kill $witness $serve
wait'
# With systemd, `systemctl enable` has made links. A database in use must not go.
# shellcheck disable=SC2016 # expanded there
inside "a purge leaves nothing" 'test -s /var/lib/mortise/locks.db
for instance in system user; do
    mkdir -p /etc/systemd/$instance/sockets.target.wants
    ln -s /lib/systemd/$instance/mortise-witness.socket /etc/systemd/$instance/sockets.target.wants/mortise-witness.socket
done
ln -s /lib/systemd/system/mortise-serve.socket /etc/systemd/system/sockets.target.wants/mortise-serve.socket
apt-get remove -y "libmortise*" "mortise*"
! command -v mortise
test ! -e /run/mortise
exec 4<>/var/lib/mortise/locks.db
apt-get purge -y "libmortise*" "mortise*" 2>&1 | grep "in use and was not removed"
test -s /var/lib/mortise/locks.db
exec 4<&-
apt-get install -y --no-install-recommends ./build-quickstart/*.deb
apt-get purge -y "libmortise*" "mortise*"
sh /snapshot.sh >/after.out
diff /before.out /after.out'
inside "an installation from the source" "$install
mortise run nightly -- true"
inside "the driver guide: the conformance suite" "$suite
ldconfig
command -v mortise-conformance"
inside "the driver guide: build, install, prove" "apt-get install -y --no-install-recommends python3
cp -R examples/driver-skeleton /mydriver && cd /mydriver
cmake -S . -B build
cmake --build build && cmake --install build
mortise drivers skeleton --options
$prove"
echo "bare: all of it"
