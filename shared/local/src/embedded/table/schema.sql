CREATE TABLE items (
    pk TEXT NOT NULL, sk TEXT NOT NULL, g INTEGER, due INTEGER, l TEXT, ttl INTEGER, sum INTEGER NOT NULL,
    item TEXT NOT NULL
);
CREATE UNIQUE INDEX items_by_key ON items (pk, sk);
CREATE INDEX items_by_due ON items (g, due, pk, sk) WHERE g IS NOT NULL AND due IS NOT NULL;
CREATE INDEX items_by_list ON items (l, pk, sk) WHERE l IS NOT NULL;
CREATE INDEX items_by_ttl ON items (ttl) WHERE ttl IS NOT NULL;
CREATE TABLE state (id INTEGER NOT NULL, changes INTEGER NOT NULL, digest INTEGER NOT NULL);
CREATE TRIGGER items_added AFTER INSERT ON items BEGIN
    UPDATE state SET changes = changes + 1, digest = (digest | new.sum) - (digest & new.sum);
END;
CREATE TRIGGER items_changed AFTER UPDATE OF sum ON items BEGIN
    UPDATE state SET digest = (digest | old.sum) - (digest & old.sum);
    UPDATE state SET changes = changes + 1, digest = (digest | new.sum) - (digest & new.sum);
END;
CREATE TRIGGER items_removed AFTER DELETE ON items BEGIN
    UPDATE state SET changes = changes + 1, digest = (digest | old.sum) - (digest & old.sum);
END;
