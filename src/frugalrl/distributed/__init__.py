"""Beyond one machine, by Ray: grids as tasks, rollouts as actors. Nothing else imports Ray."""

INSTALL = 'pip install "frugalrl[ray,train]"'
