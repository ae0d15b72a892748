#!/bin/sh
# Makes the customers from 1 to $CUSTOMERS, all or none. It removes the others up to 1000, except those with invoices.
set -eu
export PGCONNECT_TIMEOUT=5

psql -X -q -v ON_ERROR_STOP=1 -v customers="$CUSTOMERS" --single-transaction "$DATABASE_URL" <<'SQL'
DELETE FROM customers
    WHERE id > :'customers'::bigint AND id <= 1000
    AND NOT EXISTS (SELECT FROM invoices WHERE invoices.customer = customers.id);
INSERT INTO customers (id, name)
    SELECT id, 'Customer ' || id FROM generate_series(1, :'customers'::bigint) AS id
    ON CONFLICT DO NOTHING;
SQL

echo "the database has $CUSTOMERS customers"
