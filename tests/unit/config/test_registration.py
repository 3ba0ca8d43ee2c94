from typing import Any

import pytest

from shoal.config.deployment import Defaults
from shoal.config.model import ModelConfig
from shoal.config.registration import KEYS, Material, Registration, register
from shoal.errors import BadArchive, ConfigError, InvalidInput

DEFAULTS = Defaults(flavour="torchserve", registered_workers=0, startup_workers=3, queue_size=100)


def made(
    parameters: dict[str, str] | None = None,
    yaml: dict[str, Any] | None = None,
    tuned: dict[str, Any] | None = None,
    defaults: Defaults = DEFAULTS,
    *,
    at_startup: bool = False,
    turn: int = 0,
    **material: Any,
) -> Registration:
    values = {"path": "/m", "flavour": "torchserve", "name": "m", "version": "1.0", "settings": yaml or {}} | material
    tuning = {"m": {"1.0": tuned or {}}}
    return register(parameters or {}, Material(**values), tuning, defaults, at_startup=at_startup, turn=turn)


def config(*arguments: Any, **keywords: Any) -> ModelConfig:
    return made(*arguments, **keywords).config


# -- who is it --------------------------------------------------------------------------------------------------------


def test_the_archive_names_its_model_and_the_client_may_call_it_otherwise() -> None:
    assert (config(name="a", version="2.0").name, config(name="a", version="2.0").version) == ("a", "2.0")
    assert config({"model_name": "b"}, name="a").name == "b"
    assert config(version="").version == "1.0"
    assert config(name="", stem="from_file").name == "from_file"


def test_a_model_without_any_name_is_refused() -> None:
    with pytest.raises(BadArchive, match=r"^Model name is not defined\.$"):
        made(name="")


def test_a_name_that_no_model_can_have_is_refused() -> None:
    with pytest.raises(ConfigError, match="name is made of"):
        made({"model_name": "a/b"})


def test_the_version_of_the_archive_is_not_for_the_client_to_say() -> None:
    assert config({"model_version": "9"}).version == "1.0"
    assert config({"model_version": "9"}, version="").version == "9"


def test_handler_url_and_startup_are_kept() -> None:
    asked = {"url": "m.mar", "handler": "mine"}

    assert (config(asked, handler="theirs").handler, config(asked).url) == ("mine", "m.mar")
    assert config(handler="theirs").handler == "theirs"
    assert config(defaults=Defaults(handler="default")).handler == "default"
    assert [config(at_startup=flag).loaded_at_startup for flag in (True, False)] == [True, False]


@pytest.mark.parametrize("runtime", ["python", "python3"])
def test_runtimes_that_are_python_are_taken(runtime: str) -> None:
    assert config({"runtime": runtime}, runtime="python").runtime == runtime
    assert config(runtime=runtime).runtime == runtime
    assert config(tuned={"runtimeType": runtime}).runtime == runtime


@pytest.mark.parametrize(
    ("runtime", "words"),
    [
        ("java", "Invalid RuntimeType value: java"),
        ("Python", "Invalid RuntimeType"),
        ("python2", "Invalid"),
        ("LSP", r"C\+\+\) is not"),
    ],
)
def test_other_runtimes_are_refused(runtime: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        made({"runtime": runtime})
    with pytest.raises(InvalidInput, match=words):
        made(runtime=runtime)


def test_an_old_mms_archive_is_run_by_python_3_and_says_so() -> None:
    found = made(runtime="python2", flavour="mms")

    assert found.config.runtime == "python2"
    assert found.notes == ["runtime python2: workers run this server's own Python 3"]


def test_the_envelope_is_the_archives_then_the_servers() -> None:
    assert config(envelope="json", defaults=Defaults(envelope="body")).envelope == "json"
    assert config(defaults=Defaults(envelope="body")).envelope == "body"
    with pytest.raises(BadArchive, match="envelope 'xml' is not one of body, json, kserve, kservev2"):
        made(envelope="xml")


# -- batches ----------------------------------------------------------------------------------------------------------


def test_batch_size_and_delay_are_the_clients_then_the_archives_then_the_operators() -> None:
    asked = {"batch_size": "8", "max_batch_delay": "70"}
    yaml, tuned = {"batchSize": 4, "maxBatchDelay": 40}, {"batchSize": 2, "maxBatchDelay": 20}
    found = [
        config(asked, yaml, tuned).batching,
        config({}, yaml, tuned).batching,
        config({}, {}, tuned).batching,
        config(defaults=Defaults(batch_size=16, max_batch_delay=160)).batching,
    ]

    assert [(one.batch_size, one.max_batch_delay) for one in found] == [(8, 70), (4, 40), (2, 20), (16, 160)]
    assert {one.rule for one in found} == {"fixed"}


def test_each_of_the_two_is_looked_up_on_its_own() -> None:
    batching = config({"batch_size": "8"}, {"maxBatchDelay": 40}).batching

    assert (batching.batch_size, batching.max_batch_delay) == (8, 40)


def test_a_client_that_says_no_delay_gets_100_ms() -> None:
    assert config({"batch_size": "8"}).batching.max_batch_delay == 100


def test_a_batch_size_of_one_is_a_batch_size() -> None:
    for found in (config({"batch_size": "1"}), config(yaml={"batchSize": 1}), config(tuned={"batchSize": 1})):
        assert (found.batching.rule, found.batching.batch_size, found.prove_batching) == ("fixed", 1, False)


@pytest.mark.parametrize(("flavour", "is_proved"), [("torchserve", True), ("mms", True), ("shoal", False)])
def test_where_nobody_says_a_size_batches_adapt_and_foreign_handlers_are_proved(flavour: str, is_proved: bool) -> None:
    found = config(flavour=flavour)

    assert (found.batching.rule, found.batching.batch_size) == ("adaptive", 0)
    assert (found.prove_batching, found.isolate) == (is_proved, True)


def test_a_batch_that_upstream_was_asked_for_fails_as_a_whole() -> None:
    assert config({"batch_size": "4"}).isolate is False
    assert config({"batch_size": "4"}, flavour="shoal").isolate is True


def test_zero_and_less_count_as_not_said() -> None:
    asked = {"batch_size": "0", "max_batch_delay": "-5", "response_timeout": "0"}
    yaml = {"maxBatchDelay": 0, "responseTimeout": 0, "jobQueueSize": 0, "clientTimeoutInMills": 0}
    found = config(asked, yaml, {"batchSize": 3, "maxBatchDelay": -1, "responseTimeout": 0})

    assert (found.batching.batch_size, found.batching.max_batch_delay) == (3, 100)
    assert (found.response_timeout, found.queue_size, found.request_timeout) == (120, 100, 0)
    assert config(yaml={"batchSize": -3}).batching.batch_size == 1, "clamped, as upstream does"


def test_no_delay_is_a_delay_when_a_client_says_it() -> None:
    assert config({"batch_size": "2", "max_batch_delay": "0"}, {"maxBatchDelay": 9}).batching.max_batch_delay == 0


def test_what_goes_beyond_the_limits_is_brought_back_and_noted() -> None:
    found = made({"batch_size": "100000", "max_batch_delay": "99999999"})

    assert (found.config.batching.batch_size, found.config.batching.max_batch_delay) == (65536, 3_600_000)
    assert len(found.notes) == 2


# -- workers ----------------------------------------------------------------------------------------------------------


def workers(*arguments: Any, **keywords: Any) -> tuple[int, int]:
    found = config(*arguments, **keywords)
    return found.workers, found.max_workers


def test_the_archive_goes_before_the_client_in_workers() -> None:
    yaml = {"minWorkers": 1, "maxWorkers": 4}

    assert workers({"initial_workers": "3"}, yaml) == (1, 4)
    assert workers({"initial_workers": "3"}) == (3, 3)
    assert workers() == (0, 0)
    assert workers({"initial_workers": "-2"}) == (0, 0)
    assert workers(tuned={"minWorkers": 2, "maxWorkers": 2}) == (0, 0), "`models` is for the start"


def test_at_the_start_the_operators_word_comes_second() -> None:
    tuned = {"minWorkers": 2, "maxWorkers": 5}

    assert workers(None, {"minWorkers": 1, "maxWorkers": 4}, tuned, at_startup=True) == (1, 4)
    assert workers(None, {}, tuned, at_startup=True) == (2, 5)
    assert workers(None, {}, {"minWorkers": 2}, at_startup=True) == (2, 2)
    assert workers(at_startup=True) == (3, 3)


@pytest.mark.parametrize("yaml", [{"minWorkers": 2}, {"maxWorkers": 2}, {"minWorkers": 3, "maxWorkers": 2}])
def test_half_a_range_of_workers_is_ignored_and_noted(yaml: dict[str, int]) -> None:
    found = made({"initial_workers": "1"}, yaml)

    assert found.config.workers == 1
    assert "minWorkers and maxWorkers are used together" in found.notes[0]


def test_the_least_of_a_range_is_one() -> None:
    assert workers(yaml={"minWorkers": 0, "maxWorkers": 2}) == (1, 2)


def test_there_is_an_end_to_workers() -> None:
    with pytest.raises(InvalidInput, match="100000 workers are more than 4096"):
        made({"initial_workers": "100000"})


# -- times ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "parameter"), [("responseTimeout", "response_timeout"), ("startupTimeout", "startup_timeout")]
)
def test_time_limits_are_the_archives_then_the_operators_then_the_clients(key: str, parameter: str) -> None:
    asked, defaults = {parameter: "7"}, Defaults(response_timeout=9, startup_timeout=9)

    assert getattr(config(asked, {key: 5}, {key: 6}, defaults), parameter) == 5
    assert getattr(config(asked, {}, {key: 6}, defaults), parameter) == 6
    assert getattr(config(asked, {}, {}, defaults), parameter) == 7
    assert getattr(config({}, {}, {}, defaults), parameter) == 9


def test_an_archive_with_other_settings_leaves_time_limits_alone() -> None:
    found = config({"response_timeout": "7"}, {"batchSize": 2}, defaults=Defaults(startup_timeout=9))

    assert (found.response_timeout, found.startup_timeout) == (7, 9)


# -- the rest of model-config.yaml ------------------------------------------------------------------------------------


def test_every_other_key_that_has_an_effect_has_it() -> None:
    yaml = {
        "maxRetryTimeoutInSec": 60,
        "clientTimeoutInMills": 1500,
        "jobQueueSize": 7,
        "useJobTicket": True,
        "continuousBatching": True,
    }
    found = made(yaml=yaml)

    assert found.notes == []
    kept = found.config
    assert (kept.retry_for, kept.request_timeout, kept.queue_size) == (60, 1.5, 7)
    assert (kept.job_tickets, kept.continuous) == (True, True)
    assert (config().retry_for, config().queue_size, config().job_tickets) == (300, 100, False)


def test_the_whole_file_goes_to_the_handler() -> None:
    yaml = {"batchSize": 2, "handler": {"profile": True}, "micro_batching": {"micro_batch_size": 4}, "mine": [1]}
    found = made(yaml=yaml)

    assert found.config.parameters == yaml
    assert found.notes == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("parallelType", "pp"),
        ("parallelLevel", 2),
        ("torchrun", {"nproc-per-node": 2}),
        ("sequenceBatching", True),
        ("sequenceMaxIdleMSec", 10),
        ("sequenceTimeoutMSec", 10),
        ("maxSequenceJobQueueSize", 2),
        ("maxNumSequence", 2),
        ("asyncCommunication", True),
        ("useVenv", True),
    ],
)
def test_a_key_without_effect_is_noted_with_the_reason(key: str, value: Any) -> None:
    (note,) = made(yaml={key: value}).notes

    assert note.startswith(f"model-config.yaml: {key} has no effect: ")


def test_what_is_switched_off_needs_no_note() -> None:
    off = {"sequenceBatching": False, "asyncCommunication": False, "parallelType": "", "useVenv": False}

    assert made(yaml=off).notes == []
    assert made(yaml={"useVenv": True}, defaults=Defaults(install_requirements=True)).notes == []


@pytest.mark.parametrize("key", KEYS)
def test_a_value_of_a_wrong_type_is_noted_and_ignored(key: str) -> None:
    kinds: dict[type, Any] = {int: "4", str: 3, bool: "true", list: 0, dict: [1]}
    wrong = {key: kinds[KEYS[key]]}
    found = made(yaml=wrong)

    (note,) = found.notes
    assert note.startswith(f"model-config.yaml: {key} is ") and note.endswith("; it is ignored")
    assert found.config == config().__class__(**{**_fields(config()), "parameters": wrong})


def _fields(found: ModelConfig) -> dict[str, Any]:
    return {name: getattr(found, name) for name in found.__struct_fields__}


def test_true_is_no_number() -> None:
    assert config(yaml={"batchSize": True}).batching.rule == "adaptive"


def test_every_key_is_either_used_or_noted() -> None:
    """A key that was added to the table and forgotten shows here."""
    samples: dict[type, Any] = {int: 2, str: "cpu", bool: True, list: [0], dict: {"a": 1}}
    gpus = Defaults(gpus=2, install_requirements=True)
    plain = _fields(config(defaults=gpus))
    for key, kind in KEYS.items():
        yaml = {"minWorkers": 2, "maxWorkers": 3} if key in ("minWorkers", "maxWorkers") else {key: samples[kind]}
        found = made(yaml=yaml, defaults=gpus)
        changed = {name for name, value in _fields(found.config).items() if value != plain[name]} - {"parameters"}
        assert changed or found.notes or key == "useVenv", key


# -- numbers that are none --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["many", "", "1.5", "1_000", "0x10", "\u0663", "9" * 40])
def test_a_number_that_is_none_counts_as_not_said(text: str) -> None:
    names = ("batch_size", "max_batch_delay", "initial_workers", "response_timeout", "startup_timeout")
    found = made(dict.fromkeys(names, text))

    assert _fields(found.config) == _fields(config())
    assert sorted(note.split()[0] for note in found.notes) == sorted(names)


def test_unknown_parameters_are_ignored() -> None:
    assert made({"batch_delay": "5", "x": "y"}) == made()


def test_models_of_our_own_may_say_parts_of_a_second() -> None:
    asked = {"response_timeout": "0.5", "batch_size": "4", "max_batch_delay": "2.5"}
    found = config(asked, flavour="shoal")

    assert (found.response_timeout, found.batching.max_batch_delay) == (0.5, 2.5)


# -- devices ----------------------------------------------------------------------------------------------------------


def devices(turn: int = 0, gpus: int = 0, **yaml: Any) -> list[str]:
    found = config(yaml=yaml, defaults=Defaults(gpus=gpus), turn=turn)
    return found.devices or [found.device]


def test_gpus_are_taken_in_turn_beginning_with_the_second() -> None:
    assert devices(gpus=3) == ["cuda:1", "cuda:2", "cuda:0"]
    assert devices(gpus=3, turn=1) == ["cuda:2", "cuda:0", "cuda:1"]
    assert devices(gpus=1) == ["cuda:0"]
    assert devices() == ["cpu"]


def test_a_model_may_ask_for_the_cpu_or_for_some_gpus() -> None:
    assert devices(gpus=4, deviceType="cpu") == ["cpu"]
    assert devices(gpus=4, deviceType="gpu", deviceIds=[2, 0], turn=5) == ["cuda:2", "cuda:0"]
    assert config(yaml={"deviceIds": [3]}, defaults=Defaults(gpus=4)).device == "cuda:3"


@pytest.mark.parametrize("ids", [[0, 4], [-1], ["0"], [True]])
def test_a_list_with_a_gpu_that_is_not_there_is_ignored_whole(ids: list[Any]) -> None:
    found = made(yaml={"deviceIds": ids}, defaults=Defaults(gpus=4))

    assert found.config.devices == ["cuda:1", "cuda:2", "cuda:3", "cuda:0"]
    assert "deviceIds" in found.notes[0]


def test_a_gpu_that_nobody_has_is_noted() -> None:
    found = made(yaml={"deviceType": "gpu"})

    assert (found.config.device, len(found.notes)) == ("cpu", 1)
    assert "deviceType" in made(yaml={"deviceType": "tpu"}, defaults=Defaults(gpus=1)).notes[0]


# -- defaults ---------------------------------------------------------------------------------------------------------


def test_the_rest_is_the_operators() -> None:
    defaults = Defaults(
        decode_input=False,
        limit_image_pixels=False,
        max_response_size=5,
        hidden_environment="AWS.*",
        environment={"A": "b"},
        allow_pickle=True,
    )
    found = config(defaults=defaults)

    assert (found.decode_input, found.limit_image_pixels, found.max_response_size) == (False, False, 5)
    assert (found.hidden_environment, found.environment, found.allow_pickle) == ("AWS.*", {"A": "b"}, True)
