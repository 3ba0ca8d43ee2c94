"""What /ping says: one rule for each dialect, over the models of a repository."""

from shoal.core.repository import Repository


def native(repository: Repository) -> tuple[int, str]:
    """Healthy when every model that should answer can; not while the server is being stopped."""
    expected = [model for model in repository if model not in repository.on_trial]
    return _either(not repository.is_closing and all(model.is_ready or not model.pool.size for model in expected))


def torchserve(repository: Repository) -> tuple[int, str]:
    """Healthy while the default version of each name has the workers it should, or may still get them."""
    return _either(not repository.is_closing and all(repository.find(name).has_workers for name in repository.names()))


def mms(repository: Repository) -> tuple[int, str]:
    """Give three words, and always the status of success."""
    running = sum(worker.state == "ready" for model in repository for worker in model.pool.describe())
    wanted = sum(model.min_workers for model in repository)
    if repository.is_closing:
        return 200, "Unhealthy"
    if running >= wanted:
        return 200, "Healthy"
    return 200, "Partial Healthy" if running else "Unhealthy"


def _either(is_healthy: bool) -> tuple[int, str]:
    return (200, "Healthy") if is_healthy else (500, "Unhealthy")
