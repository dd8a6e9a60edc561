"""Real parts that methods share: embedded data sets and models, clients."""
