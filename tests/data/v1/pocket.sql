CREATE SCHEMA v1_pocket;
CREATE FUNCTION v1_pocket.keep() RETURNS trigger
    LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'a ledger is append-only'; END $$;
CREATE TABLE v1_pocket.analysts (
    analyst text NOT NULL,
    quota bigint NOT NULL,
    spent bigint NOT NULL
);
CREATE TABLE v1_pocket.answers (
    charge bigint NOT NULL,
    answer text NOT NULL
);
CREATE TABLE v1_pocket.atoms (
    atom integer NOT NULL,
    extra bigint NOT NULL
);
CREATE TABLE v1_pocket.entries (
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
CREATE TABLE v1_pocket.genesis (
    one integer NOT NULL,
    statement text NOT NULL,
    hash text NOT NULL,
    CONSTRAINT genesis_one_check CHECK ((one = 1))
);
CREATE TABLE v1_pocket.head (
    one integer NOT NULL,
    seq bigint NOT NULL,
    hash text NOT NULL,
    CONSTRAINT head_one_check CHECK ((one = 1))
);
INSERT INTO v1_pocket.analysts VALUES ('ann', 9223372036854775807, 219422936969);
INSERT INTO v1_pocket.answers VALUES (1, 'answer 0');
INSERT INTO v1_pocket.answers VALUES (3, 'answer 1');
INSERT INTO v1_pocket.entries VALUES (1, 'charge', '2026-11-16T06:44:49+00:00', 'ann', 'p0', 'in the pocket', 'discrete Laplace; pure epsilon units=2252250000000; the whole budget; pure epsilon units=9009000000000', 219422936969, NULL, 219422936969, 219422936969, '7ff1516cfcbd318c48459464db7e0d26e6adceef4b6cca62839183e3748f8836', '9c03b821d274ae3d6f2b19053b0747d06bbcf9919d55870272f73c43f8ea1c47');
INSERT INTO v1_pocket.entries VALUES (2, 'answer', '2026-11-16T06:44:49+00:00', 'ann', NULL, 'answer', '1 0a477707a14fa1293f4cf1ea92ce71a57e336d8e693064ec5ae7c30861711cce', 0, NULL, 219422936969, 219422936969, '9c03b821d274ae3d6f2b19053b0747d06bbcf9919d55870272f73c43f8ea1c47', 'a90b85e39a803c710fd90adba89e72e8923bb693e5d246a9ac21a9cc3089a220');
INSERT INTO v1_pocket.entries VALUES (3, 'charge', '2026-11-16T06:44:49+00:00', 'ann', 'p1', 'in the pocket', 'discrete Laplace; pure epsilon units=2252250000000', 0, NULL, 219422936969, 219422936969, 'a90b85e39a803c710fd90adba89e72e8923bb693e5d246a9ac21a9cc3089a220', '0cd6bc4d3eb218b78169e765fe6585d0dfc6b80d657b258553874af64127beac');
INSERT INTO v1_pocket.entries VALUES (4, 'answer', '2026-11-16T06:44:49+00:00', 'ann', NULL, 'answer', '3 6c94683a02bdda38721278e54660a42216fb0f28ea9c4677d0e6f03ebe37b1b5', 0, NULL, 219422936969, 219422936969, '0cd6bc4d3eb218b78169e765fe6585d0dfc6b80d657b258553874af64127beac', '85a460ae54c799ddb82955501459bd755c1f76a1b6b39d90672a529729a7bfdd');
INSERT INTO v1_pocket.genesis VALUES (1, '{"atoms": 1, "budget": {"delta": "1/1000000", "epsilon": "1", "queries": null, "rho": null}, "capacity": 219422936969, "format": 1, "neighbours": "replace", "population": "people"}', '7ff1516cfcbd318c48459464db7e0d26e6adceef4b6cca62839183e3748f8836');
INSERT INTO v1_pocket.head VALUES (1, 4, '85a460ae54c799ddb82955501459bd755c1f76a1b6b39d90672a529729a7bfdd');
ALTER TABLE ONLY v1_pocket.analysts
    ADD CONSTRAINT analysts_pkey PRIMARY KEY (analyst);
ALTER TABLE ONLY v1_pocket.answers
    ADD CONSTRAINT answers_pkey PRIMARY KEY (charge);
ALTER TABLE ONLY v1_pocket.atoms
    ADD CONSTRAINT atoms_pkey PRIMARY KEY (atom);
ALTER TABLE ONLY v1_pocket.entries
    ADD CONSTRAINT entries_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY v1_pocket.entries
    ADD CONSTRAINT entries_previous_key UNIQUE (previous);
ALTER TABLE ONLY v1_pocket.genesis
    ADD CONSTRAINT genesis_pkey PRIMARY KEY (one);
ALTER TABLE ONLY v1_pocket.head
    ADD CONSTRAINT head_pkey PRIMARY KEY (one);
CREATE UNIQUE INDEX requests ON v1_pocket.entries USING btree (analyst, request_id) WHERE (request_id IS NOT NULL);
CREATE TRIGGER keep_all BEFORE TRUNCATE ON v1_pocket.answers FOR EACH STATEMENT EXECUTE FUNCTION v1_pocket.keep();
CREATE TRIGGER keep_all BEFORE TRUNCATE ON v1_pocket.entries FOR EACH STATEMENT EXECUTE FUNCTION v1_pocket.keep();
CREATE TRIGGER keep_all BEFORE TRUNCATE ON v1_pocket.genesis FOR EACH STATEMENT EXECUTE FUNCTION v1_pocket.keep();
CREATE TRIGGER keep_rows BEFORE DELETE OR UPDATE ON v1_pocket.answers FOR EACH ROW EXECUTE FUNCTION v1_pocket.keep();
CREATE TRIGGER keep_rows BEFORE DELETE OR UPDATE ON v1_pocket.entries FOR EACH ROW EXECUTE FUNCTION v1_pocket.keep();
CREATE TRIGGER keep_rows BEFORE DELETE OR UPDATE ON v1_pocket.genesis FOR EACH ROW EXECUTE FUNCTION v1_pocket.keep();
ALTER TABLE ONLY v1_pocket.answers
    ADD CONSTRAINT answers_charge_fkey FOREIGN KEY (charge) REFERENCES v1_pocket.entries(seq);
