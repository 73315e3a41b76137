"""The `frugalrl` command: a table of subcommands, each imported only when it is called."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

import frugalrl
from frugalrl.checks import nearest

COMMANDS = {
    "train": "Train a controller, or resume a run",
    "eval": "Evaluate a trained policy, or film it",
    "inspect": "Show what a run's buffer holds",
    "presets": "List the settings made for environments",
    "compare": "Compare methods on one task, with a report",
    "bench": "Run a suite of experiments, with a report",
    "report": "Write the report of a results directory",
    "demo": "Compare SAC with and without a frugal buffer",
}
"""What each says of itself; `frugalrl.commands.NAME` has its `main(arguments) -> exit code`."""

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
        print(f"frugalrl {frugalrl.__version__}")
        return OK
    if words[0] not in COMMANDS:
        near = nearest(words[0], COMMANDS)
        hint = f"; did you mean {near}?" if near else f"; choose from {', '.join(COMMANDS)}"
        return _complain(f"no command {words[0]!r}{hint}", USAGE)
    return _run(words[0], words[1:])


def usage() -> str:
    """Give the text of `frugalrl --help`."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items()]
    first = "usage: frugalrl COMMAND [options]     (frugalrl COMMAND --help says more)"
    return "\n".join([first, "", *lines])


def _run(command: str, arguments: list[str]) -> int:
    from frugalrl.training.errors import ConfigError, TrainingError, TrainingInterrupted

    try:
        code = import_module(f"frugalrl.commands.{command}").main(arguments)
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
    except (TrainingError, frugalrl.StateFileError) as error:
        return _complain(str(error), FAILED)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in frugalrl._TRAIN_MODULES:
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
