"""Serve Optuna Dashboard from this machine until Ctrl-C."""

from __future__ import annotations

import errno
import io
import ipaddress
import os
import socket
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, BinaryIO
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import optuna
import optuna_dashboard
from optuna.artifacts import FileSystemArtifactStore
from optuna.artifacts.exceptions import ArtifactNotFound
from sqlalchemy.exc import SQLAlchemyError

from autotune.console.progress import to_stderr
from autotune.dashboard.attach import attach
from autotune.dashboard.middleware import Guard, Opened, Shortened
from autotune.storage.database import existing, storage_errors
from autotune.storage.mutex import study_lock
from autotune.study.find_study import StudyPlace
from autotune.values.errors import StorageError, UsageError

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

_PORTS_TO_TRY = 50
_LAST_PORT = 65535
_NOT_HERE = b"This file lies on the host that its name begins with. Open the dashboard there.\n"
_EVERYWHERE = ("", "0.0.0.0")  # noqa: S104 (allowed with --expose)


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Options of the server."""

    host: str = "127.0.0.1"
    port: int = 8080
    """First port to try; 0: any free port."""
    browser: bool = True
    allow_edit: bool = False
    expose: bool = False

    def check(self) -> None:
        """Refuse options that would open the study to other machines.

        Raises:
            UsageError: other machines could read without --expose, or could edit.
        """
        if self.expose and self.allow_edit:
            raise UsageError(
                "--expose with --allow-edit: anybody who reaches this machine could delete the "
                "study. Give one of them; `ssh -L 8080:localhost:8080` reaches a dashboard from "
                "another machine without --expose."
            )
        if not (self.expose or _is_loopback(self.host)):
            raise UsageError(
                f"--host {self.host}: everybody who reaches this machine could read the study. Add "
                "--expose if that is wanted; `ssh -L 8080:localhost:8080` does without."
            )


def serve(place: StudyPlace, options: ServeOptions) -> None:
    """Attach notes, plots and files, then answer requests until Ctrl-C.

    Raises:
        UsageError: the address cannot be used, or there is a best.yaml alone.
        StorageError: the study cannot be read, or a search writes it while it is to be edited.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage, names = _opened(place)
    with _held(place, options.allow_edit):  # no search may run while the study can be edited
        _bring_up_to_date(place, storage)
        app = optuna_dashboard.wsgi(storage, artifact_store=_artifacts(place))
        opened = Opened(Shortened(app), _first_page(storage, names))
        guarded = Guard(opened, options.allow_edit, options.expose)
        server = _bound(guarded, options)
        with server:
            _announce(place, options, server.server_port, names)
            _run(server)


def _opened(place: StudyPlace) -> tuple[optuna.storages.BaseStorage, list[str]]:
    """Open a storage without creating tables; return it and the names of its studies."""
    if place.url is None:
        raise UsageError(
            f"{place.answer} alone says nothing of trials. Name the folder of its study, the "
            "study.db or a storage URL."
        )
    storage = existing(place.url)
    with storage_errors(place.url):
        names = [study.study_name for study in storage.get_all_studies()]
    if not names:
        raise StorageError(f"{place.shown} holds no study. `autotune search` makes one.")
    return storage, names


def _first_page(storage: optuna.storages.BaseStorage, names: list[str]) -> str:
    """Return the page to begin with: the note on the study; the list where there are several."""
    if len(names) > 1:
        return "/dashboard"
    return f"/dashboard/studies/{storage.get_study_id_from_name(names[0])}/note"


@contextmanager
def _held(place: StudyPlace, wanted: bool) -> Iterator[None]:
    """Hold the study's lock if `wanted` and the study has a folder."""
    if wanted and place.folder is not None:
        with study_lock(place.folder):
            yield
    else:
        yield


def _bring_up_to_date(place: StudyPlace, storage: optuna.storages.BaseStorage) -> None:
    """Attach notes, plots and files; print a line if they cannot be written."""
    try:
        for line in attach(storage, place):
            to_stderr(line)
    except (OSError, SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
        to_stderr(f"the note, plots and logs were not updated: {str(error).splitlines()[0]}")


def _artifacts(place: StudyPlace) -> FileSystemArtifactStore | None:
    """Return the store of artifacts; None if its folder does not exist."""
    return _Artifacts(place.artifacts) if place.artifacts.is_dir() else None


class _Artifacts(FileSystemArtifactStore):
    """Store of this host's copies; files that another host attached are missing in it."""

    def open_reader(self, artifact_id: str) -> BinaryIO:
        """Open a file, or a text that says on which host it is."""
        try:
            return super().open_reader(artifact_id)
        except ArtifactNotFound:
            return io.BytesIO(_NOT_HERE)


class _Server(ThreadingMixIn, WSGIServer):
    """A server with a thread per request, because a page sends several at once."""

    daemon_threads = True


class _Silent(WSGIRequestHandler):
    """A request handler that logs nothing."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
        """Log nothing."""


def _bound(app: WSGIApplication, options: ServeOptions) -> _Server:
    """Return a server on the port of the options, or on the next free one.

    Raises:
        UsageError: no port is free, or the address cannot be used.
    """
    last = min(_LAST_PORT, options.port + (_PORTS_TO_TRY if options.port else 0))
    for port in range(options.port, last + 1):
        try:
            server = _Server((options.host, port), _Silent)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                continue
            raise UsageError(
                f"--host {options.host} --port {port}: {error.strerror}. Choose others."
            ) from error
        server.set_app(app)
        return server
    raise UsageError(f"ports {options.port} to {last} are taken. Choose another --port.")


def _announce(place: StudyPlace, options: ServeOptions, port: int, names: list[str]) -> None:
    host = socket.gethostname() if options.host in _EVERYWHERE else options.host
    may = "may be edited" if options.allow_edit else "read-only"
    if options.port and port != options.port:
        to_stderr(f"port {options.port} is taken, so it is {port}")
    to_stderr(f"{', '.join(names)} in {place.shown}, {may}")
    to_stderr(f"Optuna Dashboard: http://{host}:{port}/  (Ctrl-C ends it)")
    if options.browser and _has_screen():
        webbrowser.open(f"http://{host}:{port}/")


def _run(server: _Server) -> None:
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        to_stderr("\nThe dashboard is closed; the study stays as it is.")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _has_screen() -> bool:
    """Return True if a browser would open a window and not run in this terminal."""
    shown = (os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    return any(shown) or sys.platform == "darwin"
