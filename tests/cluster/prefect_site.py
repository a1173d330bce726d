"""A Prefect server, its database and a worker on the loopback interface, in a separate folder, for one script."""

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from electra.cluster.processes import free_port

ROOT = Path(__file__).resolve().parents[2]
FINAL = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}
SECONDS_TO_START = 120
SECONDS_TO_STOP = 60


class Site:
    """Where the server listens, and the environment in which everything of a test runs.

    Args:
        folder: Prefect's home, the database, the logs of server and worker.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.temporary = folder / "tmp"
        self.temporary.mkdir(exist_ok=True)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/api"
        own = {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(self.temporary),
            "PREFECT_HOME": str(folder / "prefect"),
            "PREFECT_API_URL": self.url,
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_CLI_COLORS": "false",
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "DO_NOT_TRACK": "1",
            "DVC_NO_ANALYTICS": "1",
        }
        foreign = ("PREFECT_", "DVC_ROOT", "DVC_STAGE", "ELECTRA_")
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(foreign)} | own

    def start(self, name: str, command: list[str], cwd: Path | None = None) -> subprocess.Popen:
        """Start a process that stays; its output goes to ``<folder>/<name>.log``."""
        with open(self.folder / f"{name}.log", "ab") as log:
            return subprocess.Popen(
                command, cwd=cwd or self.folder, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )

    def run(self, *command: str, cwd: Path | None = None, expect: int = 0) -> str:
        """Run a command to its end; returns what it printed."""
        done = subprocess.run(command, cwd=cwd or self.folder, env=self.environment, capture_output=True, text=True)
        assert done.returncode == expect, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Call the server's API; retry on status 503, which a server returns while its SQLite is busy."""
        data = json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        for last in (False, False, True):
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code != 503 or last:
                    raise
                time.sleep(2)
        raise AssertionError

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return json.load(answer)

    def start_run(self, deployment: str, **parameters: Any) -> str:
        """Start a run of a deployment ``flow/name``; return the flow run's id."""
        found = self.get(f"/deployments/name/{deployment}")
        return self.post(f"/deployments/{found['id']}/create_flow_run", {"parameters": parameters})["id"]

    def last_run(self, flow: str) -> str:
        """The id of the newest run of a flow."""
        body = {"flows": {"name": {"any_": [flow]}}, "sort": "EXPECTED_START_TIME_DESC", "limit": 1}
        return self.post("/flow_runs/filter", body)[0]["id"]

    def state(self, run_id: str) -> str:
        return self.get(f"/flow_runs/{run_id}")["state"]["type"]

    def wait_for_run(self, run_id: str, seconds: float = 600) -> str:
        """The final state's type, such as COMPLETED."""
        wait_until(lambda: self.state(run_id) in FINAL, seconds, f"flow run {run_id} to end")
        return self.state(run_id)

    def task_states(self, run_id: str) -> dict[str, str]:
        """The names of the states in which the tasks of a run ended, by task run."""
        tasks = self.post("/task_runs/filter", {"flow_runs": {"id": {"any_": [run_id]}}, "limit": 200})
        return {task["name"]: task["state"]["name"] for task in tasks}


@contextmanager
def site(folder: Path, database: str = "sqlite") -> Iterator[Site]:
    """A server that is up, with ``sqlite`` or ``postgresql`` behind it; it ends with the script, also by SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with ExitStack() as stack:
        place = Site(folder)
        if database == "postgresql":
            url = stack.enter_context(postgresql(folder / "postgresql"))
            place.environment["PREFECT_API_DATABASE_CONNECTION_URL"] = url
        command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(place.port)]
        server = place.start("server", command)
        stack.callback(stop, server)
        wait_until(lambda: _answers(place.url + "/health"), SECONDS_TO_START, "the server to answer")
        yield place


@contextmanager
def worker(place: Site, cwd: Path) -> Iterator[subprocess.Popen]:
    """A process worker, started in ``cwd``; it is stopped and waited for before its server is."""
    log = place.folder / "worker.log"
    seen = log.stat().st_size if log.exists() else 0
    process = place.start("worker", [sys.executable, "-m", "electra", "cluster", "worker"], cwd)
    try:
        wait_until(lambda: b"started!" in log.read_bytes()[seen:], SECONDS_TO_START, "the worker to start")
        yield process
    finally:
        stop(process)


def postgresql_programs() -> list[Path]:
    """Folders of Debian's PostgreSQL packages, the newest last."""
    return sorted(Path("/usr/lib/postgresql").glob("*/bin"))


@contextmanager
def postgresql(folder: Path) -> Iterator[str]:
    """A PostgreSQL server of Debian's package, on a loopback port; yields Prefect's connection URL.

    PostgreSQL refuses to run as root: then the package's own user runs it.
    """
    bin_folder, port = postgresql_programs()[-1], free_port()
    folder.mkdir(parents=True)
    prefix: list[str] = []
    if os.geteuid() == 0:
        user = pwd.getpwnam("postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)
        for parent in list(folder.parents)[:3]:  # temporary folders are closed to other users
            with suppress(PermissionError):
                parent.chmod(parent.stat().st_mode | 0o011)
        prefix = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    data = folder / "data"

    def run(*command: str) -> None:
        done = subprocess.run([*prefix, *command], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"

    run(str(bin_folder / "initdb"), "-D", str(data), "-U", "prefect", "--auth=trust", "--encoding=UTF8", "--no-sync")
    options = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={folder}"
    control = str(bin_folder / "pg_ctl")
    run(control, "-D", str(data), "-o", options, "-l", str(folder / "server.log"), "-w", "start")
    try:
        run(str(bin_folder / "createdb"), "-h", "127.0.0.1", "-p", str(port), "-U", "prefect", "prefect")
        yield f"postgresql+asyncpg://prefect@127.0.0.1:{port}/prefect"
    finally:
        run(control, "-D", str(data), "-m", "fast", "-w", "stop")


def clone(target: Path) -> Path:
    """This project's files as git knows them, with what is not committed yet, as a repository of their own."""
    target.mkdir(parents=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in listed.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    author = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    for command in (["init", "--quiet"], ["add", "--all"], [*author, "commit", "--quiet", "-m", "the project"]):
        subprocess.run(["git", *command], cwd=target, check=True)
    return target


def wait_until(is_so: Callable[[], bool], seconds: float, what: str) -> float:
    """Look four times a second; returns how long it took."""
    start = time.monotonic()
    while not is_so():
        assert time.monotonic() - start < seconds, f"waited {seconds:.0f} s for {what}"
        time.sleep(0.25)
    return time.monotonic() - start


def stop(process: subprocess.Popen) -> None:
    """SIGTERM, and SIGKILL to the whole session if it is not enough."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(SECONDS_TO_STOP)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def alive(names: Callable[[list[str]], bool]) -> list[psutil.Process]:
    """Processes of this host whose command line is of interest."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if process.status() != psutil.STATUS_ZOMBIE and names(process.cmdline()):
                found.append(process)
    return found


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False
