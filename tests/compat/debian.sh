#!/bin/sh
# debian.sh FOLDER - gets newer servers for tests/compat from Debian's archive, without installing them: FOLDER/mysql/bin,
# FOLDER/mariadb/bin, FOLDER/redis/bin, FOLDER/valkey/bin, FOLDER/etcd/bin. Each program runs with the libraries that it was built with. Needs apt, dpkg,
# 600 MB and the network, so no test calls it. Then run, with MORTISE_NIGHTLY=1 and MORTISE_COMPAT=FOLDER: ctest -R '^compat\.'
set -eu
folder=${1:?FOLDER}
mkdir -p "$folder"
folder=$(cd -- "$folder" && pwd)

# unpack NAME RELEASE PACKAGE…: the packages and all that they need, from the mirror that this machine uses.
unpack() {
    root=$folder/$1/root
    apt=$folder/$1/apt
    release=$2
    shift 2
    # shellcheck disable=SC2016 # apt-get fills it in
    mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Origin: Debian' | head -n 1)
    mkdir -p "$root" "$apt/lists/partial" "$apt/archives/partial"
    : >"$apt/status"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $release main" >"$apt/sources.list"
    cat >"$apt/apt.conf" <<CONF
Dir::State "$apt";
Dir::State::status "$apt/status";
Dir::Cache "$apt";
Dir::Etc::sourcelist "$apt/sources.list";
Dir::Etc::sourceparts "/dev/null";
APT::Sandbox::User "root";
APT::Install-Recommends "false";
CONF
    APT_CONFIG=$apt/apt.conf apt-get -q update
    APT_CONFIG=$apt/apt.conf apt-get -q -y --download-only install "$@"
    for package in "$apt"/archives/*.deb; do
        dpkg -x "$package" "$root"
    done
    rm -rf -- "$apt"
    mkdir -p "${root%/root}/bin"
}

# program NAME FILE AS [ARGUMENT…]: bin/AS runs root/FILE, with these arguments at its end.
program() {
    root=$folder/$1/root
    file=$2
    as=$folder/$1/bin/$3
    libraries=$root/usr/lib/x86_64-linux-gnu:$root/usr/lib/mysql/private
    shift 3
    cat >"$as" <<SCRIPT
#!/bin/sh
exec $root/usr/lib64/ld-linux-x86-64.so.2 --library-path $libraries $root/$file "\$@" $*
SCRIPT
    chmod a+x "$as"
}

unpack redis trixie redis-server redis-tools
unpack valkey trixie valkey-server valkey-tools
for name in redis valkey; do
    program $name usr/bin/$name-server redis-server
    program $name usr/bin/$name-cli redis-cli
    "$folder/$name/bin/redis-server" --version
done

unpack etcd trixie etcd-server etcd-client
for name in etcd etcdctl; do
    program etcd usr/bin/$name $name
done
"$folder/etcd/bin/etcd" --version

# The script that makes a data directory needs helpers of the same version. A stand-in is enough for each.
unpack mariadb trixie mariadb-server-core mariadb-client-core
usr=$folder/mariadb/root/usr
mv "$usr/sbin/mariadbd" "$usr/sbin/server"
program mariadb usr/sbin/server mariadbd "--lc-messages-dir=$usr/share/mysql" \
    "--character-sets-dir=$usr/share/mysql/charsets" "--plugin-dir=$usr/lib/mysql/plugin"
cp "$folder/mariadb/bin/mariadbd" "$usr/sbin/mariadbd"
printf '#!/bin/sh\n' >"$usr/bin/my_print_defaults"
cat >"$folder/mariadb/bin/mariadb-install-db" <<SCRIPT
#!/bin/sh
first=\$1
shift
exec $usr/bin/mariadb-install-db "\$first" --force --basedir=$usr "\$@"
SCRIPT
chmod a+x "$folder/mariadb/bin/mariadb-install-db" "$usr/bin/my_print_defaults"
"$folder/mariadb/bin/mariadbd" --version

# MySQL under the names of MariaDB's programs, for tests/servers/mysql.sh. It knows some settings under other names.
unpack mysql sid mysql-server
usr=$folder/mysql/root/usr
program mysql usr/sbin/mysqld server
cat >"$folder/mysql/bin/mariadbd" <<SCRIPT
#!/bin/sh
case \$1 in
--defaults-file=*)
    from=\${1#--defaults-file=}
    to=\$(sed -n 's/^tmpdir = //p' "\$from")/mysql.cnf
    sed 's/^aria_/loose-aria_/; s/^innodb_log_file_size/loose-innodb_log_file_size/' "\$from" >"\$to"
    printf '%s\n' 'mysqlx = off' 'secure-file-priv = NULL' 'basedir = $usr' 'lc-messages-dir = $usr/share/mysql' \
        'plugin-dir = $usr/lib/mysql/plugin' >>"\$to"
    shift
    set -- "--defaults-file=\$to" "\$@"
    ;;
esac
exec $folder/mysql/bin/server "\$@"
SCRIPT
cat >"$folder/mysql/bin/mariadb-install-db" <<SCRIPT
#!/bin/sh
for argument; do
    case \$argument in
    --datadir=*) data=\${argument#*=} ;;
    --extra-file=*) accounts=\${argument#*=} ;;
    esac
done
echo "CREATE USER root@'127.0.0.1'; GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;" | cat "\$accounts" - >"\$data.sql"
exec $folder/mysql/bin/server --no-defaults --initialize-insecure --basedir=$usr --lc-messages-dir=$usr/share/mysql \
    --plugin-dir=$usr/lib/mysql/plugin "--datadir=\$data" "--init-file=\$data.sql"
SCRIPT
chmod a+x "$folder/mysql/bin/mariadbd" "$folder/mysql/bin/mariadb-install-db"
"$folder/mysql/bin/mariadbd" --version
chmod -R a+rX "$folder" # the servers do not run as root
