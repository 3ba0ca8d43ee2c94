import subprocess
import sys

import msgspec
import pytest

from shoal.config.kinds import convert
from shoal.config.model import ModelConfig

TOGETHER = """
import sys
import threading
from shoal.config.load import model_config
from shoal.config.scheduling import scheduling_of

ASKED = {
    "model": lambda: model_config({"name": "a", "path": "b", "batching": {"batch_size": 4}, "limits": {}}, "here"),
    "scheduling": lambda: scheduling_of({"max_batch_size": 4, "sequence_batching": {"direct": {}}}, "here"),
}
sys.setswitchinterval(1e-6)
together = threading.Barrier(8)

def ask():
    together.wait()
    made.append(ASKED[sys.argv[1]]())

made = []
threads = [threading.Thread(target=ask) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(made) == 8 and all(each == made[0] for each in made), made
"""


@pytest.mark.parametrize("kind", ["model", "scheduling"])
@pytest.mark.parametrize("_round", range(3))
def test_threads_that_meet_a_kind_for_the_first_time_together_all_get_theirs(kind: str, _round: int) -> None:
    done = subprocess.run([sys.executable, "-c", TOGETHER, kind], capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_wrong_is_said_as_msgspec_says_it() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"Expected `int`, got `str` - at `\$\.workers`"):
        convert({"name": "a", "path": "b", "workers": "2"}, ModelConfig)

    assert convert({"name": "a", "path": "b", "workers": "2"}, ModelConfig, strict=False).workers == 2
