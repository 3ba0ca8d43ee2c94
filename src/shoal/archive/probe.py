"""Run as a program in a folder of a model's files: import the handler the way a worker will, and say what was found.

It prints one line of JSON. It is a process of its own because it runs the user's code.
"""

import importlib
import importlib.util
import inspect
import json
import sys
import traceback

FINDER = "shoal.upstream.finder"  # makes the modules `ts` and `mms` importable


def probe(handler: str) -> dict[str, str]:
    """Import a handler's module and find its entry point."""
    module_name, _, function = handler.partition(":")
    module_name = module_name.rsplit("/", 1)[-1].removesuffix(".py")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        return {"missing": error.name or str(error), "traceback": traceback.format_exc(limit=-3)}
    except BaseException as error:  # whatever a file does when it is imported
        return {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc(limit=-3)}
    wanted = function or "handle"
    if callable(getattr(module, wanted, None)):
        return {"found": f"function {wanted}"}
    if function:
        return {"error": f"{module_name}.py has no function {function}"}
    classes = [
        name for name, value in vars(module).items() if inspect.isclass(value) and value.__module__ == module_name
    ]
    if len(classes) != 1:
        names = f" ({', '.join(classes)})" if classes else ""
        count = len(classes) or "no"
        return {"error": f"{module_name}.py has no function `handle`, and {count} classes{names} where one is expected"}
    lacking = [name for name in ("handle", "initialize") if not callable(getattr(vars(module)[classes[0]], name, None))]
    if lacking:
        return {"error": f"class {classes[0]} in {module_name}.py has no method {' and no '.join(lacking)}"}
    return {"found": f"class {classes[0]}"}


def main() -> None:
    """Say what a handler is, on the last line of standard output."""
    sys.path.insert(0, "")
    if importlib.util.find_spec(FINDER.rpartition(".")[0]) and importlib.util.find_spec(FINDER):
        importlib.import_module(FINDER).install("ts", "mms")
    sys.stdout.write("\n" + json.dumps(probe(sys.argv[1])) + "\n")


if __name__ == "__main__":
    main()
