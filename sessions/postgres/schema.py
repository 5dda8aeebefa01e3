"""The tables of the store, and the migrations that create them. Migrations only go forward and are never changed."""

from __future__ import annotations

from sessions.events.errors import StorageFailed
from sessions.postgres.connections import SCHEMA, TRANSACTION_TIMEOUTS, Connection, Database

_PARTITIONS = 8

MIGRATIONS = (
    f"""
    CREATE TABLE log (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        store text COLLATE "C" NOT NULL,
        name text COLLATE "C" NOT NULL,
        epoch bigint NOT NULL DEFAULT 0,
        head bigint NOT NULL DEFAULT 0,
        size bigint NOT NULL DEFAULT 0,
        changed bigint NOT NULL DEFAULT extract(epoch FROM clock_timestamp()) * 1000000000,
        UNIQUE (store, name)
    ) WITH (fillfactor = 70);
    COMMENT ON COLUMN log.epoch IS 'grows whenever the log is opened; an append of an earlier epoch is rejected';
    CREATE TABLE line (
        log bigint NOT NULL,
        seq bigint NOT NULL,
        ends bigint NOT NULL,
        line bytea NOT NULL,
        PRIMARY KEY (log, seq)
    ) PARTITION BY HASH (log);
    COMMENT ON COLUMN line.ends IS 'the offset in bytes after this line, as in a journal';
    DO $$ BEGIN
        FOR part IN 0..{_PARTITIONS - 1} LOOP
            EXECUTE format('CREATE TABLE line_%s PARTITION OF line FOR VALUES WITH (MODULUS {_PARTITIONS}, REMAINDER %s)',
                           part, part);
        END LOOP;
    END $$;
    """,
    """
    CREATE TABLE gateway (
        id text COLLATE "C" PRIMARY KEY,
        url text NOT NULL DEFAULT '',
        beat bigint NOT NULL DEFAULT 0,
        dead boolean NOT NULL DEFAULT false,
        draining boolean NOT NULL DEFAULT false,
        version text NOT NULL DEFAULT '',
        config_digest text NOT NULL DEFAULT '',
        began timestamptz NOT NULL DEFAULT now(),
        at timestamptz NOT NULL DEFAULT now(),
        ended timestamptz,
        UNIQUE (id, dead)
    ) WITH (fillfactor = 50);
    COMMENT ON TABLE gateway IS 'a row for each incarnation of a gateway; one that is dead never writes again';
    COMMENT ON COLUMN gateway.url IS 'the address for other gateways, empty until it listens';
    COMMENT ON COLUMN gateway.dead IS
        'part of a unique key: setting it waits for all statements that hold the row FOR KEY SHARE, which a beat does not';
    CREATE TABLE chat (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        person text COLLATE "C" NOT NULL,
        key text COLLATE "C" NOT NULL,
        epoch bigint NOT NULL DEFAULT 0,
        holder text COLLATE "C",
        unsettled boolean NOT NULL DEFAULT false,
        UNIQUE (person, key)
    ) WITH (fillfactor = 70);
    COMMENT ON COLUMN chat.epoch IS 'grows with each owner';
    COMMENT ON COLUMN chat.holder IS 'the gateway that may write its sessions';
    COMMENT ON COLUMN chat.unsettled IS 'true unless its last owner gave it up with nothing left to finish';
    CREATE INDEX chat_held ON chat (holder) WHERE holder IS NOT NULL;
    CREATE INDEX chat_unowned ON chat (id) WHERE unsettled AND holder IS NULL;
    CREATE TABLE cluster (single boolean PRIMARY KEY DEFAULT true CHECK (single), secret bytea NOT NULL);
    COMMENT ON TABLE cluster IS 'one row with the secret by which the gateways authenticate each other';
    """,
    """
    CREATE TABLE session (
        name text COLLATE "C" PRIMARY KEY,
        person text COLLATE "C" NOT NULL,
        key text COLLATE "C" NOT NULL,
        opened_at text COLLATE "C" NOT NULL,
        succeeds text COLLATE "C",
        origin text COLLATE "C",
        at text COLLATE "C" NOT NULL,
        size bigint NOT NULL,
        changed bigint NOT NULL,
        settled boolean NOT NULL,
        fields bytea NOT NULL
    ) WITH (fillfactor = 70);
    COMMENT ON TABLE session IS
        'the catalog: inserted in the transaction of the first line; valid while size and changed are those of the log';
    COMMENT ON COLUMN session.fields IS 'all of the row, as MessagePack';
    CREATE INDEX session_key ON session (person, key);
    CREATE INDEX session_succeeds ON session (succeeds) WHERE succeeds IS NOT NULL;
    CREATE INDEX session_at ON session (at);
    CREATE INDEX session_unsettled ON session (name) WHERE NOT settled;
    CREATE TABLE checkpoint (
        session text COLLATE "C" PRIMARY KEY,
        seq bigint NOT NULL,
        sealed bytea NOT NULL
    );
    CREATE TABLE receipts (
        session text COLLATE "C" NOT NULL,
        upto bigint NOT NULL,
        sealed bytea NOT NULL,
        PRIMARY KEY (session, upto)
    );
    COMMENT ON TABLE receipts IS 'digests of the message ids of a session up to a seq; later ones are in the log';
    """,
    """
    CREATE TABLE blob (
        sha256 text COLLATE "C" PRIMARY KEY,
        size bigint NOT NULL,
        at timestamptz NOT NULL DEFAULT now()
    );
    COMMENT ON COLUMN blob.at IS 'when it was stored last';
    CREATE TABLE blob_part (
        sha256 text COLLATE "C" NOT NULL REFERENCES blob ON DELETE CASCADE,
        part integer NOT NULL,
        bytes bytea NOT NULL,
        PRIMARY KEY (sha256, part)
    );
    ALTER TABLE blob_part ALTER COLUMN bytes SET STORAGE EXTERNAL;
    CREATE TABLE owner (
        person bytea NOT NULL,
        sha256 text COLLATE "C" NOT NULL REFERENCES blob ON DELETE CASCADE,
        record bytea NOT NULL,
        named boolean NOT NULL,
        at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (person, sha256)
    );
    COMMENT ON TABLE owner IS 'who has sent an attachment; only who has may read or use it';
    COMMENT ON COLUMN owner.named IS 'true if an event refers to it; others are removed after a day';
    CREATE INDEX owner_sha256 ON owner (sha256);
    CREATE INDEX owner_unused ON owner (at) WHERE NOT named;
    CREATE TABLE lease (
        name text COLLATE "C" PRIMARY KEY,
        holder text COLLATE "C" NOT NULL
    );
    COMMENT ON TABLE lease IS 'what one gateway at a time does; it ends with the incarnation that holds it';
    """,
)
"""The statements of each version of the tables, from 1."""

_LOCK = 0x657875766961
"""The key of the advisory lock that lets one process migrate at a time: `exuvia`."""


def migrate(database: Database, connection: Connection) -> None:
    """Bring the tables to the newest version. Blocks; raises StorageFailed, also if a later program has migrated them."""
    with database.errors("cannot be migrated"), connection.transaction():
        if connection.info.server_version >= TRANSACTION_TIMEOUTS:
            connection.execute("SET LOCAL transaction_timeout = 0")
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        if not _exists(connection):
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
            connection.execute("CREATE TABLE migration (version integer PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())")
        version = version_of(connection)
        for number, statements in enumerate(MIGRATIONS[version:], version + 1):
            connection.execute(statements)
            connection.execute("INSERT INTO migration (version) VALUES (%s)", (number,))
    if version > len(MIGRATIONS):
        raise StorageFailed(
            f"The tables in {database.name} have version {version}, but this program knows only {len(MIGRATIONS)}; install"
            " the version of Exuvia that wrote them."
        )


def version_of(connection: Connection) -> int:
    """Return the version of the tables, 0 if there are none."""
    if not _exists(connection):
        return 0
    (version,) = connection.execute("SELECT coalesce(max(version), 0) FROM migration").fetchone() or (0,)
    return int(version)


def _exists(connection: Connection) -> bool:
    (found,) = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (f"{SCHEMA}.migration",)).fetchone() or (False,)
    return bool(found)
