#!/bin/sh
# rpm.sh BUILD CPACK DRIVER… - makes the RPM packages of BUILD, compares their names and their files with what they should have,
# installs them into a root of their own without their dependencies, uses the command and every module there, and removes
# them again without leftovers. On Debian rpm cannot know whether the dependencies exist; a Fedora is not tried.
set -eu
build=$1 cpack=$2
shift 2
work=$(mktemp -d "${TMPDIR:-/tmp}/mortise-rpm.XXXXXX")
trap 'rm -rf -- "$work"' EXIT
log=$work/log

fail() {
    cat "$log" >&2
    printf 'rpm: %s\n' "$1" >&2
    exit 1
}

(cd -- "$build" && "$cpack" -G RPM -B "$work/rpms") >"$log" 2>&1 || fail "cpack failed"
library=$(objdump -p "$build/lib/libmortise.so" | sed -n 's/^ *SONAME *//p' | sed 's/\.so\.//')
{
    printf '%s\n' "$library" libmortise-dev mortise mortise-plugins mortise-conformance
    [ ! -x "$build/bench/mortise-bench-digest" ] || echo mortise-bench
    [ ! -x "$build/bin/mortise-serve" ] || echo mortise-serve
    ! grep -q '^MORTISE_API:[A-Z]*=ON' "$build/CMakeCache.txt" || echo libmortise-doc
    for driver in "$@"; do
        echo "mortise-driver-$driver"
    done
} | sort >"$work/wanted"
for package in "$work"/rpms/*.rpm; do
    rpm -qp --qf '%{NAME}\n' "$package"
done | sort >"$work/made"
diff "$work/wanted" "$work/made" >"$log" || fail "the packages are not those that should be"

for package in "$work"/rpms/*.rpm; do
    rpm -qpl "$package"
done | sort >"$work/files"
uniq -d "$work/files" | grep -E '\.[a-z0-9]+$' >"$log" && fail "two packages have the same file"
for file in /usr/bin/mortise /usr/lib/systemd/system/mortise-witness.socket /usr/include/mortise/mortise.h \
    /usr/share/doc/mortise/README.md; do
    grep -q -x -F -e "$file" "$work/files" || fail "no package has $file"
done
grep -E 'changelog.Debian|lintian' "$work/files" >"$log" && fail "what Debian alone has is in a package"

root=$work/root
mkdir -p "$root"
rpm --root "$root" --dbpath /var/lib/rpm --nodeps -i "$work"/rpms/*.rpm >"$log" 2>&1 || fail "they cannot be installed"
find "$root/usr/lib/systemd" -name 'mortise-*.service' -exec grep -h '^ExecStart=' {} + >"$work/started"
[ -s "$work/started" ] && ! grep -v '^ExecStart=/usr/bin/mortise ' "$work/started" >"$log" || fail "a unit starts another command"
export HOME="$work" LD_LIBRARY_PATH
LD_LIBRARY_PATH=$(dirname "$(find "$root/usr" -name 'libmortise.so.*' -type l)")
"$root/usr/bin/mortise" drivers >"$work/drivers" 2>"$log" || fail "the command does not run"
find "$root/usr" -path '*/mortise/*.so' -type f | while read -r module; do
    cut -f 6 "$work/drivers" | grep -q -x -F -e "$module" || fail "$module is not loaded"
done
"$root/usr/bin/mortise" -C "sqlite:$work/locks.db" run nightly -- true >"$log" 2>&1 || fail "no lock can be acquired"

# shellcheck disable=SC2046 # words
rpm --root "$root" --dbpath /var/lib/rpm --nodeps -e $(cat "$work/made") >"$log" 2>&1 || fail "they cannot be removed"
find "$root" ! -type d ! -path "$root/var/lib/rpm/*" >"$log"
find "$root" -type d -name '*mortise*' >>"$log"
[ ! -s "$log" ] || fail "leftovers"
echo "installed, used and removed: $(wc -l <"$work/made") packages"
