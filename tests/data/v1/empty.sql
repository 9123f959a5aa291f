CREATE SCHEMA v1_empty;
CREATE FUNCTION v1_empty.keep() RETURNS trigger
    LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'a ledger is append-only'; END $$;
CREATE TABLE v1_empty.analysts (
    analyst text NOT NULL,
    quota bigint NOT NULL,
    spent bigint NOT NULL
);
CREATE TABLE v1_empty.answers (
    charge bigint NOT NULL,
    answer text NOT NULL
);
CREATE TABLE v1_empty.atoms (
    atom integer NOT NULL,
    extra bigint NOT NULL
);
CREATE TABLE v1_empty.entries (
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
CREATE TABLE v1_empty.genesis (
    one integer NOT NULL,
    statement text NOT NULL,
    hash text NOT NULL,
    CONSTRAINT genesis_one_check CHECK ((one = 1))
);
CREATE TABLE v1_empty.head (
    one integer NOT NULL,
    seq bigint NOT NULL,
    hash text NOT NULL,
    CONSTRAINT head_one_check CHECK ((one = 1))
);
INSERT INTO v1_empty.genesis VALUES (1, '{"atoms": 3, "budget": {"delta": "0", "epsilon": "1", "queries": null, "rho": null}, "capacity": 9009000000000, "format": 1, "neighbours": "replace", "population": "people"}', '3adacade5173742c5216f95a7333b1ee5b9f9c34f4e1aaf1b2f6645eec34f305');
INSERT INTO v1_empty.head VALUES (1, 0, '3adacade5173742c5216f95a7333b1ee5b9f9c34f4e1aaf1b2f6645eec34f305');
ALTER TABLE ONLY v1_empty.analysts
    ADD CONSTRAINT analysts_pkey PRIMARY KEY (analyst);
ALTER TABLE ONLY v1_empty.answers
    ADD CONSTRAINT answers_pkey PRIMARY KEY (charge);
ALTER TABLE ONLY v1_empty.atoms
    ADD CONSTRAINT atoms_pkey PRIMARY KEY (atom);
ALTER TABLE ONLY v1_empty.entries
    ADD CONSTRAINT entries_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY v1_empty.entries
    ADD CONSTRAINT entries_previous_key UNIQUE (previous);
ALTER TABLE ONLY v1_empty.genesis
    ADD CONSTRAINT genesis_pkey PRIMARY KEY (one);
ALTER TABLE ONLY v1_empty.head
    ADD CONSTRAINT head_pkey PRIMARY KEY (one);
CREATE UNIQUE INDEX requests ON v1_empty.entries USING btree (analyst, request_id) WHERE (request_id IS NOT NULL);
CREATE TRIGGER keep_all BEFORE TRUNCATE ON v1_empty.answers FOR EACH STATEMENT EXECUTE FUNCTION v1_empty.keep();
CREATE TRIGGER keep_all BEFORE TRUNCATE ON v1_empty.entries FOR EACH STATEMENT EXECUTE FUNCTION v1_empty.keep();
CREATE TRIGGER keep_all BEFORE TRUNCATE ON v1_empty.genesis FOR EACH STATEMENT EXECUTE FUNCTION v1_empty.keep();
CREATE TRIGGER keep_rows BEFORE DELETE OR UPDATE ON v1_empty.answers FOR EACH ROW EXECUTE FUNCTION v1_empty.keep();
CREATE TRIGGER keep_rows BEFORE DELETE OR UPDATE ON v1_empty.entries FOR EACH ROW EXECUTE FUNCTION v1_empty.keep();
CREATE TRIGGER keep_rows BEFORE DELETE OR UPDATE ON v1_empty.genesis FOR EACH ROW EXECUTE FUNCTION v1_empty.keep();
ALTER TABLE ONLY v1_empty.answers
    ADD CONSTRAINT answers_charge_fkey FOREIGN KEY (charge) REFERENCES v1_empty.entries(seq);
