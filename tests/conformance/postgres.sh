#!/bin/sh
# postgres.sh VERB FOLDER - the hooks of the conformance suite for PostgreSQL: see hooks.sh.
# shellcheck disable=SC2034 # KIND
KIND=postgres

# Claims; waiters of what is held (the place of one that was killed goes with the next holder); sessions (a
# pooler keeps its own).
left() {
    ask -c "SELECT 'held ' || encode(name, 'escape') FROM mortise_lock
                WHERE grants IS NOT NULL AND expires_at > clock_timestamp()
            UNION ALL SELECT 'waiters of ' || encode(name, 'escape') FROM mortise_lock
                WHERE waiters IS NOT NULL AND expires_at > clock_timestamp()
            UNION ALL SELECT 'prepared transaction ' || gid FROM pg_prepared_xacts"
    case " ${MORTISE_SERVER:-} " in
    *' pooler=yes '*) ;;
    *) ask -c "SELECT 'session ' || pid || ' ' || state || ' ' || query FROM pg_stat_activity
                   WHERE application_name = 'mortise'" ;;
    esac
}

# shellcheck source=hooks.sh
. "${0%/*}/hooks.sh"
