#!/bin/sh
# Creates the database. Its name is the same in every attempt: an attempt after a lost one finds the database of that
# one, and "drop" knows the name even if no attempt reported it. After an update of the sandbox replaces the resource, the
# new database has another name.
set -eu
export PGCONNECT_TIMEOUT=5

database="ebb_$EBB_KEY"

n=0
until pg_isready --quiet; do
    n=$((n + 1))
    [ "$n" -lt 30 ] || { echo "no PostgreSQL answers at $PGHOST:$PGPORT" >&2; exit 1; }
    sleep 1
done

exists() {
    [ "$(psql -X -d postgres -Atc "SELECT count(*) FROM pg_database WHERE datname = '$database'")" = 1 ]
}

# An earlier attempt may create it between the query and the statement, so only the final state counts.
if exists; then
    echo "$database exists: an earlier attempt has created it"
else
    psql -X -d postgres -qc "CREATE DATABASE $database" || exists
    echo "created $database"
fi

case "$PGHOST" in
/*) url="postgresql://$PGUSER@/$database?host=$PGHOST&port=$PGPORT" ;;
*) url="postgresql://$PGUSER@$PGHOST:$PGPORT/$database" ;;
esac
printf %s "$PGHOST" >/tmp/host
printf %s "$PGPORT" >/tmp/port
printf %s "$database" >/tmp/dbname
printf %s "$PGUSER" >/tmp/user
printf %s "$url" >/tmp/url
