"""What the proxies under test are told: one process or thread each, keep-alive on both sides, access log to a file.

Where a server is quicker with another than its default setting, it gets that one: nginx writes its log through a buffer
and passes request bodies on as they come, haproxy logs to an inherited descriptor without waiting.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

# Workers of a root nginx would be somebody who may not read the files of this run.
USER = "user root;\n" if os.geteuid() == 0 else ""


@dataclass(frozen=True, slots=True)
class Backend:
    """What stands behind the proxies.

    Attributes:
        small: Port of the nginx origin: a small fixed answer, files of ``files``.
        live: Port of `benchmarks.origin`: takes uploads, streams, switches to WebSocket.
        files: Directory with the files that origin and web servers answer with.
        certificate: PEM file with certificate and key, for haproxy.
        chain: The certificate alone.
        key: The key alone.
    """

    small: int
    live: int
    files: Path
    certificate: Path
    chain: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Seat:
    """Where one proxy listens and may write.

    Attributes:
        port: Plain HTTP.
        tls_port: HTTPS.
        folder: Its own folder.
    """

    port: int
    tls_port: int
    folder: Path


ORIGIN = """\
{user}daemon off; pid {folder}/origin.pid; error_log {folder}/origin-error.log; worker_processes 1;
events {{ worker_connections 8192; }}
http {{
  access_log off; sendfile on; tcp_nodelay on; keepalive_requests 1000000000; default_type text/plain;
  client_body_temp_path {folder}/o1; proxy_temp_path {folder}/o2; fastcgi_temp_path {folder}/o3;
  uwsgi_temp_path {folder}/o4; scgi_temp_path {folder}/o5;
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    root {files};
    location = /small {{ return 200 "{body}"; }}
  }}
}}
"""
SMALL_BODY = "x" * 200


def origin(port: int, folder: Path, files: Path) -> str:
    """Return the configuration of the nginx that answers behind all proxies."""
    return ORIGIN.format(user=USER, port=port, folder=folder, files=files, body=SMALL_BODY)


NGINX = """\
{user}daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log; worker_processes 1;
worker_rlimit_nofile 50000;
events {{ worker_connections 20000; }}
http {{
  access_log {folder}/access.log combined buffer=32k flush=1s;
  sendfile on; tcp_nodelay on; tcp_nopush on; keepalive_requests 1000000000; keepalive_timeout 300s;
  client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
  uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
  client_max_body_size 0; default_type text/plain;
  upstream small {{ server 127.0.0.1:{small}; keepalive 128; keepalive_requests 1000000000; }}
  upstream live {{ server 127.0.0.1:{live}; keepalive 128; keepalive_requests 1000000000; }}
  map $http_upgrade $upgrade {{ default upgrade; '' ''; }}
  proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host;
  proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_read_timeout 300s;
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    listen 127.0.0.1:{tls_port} ssl backlog=4096;
    ssl_certificate {chain}; ssl_certificate_key {key};
    location /static/ {{ alias {files}/; }}
    location /live/ {{ proxy_pass http://live; proxy_request_buffering off; proxy_buffering off; }}
    location /live/ws {{
      proxy_pass http://live; proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection $upgrade; proxy_set_header Host $host;
    }}
    location / {{ proxy_pass http://small; }}
  }}
}}
"""


def nginx(seat: Seat, backend: Backend) -> str:
    """Return the configuration of nginx as a proxy."""
    return NGINX.format(
        user=USER,
        folder=seat.folder,
        port=seat.port,
        tls_port=seat.tls_port,
        small=backend.small,
        live=backend.live,
        files=backend.files,
        chain=backend.chain,
        key=backend.key,
    )


TORCHGATE = """\
[service]
gateways = 1
access_log = "{folder}/access.log"
metrics = false
[listeners.plain]
address = "127.0.0.1:{port}"
limits = "large"
[listeners.secure]
address = "127.0.0.1:{tls_port}"
tls = "one"
limits = "large"
[limits.large]
body = "1GiB"
idle_timeout = "300s"
[certificates.one]
chain = "{chain}"
key = "{key}"
[pools.small]
endpoints = ["127.0.0.1:{small}"]
[pools.live]
endpoints = ["127.0.0.1:{live}"]
limits = {{ endpoint_connections = 8000, endpoint_in_flight = 8000 }}
[routes.files]
path = "/static/*"
static = "{files}"
rewrite = {{ strip_prefix = "/static" }}
[routes.live]
path = "/live/*"
proxy = "live"
[routes.all]
path = "/*"
proxy = "small"
"""


def torchgate(seat: Seat, backend: Backend) -> str:
    """Return torchgate.toml."""
    return TORCHGATE.format(
        folder=seat.folder,
        port=seat.port,
        tls_port=seat.tls_port,
        small=backend.small,
        live=backend.live,
        files=backend.files,
        chain=backend.chain,
        key=backend.key,
    )


HAPROXY = """\
global
  nbthread 1
  maxconn 8000
  log fd@1 format raw local0 info
  tune.ssl.default-dh-param 2048
defaults
  mode http
  log global
  option httplog
  option forwardfor
  option http-keep-alive
  http-reuse always
  timeout connect 5s
  timeout client 300s
  timeout server 300s
  timeout tunnel 300s
frontend main
  bind 127.0.0.1:{port} backlog 4096
  bind 127.0.0.1:{tls_port} ssl crt {certificate} backlog 4096
  use_backend live if {{ path_beg /live/ }}
  default_backend small
backend small
  server one 127.0.0.1:{small}
backend live
  option http-no-delay
  server one 127.0.0.1:{live}
"""


def haproxy(seat: Seat, backend: Backend) -> str:
    """Return the configuration of haproxy."""
    return HAPROXY.format(
        port=seat.port,
        tls_port=seat.tls_port,
        small=backend.small,
        live=backend.live,
        certificate=backend.certificate,
    )


CADDY = """\
{{
  admin off
  auto_https off
  persist_config off
}}
http://127.0.0.1:{port} {{
  bind 127.0.0.1
  log {{
    output file {folder}/access.log
  }}
  handle_path /static/* {{
    root * {files}
    file_server
  }}
  handle /live/* {{
    reverse_proxy 127.0.0.1:{live}
  }}
  handle {{
    reverse_proxy 127.0.0.1:{small}
  }}
}}
"""


def caddy(seat: Seat, backend: Backend) -> str:
    """Return the Caddyfile."""
    return CADDY.format(
        port=seat.port,
        folder=seat.folder,
        files=backend.files,
        live=backend.live,
        small=backend.small,
    )


TRAEFIK_STATIC = """\
entryPoints:
  web:
    address: 127.0.0.1:{port}
providers:
  file:
    filename: {folder}/dynamic.yml
    watch: false
accessLog:
  filePath: {folder}/access.log
  bufferingSize: 1000
log:
  level: ERROR
global:
  checkNewVersion: false
  sendAnonymousUsage: false
"""
TRAEFIK_DYNAMIC = """\
http:
  routers:
    live: {{rule: "PathPrefix(`/live/`)", service: live, entryPoints: [web]}}
    small: {{rule: "PathPrefix(`/`)", service: small, entryPoints: [web]}}
  services:
    live: {{loadBalancer: {{servers: [{{url: "http://127.0.0.1:{live}"}}]}}}}
    small: {{loadBalancer: {{servers: [{{url: "http://127.0.0.1:{small}"}}]}}}}
"""


def traefik(seat: Seat, backend: Backend) -> tuple[str, str]:
    """Return Traefik's static configuration and the one with routes."""
    return (
        TRAEFIK_STATIC.format(port=seat.port, folder=seat.folder),
        TRAEFIK_DYNAMIC.format(live=backend.live, small=backend.small),
    )


ENVOY = """\
static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: main
          use_remote_address: true
          access_log:
          - name: envoy.access_loggers.file
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog
              path: {folder}/access.log
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - {{match: {{prefix: "/live/"}}, route: {{cluster: live, timeout: 300s}}}}
              - {{match: {{prefix: "/"}}, route: {{cluster: small, timeout: 300s}}}}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
  clusters:
  - name: small
    type: STATIC
    load_assignment: {{cluster_name: small, endpoints: [{{lb_endpoints: [{{endpoint: {{address:
      {{socket_address: {{address: 127.0.0.1, port_value: {small}}}}}}}}}]}}]}}
  - name: live
    type: STATIC
    load_assignment: {{cluster_name: live, endpoints: [{{lb_endpoints: [{{endpoint: {{address:
      {{socket_address: {{address: 127.0.0.1, port_value: {live}}}}}}}}}]}}]}}
"""


def envoy(seat: Seat, backend: Backend) -> str:
    """Return Envoy's bootstrap document."""
    return ENVOY.format(port=seat.port, folder=seat.folder, small=backend.small, live=backend.live)
