#!/bin/sh
# Creates the tables, all or none.
set -eu
export PGCONNECT_TIMEOUT=5

psql -X -q -v ON_ERROR_STOP=1 --single-transaction "$DATABASE_URL" <<'SQL'
SET client_min_messages = warning;
-- Two attempts at once wait for each other here.
DO $$ BEGIN PERFORM pg_advisory_xact_lock(1); END $$;
CREATE TABLE IF NOT EXISTS customers (
    id bigint PRIMARY KEY,
    name text NOT NULL
);
CREATE TABLE IF NOT EXISTS invoices (
    id bigint PRIMARY KEY,
    customer bigint NOT NULL REFERENCES customers,
    cents bigint NOT NULL CHECK (cents >= 0)
);
SQL

echo "the tables are there"
printf %s 1 >/tmp/version
