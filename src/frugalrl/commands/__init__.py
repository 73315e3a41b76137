"""The subcommands of `frugalrl`, one module each."""
