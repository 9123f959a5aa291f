CREATE SCHEMA v1_groups;
CREATE FUNCTION v1_groups.keep() RETURNS trigger
    LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'a ledger is append-only'; END $$;
CREATE TABLE v1_groups.analysts (
    analyst text NOT NULL,
    quota bigint NOT NULL,
    spent bigint NOT NULL
);
CREATE TABLE v1_groups.answers (
    charge bigint NOT NULL,
    answer text NOT NULL
);
CREATE TABLE v1_groups.atoms (
    atom integer NOT NULL,
    extra bigint NOT NULL
);
CREATE TABLE v1_groups.entries (
    seq bigint NOT NULL,
    kind text NOT NULL,
    "time" text NOT NULL,
    analyst text NOT NULL,
    request_id text,
    what text NOT NULL,
    detail text NOT NULL,
    amount bigint NOT NULL,
    scope text,
    common_after bigint NOT NULL,
    total_after bigint NOT NULL,
    previous text NOT NULL,
    hash text NOT NULL,
    CONSTRAINT entries_amount_check CHECK ((amount >= 0))
);
CREATE TABLE v1_groups.genesis (
    one integer NOT NULL,
    statement text NOT NULL,
    hash text NOT NULL,
    CONSTRAINT genesis_one_check CHECK ((one = 1))
);
CREATE TABLE v1_groups.head (
    one integer NOT NULL,
    seq bigint NOT NULL,
    hash text NOT NULL,
    CONSTRAINT head_one_check CHECK ((one = 1))
);
INSERT INTO v1_groups.analysts VALUES ('ann', 4504500000000, 3378375000000);
INSERT INTO v1_groups.analysts VALUES ('bob', 9009000000000, 4504500000000);
INSERT INTO v1_groups.analysts VALUES ('eve', 9223372036854775807, 0);
INSERT INTO v1_groups.answers VALUES (3, 'first');
INSERT INTO v1_groups.answers VALUES (5, '\\ \0 ☃');
INSERT INTO v1_groups.atoms VALUES (0, 1126125000000);
INSERT INTO v1_groups.atoms VALUES (1, 1126125000000);
INSERT INTO v1_groups.atoms VALUES (2, 4504500000000);
INSERT INTO v1_groups.atoms VALUES (5, 4504500000000);
INSERT INTO v1_groups.atoms VALUES (199, 4504500000000);
INSERT INTO v1_groups.entries VALUES (1, 'grant', '2026-11-16T06:44:49+00:00', 'ann', NULL, 'grant', '4504500000000', 0, NULL, 0, 0, 'fba20525e5638a394408083a5e03aae19de6b5c0bccd5f6c493dd1736366b44d', '3920e46e0d856bb074090cc5aa449f768c9945804d3906d02d195a82f6e1dfaa');
INSERT INTO v1_groups.entries VALUES (2, 'grant', '2026-11-16T06:44:49+00:00', 'bob', NULL, 'grant', '9009000000000', 0, NULL, 0, 0, '3920e46e0d856bb074090cc5aa449f768c9945804d3906d02d195a82f6e1dfaa', '963d7a1f620e345d57e701f0965693a3f70936d44061a6ca561b1f60e2937af2');
INSERT INTO v1_groups.entries VALUES (3, 'charge', '2026-11-16T06:44:49+00:00', 'ann', 'q0', 'everyone', '', 2252250000000, NULL, 2252250000000, 2252250000000, '963d7a1f620e345d57e701f0965693a3f70936d44061a6ca561b1f60e2937af2', '77bc372045914928deab1cf60b51a26f77764d5d5a72b497172839eef3e56915');
INSERT INTO v1_groups.entries VALUES (4, 'charge', '2026-11-16T06:44:49+00:00', 'ann', 'q1', 'some', '', 1126125000000, '0-1', 2252250000000, 3378375000000, '77bc372045914928deab1cf60b51a26f77764d5d5a72b497172839eef3e56915', '7a8664ca694ac035a3737573914e05b761bf0cc579d7d9dc6241e2ed3fa0c0d3');
INSERT INTO v1_groups.entries VALUES (5, 'charge', '2026-11-16T06:44:49+00:00', 'bob', 'q0', 'others', '', 4504500000000, '2,5,199', 2252250000000, 6756750000000, '7a8664ca694ac035a3737573914e05b761bf0cc579d7d9dc6241e2ed3fa0c0d3', '3fc05f9ed9a52101e9ac646ea5bcb721c9561e1937f829e8d1b6522dedd62a4b');
INSERT INTO v1_groups.entries VALUES (6, 'charge', '2026-11-16T06:44:49+00:00', 'eve', 'q0', 'free', '', 0, NULL, 2252250000000, 6756750000000, '3fc05f9ed9a52101e9ac646ea5bcb721c9561e1937f829e8d1b6522dedd62a4b', '817aa9ef537c1e0f4da87029b78783d9dde9718c9d424a1dbc33bb0ddbac37f9');
INSERT INTO v1_groups.entries VALUES (7, 'answer', '2026-11-16T06:44:49+00:00', 'ann', NULL, 'answer', '3 a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e', 0, NULL, 2252250000000, 6756750000000, '817aa9ef537c1e0f4da87029b78783d9dde9718c9d424a1dbc33bb0ddbac37f9', '5a17ce0171607217590fda1e4e29ce07ba6c156d2fa0f6ef501fde3521f74f7a');
INSERT INTO v1_groups.entries VALUES (8, 'answer', '2026-11-16T06:44:49+00:00', 'bob', NULL, 'answer', '5 2f99f05a3fe0ddede6c8f095c1653fca489531d24ea91525adba98d42d23b3e2', 0, NULL, 2252250000000, 6756750000000, '5a17ce0171607217590fda1e4e29ce07ba6c156d2fa0f6ef501fde3521f74f7a', 'df0395e95c21499190e28bdc26502d1c60428839ef0eccd8045c6a51d6e372d8');
INSERT INTO v1_groups.genesis VALUES (1, '{"atoms": 200, "budget": {"delta": "0", "epsilon": "1", "queries": null, "rho": null}, "capacity": 9009000000000, "format": 1, "neighbours": "replace", "population": "people"}', 'fba20525e5638a394408083a5e03aae19de6b5c0bccd5f6c493dd1736366b44d');
INSERT INTO v1_groups.head VALUES (1, 8, 'df0395e95c21499190e28bdc26502d1c60428839ef0eccd8045c6a51d6e372d8');
ALTER TABLE ONLY v1_groups.analysts
    ADD CONSTRAINT analysts_pkey PRIMARY KEY (analyst);
ALTER TABLE ONLY v1_groups.answers
    ADD CONSTRAINT answers_pkey PRIMARY KEY (charge);
ALTER TABLE ONLY v1_groups.atoms
    ADD CONSTRAINT atoms_pkey PRIMARY KEY (atom);
ALTER TABLE ONLY v1_groups.entries
    ADD CONSTRAINT entries_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY v1_groups.entries
    ADD CONSTRAINT entries_previous_key UNIQUE (previous);
ALTER TABLE ONLY v1_groups.genesis
    ADD CONSTRAINT genesis_pkey PRIMARY KEY (one);
ALTER TABLE ONLY v1_groups.head
    ADD CONSTRAINT head_pkey PRIMARY KEY (one);
CREATE UNIQUE INDEX requests ON v1_groups.entries USING btree (analyst, request_id) WHERE (request_id IS NOT NULL);
CREATE TRIGGER keep_all BEFORE TRUNCATE ON v1_groups.answers FOR EACH STATEMENT EXECUTE FUNCTION v1_groups.keep();
CREATE TRIGGER keep_all BEFORE TRUNCATE ON v1_groups.entries FOR EACH STATEMENT EXECUTE FUNCTION v1_groups.keep();
CREATE TRIGGER keep_all BEFORE TRUNCATE ON v1_groups.genesis FOR EACH STATEMENT EXECUTE FUNCTION v1_groups.keep();
CREATE TRIGGER keep_rows BEFORE DELETE OR UPDATE ON v1_groups.answers FOR EACH ROW EXECUTE FUNCTION v1_groups.keep();
CREATE TRIGGER keep_rows BEFORE DELETE OR UPDATE ON v1_groups.entries FOR EACH ROW EXECUTE FUNCTION v1_groups.keep();
CREATE TRIGGER keep_rows BEFORE DELETE OR UPDATE ON v1_groups.genesis FOR EACH ROW EXECUTE FUNCTION v1_groups.keep();
ALTER TABLE ONLY v1_groups.answers
    ADD CONSTRAINT answers_charge_fkey FOREIGN KEY (charge) REFERENCES v1_groups.entries(seq);
