"""How verdicts are shown to people."""
