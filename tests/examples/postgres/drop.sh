#!/bin/sh
# Drops the database; a missing one is not an error. Without a name, no attempt of "provision" reported one, but it may
# have created the database: EBB_KEY is that of "provision".
set -eu
export PGCONNECT_TIMEOUT=5

database="${DATABASE:-ebb_$EBB_KEY}"

n=0
until pg_isready --quiet; do
    n=$((n + 1))
    [ "$n" -lt 30 ] || { echo "no PostgreSQL answers at $PGHOST:$PGPORT" >&2; exit 1; }
    sleep 1
done

psql -X -d postgres -qc "DROP DATABASE IF EXISTS \"$database\" WITH (FORCE)"
echo "dropped $database"
