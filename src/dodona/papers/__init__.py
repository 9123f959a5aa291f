"""The papers' statements made runnable that no oracle, release or learner needs: proofs to try, not tools to use."""
