#!/bin/sh
# Whose modules are loaded (R11): a copy of the library and its module directory, which other users own or can write. Users
# who could change the library itself are no additional danger.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
. "$(dirname "$0")/common"

from=$(ldd "$BIN" | sed -n 's/.* => \(.*\/libmortise\.so[^ ]*\) .*/\1/p')
lib=$DIR/lib modules=$DIR/lib/mortise module=$DIR/lib/mortise/sqlite.so library=$DIR/lib/$(basename "$from")
mkdir -p "$modules"
cp -L "$from" "$library"
cp -L "$(dirname "$from")/mortise/sqlite.so" "$module"
chmod 755 "$lib" "$modules" "$library" "$module"
cp "$BIN" "$DIR/mortise"

# The copy of the command, with the copy of the library and no other folder of modules.
check() {
    env -u MORTISE_MODULE_PATH LD_LIBRARY_PATH="$lib" "$DIR/mortise" -C "sqlite:$DIR/trust.db" check >"$DIR/out" 2>"$DIR/err"
}

loaded() {
    check
    same "$1: loaded" 0 $?
    has_line "from there" "$DIR/out" "$module"
}

refused() { # TEXT WHAT WHY
    check
    same "$1: refused" 78 $?
    has_line "says what and why" "$DIR/out" "$2: modules are not loaded from .*$3"
}

what "modes"
loaded "nobody else may write"
chmod 775 "$modules"
refused "the folder's group may" "$modules" 'its mode is .775'
chmod 1777 "$modules"
refused "all may, of their own" "$modules" 'its mode is .777'
chmod 755 "$modules"
chmod 775 "$module"
refused "the module's group may" "$module" 'its mode is 0775'
chmod 775 "$library"
loaded "and the library too"
chmod 755 "$library"
chmod 775 "$lib"
loaded "or put another library there"
chmod 777 "$module"
refused "but not all" "$module" 'its mode is 0777'
chmod 755 "$module" "$lib"
loaded "as it was"

what "owners"
if [ "$(id -u)" -eq 0 ]; then # only root can make files of somebody else's
    chown 4711 "$modules"
    refused "the folder is another's" "$modules" 'belongs to user 4711'
    chown 0 "$modules"
    chown 4711 "$module"
    refused "the module is another's" "$module" 'belongs to user 4711'
    chown 4711 "$library"
    loaded "the library is the same one's"
    chown 0 "$library"
    chown 4711 "$lib"
    loaded "so is its folder"
    chown 4712 "$lib"
    refused "it is yet another's" "$module" 'belongs to user 4711'
fi

end
