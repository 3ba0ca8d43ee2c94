"""One suite over both shapes: what clients see is the same whether the server accepts by itself or by processes."""

from collections.abc import Iterator

import pytest

# Modules whose tests run twice: with the server's own front, and with two processes in front of it.
BOTH = {
    *("test_http_sockets", "test_http2", "test_server_faults", "test_http_api", "test_stopping", "test_overload"),
    *("test_rollout", "test_grpc_age", "test_deadlines", "test_dashboard"),
}
# What is said of one process: how many connections it takes, which of its files it has; and what takes long without
# meeting a client in any new way.
ALONE = {
    "test_a_triton_repository_changes_under_load",
    "test_a_watched_archive_is_unpacked_anew_when_it_is_saved",
    "test_an_idle_server_uses_no_cpu_and_its_front_process_is_small",
    "test_saving_a_watched_file_replaces_the_code_and_a_mistake_does_not",
    "test_torchserves_own_way_to_another_version_under_load",
    "test_connections_over_the_limit_are_answered_503_at_once",
    "test_connections_over_the_limit_are_closed",
    "test_an_idle_connection_is_closed_and_the_client_comes_again",
    "test_a_client_that_resets_is_gone_and_its_memory_comes_back",
    "test_an_address_is_known_while_it_listens",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    module = metafunc.module.__name__.rpartition(".")[2]
    if module in BOTH and metafunc.definition.originalname not in ALONE:
        metafunc.parametrize("frontends", [1, 2], ids=["alone", "fronts"], indirect=True, scope="module")


@pytest.fixture(scope="module", autouse=True)
def frontends(request: pytest.FixtureRequest) -> Iterator[int]:
    """How many front processes the servers of a test have."""
    count: int = getattr(request, "param", 1)
    with pytest.MonkeyPatch.context() as patch:
        if count > 1:
            patch.setenv("SHOAL_FRONTENDS", str(count))
        yield count
