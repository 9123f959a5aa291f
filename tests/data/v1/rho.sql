CREATE SCHEMA v1_rho;
CREATE FUNCTION v1_rho.keep() RETURNS trigger
    LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'a ledger is append-only'; END $$;
CREATE TABLE v1_rho.analysts (
    analyst text NOT NULL,
    quota bigint NOT NULL,
    spent bigint NOT NULL
);
CREATE TABLE v1_rho.answers (
    charge bigint NOT NULL,
    answer text NOT NULL
);
CREATE TABLE v1_rho.atoms (
    atom integer NOT NULL,
    extra bigint NOT NULL
);
CREATE TABLE v1_rho.entries (
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
CREATE TABLE v1_rho.genesis (
    one integer NOT NULL,
    statement text NOT NULL,
    hash text NOT NULL,
    CONSTRAINT genesis_one_check CHECK ((one = 1))
);
CREATE TABLE v1_rho.head (
    one integer NOT NULL,
    seq bigint NOT NULL,
    hash text NOT NULL,
    CONSTRAINT head_one_check CHECK ((one = 1))
);
INSERT INTO v1_rho.analysts VALUES ('ann', 9223372036854775807, 2252250000000);
INSERT INTO v1_rho.analysts VALUES ('bob', 9223372036854775807, 1126125000000);
INSERT INTO v1_rho.entries VALUES (1, 'charge', '2026-11-16T06:44:49+00:00', 'ann', 'q0', 'question', 'discrete Gaussian', 2252250000000, NULL, 2252250000000, 2252250000000, 'dc1d83d4452bc556b01dcdf66a27b0e4afa9c277309907bbbe7b3ff94d4b72fd', '94a8f5462a8b22ed216b7091b6b2115d8ccae609cbc873fe7c6550195206af81');
INSERT INTO v1_rho.entries VALUES (2, 'charge', '2026-11-16T06:44:49+00:00', 'bob', 'q0', 'question', 'discrete Gaussian', 1126125000000, NULL, 3378375000000, 3378375000000, '94a8f5462a8b22ed216b7091b6b2115d8ccae609cbc873fe7c6550195206af81', '4ced1b6e5a2569e136b25cb123b0ae005883229f327cc2939dac53be543c1899');
INSERT INTO v1_rho.genesis VALUES (1, '{"atoms": 1, "budget": {"delta": "0", "epsilon": null, "queries": null, "rho": "1/2"}, "capacity": 4504500000000, "format": 1, "neighbours": "replace", "population": "people"}', 'dc1d83d4452bc556b01dcdf66a27b0e4afa9c277309907bbbe7b3ff94d4b72fd');
INSERT INTO v1_rho.head VALUES (1, 2, '4ced1b6e5a2569e136b25cb123b0ae005883229f327cc2939dac53be543c1899');
ALTER TABLE ONLY v1_rho.analysts
    ADD CONSTRAINT analysts_pkey PRIMARY KEY (analyst);
ALTER TABLE ONLY v1_rho.answers
    ADD CONSTRAINT answers_pkey PRIMARY KEY (charge);
ALTER TABLE ONLY v1_rho.atoms
    ADD CONSTRAINT atoms_pkey PRIMARY KEY (atom);
ALTER TABLE ONLY v1_rho.entries
    ADD CONSTRAINT entries_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY v1_rho.entries
    ADD CONSTRAINT entries_previous_key UNIQUE (previous);
ALTER TABLE ONLY v1_rho.genesis
    ADD CONSTRAINT genesis_pkey PRIMARY KEY (one);
ALTER TABLE ONLY v1_rho.head
    ADD CONSTRAINT head_pkey PRIMARY KEY (one);
CREATE UNIQUE INDEX requests ON v1_rho.entries USING btree (analyst, request_id) WHERE (request_id IS NOT NULL);
CREATE TRIGGER keep_all BEFORE TRUNCATE ON v1_rho.answers FOR EACH STATEMENT EXECUTE FUNCTION v1_rho.keep();
CREATE TRIGGER keep_all BEFORE TRUNCATE ON v1_rho.entries FOR EACH STATEMENT EXECUTE FUNCTION v1_rho.keep();
CREATE TRIGGER keep_all BEFORE TRUNCATE ON v1_rho.genesis FOR EACH STATEMENT EXECUTE FUNCTION v1_rho.keep();
CREATE TRIGGER keep_rows BEFORE DELETE OR UPDATE ON v1_rho.answers FOR EACH ROW EXECUTE FUNCTION v1_rho.keep();
CREATE TRIGGER keep_rows BEFORE DELETE OR UPDATE ON v1_rho.entries FOR EACH ROW EXECUTE FUNCTION v1_rho.keep();
CREATE TRIGGER keep_rows BEFORE DELETE OR UPDATE ON v1_rho.genesis FOR EACH ROW EXECUTE FUNCTION v1_rho.keep();
ALTER TABLE ONLY v1_rho.answers
    ADD CONSTRAINT answers_charge_fkey FOREIGN KEY (charge) REFERENCES v1_rho.entries(seq);
