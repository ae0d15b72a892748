#!/bin/sh
# Lists the databases that "provision" has created on the server, for `ebb inventory`.
set -eu
export PGCONNECT_TIMEOUT=5

psql -X -d postgres -Atc "SELECT datname FROM pg_database WHERE datname LIKE 'ebb\_%' ORDER BY 1" >/tmp/things
