#!/bin/sh
# run.sh COMPILER LIBRARIES - programs and modules of other versions with the library in the folder LIBRARIES: what works,
# and what is refused, and how. 0.1/ has the headers of 0.1, word by word.
set -eu
compiler=$1 libraries=$2
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
old=$here/0.1 now=$here/../../include
work=$(mktemp -d "${TMPDIR:-/tmp}/mortise-abi.XXXXXX")
trap 'rm -rf -- "$work"' EXIT
export LD_LIBRARY_PATH="$libraries"
unset MORTISE_MODULE_PATH
failures=0

complain() {
    printf 'abi: %s\n' "$1" >&2
    failures=1
}

# expect WHAT TEXT: $got is TEXT.
expect() {
    [ "$got" = "$2" ] || complain "$1: expected
$2
and got
$got"
}

# finds WHAT TEXT: $got contains TEXT.
finds() {
    case $got in
    *"$2"*) ;;
    *) complain "$1: \"$2\" is not in: $got" ;;
    esac
}

# program HEADERS OUTPUT FLAG…
program() {
    headers=$1 output=$2
    shift 2
    "$compiler" -std=gnu11 -Wall -Wextra -Werror "-I$headers" "$here/program.c" -o "$output" "$@"
}

sqlite="sqlite:$work/locks.db"
worked='open OK
acquire OK
release OK
acquire without options OK
inspect OK
held 1 leases 1
listed b 1
list OK
stats OK
acquires 2
state HELD
release OK
state LOST
close OK'

# ---- a program of this version: all works
program "$now" "$work/now" "-L$libraries" -lmortise
got=$("$work/now" use "$sqlite")
expect "a program of this version" "$worked"

# ---- a program that was linked with 0.1: the loader does not start it, because the library has another name
grep -o 'mortise_[a-z_]*(' "$here/program.c" | sort -u | sed 's/(/;/; s/^/int /; s/;/(void) { return 0; }/' >"$work/stub.c"
"$compiler" -shared -fPIC "$work/stub.c" -Wl,-soname,libmortise.so.0.1 -o "$work/libmortise.so.0.1"
program "$old" "$work/old" "$work/libmortise.so.0.1"
got=$("$work/old" use "$sqlite" 2>&1) && complain 'a program of 0.1 was started'
finds "a program of 0.1" 'libmortise.so.0.1: cannot open shared object file'

# ---- a program that was compiled with the headers of 0.1 and linked with this library, which is a mistake: options are
# refused, because its states have other numbers: it reads LOST as held, and HELD as lost. Without options the library
# cannot know. Structs with a size have the fields of 0.1.
program "$old" "$work/mixed" "-L$libraries" -lmortise
got=$("$work/mixed" use "$sqlite")
expect "headers of 0.1 with this library" 'open OK
acquire INVALID
release OK
acquire without options OK
inspect OK
held 1 leases 1
listed b 1
list OK
stats OK
acquires 1
state LOST
release OK
state HELD
close OK'

# ---- a program that was linked with a later version of the same name, and needs something new of it
sed 's/int mortise_open(/int mortise_new(/' "$work/stub.c" >"$work/later.c"
printf 'MORTISE_0.2 { global: mortise_close; mortise_status_name; };\nMORTISE_0.2.99 { global: mortise_new; local: *; } MORTISE_0.2;\n' >"$work/later.map"
"$compiler" -shared -fPIC "$work/later.c" "-Wl,-soname,libmortise.so.0.2,--version-script=$work/later.map" -o "$work/later.so"
printf 'int mortise_new(void);\nint main(void) { return mortise_new(); }\n' >"$work/needs.c"
"$compiler" "$work/needs.c" "$work/later.so" -o "$work/needs"
got=$("$work/needs" 2>&1) && complain 'a program of a later version was started'
finds "a program of a later version" "version \`MORTISE_0.2.99' not found"

# ---- modules: those of this version load, those of 0.1 are refused with file and field
mkdir -m 700 "$work/modules"
cat >"$work/stack.conf" <<END
[mortise]
module_path = $work/modules
driver = module
END
cat >"$work/observed.conf" <<END
[mortise]
module_path = $work/modules:$libraries/mortise
driver = sqlite
observe = module
[sqlite]
path = $work/locks.db
END
for kind in DRIVER PLUGIN OBSERVER; do
    config=$work/stack.conf
    [ "$kind" != OBSERVER ] || config=$work/observed.conf
    for version in now old; do
        eval "headers=\$$version"
        "$compiler" -std=gnu11 -Wall -Wextra -Werror -shared -fPIC "-I$headers" "-DKIND=MORTISE_KIND_$kind" \
            "$here/module.c" -o "$work/modules/module.so"
        if [ "$version" = now ]; then
            got=$("$work/now" open "$config") || true
            expect "a $kind of this version" 'open OK
close OK'
            continue
        fi
        got=$("$work/now" open "$config") && complain "a $kind of 0.1 was loaded"
        expect "a $kind of 0.1" 'open CONFIG'
        got=$("$MORTISE_COMMAND" -C "$config" check 2>&1) && complain "check accepts a $kind of 0.1"
        finds "a $kind of 0.1" "$work/modules/module.so: abi is 1, expected 2: built for another mortise"
        got=$("$MORTISE_COMMAND" -C "$config" drivers 2>&1) || true
        finds "the list with a $kind of 0.1" 'abi is 1, expected 2'
    done
done
exit $failures
