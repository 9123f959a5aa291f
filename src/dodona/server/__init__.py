"""HTTP for other people: the API, keys and roles, timing, releases; the page and the survey are served beside it."""
