-- A registry of device addresses in PostgreSQL (13 or later): what a device service keeps, and the
-- statements that change it. Take it as it is, or as a model for yours.
--
--     psql -v ON_ERROR_STOP=1 -f registry.sql
--     psql -c "SELECT push.register('shop', 'install-1', 'ada', 1, '[{...}]')"
--
-- connector.json feeds the topic push.devices from the table push.devices, so its columns are
-- named as the fields of that topic, and its primary key says which address a row is.
--
-- An install belongs to one user at a time, and a token to one address. Every function is one
-- transaction's worth of work and locks in the same order: first the names of tokens and installs
-- (advisory locks, by their numbers), then rows of installs (by their keys), then the rows of an
-- install. So they wait for each other and never deadlock. Call one in a transaction.

CREATE SCHEMA push;

-- Who is signed in where. Outlives the install's addresses, so that an upload that was overtaken
-- is recognised.
CREATE TABLE push.installs (
    app          text NOT NULL CHECK (app <> '' AND strpos(app, '/') = 0),
    install_id   text NOT NULL CHECK (install_id <> '' AND strpos(install_id, '/') = 0),
    user_id      text CHECK (user_id <> ''),
    version      bigint NOT NULL DEFAULT 0 CHECK (version >= 0),
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (app, install_id)
);
CREATE INDEX installs_by_user ON push.installs (app, user_id) WHERE user_id IS NOT NULL;

-- SHA-256 of a token, as Bugle's records have it.
CREATE FUNCTION push.token_hash(token text) RETURNS bytea
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT sha256(convert_to(token, 'UTF8')) $$;

-- The addresses that notifications can be sent to. A row that goes is deleted.
CREATE TABLE push.devices (
    app            text NOT NULL,
    install_id     text NOT NULL,
    kind           text NOT NULL DEFAULT 'alert' CHECK (kind <> '' AND strpos(kind, '/') = 0),
    instance       text NOT NULL DEFAULT '',
    user_id        text,
    platform       text NOT NULL,
    gateway        text NOT NULL CHECK (gateway IN ('apns', 'fcm', 'webpush', 'expo')),
    environment    text NOT NULL DEFAULT 'none'
                   CHECK (environment IN ('production', 'sandbox', 'none')),
    token          text,
    endpoint       text,
    keys           jsonb,
    vapid_key_id   text,
    apns_topic     text,
    version        bigint NOT NULL DEFAULT 0,
    registered_at  timestamptz NOT NULL,
    last_seen_at   timestamptz NOT NULL,
    expires_at     timestamptz,
    permission     text,
    muted_channels jsonb,
    subscriptions  jsonb,
    opt_outs       jsonb,
    locale         text,
    time_zone      text,
    app_version    text,
    os_version     text,
    sdk_version    text,
    capabilities   jsonb,
    public_keys    jsonb,
    -- What Bugle's verdicts made of it; a new upload makes it active again.
    state          text NOT NULL DEFAULT 'active'
                   CHECK (state IN ('active', 'suspended', 'quarantined')),
    state_reason   text,
    state_at       timestamptz,
    token_hash     bytea NOT NULL
                   GENERATED ALWAYS AS (push.token_hash(coalesce(endpoint, token))) STORED,
    PRIMARY KEY (app, install_id, kind, instance),
    FOREIGN KEY (app, install_id) REFERENCES push.installs ON DELETE CASCADE,
    CHECK ((gateway = 'apns') = (environment <> 'none')),
    CHECK (CASE WHEN gateway = 'webpush' THEN endpoint IS NOT NULL AND keys IS NOT NULL
                ELSE token IS NOT NULL END)
);
-- One token, one address. Checked at the end of the transaction, so that a token can be given to
-- its new address before the former one goes: read in that order, nobody is without it in between.
ALTER TABLE push.devices ADD CONSTRAINT devices_one_address_per_token
    UNIQUE (app, gateway, environment, token_hash) DEFERRABLE INITIALLY DEFERRED;
CREATE INDEX devices_by_user ON push.devices (app, user_id) WHERE user_id IS NOT NULL;
CREATE INDEX devices_by_last_seen ON push.devices (last_seen_at);

-- A delete tells the whole row, and an update the large values that it did not change.
ALTER TABLE push.devices REPLICA IDENTITY FULL;
CREATE PUBLICATION push_devices FOR TABLE push.devices
    WITH (publish = 'insert, update, delete');

-- Why an address is gone, without its token.
CREATE TABLE push.tombstones (
    app         text NOT NULL,
    install_id  text NOT NULL,
    kind        text NOT NULL,
    instance    text NOT NULL,
    user_id     text,
    gateway     text NOT NULL,
    environment text NOT NULL,
    token_hash  bytea NOT NULL,
    reason      text NOT NULL,
    at          timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (app, install_id, kind, instance, token_hash)
);
CREATE INDEX tombstones_by_time ON push.tombstones (at);

-- Notes why a token of an address is gone.
CREATE FUNCTION push.bury(d push.devices, p_reason text) RETURNS void LANGUAGE sql AS $$
    INSERT INTO push.tombstones
        (app, install_id, kind, instance, user_id, gateway, environment, token_hash, reason)
    VALUES (d.app, d.install_id, d.kind, d.instance, d.user_id, d.gateway, d.environment,
        d.token_hash, p_reason)
    ON CONFLICT (app, install_id, kind, instance, token_hash)
    DO UPDATE SET user_id = excluded.user_id, reason = excluded.reason, at = excluded.at
$$;

-- Ends an address and notes why. The caller holds the lock of its install.
CREATE FUNCTION push.retire(d push.devices, p_reason text) RETURNS void LANGUAGE sql AS $$
    SELECT push.bury(d, p_reason);
    DELETE FROM push.devices AS x
    WHERE (x.app, x.install_id, x.kind, x.instance)
        = (d.app, d.install_id, d.kind, d.instance);
$$;

-- The addresses of an upload as rows of push.devices, tokens in one spelling, so that a token is
-- recognised however a client wrote it. One whose token is null is gone.
CREATE FUNCTION push.uploaded(p_addresses jsonb) RETURNS TABLE (
    kind text, instance text, gateway text, environment text, target text, fields jsonb
) LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(f ->> 'kind', 'alert'), coalesce(f ->> 'instance', ''), f ->> 'gateway',
        coalesce(f ->> 'environment', 'none'),
        CASE WHEN f ->> 'gateway' = 'apns' THEN lower(btrim(f ->> 'token'))
            ELSE btrim(coalesce(f ->> 'endpoint', f ->> 'token')) END,
        f
    FROM jsonb_array_elements(p_addresses) AS f
$$;

-- Holds names until the end of the transaction.
CREATE FUNCTION push.lock_names(p_names text[]) RETURNS void LANGUAGE sql AS $$
    SELECT pg_advisory_xact_lock(l.key) FROM (
        SELECT DISTINCT hashtextextended(name, 0) AS key FROM unnest(p_names) AS name ORDER BY 1
    ) AS l
$$;

-- An upload of a client: who is signed in (null: nobody) and the addresses that it has, each an
-- object with the fields of push.devices. Addresses that it does not mention stay as they are, one
-- with a null token (or endpoint) is gone. 'registered', or 'outdated' when a later version of the
-- install's state is stored already: then nothing changes.
CREATE FUNCTION push.register(
    p_app text, p_install text, p_user text, p_version bigint, p_addresses jsonb
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    a record;
    d push.devices;
BEGIN
    -- Whoever wants one of these tokens, or removes the install, waits here.
    PERFORM push.lock_names(ARRAY(
        SELECT concat_ws('/', 'token', p_app, u.gateway, u.environment, u.target)
        FROM push.uploaded(p_addresses) AS u WHERE u.target IS NOT NULL
        UNION SELECT concat_ws('/', 'install', p_app, p_install)));
    INSERT INTO push.installs (app, install_id) VALUES (p_app, p_install) ON CONFLICT DO NOTHING;
    PERFORM 1 FROM push.installs AS i
    WHERE i.app = p_app AND (i.install_id = p_install OR i.install_id IN (
        SELECT x.install_id FROM push.devices AS x JOIN push.uploaded(p_addresses) AS u
            ON x.app = p_app AND x.gateway = u.gateway AND x.environment = u.environment
            AND x.token_hash = push.token_hash(u.target)))
    ORDER BY i.app, i.install_id FOR UPDATE;

    UPDATE push.installs SET user_id = p_user, version = p_version
    WHERE app = p_app AND install_id = p_install AND version <= p_version;
    IF NOT FOUND THEN
        RETURN 'outdated';
    END IF;
    -- The user belongs to the install: all its addresses go to the new one together.
    UPDATE push.devices SET user_id = p_user
    WHERE app = p_app AND install_id = p_install AND user_id IS DISTINCT FROM p_user;
    FOR a IN SELECT * FROM push.uploaded(p_addresses) LOOP
        IF a.target IS NOT NULL THEN
            PERFORM push.store(p_app, p_install, p_user, p_version, a.kind, a.instance,
                a.gateway, a.environment, a.target, a.fields);
        ELSE
            PERFORM push.retire(x, 'client_unregister') FROM push.devices AS x
            WHERE x.app = p_app AND x.install_id = p_install AND x.kind = a.kind
                AND x.instance = a.instance;
        END IF;
    END LOOP;
    RETURN 'registered';
END
$$;

-- Stores one uploaded address and takes its token from whoever had it. Part of register, which
-- holds the locks.
CREATE FUNCTION push.store(
    p_app text, p_install text, p_user text, p_version bigint, p_kind text, p_instance text,
    p_gateway text, p_environment text, p_target text, p_fields jsonb
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    hash   bytea := push.token_hash(p_target);
    moment timestamptz := date_trunc('milliseconds', clock_timestamp());
    former push.devices[];
BEGIN
    former := ARRAY(
        SELECT x FROM push.devices AS x
        WHERE x.app = p_app AND x.gateway = p_gateway AND x.environment = p_environment
            AND x.token_hash = hash
            AND (x.install_id, x.kind, x.instance) <> (p_install, p_kind, p_instance));
    -- The newest registration has the token, so this one is newer whatever the clock did.
    SELECT greatest(moment, max(f.registered_at) + interval '1 ms') INTO moment
    FROM unnest(former) AS f;
    PERFORM push.bury(x, 'rotated') FROM push.devices AS x
    WHERE x.app = p_app AND x.install_id = p_install AND x.kind = p_kind
        AND x.instance = p_instance AND (x.gateway, x.environment, x.token_hash)
            <> (p_gateway, p_environment, hash);
    INSERT INTO push.devices AS d (
        app, install_id, kind, instance, user_id, platform, gateway, environment, token,
        endpoint, keys, vapid_key_id, apns_topic, version, registered_at, last_seen_at,
        expires_at, permission, muted_channels, subscriptions, opt_outs, locale, time_zone,
        app_version, os_version, sdk_version, capabilities, public_keys)
    SELECT p_app, p_install, p_kind, p_instance, p_user, f.platform, p_gateway, p_environment,
        CASE WHEN p_gateway <> 'webpush' THEN p_target END,
        CASE WHEN p_gateway = 'webpush' THEN p_target END,
        f.keys, f.vapid_key_id, f.apns_topic, p_version, moment, moment,
        timestamptz 'epoch' + f.expires_at * interval '1 ms', f.permission, f.muted_channels,
        f.subscriptions, f.opt_outs, f.locale, f.time_zone, f.app_version, f.os_version,
        f.sdk_version, f.capabilities, f.public_keys
    FROM jsonb_to_record(p_fields) AS f (
        platform text, keys jsonb, vapid_key_id text, apns_topic text, expires_at bigint,
        permission text, muted_channels jsonb, subscriptions jsonb, opt_outs jsonb,
        locale text, time_zone text, app_version text, os_version text, sdk_version text,
        capabilities jsonb, public_keys jsonb)
    ON CONFLICT (app, install_id, kind, instance) DO UPDATE SET
        user_id = excluded.user_id, platform = excluded.platform, gateway = excluded.gateway,
        environment = excluded.environment, token = excluded.token,
        endpoint = excluded.endpoint, keys = excluded.keys,
        vapid_key_id = excluded.vapid_key_id, apns_topic = excluded.apns_topic,
        version = excluded.version,
        registered_at = greatest(d.registered_at, excluded.registered_at),
        last_seen_at = greatest(d.last_seen_at, excluded.last_seen_at),
        expires_at = excluded.expires_at, permission = excluded.permission,
        muted_channels = excluded.muted_channels, subscriptions = excluded.subscriptions,
        opt_outs = excluded.opt_outs, locale = excluded.locale,
        time_zone = excluded.time_zone, app_version = excluded.app_version,
        os_version = excluded.os_version, sdk_version = excluded.sdk_version,
        capabilities = excluded.capabilities, public_keys = excluded.public_keys,
        state = 'active', state_reason = NULL, state_at = NULL;
    PERFORM push.retire(f, 'claimed_by_other_install') FROM unnest(former) AS f;
END
$$;

-- The user signs out. Nothing happens, and the answer is false, when somebody else is signed in on
-- the install by now: a sign-out that comes late must not sign the next one out.
CREATE FUNCTION push.logout(
    p_app text, p_install text, p_user text, p_version bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    UPDATE push.installs SET user_id = NULL, version = p_version
    WHERE app = p_app AND install_id = p_install AND user_id = p_user AND version <= p_version;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE push.devices SET user_id = NULL
    WHERE app = p_app AND install_id = p_install AND user_id IS NOT NULL;
    RETURN true;
END
$$;

-- The app is gone from the device, with all its addresses.
CREATE FUNCTION push.unregister(p_app text, p_install text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM push.lock_names(ARRAY[concat_ws('/', 'install', p_app, p_install)]);
    PERFORM 1 FROM push.installs WHERE app = p_app AND install_id = p_install FOR UPDATE;
    PERFORM push.retire(d, 'client_unregister') FROM push.devices AS d
    WHERE d.app = p_app AND d.install_id = p_install;
    DELETE FROM push.installs WHERE app = p_app AND install_id = p_install;
END
$$;

-- A sign of life that is no upload. Written once a day: 30 days are then exact to 3 percent, and
-- registered_at, by which verdicts are judged, does not move.
CREATE FUNCTION push.seen(p_app text, p_install text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM push.installs WHERE app = p_app AND install_id = p_install FOR UPDATE;
    UPDATE push.devices SET last_seen_at = date_trunc('milliseconds', clock_timestamp())
    WHERE app = p_app AND install_id = p_install
        AND last_seen_at < clock_timestamp() - interval '24 hours';
END
$$;

-- What a record of push.invalidations says, given as its value. Counts only for the token that was
-- judged and only if that was not uploaded since; false when it changes nothing.
CREATE FUNCTION push.apply_invalidation(p_record jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    r       record;
    d       push.devices;
    verdict text := p_record ->> 'verdict';
BEGIN
    SELECT p_record ->> 'app' AS app, p_record ->> 'install_id' AS install_id,
        coalesce(p_record ->> 'kind', 'alert') AS kind,
        coalesce(p_record ->> 'instance', '') AS instance,
        p_record ->> 'token_hash' AS token_hash, p_record ->> 'reason' AS reason,
        timestamptz 'epoch' + (p_record ->> 'as_of')::bigint * interval '1 ms' AS as_of
    INTO r;
    PERFORM 1 FROM push.installs WHERE app = r.app AND install_id = r.install_id FOR UPDATE;
    SELECT * INTO d FROM push.devices
    WHERE app = r.app AND install_id = r.install_id AND kind = r.kind AND instance = r.instance
        AND registered_at <= r.as_of
        AND (r.token_hash IS NULL OR token_hash = decode(r.token_hash, 'hex'));
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    CASE
        WHEN verdict IN ('invalidate', 'stale') THEN
            PERFORM push.retire(d, r.reason);
        WHEN verdict = 'forget' THEN
            DELETE FROM push.devices AS x
            WHERE (x.app, x.install_id, x.kind, x.instance)
                = (d.app, d.install_id, d.kind, d.instance);
        WHEN verdict IN ('suspend', 'quarantine', 'release') THEN
            UPDATE push.devices AS x SET state_reason = r.reason, state_at = r.as_of,
                state = CASE verdict WHEN 'suspend' THEN 'suspended'
                    WHEN 'quarantine' THEN 'quarantined' ELSE 'active' END
            WHERE (x.app, x.install_id, x.kind, x.instance)
                = (d.app, d.install_id, d.kind, d.instance);
        ELSE
            RETURN false;
    END CASE;
    RETURN true;
END
$$;

-- Erases a user: installs, addresses, tombstones. Run it before `bugle index forget`. Returns how
-- many addresses there were.
CREATE FUNCTION push.forget(p_app text, p_user text) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    mine  text[] := ARRAY(
        SELECT i.install_id FROM push.installs AS i WHERE i.app = p_app AND i.user_id = p_user);
    count integer;
BEGIN
    PERFORM push.lock_names(ARRAY(
        SELECT concat_ws('/', 'install', p_app, m) FROM unnest(mine) AS m));
    -- Somebody else may have signed in on one meanwhile.
    mine := ARRAY(
        SELECT i.install_id FROM push.installs AS i
        WHERE i.app = p_app AND i.install_id = ANY (mine) AND i.user_id = p_user
        ORDER BY i.app, i.install_id FOR UPDATE);
    DELETE FROM push.devices WHERE app = p_app AND install_id = ANY (mine);
    GET DIAGNOSTICS count = ROW_COUNT;
    DELETE FROM push.installs WHERE app = p_app AND install_id = ANY (mine);
    DELETE FROM push.tombstones
    WHERE app = p_app AND (user_id = p_user OR install_id = ANY (mine));
    RETURN count;
END
$$;

-- Housekeeping, once an hour: tombstones are understood for 30 days.
CREATE FUNCTION push.sweep() RETURNS void LANGUAGE sql AS $$
    DELETE FROM push.tombstones WHERE at < now() - interval '30 days'
$$;
