from tests.task_fixtures import _one_thread, folders, kept, paths, workspace  # noqa: F401
