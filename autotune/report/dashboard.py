"""Serve Optuna Dashboard on a study from this machine, to be read only, until Ctrl-C.

The dashboard deletes studies for anybody who can reach it, and a page of another site can make a
browser send requests to this machine. So only reading is answered, and only to local names: the
Host header shows requests under a site's own name (DNS rebinding).
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Container, Iterable
from copy import copy
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import optuna
import optuna_dashboard
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from autotune.console.progress import to_stderr
from autotune.report.data import headline, next_step, read_report
from autotune.study.archive import StudyPlace
from autotune.study.storage import disconnect, existing, storage_errors
from autotune.values.errors import AutotuneError, StorageError, UsageError
from autotune.values.text import clean

_OWN_MARK = "*Written by `autotune dashboard`"
_OWN_LINE = f"{_OWN_MARK}. Delete this line to keep your changes to this note.*"
_MARKUP = re.compile(r"([\\`*_\[\]<>#|])")
# Characters that fit in a window of 1200 pixels beside the list of trials.
_WIDEST = 60


class Shown(RDBStorage):
    """A storage as the dashboard is to show it: long attributes are cut.

    A page shows each on one line, and blocks of a measurement would make it ten windows wide.
    """

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """Return the trials."""
        trials = [copy(trial) for trial in super().get_all_trials(study_id, deepcopy, states)]
        for trial in trials:
            trial.user_attrs = _cut(trial.user_attrs)
        return trials

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        """Return the study's attributes."""
        return _cut(super().get_study_user_attrs(study_id))


def _cut(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return attributes, as text where they are long."""
    texts = {name: json.dumps(value) for name, value in attributes.items()}
    long = {name: f"{text[:_WIDEST]}…" for name, text in texts.items() if len(text) > _WIDEST}
    return attributes | long


def serve(place: StudyPlace, port: int) -> None:
    """Write a note on each study, then answer requests on a port (0: any free one) until Ctrl-C.

    Raises:
        UsageError: the port cannot be used, or there is a best.yaml alone.
        StorageError: the study cannot be read.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if place.url is None:
        raise UsageError(
            f"{place.answer} has no trials. Name the directory of its study, the study.db or a "
            "storage URL."
        )
    storage = existing(place.url, Shown)
    try:
        with storage_errors(place.url):
            names = sorted(optuna.get_all_study_names(storage))
        if not names:
            raise StorageError(f"{place.shown} holds no study. `autotune search` makes one.")
        for name in names:
            _write_note(place, name, storage)
        first = "/dashboard"
        if len(names) == 1:
            first = f"/dashboard/studies/{storage.get_study_id_from_name(names[0])}/note"
        app = guarded(optuna_dashboard.wsgi(storage), first)
        try:
            server = make_server("127.0.0.1", port, app, _Server, _Silent)
        except OSError as error:
            raise UsageError(f"--port {port}: {error.strerror}. Choose another, or 0.") from error
        with server:
            to_stderr(f"{', '.join(names)} in {place.shown}, read-only")
            address = f"http://127.0.0.1:{server.server_port}/"
            to_stderr(f"Optuna Dashboard: {address}  (Ctrl-C ends it)")
            server.serve_forever()
    except KeyboardInterrupt:
        to_stderr("\nThe dashboard is closed; the study is unchanged.")
    finally:
        disconnect(storage)


def _write_note(place: StudyPlace, name: str, storage: RDBStorage) -> None:
    """Write what a study found and where its files are, unless a person wrote its note."""
    study = optuna.load_study(study_name=name, storage=storage)
    before = optuna_dashboard.get_note(study)
    try:
        data = read_report(place, name)
        facts = (f"{what[0].upper()}{what[1:]}: {told}." for what, told in data.facts)
        text, commands = next_step(data)
        lines = [headline(data), *data.remarks, *facts, f"{text} {', or '.join(commands)}"]
        found = [_MARKUP.sub(r"\\\1", clean(line)) for line in lines]
        folder = "its directory on the host that searched" if place.folder is None else place.folder
        files = (
            f"best.yaml and the logs of each trial (`trials/`) are in {folder}. "
            "`autotune report --html FILE` writes the report."
        )
        note = "## " + "\n\n".join([*found, files, _OWN_LINE])
        if before != note and (not before or _OWN_MARK in before):
            optuna_dashboard.save_note(study, note)
    except AutotuneError:
        return  # another program's study is shown without a note
    except (OSError, SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
        to_stderr(f"the note was not updated: {str(error).splitlines()[0]}")


def guarded(app: WSGIApplication, first: str) -> WSGIApplication:
    """Return an application that passes on requests to read from local names; others get 403.

    The bare address leads to the page `first`.
    """

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        host = environ.get("HTTP_HOST", "")
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD") or not _is_local(host):
            start("403 Forbidden", [("Content-Type", "application/json")])
            return [b'{"reason": "autotune dashboard only answers reads from this machine."}']
        if environ.get("PATH_INFO") in ("", "/"):
            start("302 Found", [("Location", first), ("Content-Length", "0")])
            return []
        return app(environ, start)

    return answer


def _is_local(host: str) -> bool:
    """Return True if a Host header names this machine; any port, as ports may be forwarded."""
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    name = name.strip("[]").lower()
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class _Server(ThreadingMixIn, WSGIServer):
    """A server with a thread per request, because a page sends several at once."""

    daemon_threads = True


class _Silent(WSGIRequestHandler):
    """A request handler that logs nothing."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
        """Log nothing."""
