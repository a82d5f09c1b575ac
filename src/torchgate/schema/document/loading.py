"""Entry: from configuration files to what one ``torchgate serve`` runs.

The files are read and laid over each other (`sources`), variables filled (`environment`), every table validated by
itself (`reading`), and made into the service's own structs here and in `fronts`. Whatever is wrong is collected and
told at once.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from torchgate.errors import ConfigError
from torchgate.schema import config
from torchgate.schema.document.addresses import Address, overlap, refusal
from torchgate.schema.document.checks import Checks
from torchgate.schema.document.files import Files
from torchgate.schema.document.fronts import Fronts
from torchgate.schema.document.levels import Levels
from torchgate.schema.document.mistakes import Path
from torchgate.schema.document.names import wider
from torchgate.schema.document.objects import Host, Model
from torchgate.schema.document.reading import Reading
from torchgate.schema.document.upstreams import Upstreams
from torchgate.schema.front import CertificateConfig, FrontConfig, HostConfig, SpoolConfig
from torchgate.schema.routes import RouteConfig
from torchgate.schema.serve import ServeConfig
from torchgate.schema.target import TargetKind, check_name, check_target, parse_target

_DEMANDS = ("client_ca", "identity_headers", "redirect_https")

MAX_TIES = 100
"""Most routes of which a tie with another is told."""


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """What the files say.

    Attributes:
        config: The service. Replicas and threads of models are 0, their device is empty, and the number of gateways
            is 0, where the machine is to decide.
        metrics_given: Whether the address of the metrics was written.
    """

    config: ServeConfig
    metrics_given: bool


def load(
    files: Sequence[str],
    checks: Checks,
    environ: Mapping[str, str] | None = None,
    *,
    origins: bool = False,
) -> Loaded:
    """Read a configuration.

    Args:
        files: The file, then overlays, each changing what is before it.
        checks: What other rooms judge.
        environ: Environment variables; those of the process by default.
        origins: Whether routes and header edits carry ``FILE:LINE``, which takes a second look at the files.

    Raises:
        DocumentError: With everything that is wrong.
    """
    collects = gc.isenabled()
    gc.disable()  # hundreds of thousands of objects are made, and all of them are kept
    try:
        reading = Reading(files, os.environ if environ is None else environ)
        return _Loading(reading, checks, origins=origins).loaded()
    finally:
        if collects:
            gc.enable()


class _Loading:
    def __init__(self, reading: Reading, checks: Checks, *, origins: bool) -> None:
        self._reading = reading
        self._checks = checks
        self._origins = origins
        self._files = Files(reading)
        self._limits: dict[str, config.Limits] = {
            name: one.made(config.Limits) for name, one in reading.objects("limits").items()
        }

    def loaded(self) -> Loaded:
        reading = self._reading
        service = reading.service
        certificates = self._certificates()
        levels = Levels(reading, self._files, self._checks, origins=self._origins)
        fronts = Fronts(
            reading, self._files, levels, self._checks, self._limits, origins=self._origins
        )
        listeners = self._listeners(fronts)
        front = self._front(fronts, certificates)
        made = ServeConfig(
            models=self._models(),
            listeners=listeners or (config.ListenerConfig(),),
            front=front,
            metrics=config.MetricsConfig(host=service.metrics.host, port=service.metrics.port),
            gateways=service.gateways or 0,
            access_log=self._access_log(service.access_log),
            grace_s=service.grace,
            work_dir=reading.sources.base.folder,
            dns=service.dns,
        )
        self._check_whole(made)
        reading.check()
        return Loaded(config=made, metrics_given="metrics" in service.model_fields_set)

    def _check_whole(self, made: ServeConfig) -> None:
        reading = self._reading
        is_empty = not reading.names["models"] and not reading.names["routes"]
        if is_empty and reading.is_sure((), "models", "routes"):
            reading.wrong(
                (),
                "nothing to serve: the file has neither models nor routes",
                'such as [models.net] with target = "model.py:net", or [routes.app] with proxy = "app"',
            )
        for finding in self._checks.service(made):
            reading.wrong(finding.path, finding.what, finding.hint)

    # --- routes and what is around them

    def _front(self, fronts: Fronts, certificates: tuple[CertificateConfig, ...]) -> FrontConfig:
        routes = fronts.routes()
        self._ties(routes)
        unrouted, unrouted_by_host = fronts.unrouted()
        return FrontConfig(
            routes=routes,
            pools=Upstreams(self._reading, self._files, self._checks).pools(),
            hosts=self._hosts(),
            certificates=certificates,
            limits=self._limits,
            edits=tuple(fronts.merger.edits),
            pages=tuple(fronts.merger.pages),
            by_host=tuple(fronts.merger.by_host),
            unrouted=unrouted,
            unrouted_by_host=unrouted_by_host,
            spool=self._spool(),
        )

    def _spool(self) -> SpoolConfig:
        service = self._reading.service
        if service.spool is None:
            return SpoolConfig(max_bytes=service.spool_size)
        path: Path = ("service", "spool")
        found = self._files.absolute(service.spool, path)
        if not os.path.isdir(found):
            self._reading.wrong(path, f"{service.spool} is no folder, expected an existing one")
        elif not os.access(found, os.W_OK | os.X_OK):
            self._reading.wrong(path, f"{service.spool} can't be written: permission denied")
        return SpoolConfig(directory=found, max_bytes=service.spool_size)

    def _ties(self, routes: Sequence[RouteConfig]) -> None:
        told: set[str] = set()
        for other, name, what in self._checks.ties(routes):
            if name in told:
                continue
            told.add(name)
            if len(told) > MAX_TIES:
                break
            place = self._reading.sources.origin(("routes", other))
            self._reading.wrong(
                ("routes", name),
                f"matches the same requests as the route {other} ({place}): {what}",
                "make one of them more specific: another host, path, method, header or query",
            )

    def _hosts(self) -> tuple[HostConfig, ...]:
        """Return what is demanded at each host; what it leaves out is as at the next wider one."""
        made: dict[str, HostConfig] = {}
        hosts = self._reading.objects("hosts")
        for given in sorted(hosts, key=lambda one: (not one.startswith("*."), len(one))):
            name, path = given.lower(), ("hosts", given)
            if name in made:
                first = next(one for one in hosts if one.lower() == name)
                self._reading.wrong(
                    path, f"is the same host as {first}", "case makes no difference"
                )
            above = next((made[one] for one in wider(name) if one in made), HostConfig(host=""))
            made[name] = self._host(msgspec.structs.replace(above, host=name), hosts[given], path)
        return tuple(made.values())

    def _host(self, inherited: HostConfig, host: Host, path: Path) -> HostConfig:
        said = {name: getattr(host, name) for name in _DEMANDS if name in host.model_fields_set}
        if "client_ca" in said:
            said["client_ca"] = self._files.text(said["client_ca"], (*path, "client_ca"))
        made = msgspec.structs.replace(inherited, **said)
        if made.client_ca and "client_ca" in said:
            try:
                self._checks.host(made)
            except ConfigError as error:
                self._reading.wrong((*path, "client_ca"), error.what, error.hint)
        return made

    def _certificates(self) -> tuple[CertificateConfig, ...]:
        found = []
        for name, one in self._reading.objects("certificates").items():
            path: Path = ("certificates", name)
            chain = self._files.readable(one.chain, (*path, "chain"))
            key = self._files.readable(one.key, (*path, "key"))
            if not os.path.isfile(chain) or not os.path.isfile(key):
                continue
            try:
                found.append(self._checks.certificate(name, chain, key))
            except ConfigError as error:
                self._reading.wrong(path, error.what, error.hint)
        return tuple(found)

    # --- listeners

    def _listeners(self, fronts: Fronts) -> tuple[config.ListenerConfig, ...]:
        found: list[config.ListenerConfig] = []
        taken: dict[Address, str] = {}
        service = self._reading.service
        if "metrics" in service.model_fields_set:  # at their default they give way to a listener
            taken[service.metrics] = ""
        for name, listener in self._reading.objects("listeners").items():
            path: Path = ("listeners", name)
            address = listener.address
            if self._reading.is_sure(path, "address"):
                self._check_address(address, (*path, "address"), taken)
                taken.setdefault(address, name)
            limits = self._listener_limits(listener, path, fronts)
            made = listener.made(
                config.ListenerConfig,
                name=name,
                host=address.host,
                port=address.port,
                limits=limits,
                cors=config.CorsConfig(origins=listener.cors),
            )
            self._check_listener(made, path, fronts)
            found.append(made)
        return tuple(found)

    def _check_address(self, address: Address, path: Path, taken: Mapping[Address, str]) -> None:
        for other, name in taken.items():
            if not overlap(other, address):
                continue
            if name:
                self._reading.wrong(
                    path,
                    f"the listener {name} has this address already",
                    "" if other == address else f"it listens on {other.text()}",
                )
            else:
                self._reading.wrong(
                    path,
                    "the metrics have this address already",
                    "change metrics in [service], or switch them off there and set public_metrics = true here",
                )
            break
        what = refusal(address)
        if what:
            self._reading.wrong(path, what)

    def _listener_limits(self, listener: Any, path: Path, fronts: Fronts) -> config.Limits:
        given = listener.limits
        if isinstance(given, str):
            fronts.refer(given, self._reading.names["limits"], "limits", (*path, "limits"))
            return self._limits.get(given, config.Limits())
        return config.Limits() if given is None else given.made(config.Limits)

    def _check_listener(self, made: config.ListenerConfig, path: Path, fronts: Fronts) -> None:
        if made.tls is None:
            return
        known = self._reading.names["certificates"]
        for index, name in enumerate(made.tls.certificates):
            fronts.refer(name, known, "certificate", (*path, "tls", "certificates", index))
        if not made.tls.certificates and self._reading.is_sure((*path, "tls"), "certificates"):
            self._reading.wrong((*path, "tls"), "a listener with TLS needs a certificate")

    # --- models

    def _models(self) -> tuple[config.ModelConfig, ...]:
        found = tuple(
            self._model(name, model) for name, model in self._reading.objects("models").items()
        )
        for one in found:
            try:
                self._checks.model(one, len(found))
            except ConfigError as error:
                self._reading.wrong(("models", one.name, "device"), error.what, error.hint)
        return found

    def _model(self, name: str, model: Model) -> config.ModelConfig:
        path: Path = ("models", name)
        return config.ModelConfig(
            name=name,
            target=self._target(name, model.target, path),
            version=model.version,
            example=self._files.readable(model.example, (*path, "example")),
            weights=self._files.readable(model.weights, (*path, "weights")),
            replicas=model.replicas or 0,
            threads=model.threads or 0,
            device=model.device or "",
            max_batch=model.max_batch,
            timeout_s=model.timeout,
            queue_rows=model.queue_rows,
            memory_limit_bytes=model.memory_limit,
            nonfinite=model.nonfinite,
            start_timeout_s=model.start_timeout,
        )

    def _target(self, name: str, target: str, path: Path) -> str:
        """Return a target as a worker will find it, from the folder of the configuration file."""
        sources = self._reading.sources
        try:
            check_name(name)
        except ConfigError as error:
            self._reading.wrong(path, error.what, error.hint)
            return target
        folder = sources.owner((*path, "target")).folder
        try:
            parsed = parse_target(f"{name}={target}")
            check_target(parsed, folder)
        except ConfigError as error:
            self._reading.wrong((*path, "target"), error.what, error.hint)
            return target
        if folder == sources.base.folder or parsed.kind is TargetKind.MODULE:
            return target
        return self._files.absolute(target, (*path, "target"))

    def _access_log(self, text: str) -> str:
        if text in ("-", "off"):
            return text
        path: Path = ("service", "access_log")
        found = self._files.absolute(text, path)
        folder = os.path.dirname(found)
        if not os.path.isdir(folder):
            self._reading.wrong(path, f"{text} can't be written: its folder doesn't exist")
        elif not os.access(found if os.path.exists(found) else folder, os.W_OK):
            self._reading.wrong(path, f"{text} can't be written: permission denied")
        elif os.path.isdir(found):
            self._reading.wrong(path, f"{text} is a folder, expected a file")
        return found
