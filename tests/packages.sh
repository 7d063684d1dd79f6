# packages.sh - what building and testing need, and how to install it on Debian and Ubuntu. Sourced by
# examples/quickstart.sh and tests/run.sh; knows nothing of what they do with it.
#
# It looks for the thing itself (a command, a header, a pkg-config module), not for the package. If nothing is missing, it
# installs nothing and needs no package manager.
# shellcheck shell=sh disable=SC2034 # the lists are for the sourcing script

# Package, kind of evidence, evidence.
packages_to_build='
gcc             compiler  cc
libc6-dev       header    stdio.h
cmake           command   cmake
ninja-build     generator ninja
pkg-config      command   pkg-config
libinih-dev     module    inih
uthash-dev      header    uthash.h
libsqlite3-dev  module    sqlite3
libhiredis-dev  module    hiredis
libzookeeper-mt-dev header zookeeper/zookeeper.h
libpq-dev       module    libpq
libnghttp2-dev  module    libnghttp2
libssl-dev      module    openssl
libmariadb-dev  module    libmariadb
libmicrohttpd-dev module  libmicrohttpd
'
packages_to_test='
g++             command   g++
libcunit1-dev   module    cunit
sqlite3         command   sqlite3
python3         command   python3
tmux            command   tmux
patch           command   patch
redis-server    command   redis-server
redis-tools     command   redis-cli
python3-redis   python    redis
python3-hiredis python    hiredis
zookeeper       file      /usr/share/java/zookeeper.jar
default-jdk-headless command javac
python3-kazoo   python    kazoo
etcd-server     command   etcd
etcd-client     command   etcdctl
libcurator-recipes-java file /usr/share/java/curator-recipes.jar
postgresql      postgres  postgres
pgbouncer       command   pgbouncer
mariadb-server  command   mariadbd
openssl         command   openssl
faketime        command   faketime
spin            command   spin
libuv1-dev      module    libuv
python3-prometheus-client python prometheus_client
python3-cffi    python    cffi
python3-dev     file      /usr/bin/python3-config
python3-setuptools python setuptools
python3-wheel   python    wheel
python3-venv    python    ensurepip
python3-pytest  python    pytest
mypy            python    mypy
mandoc          command   mandoc
doxygen         command   doxygen
lintian         command   lintian
dpkg-dev        command   dpkg-gensymbols
man-db          command   man
iproute2        command   ip
chromium        command   chromium
prometheus      command   promtool
cppcheck        command   cppcheck
shellcheck      command   shellcheck
'
packages_at_night='
debootstrap     command   debootstrap
'
packages_compiler() {
    for compiler in "${CC:-cc}" gcc clang; do
        if command -v "$compiler" >/dev/null 2>&1; then
            echo "$compiler"
            return
        fi
    done
    return 1
}

# packages_present KIND EVIDENCE
packages_present() {
    case $1 in
    command) command -v "$2" >/dev/null 2>&1 ;;
    compiler) packages_compiler >/dev/null ;;
    generator) command -v ninja >/dev/null 2>&1 || command -v make >/dev/null 2>&1 ;;
    module) pkg-config --exists "$2" 2>/dev/null ;;
    postgres) command -v postgres >/dev/null 2>&1 || ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 ;;
    python) /usr/bin/python3 -c "import $2" 2>/dev/null ;;
    file) [ -f "$2" ] ;;
    header) printf '#include <%s>\n' "$2" | "$(packages_compiler)" -E -x c - >/dev/null 2>&1 ;;
    esac
}

# packages_missing LIST: the packages whose evidence is not there.
packages_missing() {
    printf '%s\n' "$1" | while read -r package kind evidence; do
        [ -z "$package" ] || packages_present "$kind" "$evidence" || printf '%s ' "$package"
    done
}

# packages_as_root COMMAND…: sudo where it is needed; asks for a password only at a terminal.
packages_as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif [ -t 0 ]; then
        sudo "$@"
    else
        sudo -n "$@"
    fi
}

# packages_have_candidates PACKAGE…: whether apt's lists are there and know each.
packages_have_candidates() {
    for package in "$@"; do
        LC_ALL=C apt-cache policy "$package" 2>/dev/null | grep -q '^  Candidate: [^(]' || return 1
    done
}

packages_apt_get() {
    packages_as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -q -y -o DPkg::Lock::Timeout=300 "$@" </dev/null
}

# packages_have_lists: whether apt has lists of its sources. Without them it knows only what is installed.
packages_have_lists() {
    LC_ALL=C apt-cache policy 2>/dev/null | grep -q ' Packages$'
}

# packages_choose: of what is missing, sets $packages_wanted, and $packages_unknown: the optional ones that apt does not know.
packages_choose() {
    packages_wanted=$packages_needed packages_unknown=''
    for package in $packages_optional; do
        if packages_have_candidates "$package" || ! packages_have_lists; then
            packages_wanted="$packages_wanted$package "
        else
            packages_unknown="$packages_unknown$package "
        fi
    done
}

# packages_install LIST [OPTIONAL]: installs what is missing of both, and says so. Fails if it cannot. A package of OPTIONAL
# that apt does not know is left out: Ubuntu, for example, has chromium only as a snap.
packages_install() {
    packages_needed=$(packages_missing "$1")
    packages_optional=$(packages_missing "${2:-}")
    packages_choose
    [ -z "$packages_wanted" ] || packages_install_wanted || return 1
    [ -z "$packages_unknown" ] ||
        echo "apt has no such packages here, so tests that need them are left out: $packages_unknown"
}

packages_install_wanted() {
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "Missing, and there is no apt-get here. On Debian they are called: $packages_wanted" >&2
        return 1
    fi
    if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null 2>&1; then
        echo "Missing, and there is no sudo here. As root: apt-get install --no-install-recommends $packages_wanted" >&2
        return 1
    fi

    echo "Installing with apt-get: $packages_wanted"
    packages_log=$(mktemp "${TMPDIR:-/tmp}/mortise-apt.XXXXXX")
    if packages_install_now >"$packages_log" 2>&1; then
        rm -f -- "$packages_log"
        return 0
    fi
    tail -n 20 "$packages_log" >&2
    rm -f -- "$packages_log"
    echo "That failed. By hand: apt-get install --no-install-recommends $packages_wanted" >&2
    return 1
}

# Lists that are missing or out of date are fetched, once. The new ones may know other packages.
packages_install_now() {
    # shellcheck disable=SC2086 # words
    if packages_have_candidates $packages_wanted && packages_apt_get install --no-install-recommends $packages_wanted; then
        return 0
    fi
    packages_apt_get update || return 1
    packages_choose
    # shellcheck disable=SC2086 # words
    [ -z "$packages_wanted" ] || packages_apt_get install --no-install-recommends $packages_wanted
}
