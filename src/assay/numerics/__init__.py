"""Mathematics that two or more methods share; knows nothing of methods, files or studies."""
