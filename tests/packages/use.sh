#!/bin/sh
# use.sh root|folder WORK COMPILER CONFIG_DIR - installs the packages in WORK/debs, uses them without knowledge of the build,
# by their names alone, and purges them. Called by run.sh. "root": the script may change /.
set -eux
how=$1 work=$2 compiler=$3 config_dir=$4
for name in $(env | sed -n 's/^\(MORTISE_[A-Z_]*\|XDG_CONFIG_HOME\|LD_LIBRARY_PATH\|PKG_CONFIG_PATH\)=.*/\1/p'); do
    unset "$name"
done
export HOME="$work/home" DEBIAN_FRONTEND=noninteractive
mkdir -p "$HOME"

# absent COMMAND…: finds nothing (set -e does not look at what stands behind a !)
absent() {
    if "$@"; then
        exit 1
    fi
}

# What bears our name on this machine. bare.sh compares the whole file system.
named() {
    find /usr /etc /var/lib /run -name '*mortise*' ! -path "$work*" | sort
}

if [ "$how" = root ]; then
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
    usr=/usr libs='\(/usr\)\{0,1\}/lib'
    absent command -v mortise # else this proves nothing
    rm -rf /var/lib/mortise # this machine's, if it has one
    wants=/etc/systemd/system/sockets.target.wants
    mkdir -p "$wants"
    named >"$work/before"
    # less what costs most and is not ours: flushing the disk, and a new index of all man pages
    dpkg --force-unsafe-io --no-triggers -i "$work"/debs/*.deb
    dpkg --triggers-only libc-bin # ldconfig
    # shellcheck disable=SC2046 # words
    dpkg -V $(dpkg-query -W -f '${Package}\n' | grep -E '^(lib)?mortise')
    ldconfig -p | grep -F libmortise.so.
    man -w mortise mortise-run mortise-witness mortise.conf libmortise mortise-conformance
    # mortise(1) has each command that `mortise --help` names
    mortise --help | sed -n 's/^  mortise \([a-z][a-z]*\) .*/\1/p' >"$work/verbs"
    [ "$(wc -l <"$work/verbs")" -ge 13 ]
    man mortise | col -b >"$work/page"
    while read -r verb; do
        grep -q -E "^ +mortise.* $verb( |\$|,)" "$work/page"
    done <"$work/verbs"
    [ ! -x /usr/bin/mortise-bench ] || man -w mortise-bench
    [ ! -x /usr/bin/mortise-serve ] || man -w mortise-serve
    flags=$(pkg-config --cflags --libs mortise)
else
    usr=$work/unpacked/usr libs=$work/unpacked/usr/lib
    for deb in "$work"/debs/*.deb; do
        dpkg-deb -x "$deb" "$work/unpacked"
    done
    libdir=$(dirname "$(find "$usr" -name 'libmortise.so.*' -type l)")
    PATH=$usr/bin:$PATH
    LD_LIBRARY_PATH=$libdir PKG_CONFIG_PATH=$libdir/pkgconfig
    export LD_LIBRARY_PATH PKG_CONFIG_PATH
    flags=$(pkg-config --define-prefix --cflags --libs mortise)
fi

[ "$(command -v mortise)" = "$usr/bin/mortise" ]
mortise --version
find "$usr/lib/systemd" -name 'mortise-*.service' -exec grep -h '^ExecStart=' {} + >"$work/started"
[ -s "$work/started" ]
absent grep -v '^ExecStart=/usr/bin/mortise ' "$work/started"
[ ! -x "$usr/bin/mortise-serve" ] || mortise serve --version # it finds the library
# every module of the packages loads, and comes from there (/lib may be another name of /usr/lib)
mortise drivers >"$work/drivers"
find "$usr/lib" -path '*/mortise/*.so' -type f | while read -r module; do
    awk -F '\t' '{ print $6 }' "$work/drivers" | grep "^$libs.*/mortise/$(basename "$module")\$"
done
awk -F '\t' 'NR > 1 { print $6 }' "$work/drivers" >"$work/files"
absent grep -v "^$libs" "$work/files"
for file in libmortise-dev/driver-guide.md libmortise-dev/examples/driver-skeleton/module.c \
    mortise-plugins/examples/grafana-dashboard.json mortise-plugins/examples/prometheus-rules.yml; do
    [ -s "$usr/share/doc/$file" ]
done
url=sqlite:$work/locks.db
mortise -C "$url" check
[ "$(mortise -C "$url" run nightly -- sh -c 'echo "token $MORTISE_TOKEN"' | grep -c '^token [1-9]')" = 1 ]

# shellcheck disable=SC2086 # words
"$compiler" "$work/consumer.c" -o "$work/consumer" $flags
"$work/consumer" "$url" | grep "^held $libs.*/mortise/sqlite.so\$"
mortise-conformance "$url" only=token names=50 waiters=50
if command -v mortise-bench; then
    mortise-bench --help | grep -q -- '--workload'
fi

# The system's config is found without being named: were it not, a host would lock in a file of its own.
if [ "$how" = root ] && [ ! -e "$config_dir" ]; then
    mkdir -p "$config_dir"
    printf '[mortise]\ndriver = sqlite\n[sqlite]\npath = %s\n' "$work/system.db" >"$config_dir/mortise.conf"
    mortise check | grep -F "$config_dir/mortise.conf"
    mortise run nightly -- true
    [ -s "$work/system.db" ]
    rm -r -- "$config_dir"
fi

if [ "$how" = root ]; then # a purge leaves nothing
    mortise -C sqlite: run nightly -- true
    [ -s /var/lib/mortise/locks.db ]
    for unit in mortise-witness.socket mortise-serve.socket; do # as systemctl enable
        [ ! -e "/lib/systemd/system/$unit" ] || ln -s "/lib/systemd/system/$unit" "$wants/$unit"
    done
    # shellcheck disable=SC2046 # words
    dpkg --force-unsafe-io --no-triggers -P $(dpkg-query -W -f '${Package}\n' | grep -E '^(lib)?mortise')
    named >"$work/after"
    diff "$work/before" "$work/after"
fi
