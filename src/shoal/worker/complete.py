"""python -m shoal.worker.complete MODEL_FOLDER VERSION_FOLDER: adds to a configuration what the model itself knows.

The partial configuration comes on standard input, as JSON with the field names of ModelConfig; the completed one leaves
on standard output. A model that cannot be completed is exit code 1, and the last line of standard error says why.
Whatever the model prints goes to standard error.
"""

import argparse
import json
import os
import sys
from pathlib import Path

from shoal.errors import LoadFailed
from shoal.worker.backends import completion
from shoal.worker.process import become

USER = "SHOAL_WORKER_USER"  # the server's `worker_user`: a server in Triton's place has it from here too


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="shoal.worker.complete")
    parser.add_argument("model_folder", type=Path)
    parser.add_argument("version_folder", type=Path)
    parser.add_argument("--default-max-batch-size", type=int, default=completion.DEFAULT_MAX_BATCH_SIZE)
    options = parser.parse_args()
    answer = os.dup(1)
    os.dup2(2, 1)
    try:
        become(os.environ.get(USER, ""))
        partial = json.load(sys.stdin)
        if not isinstance(partial, dict):
            raise LoadFailed("a configuration is a JSON object")
        whole = completion.complete(
            partial, options.model_folder.absolute(), options.version_folder.absolute(), options.default_max_batch_size
        )
    except (LoadFailed, ValueError) as error:
        sys.stdout.flush()
        sys.stderr.write(" ".join(str(error).split()) + "\n")
        return 1
    with open(answer, "w", encoding="utf-8") as file:
        json.dump(whole, file)
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads that the model started do not keep it alive
