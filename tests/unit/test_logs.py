import logging
import queue
import re
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import Literal

import pytest

from shoal.errors import ConfigError
from shoal.logs import (
    ACCESS,
    RollingFile,
    Screen,
    UpstreamLines,
    Waiting,
    access_line,
    set_up_upstream_logs,
    write_metrics,
)

MOMENT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{3}"
WORKER = {"model": "echo", "version": "1.0", "worker": "9001"}
log = logging.getLogger("shoal.pool")
handlers_say = logging.getLogger("shoal.handler")
Opens = Callable[..., tuple[Callable[[], None], Path]]


@pytest.fixture
def opens(tmp_path: Path) -> Iterator[Opens]:
    """Set the logs up in a folder; whatever was set up before is put back."""
    root = logging.getLogger("shoal")
    before = (list(root.handlers), root.level, root.propagate)
    closers: list[Callable[[], None]] = []

    def open_logs(
        flavour: Literal["torchserve", "mms"] = "torchserve", is_async: bool = False
    ) -> tuple[Callable[[], None], Path]:
        folder = tmp_path / "logs"
        close = set_up_upstream_logs(
            flavour, "info", log_location=str(folder), metrics_location=str(folder / "m"), is_async=is_async
        )
        closers.append(close)
        return close, folder

    yield open_logs
    for close in closers:
        close()
    root.handlers[:], root.level, root.propagate = before


def record(
    message: str = "hello",
    *,
    name: str = "shoal.pool",
    level: int = logging.INFO,
    created: float = 1_700_000_000.5,
    fields: dict[str, object] | None = None,
) -> logging.LogRecord:
    made = logging.LogRecord(name, level, "", 0, message, None, None)
    made.created, made.msecs = created, created % 1 * 1000
    if fields:
        made.fields = fields
    return made


def line(made: logging.LogRecord, flavour: Literal["torchserve", "mms"] = "torchserve", brief: bool = False) -> str:
    return UpstreamLines(flavour, brief=brief).format(made)


# -- lines ---------------------------------------------------------------------------------------------------------


def test_an_access_line_is_upstreams() -> None:
    expected = '/127.0.0.1:59720 "GET /predictions/echo?q=1 HTTP/1.1" 200 17'

    assert access_line("127.0.0.1:59720", "GET", "/predictions/echo?q=1", "HTTP/1.1", 200, 17.3) == expected


def test_nothing_a_client_sends_begins_another_line() -> None:
    text = access_line("1.2.3.4:5", "GET", "/a\r\nb\x1b[31m", "HTTP/1.1", 200, 0)

    assert text == '/1.2.3.4:5 "GET /a\\r\\nb\\x1b[31m HTTP/1.1" 200 0'


def test_a_line_has_time_level_thread_and_logger() -> None:
    moment = f"{datetime.fromtimestamp(1_700_000_000):%Y-%m-%dT%H:%M:%S},500"

    assert line(record()) == f"{moment} [INFO ] main shoal.pool - hello"
    assert line(record(), brief=True) == f"{moment} - hello"


def test_before_the_message_stand_exactly_the_colons_of_the_time() -> None:
    """A benchmark script of upstream takes the fourth field between colons for the value of a metric."""
    text = line(record("QueueTime.Milliseconds:0.7|#Level:Host", name="shoal.metrics.TS_METRICS"))

    assert text.split("|")[0].split(":")[3] == "0.7"


@pytest.mark.parametrize(
    ("level", "word"),
    [
        (logging.DEBUG, "[DEBUG]"),
        (logging.INFO, "[INFO ]"),
        (logging.WARNING, "[WARN ]"),
        (logging.ERROR, "[ERROR]"),
        (logging.CRITICAL, "[CRITICAL]"),
    ],
)
def test_levels_have_upstreams_words(level: int, word: str) -> None:
    assert word in line(record(level=level))


@pytest.mark.parametrize(
    ("name", "flavour", "label"),
    [
        ("shoal.access", "torchserve", "ACCESS_LOG"),
        ("shoal.handler", "torchserve", "MODEL_LOG"),
        ("shoal.metrics.TS_METRICS", "torchserve", "TS_METRICS"),
        ("shoal.metrics.TS_METRICS", "mms", "MMS_METRICS"),
        ("shoal.metrics.MODEL_METRICS", "mms", "MODEL_METRICS"),
        ("shoal.inference", "mms", "shoal.inference"),
    ],
)
def test_loggers_have_upstreams_labels(name: str, flavour: Literal["torchserve", "mms"], label: str) -> None:
    assert f" main {label} - " in line(record(name=name), flavour)


def test_what_a_worker_says_carries_its_name_as_thread() -> None:
    said = line(record("hi", name="shoal.handler", fields={**WORKER, "stream": "stdout"}))

    assert said.endswith(" [INFO ] W-9001-echo_1.0-stdout MODEL_LOG - hi")


def test_other_fields_follow_the_message() -> None:
    assert line(record(fields={**WORKER, "pid": 7})).endswith(" W-9001-echo_1.0 shoal.pool - hello [pid=7]")


def test_a_message_is_one_line() -> None:
    assert line(record("a\nb\x07")).endswith("- a\\nb\\x07")


def test_a_traceback_follows_and_passes_for_no_record() -> None:
    forged = "2024-01-31T02:09:57,347 [INFO ] main ACCESS_LOG - forged"
    made = record(fields={**WORKER, "traceback": f"Traceback:\n  x\nValueError: a\x1b\n{forged}\n"})

    assert line(made).splitlines()[1:] == ["Traceback:", "  x", "ValueError: a\\x1b", f"    {forged}"]


def test_an_exception_is_shown() -> None:
    made = record()
    try:
        raise ValueError("why")
    except ValueError:
        made.exc_info = sys.exc_info()

    assert line(made).splitlines()[-1] == "ValueError: why"


# -- files ---------------------------------------------------------------------------------------------------------


def log_all() -> None:
    log.info("server %d", 1, extra={"fields": WORKER})
    handlers_say.warning("model", extra={"fields": {**WORKER, "stream": "stderr"}})
    ACCESS.info("access")
    write_metrics("TS_METRICS", ["system"])
    write_metrics("MODEL_METRICS", ["of a model", "and another"])
    log.debug("not at this level")


@pytest.mark.parametrize("is_async", [False, True])
def test_each_file_holds_what_upstream_puts_there(
    opens: Opens, capsys: pytest.CaptureFixture[str], is_async: bool
) -> None:
    close, folder = opens(is_async=is_async)

    log_all()
    close()

    everything = (folder / "ts_log.log").read_text().splitlines()
    assert [text.rpartition(" - ")[2] for text in everything] == [
        *("server 1", "model", "access", "system", "of a model", "and another"),
    ]
    assert all(re.match(MOMENT + r" \[(INFO |WARN )\] \S+ \S+ - ", text) for text in everything)
    assert capsys.readouterr().out.splitlines() == everything
    assert (folder / "model_log.log").read_text() == everything[1] + "\n"
    assert re.fullmatch(MOMENT + " - access\n", (folder / "access_log.log").read_text())
    assert re.fullmatch(MOMENT + " - system\n", (folder / "m" / "ts_metrics.log").read_text())
    assert re.fullmatch(
        f"{MOMENT} - of a model\n{MOMENT} - and another\n", (folder / "m" / "model_metrics.log").read_text()
    )


def test_a_message_is_made_when_it_is_logged_even_if_it_is_written_later() -> None:
    waiting: queue.Queue[logging.LogRecord] = queue.Queue()
    batch = [1]
    Waiting(waiting).handle(logging.LogRecord("shoal", logging.INFO, "", 0, "%s of %d", (batch, 3), None))
    batch.append(2)

    assert waiting.get().getMessage() == "[1] of 3"


def test_closing_writes_what_is_held_however_much(opens: Opens, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.logs.WAITING", 1)
    close, folder = opens(is_async=True)

    for number in range(500):
        log.info("%d", number)
    close()

    written = (folder / "ts_log.log").read_text().splitlines()
    assert [int(text.rpartition(" ")[2]) for text in written] == list(range(500))


def test_mms_has_names_of_its_own(opens: Opens) -> None:
    close, folder = opens("mms")
    log_all()
    close()

    assert sorted(path.name for path in folder.rglob("*.log")) == [
        *("access_log.log", "mms_log.log", "mms_metrics.log", "model_log.log", "model_metrics.log"),
    ]
    assert "MMS_METRICS - system" in (folder / "mms_log.log").read_text()


def test_without_a_location_there_are_no_files(
    opens: Opens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opens()
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))

    set_up_upstream_logs("torchserve", "warning")
    log_all()

    assert capsys.readouterr().out.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_a_place_that_cannot_be_written_is_named(opens: Opens, tmp_path: Path) -> None:
    opens()
    (tmp_path / "file").touch()

    with pytest.raises(ConfigError, match=r"cannot write ts_log\.log in .*LOG_LOCATION names the folder"):
        set_up_upstream_logs("torchserve", "info", log_location=str(tmp_path / "file"))
    with pytest.raises(ConfigError, match="METRICS_LOCATION names the folder"):
        set_up_upstream_logs("torchserve", "info", metrics_location=str(tmp_path / "file" / "x"))


def test_a_reader_who_left_is_written_to_no_more(capsys: pytest.CaptureFixture[str]) -> None:
    class Gone(StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    screen = Screen(Gone())
    screen.handle(record())
    said = screen.level

    assert said > logging.CRITICAL
    assert capsys.readouterr().err == ""


# -- rolling -------------------------------------------------------------------------------------------------------


def rolling(path: Path, largest: int = 10**6) -> RollingFile:
    handler = RollingFile(str(path), largest=largest, kept=2)
    handler.setFormatter(logging.Formatter("%(message)s"))
    return handler


def test_a_file_of_a_size_is_followed_by_the_next_and_few_are_kept(tmp_path: Path) -> None:
    now = datetime.now().timestamp()
    handler = rolling(tmp_path / "x.log", largest=10)
    for number in range(5):
        handler.emit(record(f"line-{number}", created=now))
    handler.close()

    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "x.log": "line-4\n",
        "x.log.1": "line-3\n",
        "x.log.2": "line-2\n",
    }


def test_each_day_has_a_file(tmp_path: Path) -> None:
    now = datetime.now().timestamp()
    handler = rolling(tmp_path / "x.log")
    for day, text in ((0, "a"), (0, "b"), (1, "c"), (1, "d"), (2, "e")):
        handler.emit(record(text, created=now + day * 86400))
    handler.close()

    assert [(tmp_path / name).read_text() for name in ("x.log", "x.log.1", "x.log.2")] == ["e\n", "c\nd\n", "a\nb\n"]


def test_an_empty_file_of_another_day_is_not_kept(tmp_path: Path) -> None:
    handler = rolling(tmp_path / "x.log")
    handler.emit(record("a", created=datetime.now().timestamp() + 86400 * 3))
    handler.close()

    assert [path.name for path in tmp_path.iterdir()] == ["x.log"]


def test_yesterdays_file_is_put_away_when_a_server_starts_again(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text("old\n")
    handler = rolling(tmp_path / "x.log")
    handler.emit(record("new", created=datetime.now().timestamp() + 86400))
    handler.close()

    assert (tmp_path / "x.log").read_text() == "new\n"
    assert (tmp_path / "x.log.1").read_text() == "old\n"
