"""Many runs, and what they say: suites, the grid that runs them, statistics and the report."""
