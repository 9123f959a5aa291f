#!/bin/sh
# A price, then an answer, with curl. Wants DODONA_URL and DODONA_KEY; the question is about `dodona sample`'s survey.
set -eu
asked='{"question": "age >= 65 AND smoker", "effort": {"tolerance": 0.01}}'
send() {
  curl --silent --show-error --fail-with-body "$DODONA_URL/v1/datasets/survey/$1" \
    -H "Authorization: Bearer $DODONA_KEY" -H "Content-Type: application/json" \
    -H "Idempotency-Key: $2" -H "X-Request-Id: example-curl" -d "$asked"
  echo
}
send price free | grep -o '"mean_margin": [0-9.e-]*'
# Sent again under the same Idempotency-Key it is charged once, and answered alike.
name="curl-$(date +%s)-$$"
send ask "$name" | grep -o '"mean": [0-9.e-]*'
send ask "$name" | grep -o '"mean_margin": [0-9.e-]*'
