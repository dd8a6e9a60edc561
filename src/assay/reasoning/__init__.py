"""Methods for reasoning, each with a verifier: repair, query, prove, compute."""
