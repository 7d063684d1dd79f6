#!/bin/sh
# mysql.sh VERB FOLDER - the hooks of the conformance suite for MySQL and MariaDB: see hooks.sh.
# shellcheck disable=SC2034 # KIND
KIND=mysql

# Claims; sessions.
left() {
    ask -e "SELECT CONCAT('held ', name) FROM mortise_lock
                WHERE grants IS NOT NULL AND owner IS NULL AND expires_at > UNIX_TIMESTAMP(NOW(6)) * 1000000
            UNION ALL SELECT CONCAT('shared or owned ', name) FROM mortise_lock WHERE grants IS NOT NULL
                AND owner IS NOT NULL AND expires_at > UNIX_TIMESTAMP(NOW(6)) * 1000000
            UNION ALL SELECT CONCAT('session ', id, ' ', command, ' ', COALESCE(info, ''))
                FROM information_schema.processlist WHERE user = 'mortise'"
}

# shellcheck source=hooks.sh
. "${0%/*}/hooks.sh"
