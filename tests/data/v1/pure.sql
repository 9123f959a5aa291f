CREATE SCHEMA v1_pure;
CREATE FUNCTION v1_pure.keep() RETURNS trigger
    LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'a ledger is append-only'; END $$;
CREATE TABLE v1_pure.analysts (
    analyst text NOT NULL,
    quota bigint NOT NULL,
    spent bigint NOT NULL
);
CREATE TABLE v1_pure.answers (
    charge bigint NOT NULL,
    answer text NOT NULL
);
CREATE TABLE v1_pure.atoms (
    atom integer NOT NULL,
    extra bigint NOT NULL
);
CREATE TABLE v1_pure.entries (
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
CREATE TABLE v1_pure.genesis (
    one integer NOT NULL,
    statement text NOT NULL,
    hash text NOT NULL,
    CONSTRAINT genesis_one_check CHECK ((one = 1))
);
CREATE TABLE v1_pure.head (
    one integer NOT NULL,
    seq bigint NOT NULL,
    hash text NOT NULL,
    CONSTRAINT head_one_check CHECK ((one = 1))
);
INSERT INTO v1_pure.analysts VALUES ('ann', 9223372036854775807, 4504500000000);
INSERT INTO v1_pure.answers VALUES (1, '{"mean": "1/3"}');
INSERT INTO v1_pure.entries VALUES (1, 'charge', '2026-11-16T06:44:49+00:00', 'ann', 'q0', 'question 0', 'discrete Laplace; pure epsilon units=1126125000000', 1126125000000, NULL, 1126125000000, 1126125000000, '632a98c690dee11a1af3701edc5c2e83d42f9688b406508239d66d8625006d2b', '4edf5f2787903e2e1fcd4ed6b82d8b44d3280e64916beff26f4f20242bacd114');
INSERT INTO v1_pure.entries VALUES (2, 'charge', '2026-11-16T06:44:49+00:00', 'ann', 'q1', 'question 1', 'discrete Laplace; pure epsilon units=1126125000000', 1126125000000, NULL, 2252250000000, 2252250000000, '4edf5f2787903e2e1fcd4ed6b82d8b44d3280e64916beff26f4f20242bacd114', '37f3e8e4f2d4bfddb0e6233e1b9e3d17b8eca0d424b9aa0cff6a48b60b663c18');
INSERT INTO v1_pure.entries VALUES (3, 'charge', '2026-11-16T06:44:49+00:00', 'ann', 'q2', 'question 2', 'discrete Laplace; pure epsilon units=1126125000000', 1126125000000, NULL, 3378375000000, 3378375000000, '37f3e8e4f2d4bfddb0e6233e1b9e3d17b8eca0d424b9aa0cff6a48b60b663c18', '96e3c385e772cde1e293327438cd696f37dec90f6058a7178cd4ac4f503c76a9');
INSERT INTO v1_pure.entries VALUES (4, 'charge', '2026-11-16T06:44:49+00:00', 'ann', 'q3', 'question 3', 'discrete Laplace; pure epsilon units=1126125000000', 1126125000000, NULL, 4504500000000, 4504500000000, '96e3c385e772cde1e293327438cd696f37dec90f6058a7178cd4ac4f503c76a9', '020b8a06481efb576a97c6e8068f949ebe03e17d09da049a1dc6bab66fb3fa0e');
INSERT INTO v1_pure.entries VALUES (5, 'answer', '2026-11-16T06:44:49+00:00', 'ann', NULL, 'answer', '1 184ec4167fbca7e7cef07743c0b591eddf9fd26d56d67207346a1dddc6ea6e0c', 0, NULL, 4504500000000, 4504500000000, '020b8a06481efb576a97c6e8068f949ebe03e17d09da049a1dc6bab66fb3fa0e', '89031ccf3c2fecf2079a7fc4a7516f2281aba47295399d5bb0dedaee7d0b489c');
INSERT INTO v1_pure.genesis VALUES (1, '{"atoms": 1, "budget": {"delta": "0", "epsilon": "1", "queries": null, "rho": null}, "capacity": 9009000000000, "format": 1, "neighbours": "replace", "population": "people"}', '632a98c690dee11a1af3701edc5c2e83d42f9688b406508239d66d8625006d2b');
INSERT INTO v1_pure.head VALUES (1, 5, '89031ccf3c2fecf2079a7fc4a7516f2281aba47295399d5bb0dedaee7d0b489c');
ALTER TABLE ONLY v1_pure.analysts
    ADD CONSTRAINT analysts_pkey PRIMARY KEY (analyst);
ALTER TABLE ONLY v1_pure.answers
    ADD CONSTRAINT answers_pkey PRIMARY KEY (charge);
ALTER TABLE ONLY v1_pure.atoms
    ADD CONSTRAINT atoms_pkey PRIMARY KEY (atom);
ALTER TABLE ONLY v1_pure.entries
    ADD CONSTRAINT entries_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY v1_pure.entries
    ADD CONSTRAINT entries_previous_key UNIQUE (previous);
ALTER TABLE ONLY v1_pure.genesis
    ADD CONSTRAINT genesis_pkey PRIMARY KEY (one);
ALTER TABLE ONLY v1_pure.head
    ADD CONSTRAINT head_pkey PRIMARY KEY (one);
CREATE UNIQUE INDEX requests ON v1_pure.entries USING btree (analyst, request_id) WHERE (request_id IS NOT NULL);
CREATE TRIGGER keep_all BEFORE TRUNCATE ON v1_pure.answers FOR EACH STATEMENT EXECUTE FUNCTION v1_pure.keep();
CREATE TRIGGER keep_all BEFORE TRUNCATE ON v1_pure.entries FOR EACH STATEMENT EXECUTE FUNCTION v1_pure.keep();
CREATE TRIGGER keep_all BEFORE TRUNCATE ON v1_pure.genesis FOR EACH STATEMENT EXECUTE FUNCTION v1_pure.keep();
CREATE TRIGGER keep_rows BEFORE DELETE OR UPDATE ON v1_pure.answers FOR EACH ROW EXECUTE FUNCTION v1_pure.keep();
CREATE TRIGGER keep_rows BEFORE DELETE OR UPDATE ON v1_pure.entries FOR EACH ROW EXECUTE FUNCTION v1_pure.keep();
CREATE TRIGGER keep_rows BEFORE DELETE OR UPDATE ON v1_pure.genesis FOR EACH ROW EXECUTE FUNCTION v1_pure.keep();
ALTER TABLE ONLY v1_pure.answers
    ADD CONSTRAINT answers_charge_fkey FOREIGN KEY (charge) REFERENCES v1_pure.entries(seq);
