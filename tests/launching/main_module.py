"""Runs `python ARGUMENTS...` inside a process that has been forked, as a new interpreter would."""

import atexit
import importlib.machinery
import importlib.util
import os
import signal
import sys
import threading
import types
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn


def run_as_main(arguments: Sequence[str]) -> NoReturn:
    """`python -m MODULE ...`, `python SCRIPT ...` or `python -c CODE ...`, to the exit code."""
    try:
        _execute(arguments)
        code = 0
    except SystemExit as stop:
        code = _exit_code(stop)
    except BaseException as error:
        trace = error.__traceback__.tb_next if error.__traceback__ else None
        own = trace.tb_next if trace else None  # what comes before are the frames of this module
        error.__traceback__ = own or trace
        sys.excepthook(type(error), error, error.__traceback__)
        code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    if "mpi4py.MPI" in sys.modules:
        sys.exit(code)  # the interpreter's clean-up ends MPI
    with suppress(BaseException):
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as at any end
    with suppress(BaseException):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _execute(arguments: Sequence[str]) -> None:
    first, *rest = arguments
    while first not in ("-m", "-c") and first.startswith("-"):  # flags of the interpreter
        if first == "-u":
            for stream in (sys.stdout, sys.stderr):
                stream.reconfigure(write_through=True)  # type: ignore[union-attr]
        first, *rest = rest[first in ("-W", "-X") :]
    if first == "-m":
        name, *rest = rest
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
        assert spec is not None and spec.origin is not None, name
        assert isinstance(spec.loader, importlib.machinery.SourceFileLoader), name
        code, file, folder = spec.loader.get_code(spec.name), spec.origin, str(Path.cwd())
    elif first == "-c":
        (source, *rest), spec, file, folder = rest, None, "-c", ""
        code = compile(source, "<string>", "exec")
    else:
        spec, file, folder = None, first, str(Path(first).parent.resolve())
        code = compile(Path(first).read_bytes(), first, "exec")
    assert code is not None
    sys.argv[:] = [file, *rest]
    sys.path.insert(0, folder)
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=__builtins__, __spec__=spec)
    if first != "-c":
        main.__file__ = file
    if spec is not None:
        main.__package__ = spec.parent
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def _exit_code(stop: SystemExit) -> int:
    if stop.code is None or isinstance(stop.code, int):
        return (stop.code or 0) & 0xFF
    print(stop.code, file=sys.stderr)
    return 1
