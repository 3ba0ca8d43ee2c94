import asyncio
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from shoal.archive.entries import Limits
from shoal.archive.intake import Intake
from shoal.config.deployment import Defaults
from shoal.config.model import ModelConfig
from shoal.config.server import ServerConfig
from shoal.errors import BadArchive, ConfigError, DownloadFailed, InvalidInput, ServingError, SourceNotFound
from tests.serving import eventually
from tests.unit.archive.archives import DATA, HANDLER, files_in, make_mar, make_tgz, make_zip

Make = Callable[..., Intake]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    store = tmp_path / "store"
    store.mkdir()
    return store


@pytest.fixture
def make(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Make intakes that are closed when the test is over; their work folders are in tmp."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    made: list[Intake] = []

    def make(compat: Any = "torchserve", tuning: Any = None, *, urls: tuple[str, ...] = (), **defaults: Any) -> Intake:
        server = ServerConfig(model_store=str(store), compat=compat, allowed_urls=list(urls))
        flavour = compat or "shoal"
        environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "PIP_NO_INDEX": "1"}
        limits = defaults.pop("limits", Limits())
        chosen = Defaults(**{"flavour": flavour, "registered_workers": 0, **defaults})
        made.append(Intake(server, chosen, tuning or {}, limits=limits, environment=environment))
        return made[-1]

    yield make
    for intake in made:
        intake.close()
    assert list((tmp_path / "tmp").iterdir()) == [], "a closed intake leaves nothing"


def prepare(intake: Intake, at_startup: bool = False, /, **parameters: str) -> ModelConfig:
    return asyncio.run(intake.prepare(parameters, at_startup=at_startup))


def unpacked(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "tmp").glob("*/models/*"))


# -- registrations ----------------------------------------------------------------------------------------------------


def test_an_archive_of_torch_model_archiver_becomes_a_model(make: Make, store: Path) -> None:
    shutil.copy(DATA / "ts_echo.mar", store)
    config = prepare(make(), url="ts_echo.mar")

    assert (config.name, config.version, config.flavour, config.handler) == (
        "ts_echo",
        "2.1",
        "torchserve",
        "echo_handler.py",
    )
    assert (config.workers, config.max_workers, config.response_timeout) == (1, 2, 30)
    assert (config.batching.rule, config.batching.batch_size, config.batching.max_batch_delay) == ("fixed", 4, 50)
    assert config.parameters["handler"] == {"scale": 2}
    assert config.url == "ts_echo.mar"
    assert (Path(config.path) / "echo_handler.py").is_file()


@pytest.mark.parametrize("compat", ["mms", "torchserve"])
def test_an_archive_of_mms_model_archiver_becomes_a_model(make: Make, store: Path, compat: str) -> None:
    shutil.copy(DATA / "mms_echo.tar.gz", store)
    config = prepare(make(compat), url="mms_echo.tar.gz", initial_workers="2", batch_size="8")

    assert (config.name, config.version, config.flavour, config.handler) == ("mms_echo", "1.0", "mms", "service:handle")
    assert (config.workers, config.batching.batch_size) == (2, 8)


def test_a_torchserve_archive_stays_one_on_an_mms_server(make: Make, store: Path) -> None:
    shutil.copy(DATA / "ts_echo.mar", store)
    make_zip(store / "plain.mar", {"h.py": HANDLER, "MAR-INF/MANIFEST.json": b'{"model": {"modelName": "p"}}'})

    assert prepare(make("mms"), url="ts_echo.mar").flavour == "torchserve"
    assert prepare(make("mms"), url="plain.mar").flavour == "mms"
    assert prepare(make("torchserve"), url="plain.mar").flavour == "torchserve"
    assert prepare(make(""), url="plain.mar").flavour == "torchserve"


def test_a_0_x_archive_becomes_a_model(make: Make, store: Path) -> None:
    manifest = b'{"Engine": {"MXNet": 0.12}, "Model": {"Model-Name": "old", "Service": "service.py"}}'
    make_zip(store / "old.model", {"service.py": HANDLER, "MANIFEST.json": manifest})
    config = prepare(make("mms"), url="old.model")

    assert (config.name, config.flavour, config.handler) == ("old", "mms", "service.py")


def test_what_is_unpacked_is_private_and_gone_after_discard(make: Make, store: Path, tmp_path: Path) -> None:
    make_mar(store / "m.mar")
    intake = make()
    first, second = prepare(intake, url="m.mar"), prepare(intake, url="m.mar")

    assert {Path(first.path), Path(second.path)} == set(unpacked(tmp_path)) and first.path != second.path
    assert Path(first.path).parent.parent.stat().st_mode & 0o777 == 0o700
    assert len(Path(first.path).name) == 32
    intake.discard(first)
    assert unpacked(tmp_path) == [Path(second.path)]
    intake.discard(first)
    assert (store / "m.mar").exists()


def test_a_folder_is_used_in_place_and_never_removed(make: Make, store: Path, tmp_path: Path) -> None:
    (store / "m" / "MAR-INF").mkdir(parents=True)
    (store / "m" / "MAR-INF" / "MANIFEST.json").write_text('{"model": {"modelName": "m", "handler": "h.py"}}')
    (store / "m" / "h.py").write_bytes(HANDLER)
    intake = make()
    config = prepare(intake, url="m")
    intake.discard(config)
    intake.close()

    assert config.path == str(store / "m")
    assert (store / "m" / "h.py").exists()
    assert unpacked(tmp_path) == []


def test_an_absolute_folder_is_taken_as_sagemaker_sends_it(make: Make, tmp_path: Path) -> None:
    (tmp_path / "opt" / "abc" / "model" / "MAR-INF").mkdir(parents=True)
    (tmp_path / "opt" / "abc" / "model" / "MAR-INF" / "MANIFEST.json").write_text('{"model": {"handler": "h"}}')
    config = prepare(make(), url=str(tmp_path / "opt" / "abc"), model_name="x")

    assert config.path == str(tmp_path / "opt" / "abc" / "model")
    with pytest.raises(SourceNotFound):
        prepare(make(""), url=str(tmp_path / "opt" / "abc"), model_name="x")


@pytest.mark.parametrize(
    ("parameters", "kind", "words"),
    [
        ({}, InvalidInput, r"^Parameter url is required\.$"),
        ({"url": ""}, SourceNotFound, "^empty url$"),
        ({"url": "../m.mar"}, SourceNotFound, r"^Relative path is not allowed in url: \.\./m\.mar$"),
        ({"url": "gone.mar"}, SourceNotFound, r"^Model not found at: gone\.mar$"),
        ({"url": "http://h/m.mar"}, SourceNotFound, r"^Given URL http://h/m.mar does not match any allowed URL\(s\)"),
        ({"url": "m.mar", "runtime": "java"}, InvalidInput, "^Invalid RuntimeType value: java$"),
        ({"url": "m.mar", "model_name": "a b"}, ConfigError, "name is made of"),
        ({"url": "broken.mar"}, BadArchive, r"broken\.mar"),
        ({"url": "evil.mar"}, BadArchive, "leads out"),
        ({"url": "bad-json.mar"}, BadArchive, "not valid JSON"),
        ({"url": "bad-yaml.mar"}, BadArchive, "c.yaml line 1"),
        ({"url": "no-yaml.mar"}, BadArchive, "c.yaml cannot be read"),
        ({"url": "nameless.mar"}, BadArchive, r"^Model name is not defined\.$"),
        ({"url": "lsp.mar"}, InvalidInput, "LSP"),
    ],
)
def test_each_failure_says_why_and_leaves_nothing(
    make: Make, store: Path, tmp_path: Path, parameters: dict[str, str], kind: type[Exception], words: str
) -> None:
    make_mar(store / "m.mar")
    make_mar(store / "bad-yaml.mar", {"c.yaml": b"a: ["}, configFile="c.yaml")
    make_mar(store / "no-yaml.mar", configFile="c.yaml")
    make_zip(store / "evil.mar", {"../x": b""})
    make_zip(store / "bad-json.mar", {"MAR-INF/MANIFEST.json": b"{"})
    make_zip(store / "lsp.mar", {"MAR-INF/MANIFEST.json": b'{"runtime": "LSP", "model": {"modelName": "l"}}'})
    make_zip(store / "nameless.mar", {"h.py": HANDLER})
    (store / "broken.mar").write_bytes(b"no archive")
    before = sorted(store.iterdir())

    with pytest.raises(kind, match=words):
        prepare(make(), **parameters)
    assert unpacked(tmp_path) == []
    assert sorted(store.iterdir()) == before


def test_at_the_start_an_archive_without_a_name_is_called_after_its_file(make: Make, store: Path) -> None:
    make_zip(store / "my-model.v2.mar", {"h.py": HANDLER})
    make_tgz(store / "t.tar.gz", {"t/h.py": HANDLER})
    intake = make(handler="h")

    assert prepare(intake, True, url="my-model.v2.mar").name == "my_model_v2"
    config = prepare(intake, True, url="t.tar.gz")
    assert (config.name, config.handler, config.flavour, config.loaded_at_startup) == ("t", "h", "torchserve", True)


def test_the_operators_settings_for_a_model_are_found_by_name_and_version(make: Make, store: Path) -> None:
    make_mar(store / "m.mar")
    tuning = {"m": {"1.0": {"batchSize": 3, "minWorkers": 2, "maxWorkers": 2}, "2.0": {"batchSize": 9}}}
    intake = make(tuning=tuning)

    assert prepare(intake, True, url="m.mar").batching.batch_size == 3
    assert prepare(intake, True, url="m.mar").workers == 2
    assert prepare(intake, True, url="m.mar", model_name="other").batching.rule == "adaptive"


def test_notes_are_written_to_the_log(make: Make, store: Path, caplog: pytest.LogCaptureFixture) -> None:
    make_mar(store / "m.mar", {"c.yaml": b"parallelType: pp\n"}, configFile="c.yaml")
    prepare(make(), url="m.mar", batch_size="many")

    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warned) == 2
    assert any("model m: model-config.yaml: parallelType has no effect" in line for line in warned)


def test_workers_take_the_gpus_in_turn_over_all_models(make: Make, store: Path) -> None:
    make_mar(store / "m.mar")
    intake = make(gpus=4)
    found = [prepare(intake, url="m.mar", initial_workers=count).device for count in ("1", "2", "1")]

    assert found == ["cuda:1", "cuda:2", "cuda:0"]


# -- our own models ---------------------------------------------------------------------------------------------------


def test_python_files_and_plain_folders_of_the_store_stay_servable(make: Make, store: Path) -> None:
    (store / "echo.py").write_bytes(HANDLER)
    (store / "net.v1").mkdir()
    (store / "net.v1" / "model.py").write_bytes(HANDLER)
    intake = make("", registered_workers=1)
    file, folder = prepare(intake, url="echo.py"), prepare(intake, url="net.v1", batch_size="4")

    assert (file.name, file.flavour, file.path, file.workers) == ("echo", "shoal", str(store / "echo.py"), 1)
    assert (file.batching.rule, file.prove_batching, file.handler) == ("adaptive", False, "")
    assert (folder.name, folder.flavour, folder.batching.batch_size) == ("net.v1", "shoal", 4)


def test_a_python_file_is_no_archive_of_torchserves(make: Make, store: Path) -> None:
    (store / "echo.py").write_bytes(HANDLER)

    with pytest.raises(BadArchive, match="neither a zip file"):
        prepare(make(), url="echo.py")


# -- downloads --------------------------------------------------------------------------------------------------------


def test_a_download_is_kept_in_the_store_until_the_model_goes(make: Make, store: Path, tmp_path: Path) -> None:
    source = make_mar(tmp_path / "far.mar")
    intake = make(urls=("file://.*",))
    config = prepare(intake, url=f"file://{source}")

    assert (config.name, config.url) == ("m", f"file://{source}")
    assert [path.name for path in store.iterdir()] == ["far.mar"]
    with pytest.raises(ServingError, match=r"^Model file already exists far\.mar$"):
        prepare(intake, url=f"file://{source}")
    intake.discard(config)
    assert list(store.iterdir()) == [] and source.exists() and unpacked(tmp_path) == []


def test_an_mms_server_keeps_no_download(make: Make, store: Path, tmp_path: Path) -> None:
    source = make_mar(tmp_path / "far.mar")
    intake = make("mms", urls=("file://.*",))
    config = prepare(intake, url=f"file://{source}")

    assert list(store.iterdir()) == []
    assert unpacked(tmp_path) == [Path(config.path)]


@pytest.mark.parametrize("compat", ["torchserve", "mms", ""])
def test_a_download_that_is_no_archive_or_not_there_leaves_nothing(
    make: Make, store: Path, tmp_path: Path, compat: str
) -> None:
    (tmp_path / "bad.mar").write_text("no archive")
    make_mar(tmp_path / "lsp.mar", envelope="none")
    intake = make(compat, urls=("file://.*",))

    for name, kind in (("bad.mar", BadArchive), ("lsp.mar", BadArchive), ("gone.mar", DownloadFailed)):
        with pytest.raises(kind):
            prepare(intake, url=f"file://{tmp_path}/{name}")
        assert list(store.iterdir()) == [] and unpacked(tmp_path) == []


def test_a_list_that_is_wrong_is_refused_when_the_server_starts(make: Make) -> None:
    with pytest.raises(ConfigError, match="allowed_urls"):
        make(urls=("(",))


def test_torchserve_downloads_only_into_a_store(tmp_path: Path) -> None:
    source = make_mar(tmp_path / "far.mar")
    for compat, is_refused in (("torchserve", True), ("", False)):
        server = ServerConfig(compat=compat, allowed_urls=["file://.*"])  # type: ignore[arg-type]
        intake = Intake(server, Defaults(), {}, work=tmp_path / "work")
        try:
            if is_refused:
                with pytest.raises(SourceNotFound, match=r"Model store has not been configured\."):
                    prepare(intake, url=f"file://{source}")
            else:
                assert prepare(intake, url=f"file://{source}").name == "m"
        finally:
            intake.close()


# -- what an operator names -------------------------------------------------------------------------------------------


def test_an_operator_may_name_files_folders_and_archives_anywhere(make: Make, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_bytes(HANDLER)
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "model.py").write_bytes(HANDLER)
    intake = make("")

    def named(path: Path, **overrides: object) -> ModelConfig:
        return asyncio.run(intake.prepare_source(path, overrides))

    file = named(tmp_path / "mine.py")
    assert (file.name, file.flavour, file.path) == ("mine", "shoal", str(tmp_path / "mine.py"))
    assert named(tmp_path / "net").path == str(tmp_path / "net")
    archive = named(DATA / "ts_echo.tar.gz")
    assert (archive.name, archive.version, archive.flavour) == ("ts_echo", "2.1", "torchserve")
    assert archive.loaded_at_startup


def test_what_an_operator_says_goes_over_what_the_archive_says(make: Make) -> None:
    overrides = {"name": "other", "workers": 3, "batching": {"batch_size": 2}, "parameters": {"a": 1}}
    config = asyncio.run(make("").prepare_source(DATA / "ts_echo.mar", overrides))

    assert (config.name, config.workers, config.batching.batch_size) == ("other", 3, 2)
    assert (config.parameters, config.version, config.handler) == ({"a": 1}, "2.1", "echo_handler.py")
    with pytest.raises(ConfigError, match="did you mean 'workers'"):
        asyncio.run(make("").prepare_source(DATA / "ts_echo.mar", {"wrokers": 3}))


def test_a_size_that_an_operator_says_needs_no_proof(make: Make, store: Path) -> None:
    make_mar(store / "m.mar")
    plain = asyncio.run(make("").prepare_source(store / "m.mar", {}))
    sized = asyncio.run(make("").prepare_source(store / "m.mar", {"batching": {"batch_size": 2}}))

    assert (plain.prove_batching, sized.prove_batching) == (True, False)


# -- requirements -----------------------------------------------------------------------------------------------------


def test_requirements_are_installed_only_when_the_operator_says_so(make: Make, store: Path, tmp_path: Path) -> None:
    make_mar(store / "m.mar", {"r.txt": b"no-such-package-anywhere\n"}, requirementsFile="r.txt")

    assert prepare(make(), url="m.mar").packages == ""
    with pytest.raises(BadArchive, match=r"^Custom pip package installation failed for model m: ERROR: No matching"):
        prepare(make(install_requirements=True), url="m.mar")
    assert len(unpacked(tmp_path)) == 1, "of the first"


@pytest.mark.parametrize("yaml", [b"useVenv: true\n", b"useVenv: 1\n"])
def test_requirements_give_a_model_packages_or_an_interpreter(make: Make, store: Path, yaml: bytes) -> None:
    files = {"r.txt": b"# nothing\n", "c.yaml": yaml}
    make_mar(store / "m.mar", files, requirementsFile="r.txt", configFile="c.yaml")
    config = prepare(make(install_requirements=True), url="m.mar")

    if b"true" in yaml:
        assert config.packages == "" and Path(config.python).is_file()
    else:
        assert config.python == "" and Path(config.packages).is_dir()


# -- life -------------------------------------------------------------------------------------------------------------


def test_the_loop_turns_while_archives_are_unpacked(make: Make, store: Path) -> None:
    make_zip(store / "big.mar", {f"{number}": os.urandom(2000) for number in range(500)})
    intake = make(limits=Limits())

    async def watch() -> int:
        task = asyncio.create_task(intake.prepare({"url": "big.mar", "model_name": "big"}))
        turns = 0
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
        await task
        return turns

    assert asyncio.run(watch()) > 10


def test_whoever_leaves_while_it_is_unpacked_leaves_nothing_behind(make: Make, store: Path, tmp_path: Path) -> None:
    make_zip(store / "big.mar", {f"{number}": b"x" for number in range(4000)})
    intake = make()

    async def leave() -> None:
        task = asyncio.create_task(intake.prepare({"url": "big.mar", "model_name": "big"}))
        while not unpacked(tmp_path):
            await asyncio.sleep(0)
            assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(leave())
    eventually(lambda: not unpacked(tmp_path), "what was begun is removed")


def test_whoever_leaves_when_it_is_just_unpacked_leaves_nothing_behind(make: Make, store: Path, tmp_path: Path) -> None:
    make_mar(store / "m.mar")
    intake = make()

    async def leave() -> None:
        task = asyncio.create_task(intake.prepare({"url": "m.mar"}))
        await asyncio.sleep(0)
        eventually(lambda: any(files_in(folder) for folder in unpacked(tmp_path)), "it is unpacked")  # the loop stands
        intake._threads.submit(bool).result()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(leave())
    eventually(lambda: not unpacked(tmp_path), "what was unpacked is removed")


def test_a_download_that_nobody_waits_for_is_given_up(make: Make, store: Path) -> None:
    has_begun, has_ended = threading.Event(), threading.Event()

    class Endless(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            try:
                while not has_ended.wait(0.01):
                    self.wfile.write(b"x" * 2**20)
                    has_begun.set()
            except OSError:
                has_ended.set()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Endless) as site:
        site.daemon_threads = True
        thread = threading.Thread(target=site.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        intake = make(urls=("http://.*",))

        async def leave() -> None:
            url = f"http://127.0.0.1:{site.server_port}/m.mar"
            task = asyncio.create_task(intake.prepare({"url": url}))
            await asyncio.to_thread(has_begun.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(leave())
        try:
            assert has_ended.wait(15), "it is still being fetched"
            eventually(lambda: list(store.iterdir()) == [], "what was begun is removed")
        finally:
            has_ended.set()
            site.shutdown()
            thread.join()


def test_a_closed_intake_takes_nothing_and_has_removed_everything(make: Make, store: Path, tmp_path: Path) -> None:
    make_mar(store / "m.mar")
    intake = make()
    prepare(intake, url="m.mar")
    intake.close()

    assert list((tmp_path / "tmp").iterdir()) == []
    with pytest.raises(ServingError, match="being stopped"):
        prepare(intake, url="m.mar")
    assert (store / "m.mar").exists()


def test_a_workflow_archive_is_obtained_from_its_own_store(make: Make, tmp_path: Path) -> None:
    (tmp_path / "flows").mkdir()
    make_zip(tmp_path / "flows" / "w.war", {"spec.yaml": b"", "WAR-INF/MANIFEST.json": b"{}"})
    intake = make()
    obtained = asyncio.run(intake.obtain({"url": "w.war"}, store=str(tmp_path / "flows")))

    assert set(files_in(obtained.path)) == {"spec.yaml", "WAR-INF/MANIFEST.json"}
    intake.release(obtained)
    assert unpacked(tmp_path) == []


def test_entries_of_the_start_are_those_of_the_store(make: Make, store: Path) -> None:
    make_mar(store / "m.mar")

    assert make().startup_entries(["all"]) == [("", "m.mar")]
    assert make().startup_entries(["x=m.mar"]) == [("x", "m.mar")]
