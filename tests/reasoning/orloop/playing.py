"""One repair from beginning to end, for the tests of rules and policies."""


def play(env, rule, instance, rng, most=10):
    """Repair one instance by a rule, in at most ``most`` actions, and return the score."""
    env.reset(options={"instance": instance})
    while not env.done and env.steps < most:
        env.step(rule(env, rng))
    return env.score()
