"""The engine that JAX derives from the losses: the fused one's twin, and the road to a GPU."""
