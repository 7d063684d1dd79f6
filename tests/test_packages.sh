#!/bin/sh
# test_packages.sh - packages.sh with an apt of its own: a package that the tests could do without, and that apt does not know,
# keeps no other package from being installed.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
work=$(mktemp -d "${TMPDIR:-/tmp}/mortise-apt.XXXXXX")
trap 'rm -rf -- "$work"' EXIT
. "$here/packages.sh"

mkdir "$work/bin"
export WORK="$work"
printf '%s\n' '#!/bin/sh' 'echo 0' >"$work/bin/id" # root needs no sudo
cat >"$work/bin/apt-cache" <<'END'
#!/bin/sh
[ -f "$WORK/lists" ] || exit 0
case ${2:-} in
'') echo ' 500 http://deb.example/debian bookworm/main amd64 Packages' ;;
snap-*) printf '%s:\n  Installed: (none)\n  Candidate: (none)\n' "$2" ;;
*) printf '%s:\n  Installed: (none)\n  Candidate: 1.0\n' "$2" ;;
esac
END
cat >"$work/bin/apt-get" <<'END'
#!/bin/sh
shift 4 # -q -y -o OPTION
echo "$*" >>"$WORK/asked"
case $* in
update) : >"$WORK/lists" ;;
*snap-*) exit 100 ;;
esac
END
chmod +x "$work"/bin/*
PATH=$work/bin:$PATH

list() { # PACKAGE…: as in packages.sh; the evidence of each is missing
    for name; do
        echo "$name file $work/none"
    done
}

# check WHAT CODE ASKED LIST [OPTIONAL]: the exit code, and what apt-get was asked for
check() {
    what=$1 wanted_code=$2 wanted=$3 code=0
    shift 3
    rm -f -- "$work/asked"
    packages_install "$@" >"$work/out" 2>&1 || code=$?
    asked=$(cat "$work/asked" 2>/dev/null) || :
    [ "$code" -eq "$wanted_code" ] && [ "$asked" = "$wanted" ] || {
        printf 'packages.sh, %s: exit code %s; apt-get was asked for:\n%s\nand it printed:\n' "$what" "$code" "$asked"
        cat "$work/out"
        exit 1
    }
}
says() {
    grep -q -x -F -e "$1" "$work/out" || {
        printf 'packages.sh, %s: it did not print "%s", but:\n' "$what" "$1"
        cat "$work/out"
        exit 1
    }
}
install='install --no-install-recommends'
left_out='apt has no such packages here, so tests that need them are left out: snap-chromium '

check 'apt has no lists yet' 0 "update
$install one two three" "$(list one)" "$(list two snap-chromium three)"
says "$left_out"
check 'apt has lists' 0 "$install one two three" "$(list one)" "$(list two snap-chromium three)"
says "$left_out"
check 'all is there, except for what apt does not know' 0 '' '' "$(list snap-chromium)"
says "$left_out"
check 'apt does not know what is needed' 1 "update
$install one snap-compiler" "$(list one snap-compiler)"
says "That failed. By hand: apt-get $install one snap-compiler "
