"""How noisy second moments, covariances and ladders of sizes are read: the geometry that learners share."""
