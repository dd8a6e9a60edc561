"""Learning: methods for labels that are few, coarse or uneven, and for what is known at training time only."""
