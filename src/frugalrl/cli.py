"""The `frugalrl` command: a table of subcommands, each imported only when it is called."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from frugalrl import _TRAIN_MODULES
from frugalrl.checks import nearest


class Command(NamedTuple):
    """A subcommand: a module with `main(arguments) -> exit code`, and one line about it."""

    module: str
    summary: str


COMMANDS: dict[str, Command] = {
    "train": Command("frugalrl.commands.train", "Train a controller, or resume a run"),
    "eval": Command("frugalrl.commands.evaluate", "Evaluate a trained policy, or film it"),
    "inspect": Command("frugalrl.commands.inspect", "Show what a run's buffer holds"),
    "presets": Command("frugalrl.commands.presets", "List the settings made for environments"),
    "compare": Command("frugalrl.commands.compare", "Compare methods on one task, with a report"),
    "bench": Command("frugalrl.commands.bench", "Run a suite of experiments, with a report"),
    "report": Command("frugalrl.commands.report", "Write the report of a results directory"),
    "demo": Command("frugalrl.commands.demo", "Compare SAC with and without a frugal buffer"),
}

OK, FAILED, USAGE = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand.

    Args:
        arguments: what follows the program's name; None: those of the command line.

    Returns:
        The exit code: 0, 1 for a failure, 2 for a mistake in the call, 128 plus a signal's number.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return OK if words else USAGE
    if words[0] in ("-V", "--version"):
        from frugalrl import __version__

        print(f"frugalrl {__version__}")
        return OK
    command = COMMANDS.get(words[0])
    if command is None:
        near = nearest(words[0], COMMANDS)
        hint = f"; did you mean {near}?" if near else f"; choose from {', '.join(COMMANDS)}"
        return _complain(f"no command {words[0]!r}{hint}", USAGE)
    return _run(command, words[1:])


def usage() -> str:
    """Give the text of `frugalrl --help`."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: frugalrl COMMAND [options]     (frugalrl COMMAND --help says more)",
            "",
            *lines,
        ]
    )


def _run(command: Command, arguments: list[str]) -> int:
    from frugalrl.training.errors import ConfigError, TrainingError, TrainingInterrupted

    try:
        code = import_module(command.module).main(arguments)
    except TrainingInterrupted as stop:
        return stop.exit_code
    except KeyboardInterrupt:
        return _complain("interrupted", 130)
    except BrokenPipeError:
        # Whoever read our output has gone; there is nobody to tell.
        sys.stderr.close()
        return FAILED
    except ConfigError as error:
        return _complain(str(error), USAGE)
    except (TrainingError, ValueError) as error:
        from frugalrl.state_io import StateFileError

        if isinstance(error, (TrainingError, StateFileError)):
            return _complain(str(error), FAILED)
        raise
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in _TRAIN_MODULES:
            return _complain(
                f'this needs {missing}, which is not installed: pip install "frugalrl[train]"',
                FAILED,
            )
        raise
    return int(code)


def _complain(message: str, code: int) -> int:
    print(f"frugalrl: error: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
